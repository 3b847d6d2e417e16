#!/bin/sh
# Runs in the guest: the kernel's NVMe host, on a disk that is served over RDMA.
#
#   nvme_host.sh connect ADDRESS PORT NQN      prints the controller, such as nvme0
#   nvme_host.sh files CONTROLLER              a file system with files, which are the same after it was mounted again
#   nvme_host.sh blocks CONTROLLER             blocks of all sizes, written and verified by fio
#   nvme_host.sh sum CONTROLLER                prints the SHA-256 of the disk
#   nvme_host.sh live CONTROLLER               waits until the controller is connected again
#   nvme_host.sh disconnect CONTROLLER
set -eu
PATH=$PATH:/usr/sbin:/sbin

main() {
    verb=$1
    shift
    case $verb in
    connect) connect "$@" ;;
    *) controller=$1 && "$verb" ;;
    esac
}

connect() {
    # The modules are in the initramfs, which is the root of process 1.
    chroot /proc/1/root modprobe -a nvme_rdma ext4
    # shellcheck disable=SC2046 # two numbers
    [ -e /dev/nvme-fabrics ] || mknod /dev/nvme-fabrics c $(awk '$2 == "nvme-fabrics" { print 10, $1 }' /proc/misc)
    before=$(ls /sys/class/nvme 2>/dev/null || true)
    options=transport=rdma,traddr=$1,trsvcid=$2,nqn=$3,hostnqn=nqn.2026-11.test:guest
    options=$options,hostid=11111111-1111-4111-8111-111111111111,nr_io_queues=1,queue_size=32
    echo "$options,keep_alive_tmo=5,reconnect_delay=1" >/dev/nvme-fabrics
    for path in /sys/class/nvme/nvme*; do
        case $before in *"${path##*/}"*) ;; *) echo "${path##*/}" ;; esac
    done
}

# The kernel finds the namespace after the controller is there.
disk() {
    name=${controller}n1
    until_true "the disk of $controller" [ -e "/sys/block/$name/dev" ]
    # shellcheck disable=SC2046 # two numbers
    [ -b "/dev/$name" ] || mknod "/dev/$name" b $(tr : ' ' <"/sys/block/$name/dev")
    echo "/dev/$name"
}

files() {
    device=$(disk)
    mount=/tmp/mounted
    mkdir -p "$mount"
    mke2fs -q -t ext4 -O ^has_journal -E lazy_itable_init=0 "$device"
    mount -t ext4 "$device" "$mount"
    cp /usr/lib/x86_64-linux-gnu/libc.so.6 "$mount/library"
    head -c 3000000 /dev/urandom >"$mount/random"
    sync
    before=$(sums)
    umount "$mount"
    echo 3 >/proc/sys/vm/drop_caches
    mount -t ext4 -o ro "$device" "$mount"
    after=$(sums)
    umount "$mount"
    [ "$before" = "$after" ] || fail "files have changed: $before $after"
}

sums() {
    (cd "$mount" && sha256sum library random)
}

blocks() {
    fio --name=verify --filename="$(disk)" --direct=1 --rw=randwrite --bsrange=4k-64k --size=4m --iodepth=8 --ioengine=libaio \
        --verify=crc32c --do_verify=1 --verify_fatal=1 --output-format=terse --minimal >/tmp/fio.log 2>&1 || fail "$(cat /tmp/fio.log)"
}

sum() {
    device=$(disk)
    echo 3 >/proc/sys/vm/drop_caches
    sha256sum <"$device"
}

live() {
    until_true "$controller to be live" grep -q live "/sys/class/nvme/$controller/state"
}

disconnect() {
    echo 1 >"/sys/class/nvme/$controller/delete_controller"
}

until_true() {
    what=$1
    shift
    end=$(($(cut -d. -f1 /proc/uptime) + 40))
    until "$@"; do
        [ "$(cut -d. -f1 /proc/uptime)" -lt "$end" ] || fail "waited 40 s for $what"
        sleep 0.1
    done
}

fail() {
    echo "$*" >&2
    dmesg | tail -15 >&2
    exit 1
}

main "$@"
