#!/bin/sh
# Runs in the guest: makes a file a disk of the kernel's iSCSI target (LIO), to be had by iSER.
# lio.sh FILE BYTES TARGET ADDRESS:PORT…
set -eu

file=$1 bytes=$2 target=$3
shift 3

# The modules are in the initramfs, which is the root of process 1.
chroot /proc/1/root modprobe -a target_core_file ib_isert
mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config

truncate -s "$bytes" "$file"
disk=/sys/kernel/config/target/core/fileio_0/disk
mkdir -p "$disk"
echo "fd_dev_name=$file,fd_dev_size=$bytes" >"$disk/control"
echo 1 >"$disk/enable"

# One portal group, open to every initiator.
group=/sys/kernel/config/target/iscsi/$target/tpgt_1
mkdir -p "$group/lun/lun_0"
ln -s "$disk" "$group/lun/lun_0/disk"
echo 0 >"$group/attrib/authentication"
echo 1 >"$group/attrib/generate_node_acls"
echo 0 >"$group/attrib/demo_mode_write_protect"
# libiscsi 1.19 announces immediate data but sends none over iSER. What it gives for the RDMA READ is all data.
echo No >"$group/param/ImmediateData"
for portal in "$@"; do
    mkdir "$group/np/$portal"
    echo 1 >"$group/np/$portal/iser"
done
echo 1 >"$group/enable"
