#!/bin/sh
# One perftest program between two processes over loopback, in the guest; prints what the client says.
#
#   bench.sh rxe|softrnic LIBRARY-DIR PORT PROGRAM OPTION…
set -eu
kind=$1 library=$2 port=$3 program=$4
shift 4

case $kind in
rxe)
    set -- -d rxe0 -x 1 "$@"
    ;;
softrnic)
    # rxe holds the port in its network namespace.
    if [ -z "${BENCH_UNSHARED:-}" ]; then
        BENCH_UNSHARED=1 exec unshare -n "$0" "$kind" "$library" "$port" "$program" "$@"
    fi
    ip link set lo up
    export LD_LIBRARY_PATH="$library"
    set -- -d softrnic0 -x 0 "$@"
    ;;
esac

said=/tmp/bench-$port.log
"$program" -p "$port" -F "$@" >"$said" 2>&1 &
server=$!
# Both ends' words when something goes wrong.
trap '[ $? -eq 0 ] || cat "$said"; rm -f "$said"' EXIT
# The server listens before the client calls: the port in hexadecimal, state 0A.
listening=$(printf ':%04X [0-9A-F]*:0000 0A' "$port")
until grep -qs "$listening" /proc/net/tcp /proc/net/tcp6; do
    kill -0 "$server"
done
"$program" -p "$port" -F "$@" 127.0.0.1 2>&1
wait "$server"
