"""Runs the archive on old and new kernels: Debian's, each in an emulated guest with the system of its own release.

The guests are those of tools/rxe-peer. Their rxe is unloaded first, because the two cannot share a port.
"""

import re
import subprocess
import sys
from pathlib import Path

import scripts

# Behind our own directory, since there are modules of the same names.
TOOLS = Path(__file__).resolve().parents[2]
sys.path += [str(TOOLS / "tests/interop"), str(TOOLS / "tools/rxe-guest")]

import kernels  # noqa: E402
from guest import Guest  # noqa: E402

SECONDS = 300
# The release of Debian that each kernel is of.
RELEASES = kernels.SUITES
# The first version that has it, and what must be said on an older one.
SINCE = {"grant": ((6, 4), "Linux 6.4")}

# Unpacks the archive as a user of the system, in which nothing else can be written to.
SYSTEM = """
rmmod rdma_rxe
mkdir /tmp/root && mount --bind "$1" /tmp/root && cd /tmp/root
for directory in tmp run opt; do mount -t tmpfs -o mode=1777 tmpfs $directory; done
mount -t proc proc proc && mount -t sysfs sysfs sys && mount --rbind /dev dev
zstd -dc "$2" | chroot --userspec=1000:1000 . sh -ec '
    mkdir /opt/softrnic && tar -xf - -C /opt/softrnic --strip-components=1'
"""
INSIDE = ["/tmp/root", "env", "-i", "PATH=/usr/bin:/bin", "HOME=/tmp", "timeout", str(SECONDS), "sh", "-c"]
WAYS = {"user": ["chroot", "--userspec=1000:1000", *INSIDE], "root": ["chroot", *INSIDE]}


class Outcome:
    """What became of a script."""

    def __init__(self, name, version, done):
        self.name, self.output = name, done.stdout + done.stderr
        since, needed = SINCE.get(name, ((0, 0), ""))
        self.lacking = numbers(version) < since
        self.said = [line for line in self.output.splitlines() if self.lacking and needed in line]
        right = self.said and done.returncode if self.lacking else done.returncode == 0
        self.wrong = [] if right else [f"ended with {done.returncode}\n{self.output}"]

    def cell(self):
        return "**fails**" if self.wrong else "–" if self.lacking else "yes"


def run(kernel, root, archive):
    """The kernel's version, and what became of each script there; one by one."""
    with Guest(kernel, f"dist-{kernel}") as guest:
        if not guest.sees(archive) or not guest.sees(root):
            raise SystemExit(f"the guest does not see {archive} and {root}: what is below /tmp and /run is its own")
        guest.run("sh", "-ec", SYSTEM, "sh", root, archive)
        for user, chosen in (("user", scripts.USER), ("root", scripts.ROOT)):
            for name, script in chosen.items():
                command = guest.command(*WAYS[user], script)
                done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
                yield guest.version, Outcome(name, guest.version, done)


def numbers(version):
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def table(found):
    """What docs/install.md shows: kernels and outcomes, and what doctor warns of."""
    ran = {outcome.name for outcomes in found.values() for outcome in outcomes}
    names = [name for name in (*scripts.USER, *scripts.ROOT) if name in ran]
    lines = [f"| Debian | Linux | {' | '.join(names)} |", "|---" * (len(names) + 2) + "|"]
    for (suite, version), outcomes in found.items():
        lines.append(f"| {suite} | {version} | {' | '.join(outcome.cell() for outcome in outcomes)} |")
    lines.append("")
    for (_, version), outcomes in found.items():
        lines.append(f"{version}:")
        for outcome in outcomes:
            if outcome.name.startswith("doctor"):
                lines += [f"  {outcome.name}: {line}" for line in outcome.output.splitlines() if line[:4] in ("warn", "fail")]
            lines += [f"  {outcome.name}: {line}" for line in outcome.said]
    return "\n".join(lines)
