"""What `softrnic explain` says of runs in which nothing goes wrong: nothing. A slice of `tools/clean-captures`."""

import importlib.machinery
import importlib.util
import os
import pathlib
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools/clean-captures"
# How often each program is run.
RUNS = int(os.environ.get("SOFTRNIC_CLEAN_RUNS", "2"))


def load():
    loader = importlib.machinery.SourceFileLoader("clean_captures", str(TOOL))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


class CleanRuns(unittest.TestCase):
    def check(self, link_name, programs):
        tool = load()
        with tool.LINKS[link_name]() as link:
            for name in programs:
                for _ in range(RUNS):
                    faults, captures = tool.one(link, name)
                    # A process that gets no processor for 100 ms has its peer repeat itself: then that run was not clean.
                    for _ in range(3):
                        if set(faults) == {"cm-repeated"}:
                            faults, captures = tool.one(link, name)
                    self.assertFalse(faults, f"{name} over {link_name}, {captures} captures")

    def test_through_sockets(self):
        self.check("udp", ["write", "read", "rping", "demo"])

    def test_through_shared_memory(self):
        self.check("shm", ["write", "read", "mpich", "rping", "demo"])
