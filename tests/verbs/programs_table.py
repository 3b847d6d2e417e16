#!/usr/bin/env python3
"""The table of docs/programs.md, made from programs.toml and from what became of the tests.

  tests/verbs/programs_table.py OUTCOMES                 # compares the page with them
  tests/verbs/programs_table.py --update-docs OUTCOMES   # writes them into the page

OUTCOMES is a file that `tests/suite.py --outcomes` has written. A row whose tests are not all in it is left as it is.
"""

import argparse
import collections
import fnmatch
import json
import pathlib
import re
import subprocess
import sys
import tomllib
import unittest

HERE = pathlib.Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs/programs.md"
BEGIN, END = "<!-- programs: written by tests/verbs/programs_table.py --update-docs -->", "<!-- programs: end -->"
HEAD = "| program | version | command of one side | on SoftRNIC | on kernel rxe | data compared |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("outcomes", type=pathlib.Path)
    parser.add_argument("--update-docs", action="store_true")
    args = parser.parse_args()
    outcomes, names, shown = read_outcomes(args.outcomes), all_tests(), rows_of(PAGE.read_text())
    rows = {program["name"]: row(program, names, outcomes) or shown.get(program["name"], "") for program in programs()}
    if args.update_docs:
        return write(rows.values())
    wrong = [f"the page has {shown.get(name)!r}, the tests say {line!r}" for name, line in rows.items()
             if line != shown.get(name)]
    if wrong:
        sys.exit("docs/programs.md is not what the tests say (programs_table.py --update-docs):\n" + "\n".join(wrong))


def all_tests():
    """The names of the tests that there are."""
    def flat(found):
        for item in found:
            if isinstance(item, unittest.TestSuite):
                yield from flat(item)
            else:
                yield item.id()

    return list(flat(unittest.TestLoader().discover(HERE, pattern="test_*.py")))


def programs():
    return tomllib.loads((HERE / "programs.toml").read_text())["program"]


def read_outcomes(file):
    """What became of each test: the worst that was said of it."""
    told = collections.defaultdict(set)
    for line in file.read_text().splitlines():
        name, outcome = json.loads(line)
        told[name].add(outcome)
    return {name: "ok" if outcomes == {"ok"} else "skipped" if "skipped" in outcomes else "failed"
            for name, outcomes in told.items()}


def tests_of(program, names):
    """The tests of a program, by its patterns."""
    patterns = [f"test_{pattern}" for pattern in program["tests"]]
    return {pattern: fnmatch.filter(names, pattern) for pattern in patterns}


def row(program, names, outcomes):
    """The row of a program; None when some of its tests did not run."""
    tests = set().union(*tests_of(program, names).values())
    if any(outcomes.get(name, "skipped") == "skipped" for name in tests):
        return None
    passed = sum(outcomes[name] == "ok" for name in tests)
    return "| " + " | ".join([
        program["name"], version(program), f"`{program['command']}`", f"{passed} of {len(tests)}",
        program.get("rxe", "-"), program["compared"],
    ]) + " |"


def version(program):
    if "debian" in program:
        asked = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", program["debian"]], check=True,
                               capture_output=True, text=True)
        # What came from upstream: no epoch, no revision, no date.
        return re.match(r"(?:\d+:)?([\d.]*\d)", asked.stdout)[1]
    if "pypi" in program:
        requirements = (HERE / "python/requirements.txt").read_text()
        return re.search(rf"(?m)^{program['pypi']}==(\S+)", requirements)[1]
    return program["version"]


def rows_of(page):
    """The rows between the markers of the page, by the names of their programs."""
    table = page.partition(BEGIN)[2].partition(END)[0]
    rows = [line for line in table.splitlines() if line.startswith("| ") and line != HEAD]
    return {line.split(" | ")[0].removeprefix("| "): line for line in rows}


def write(rows):
    before, begin, rest = PAGE.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    table = "\n".join([HEAD, "|---" * HEAD.count(" |") + "|", *filter(None, rows)])
    PAGE.write_text(f"{before}{begin}\n\n{table}\n\n{end}{after}")


if __name__ == "__main__":
    main()
