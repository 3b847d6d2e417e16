"""Runs programs for aarch64 as if they were this machine's, by qemu-user.

The kernel is told of the emulator in a user namespace of its own (Linux 6.7), so that nothing else notices.
"""

import os
import subprocess
import tempfile
import time
from pathlib import Path

SECONDS = 1200
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", Path(__file__).resolve().parents[2] / "target"))
# That of `make aarch64`. Older ones lack options of sockets: with Debian 12's, 7.2, no device opens.
EMULATOR = TARGET / "roots/sid-aarch64/usr/bin/qemu-aarch64"
# How such a program begins. F: the emulator is opened now, and so found in any root.
FORMAT = (r":softrnic-aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
          r":\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:{emulator}:F")
REGISTER = """
read -r go
mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
printf %s "$1" >/proc/sys/fs/binfmt_misc/register
shift
exec "$@" </dev/null
"""
# Nothing of the root is changed. userxattr: whoever mounts may not set the attributes that renaming a directory needs otherwise.
SYSTEM = """
ip link set lo up
mount -t overlay -o "userxattr,lowerdir=$1,upperdir=$4/changes,workdir=$4/work" overlay "$4/root"
mount -t proc proc "$4/root/proc"
mount --rbind /dev "$4/root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$4/root/tmp"
mkdir "$4/root/opt/softrnic" && tar --zstd -xf "$2" -C "$4/root/opt/softrnic" --strip-components=1
cp "$3" "$4/root/softrnic.deb"
"""


def run(command, network=False):
    """Runs a command as root of the namespace; returns its status and output. What it has started ends with it. Without
    `network` there is loopback alone."""
    if not EMULATOR.exists():
        raise SystemExit(f"there is no {EMULATOR}: make aarch64")
    enter = ["unshare", "--user", "--mount", "--pid", "--fork", *([] if network else ["--net"]), "sh", "-ec", REGISTER, "sh",
             FORMAT.format(emulator=EMULATOR), *command]
    with subprocess.Popen(enter, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as inside:
        while os.readlink(f"/proc/{inside.pid}/ns/user") == os.readlink("/proc/self/ns/user"):
            time.sleep(0.01)
        # Users are who they are outside.
        for kind in ("uid_map", "gid_map"):
            Path(f"/proc/{inside.pid}/{kind}").write_text("0 0 65536\n")
        output, _ = inside.communicate("go\n", timeout=SECONDS)
        return inside.returncode, output


def inside(root, archive, package, script, user):
    """Runs a shell script in a root with the unpacked archive at /opt/softrnic and the package at /softrnic.deb."""
    with tempfile.TemporaryDirectory(prefix="softrnic-dist-") as directory:
        # Users go through it.
        os.chmod(directory, 0o755)
        for name in ("changes", "work", "root"):
            Path(directory, name).mkdir()
        enter = f'exec chroot --userspec={user}:{user} "$4/root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp sh -ec "$5"'
        return run(["sh", "-ec", SYSTEM + enter, "sh", root, archive, package, directory, script])
