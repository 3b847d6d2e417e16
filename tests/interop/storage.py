"""A disk of the guest's kernel, LIO over iSER (ib_isert), written and read by libiscsi on SoftRNIC."""

import dataclasses
import hashlib
import os
import subprocess
import time

from connections import LOSS
from guest import ROOT

PORT = 3260
TARGET = "iqn.2026-01.test:disk"
DISK = "/tmp/disk"  # in the guest
SIZE = (2 << 20) + 512  # more than whole commands
LOG_IN_SECONDS, COPY_SECONDS = 60, 60


@dataclasses.dataclass(frozen=True)
class Case:
    link: str
    family: int
    lossy: bool
    core: bool = False

    def __str__(self):
        return f"iSER, IPv{self.family}, {self.link}, {'lossy' if self.lossy else 'clean'}"


CASES = [
    Case("udp", 4, lossy=False, core=True),
    Case("udp", 4, lossy=True),
    Case("udp", 6, lossy=False),
    Case("xdp", 4, lossy=False),
    Case("xdp", 6, lossy=True, core=True),
]


class Failed(Exception):
    """The data went wrong, or did not come through."""


def build(directory):
    """Compile the initiator."""
    program = directory / "iscsi_copy"
    source = ROOT / "tests/interop/iscsi_copy.c"
    subprocess.run(["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", source, "-o", program, "-liscsi"], check=True)
    return program


class Disk:
    """The guest's disk. `ours` gives the start of a command line and the environment of our side for a case."""

    def __init__(self, guest, program, directory, ours):
        self.guest, self.program, self.directory, self.ours = guest, program, directory, ours
        portals = [f"{guest.address[4]}:{PORT}", f"[{guest.address[6]}]:{PORT}"]
        guest.run("sh", ROOT / "tests/interop/lio.sh", DISK, str(SIZE), TARGET, *portals)

    def run(self, case):
        """Write data, compare what the guest's kernel has, and read it back through another connection; what is wrong."""
        written, read = self.directory / "storage.written", self.directory / "storage.read"
        data = os.urandom(SIZE)
        written.write_bytes(data)
        read.write_bytes(bytes(SIZE))
        try:
            self._copy(case, "to", written)
            there = self.guest.run("sha256sum", DISK).split()[0]
            if there != hashlib.sha256(data).hexdigest():
                return "the guest has other data than was written"
            self._copy(case, "from", read)
            return "" if read.read_bytes() == data else "other data came back than was written"
        except (Failed, RuntimeError, subprocess.TimeoutExpired) as problem:
            return str(problem)
        finally:
            written.unlink()
            read.unlink()

    def _copy(self, case, direction, path):
        host = self.guest.address[case.family]
        url = f"iser://{f'[{host}]' if case.family == 6 else host}:{PORT}/{TARGET}/0"
        initiator = f"iqn.2026-01.test:{direction}"
        command, env = self.ours(case)
        process = subprocess.Popen(
            [*command, self.program, initiator, direction, url, path],
            env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        try:
            self._await_session(process, initiator)
            said, _ = process.communicate("\n", timeout=COPY_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            said, _ = process.communicate()
            raise Failed(f"copying {direction} the disk does not end: {_end(said)}") from None
        finally:
            process.kill()
            process.wait()
        if process.returncode != 0:
            raise Failed(f"copying {direction} the disk ended with {process.returncode}: {_end(said)}")

    def _await_session(self, process, initiator):
        """Wait until the target counts the session.

        LIO answers the log-in before; a command that comes in between makes it follow a null pointer
        (isert_recv_done, target_complete_cmd_with_sense).
        """
        sessions = f"/sys/kernel/config/target/iscsi/{TARGET}/tpgt_1/dynamic_sessions"
        deadline = time.monotonic() + LOG_IN_SECONDS
        while time.monotonic() < deadline and process.poll() is None:
            if initiator in self.guest.run("cat", sessions):
                return
        process.kill()
        said, _ = process.communicate()
        raise Failed(f"no session: {_end(said)}")


def faults(case):
    """What happens to our side's packets."""
    return [LOSS] if case.lossy else []


def _end(said):
    return " | ".join(said.split("\n")[-8:]).strip()
