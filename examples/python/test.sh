#!/usr/bin/env bash
# Runs both ends over a network that loses packets, the same ones each time. Captures stay if it fails.
#
#   FAULTS=… ./test.sh          other faults (softrnic run --help)
set -euo pipefail
cd "$(dirname "$0")"
captures=${CAPTURES:-captures}
mkdir -p "$captures"
python=${PYTHON:-python3}
run=(timeout 60 softrnic run --fault "${FAULTS:-seed=7,drop=2%,dup=1%,reorder=1%}")

# The server prints its port when it listens.
exec 3< <(exec "${run[@]}" --pcap "$captures/server.pcapng" -- "$python" pingpong.py)
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT
read -r port <&3
"${run[@]}" --pcap "$captures/client.pcapng" -- "$python" pingpong.py 127.0.0.1 "$port"
wait "$server"
rm -r "$captures"
