"""Runs the archive on a kernel of another architecture: Debian's, on an emulated machine with nothing but memory.

Its whole system is the initial RAM disk, so no driver is needed but that of the console.
"""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import scripts
from guests import Outcome, kernels

SECONDS = 900
ARCHITECTURE, EMULATOR = "arm64", ["qemu-system-aarch64", "-M", "virt", "-cpu", "cortex-a72"]
# What an interface of the lab needs, in the order of loading.
MODULES = ["llc", "stp", "bridge", "veth", "garp", "mrp", "8021q"]
CHOSEN = {name: (1000, script) for name, script in scripts.USER.items()} | {
    name: (0, scripts.ROOT[name]) for name in ("xdp", "grant")}  # fmt: skip
# Without insmod: finit_module of aarch64.
LOAD = 'my $none = ""; for (@ARGV) { open(my $f, "<", $_) or die; syscall(273, fileno($f), $none, 0) == 0 or die "$_: $!" }'
INIT = f"""#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp
mount -t proc proc /proc && mount -t sysfs sysfs /sys && mount -t devtmpfs dev /dev && mount -t bpf bpf /sys/fs/bpf
mkdir /dev/shm && mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t tmpfs -o mode=1777 tmpfs /tmp && mount -t tmpfs tmpfs /run
perl -e '{LOAD}' {" ".join(f"/modules/{name}.ko" for name in MODULES)}
ip link set lo up
echo "@@ kernel $(uname -r)"
for script in /scripts/*; do
    user=${{script##*/}} && user=${{user%-*}}
    echo "@@ begin ${{script##*-}}"
    setpriv --reuid "$user" --regid "$user" --clear-groups env -i PATH=/usr/bin:/bin HOME=/tmp \\
        timeout 300 sh -c "$(cat "$script")" </dev/null 2>&1
    echo "@@ end $?"
    rm -rf /tmp/*
done
echo o >/proc/sysrq-trigger
sleep 60
"""


def run(suite, root, archive):
    """The version of the suite's kernel, and what became of each script there."""
    if not shutil.which(EMULATOR[0]):
        raise SystemExit(f"there is no {EMULATOR[0]}: tools/setup dist")
    with tempfile.TemporaryDirectory(prefix="softrnic-dist-") as directory:
        directory = Path(directory)
        image, modules = _kernel(suite, directory)
        disk = _disk(root, archive, modules, directory)
        words = ["-smp", "1", "-m", "2500", "-nic", "none", "-nographic", "-no-reboot", "-kernel", image, "-initrd", disk]
        # A panic ends the emulator.
        words += ["-append", "console=ttyAMA0 quiet panic=-1 rdinit=/init"]
        said = subprocess.run([*EMULATOR, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS)
    console = said.stdout.replace("\r", "")
    version = re.search(r"^@@ kernel (\S+)", console, re.M)
    if not version:
        raise SystemExit(f"the machine has not started:\n{console}{said.stderr}")
    outcomes = {int(n): (output, int(status)) for n, output, status in
                re.findall(r"^@@ begin (\d+)\n(.*?)^@@ end (\d+)$", console, re.M | re.S)}  # fmt: skip
    for number, name in enumerate(CHOSEN):
        output, status = outcomes.get(number, (console, "nothing"))
        yield version[1], Outcome(name, version[1], subprocess.CompletedProcess(name, status, output, ""))


def _kernel(suite, directory):
    """The suite's kernel, and where its modules are."""
    archive = kernels.Archive(suite, directory / "apt", ARCHITECTURE)
    archive.update()
    for package in archive.download(archive.kernel_packages(), directory):
        subprocess.run(["dpkg", "-x", package, directory / "kernel"], check=True)
    (image,) = (directory / "kernel/boot").glob("vmlinuz-*")
    return image, directory / "kernel"


def _disk(root, archive, modules, directory):
    """The RAM disk: the system, the archive at /opt/softrnic, the modules and the scripts."""
    system = directory / "system"
    shutil.copytree(root, system, symlinks=True, ignore=shutil.ignore_patterns("doc", "locale", "man", "apt", "dev"))
    for name in ("modules", "scripts", "dev", "opt/softrnic"):
        (system / name).mkdir()
    subprocess.run(["tar", "--zstd", "-xf", archive, "-C", system / "opt/softrnic", "--strip-components=1"], check=True)
    for name in MODULES:
        (module,) = modules.glob(f"**/{name}.ko")
        shutil.copy(module, system / "modules")
    for number, (user, script) in enumerate(CHOSEN.values()):
        (system / f"scripts/{user}-{number}").write_text(script)
    (system / "init").write_text(INIT)
    (system / "init").chmod(0o755)
    disk = directory / "disk"
    subprocess.run(["sh", "-ec", 'cd "$1" && find . | cpio --quiet -o -H newc | zstd -q -T0 -o "$2"', "sh", system, disk], check=True)
    return disk
