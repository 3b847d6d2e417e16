#!/bin/sh
# Runs in the guest: takes an interface down and up while a program watches the port of the device on it, and prints what it says.
#
#   ports_in_guest.sh PROGRAM DEVICE INTERFACE
set -eu
log=/tmp/ports.log

said() {
    end=$(($(cut -d. -f1 /proc/uptime) + 20))
    until grep -q "$1" "$log"; do
        [ "$(cut -d. -f1 /proc/uptime)" -lt "$end" ] || break
        sleep 0.2
    done
}

ip link set "$3" up
addresses=$(ip -6 -o addr show dev "$3" scope global | sed 's/.*inet6 \([^ ]*\) .*/\1/')
"$1" "$2" >"$log" 2>&1 &
watcher=$!
said begin
ip link set "$3" down
said "context 0: port error"
ip link set "$3" up
said "context 0: port active"
kill "$watcher"
cat "$log"
# Linux forgets the IPv6 addresses of an interface that goes down.
for address in $addresses; do
    ip addr add "$address" dev "$3"
done
