"""What starting a program with `softrnic run` costs, and how large what is run is."""

import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from programs import PATIENCE, Failure, environment

PROGRAM = "ibv_devinfo"


class Startup:
    """`ibv_devinfo`, which lists devices, opens each, asks it and ends; with SoftRNIC and without it."""

    def __init__(self, softrnic, libraries):
        self.softrnic = softrnic
        self.files = [softrnic, libraries / "libibverbs.so.1", softrnic.parent / "libsoftrnic_interpose.so"]

    def milliseconds(self, rounds):
        """Medians, taken in turns: of the program alone, and of what SoftRNIC adds."""
        alone, added = [], []
        self.ours(), self.bare()
        for _ in range(rounds):
            bare = self.bare()
            alone.append(bare)
            added.append(self.ours() - bare)
        return {"alone": statistics.median(alone), "added": statistics.median(added)}

    def ours(self):
        return timed([self.softrnic, "run", "--device", "udp", "--", PROGRAM], {0})

    def bare(self):
        # It says so when it finds no device.
        return timed([PROGRAM], {0, 1, 255})

    def megabytes(self):
        """What of the command and the libraries is loaded, without symbols for debuggers."""
        return sum(map(stripped, self.files)) / 1e6


def timed(words, expected):
    began = time.monotonic()
    done = subprocess.run(list(map(str, words)), env=environment(None), capture_output=True, text=True, timeout=PATIENCE)
    took = time.monotonic() - began
    if done.returncode not in expected:
        raise Failure(f"$ {' '.join(map(str, words))}\n{done.stdout}{done.stderr}(ended with {done.returncode})")
    return took * 1000


def stripped(file):
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / "stripped"
        subprocess.run(["strip", "--strip-unneeded", "-o", copy, file], check=True)
        return os.path.getsize(copy)
