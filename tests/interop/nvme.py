"""NVMe over RDMA: `nvmeof` of PyPI on SoftRNIC writes a disk of the guest's kernel, and the guest's kernel one of
examples/nvmf-target on SoftRNIC."""

import contextlib
import dataclasses
import hashlib
import subprocess
import sys

from connections import LOSS
from guest import ROOT

sys.path.append(str(ROOT / "tests/verbs"))
import packages  # noqa: E402

PORT = 4420
NQN = "nqn.2026-11.test:disk"
DISK = "/tmp/nvme-disk"  # in the guest
SIZE = 2 << 20
SERVED = 32 << 20  # of ours
SECONDS = 90
HOST = ROOT / "tests/verbs/python/nvme.py"
GUEST_HOST = ROOT / "tests/interop/nvme_host.sh"


@dataclasses.dataclass(frozen=True)
class Case:
    guest_serves: bool
    link: str
    family: int
    lossy: bool
    core: bool = False
    restart: bool = False
    # Nothing passes for 3 s, of the 5 s that the kernel lets a controller be silent.
    dark: bool = False

    def __str__(self):
        wire = "lossy" if self.lossy else "clean"
        return f"NVMe, the guest is {'target' if self.guest_serves else 'host'}, IPv{self.family}, {self.link}, {wire}"


CASES = [
    Case(True, "udp", 4, lossy=False),
    Case(True, "udp", 4, lossy=True, core=True),
    Case(True, "udp", 6, lossy=False),
    Case(True, "xdp", 4, lossy=False),
    Case(True, "xdp", 6, lossy=True, core=True),
    Case(False, "udp", 4, lossy=False, core=True, restart=True, dark=True),
    Case(False, "udp", 6, lossy=True),
    Case(False, "xdp", 4, lossy=True, core=True),
]


class Failed(Exception):
    """The data went wrong, or did not come through."""


class Disks:
    """A disk on each side. `ours` gives the start of a command line and the environment of our side for a case, and
    `target` the program that serves ours."""

    def __init__(self, guest, target, directory, ours):
        self.guest, self.target, self.directory, self.ours = guest, target, directory, ours
        self.served = False

    def run(self, case):
        """What is wrong."""
        try:
            (self._write_the_guests if case.guest_serves else self._serve_the_guest)(case)
        except (Failed, RuntimeError, subprocess.TimeoutExpired) as problem:
            return str(problem)
        return ""

    def _write_the_guests(self, case):
        if not self.served:
            addresses = [self.guest.address[4], self.guest.address[6]]
            self.guest.run("sh", ROOT / "tests/interop/nvmet.sh", DISK, SIZE, NQN, PORT, *addresses)
            self.served = True
        seed = str(CASES.index(case))
        written = self._host(case, "write", seed)
        there = self.guest.run("sha256sum", DISK).split()[0]
        if there not in written:
            raise Failed(f"the guest has other data than was written: {there}, {written}")
        self._host(case, "verify", seed)

    def _host(self, case, verb, seed):
        command, env = self.ours(case)
        env = {**env, "PYTHONPATH": str(packages.python())}
        argv = [*command, "/usr/bin/python3", "-B", HOST, verb, self.guest.address[case.family], PORT, NQN, seed,
                self.guest.near_address[case.family]]
        done = subprocess.run(list(map(str, argv)), env=env, capture_output=True, text=True, timeout=SECONDS)
        if done.returncode != 0 or "all right" not in done.stdout:
            raise Failed(f"to {verb} the disk ended with {done.returncode}: {done.stdout[-500:]}{done.stderr[-500:]}")
        return done.stdout

    def _serve_the_guest(self, case):
        file = self.directory / "nvme.disk"
        file.write_bytes(bytes(SERVED))
        with contextlib.ExitStack() as ends:
            ends.callback(file.unlink)
            target = self._start(case, file, ends)
            ends.push(lambda *error: self._tell(target, *error))
            controller = self._guest("connect", self.guest.near_address[case.family], PORT, NQN).strip()
            ends.callback(self._guest, "disconnect", controller)
            self._guest("files", controller)
            if case.restart:
                target.kill()
                target.wait()
                self._start(case, file, ends)
                self._guest("live", controller)
            if case.dark:
                self._darken(case)
            self._guest("blocks", controller)
            there, here = self._guest("sum", controller).split()[0], hashlib.sha256(file.read_bytes()).hexdigest()
            if there != here:
                raise Failed(f"the guest's disk has the SHA-256 {there}, and the file {here}")

    def _start(self, case, file, ends):
        """The target, once it listens."""
        command, env = self.ours(case)
        # It has its NIC in itself.
        program = [*command[: command.index("exec") + 2], str(self.target), "--port", str(PORT), "--nqn", NQN, str(file)]
        process = subprocess.Popen(program, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        ends.callback(process.stdout.close)
        ends.callback(process.wait)
        ends.callback(process.kill)
        said = ""
        while "blocks of" not in said:
            if not (line := process.stdout.readline()):
                raise Failed(f"the target ended with {process.wait()}: {said}")
            said += line
        return process

    def _darken(self, case):
        command, env = self.ours(case)
        link = [*command[: command.index("exec") + 3], "link", "all", "blackhole", "for=3s"]
        subprocess.run(link, env=env, check=True, capture_output=True, timeout=SECONDS)

    def _tell(self, target, kind, error, _):
        """Adds what the target said to an error."""
        if error:
            target.kill()
            raise Failed(f"{error}; the target: {target.stdout.read()}") from error

    def _guest(self, verb, *arguments):
        return self.guest.run("sh", GUEST_HOST, verb, *arguments, timeout=SECONDS)


def faults(case):
    """What happens to our side's packets."""
    return [LOSS] if case.lossy else []
