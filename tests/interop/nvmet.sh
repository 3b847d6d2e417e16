#!/bin/sh
# Runs in the guest: makes a file a disk of the kernel's NVMe target, to be had over RDMA.
# nvmet.sh FILE BYTES NQN PORT ADDRESS…
set -eu

file=$1 bytes=$2 nqn=$3 service=$4
shift 4

# The modules are in the initramfs, which is the root of process 1.
chroot /proc/1/root modprobe -a nvmet nvmet_rdma
mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config

truncate -s "$bytes" "$file"
subsystem=/sys/kernel/config/nvmet/subsystems/$nqn
mkdir -p "$subsystem/namespaces/1"
echo 1 >"$subsystem/attr_allow_any_host"
# The file is on a tmpfs, which has no direct I/O.
echo "$file" >"$subsystem/namespaces/1/device_path"
echo 1 >"$subsystem/namespaces/1/buffered_io"
echo 1 >"$subsystem/namespaces/1/enable"
number=1
for address in "$@"; do
    port=/sys/kernel/config/nvmet/ports/$number
    mkdir "$port"
    case $address in *:*) family=ipv6 ;; *) family=ipv4 ;; esac
    echo rdma >"$port/addr_trtype"
    echo "$family" >"$port/addr_adrfam"
    echo "$address" >"$port/addr_traddr"
    echo "$service" >"$port/addr_trsvcid"
    ln -s "$subsystem" "$port/subsystems/$nqn"
    number=$((number + 1))
done
