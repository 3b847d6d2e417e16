"""Runs rdma-core's tests in the current directory and writes what became of each to the file that is named.

Like their own run_tests.py, except for how results are told.
"""

import json
import multiprocessing
import sys
import unittest
from importlib.machinery import SourceFileLoader


class Results(unittest.TestResult):
    """Collects outcome and reason of every test."""

    def __init__(self):
        super().__init__()
        self.told = {}

    def tell(self, test, outcome, reason=""):
        self.told[test.id()] = (outcome, str(reason))

    def addSuccess(self, test):
        self.tell(test, "ok")

    def addSkip(self, test, reason):
        self.tell(test, "skipped", reason)

    def addFailure(self, test, err):
        self.tell(test, "failed", self._exc_info_to_string(err, test))

    def addError(self, test, err):
        self.tell(test, "error", self._exc_info_to_string(err, test))


def main():
    output = sys.argv.pop(1)
    # As it was before Python 3.14: tests hand themselves to their children.
    multiprocessing.set_start_method("fork")
    # What run_tests.py does.
    from args_parser import parser

    tests = SourceFileLoader("tests", "./__init__.py").load_module()
    parser.parse_args()
    results = Results()
    unittest.defaultTestLoader.loadTestsFromModule(tests).run(results)
    with open(output, "w", encoding="utf-8") as file:
        json.dump(results.told, file)


if __name__ == "__main__":
    main()
