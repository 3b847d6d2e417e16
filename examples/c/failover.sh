#!/usr/bin/env bash
# Moves data over two rails while either fails at either end, at times that a seed decides.
#
#   ./failover.sh [RUNS [SEED]]
set -euo pipefail
cd "$(dirname "$0")"
runs=${1:-3} seed=${2:-$RANDOM}

# Four failures into $faults: a port that is down, one that hears nothing, and one of which nothing arrives. A subshell would have
# random numbers of its own.
failures() {
    local kinds=(down drop:dir=rx drop:dir=tx) _
    faults="seed=$RANDOM"
    for _ in 1 2 3 4; do
        faults+=",${kinds[RANDOM % 3]}:device=rail$((RANDOM % 2)):after=$((RANDOM % 1000))ms:for=$((20 + RANDOM % 300))ms"
    done
}

for ((run = 0; run < runs; run++)); do
    RANDOM=$((seed + run))
    failures
    receiver_faults=$faults
    failures
    sender_faults=$faults
    echo "seed $((seed + run)): receiver $receiver_faults, sender $sender_faults"
    export SOFTRNIC_LOG=off
    with=(timeout 60 softrnic run --device 'rail[0-1]=udp')
    exec 3< <(exec "${with[@]}" --fault "$receiver_faults" -- ./failover)
    receiver=$!
    trap 'kill "$receiver" 2>/dev/null || true' EXIT
    read -r port <&3
    "${with[@]}" --fault "$sender_faults" -- ./failover 127.0.0.1 "$port" 1.2
    cat <&3
    wait "$receiver"
done
