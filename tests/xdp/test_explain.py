"""What `softrnic explain` says of runs over AF_XDP in which nothing goes wrong: nothing."""

import importlib.machinery
import importlib.util
import unittest

from lab import ROOT


class CleanRuns(unittest.TestCase):
    def test_captures_of_clean_runs_have_no_fault(self):
        loader = importlib.machinery.SourceFileLoader("clean_captures", str(ROOT / "tools/clean-captures"))
        tool = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
        loader.exec_module(tool)
        with tool.LINKS["xdp"]() as link:
            for name in ("write", "read", "rping", "demo"):
                faults, captures = tool.one(link, name)
                self.assertFalse(faults, f"{name}: {captures} captures")
