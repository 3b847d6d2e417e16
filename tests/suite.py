#!/usr/bin/env python3
"""Runs the tests of a directory, several side by side.

  tests/suite.py tests/verbs                 # all of them
  tests/suite.py tests/verbs rping ucmatose  # those whose names contain one of these words

As root, each process that runs tests has a network, processes, /run and /dev/shm of its own: the ports, addresses and
names of its tests are theirs alone, and what else runs on the machine cannot be seen. A class that prepares itself in a
setUpClass of its own may fetch and build programs, which takes the machine's network: there, one more process has it do
so first, and what it fetches must stay. Without root there is one process, on this machine as it is. A class with
`by_itself` runs before all others.

What was skipped is added to the file that SOFTRNIC_TEST_SKIPS names. Exit status: 0 all passed, 1 some did not.
"""

import argparse
import collections
import contextlib
import importlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

# How much of what is wrong with a test is said again at the end, in lines.
LAST_LINES = 40

# The commands of the processes.
PREPARE, TEST = "prepare", "test"

# Runs a command where nothing but the processors, the files and the kernel's memory is shared with others. libfabric
# wants an interface besides loopback. Open MPI names files after its process, whose number others may have as well:
# each has a TMPDIR of its own. In /tmp/softrnic-0 are the sockets of NICs without an XDG_RUNTIME_DIR (src/stats/directory.rs).
ALONE = [
    "unshare", "--net", "--pid", "--fork", "--ipc", "--mount", "--mount-proc", "--kill-child", "sh", "-ec", """
        ip link set lo up
        ip link add eth0 type veth peer name eth1
        ip address add 198.51.100.1/24 dev eth0
        ip link set eth0 up
        ip link set eth1 up
        mount -t tmpfs run /run
        mount -t tmpfs shm /dev/shm
        mkdir -p -m 700 /tmp/softrnic-0
        mount -t tmpfs -o mode=700 softrnic /tmp/softrnic-0
        exec "$@"
    """, "sh",
]  # fmt: skip


def main():
    args = parse()
    if args.outcomes:
        args.outcomes = args.outcomes.resolve()
        args.outcomes.write_text("")
    os.chdir(args.directory)
    sys.path.insert(0, os.getcwd())
    if args.results:
        return work(args.results)
    units = find(args.words)
    if not units:
        sys.exit(f"no such tests in {args.directory}")
    return Run(args, units).run()


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=pathlib.Path, help="where the files test_*.py are")
    parser.add_argument("words", nargs="*", metavar="WORD", help="only tests whose names contain one of these")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), metavar="N",
                        help="so many processes (default: %(default)s)")  # fmt: skip
    parser.add_argument("--outcomes", type=pathlib.Path, metavar="FILE",
                        help="write what became of each test to this file, a line of JSON each")  # fmt: skip
    parser.add_argument("--results", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


class Unit:
    """What one process runs in one go: a test, or a class that prepares itself."""

    def __init__(self, kind, prepares):
        self.name = f"{kind.__module__}.{kind.__qualname__}"
        self.by_itself, self.prepares, self.tests = getattr(kind, "by_itself", False), prepares, []


def find(words):
    """The units of the tests in the current directory."""
    loader = unittest.TestLoader()
    if words:
        loader.testNamePatterns = [f"*{word}*" for word in words]
    found = loader.discover(".", pattern="test_*.py")
    if loader.errors:
        sys.exit("\n".join(loader.errors))
    units, classes = [], {}
    for test in flat(found):
        kind = type(test)
        owner = next(base for base in kind.__mro__ if "setUpClass" in base.__dict__)
        if owner.__module__ != kind.__module__:
            units.append(Unit(kind, False))
        elif kind not in classes:
            classes[kind] = Unit(kind, True)
            units.append(classes[kind])
        classes.get(kind, units[-1]).tests.append(test.id())
    return units


def flat(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from flat(item)
        else:
            yield item


# In a process that runs tests.


class Results(unittest.TestResult):
    """Sends what comes of each test as a line of JSON."""

    def __init__(self, stream):
        super().__init__()
        self.stream, self.told = stream, False
        # What prepares a class counts as time of its first test.
        self.begun = time.monotonic()

    def stopTest(self, test):
        super().stopTest(test)
        if not self.told:
            self.tell(test, "ok")
        self.begun, self.told = time.monotonic(), False

    def addError(self, test, error):
        super().addError(test, error)
        self.tell(test, "ERROR", self.errors[-1][1])

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.tell(test, "FAIL", self.failures[-1][1])

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error is not None:
            self.tell(subtest, "FAIL", (self.failures + self.errors)[-1][1])

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.tell(test, "skipped", reason)

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.tell(test, "FAIL", "it should fail, and passes\n")

    def tell(self, test, outcome, text=""):
        self.told = True
        print(json.dumps([test.id(), outcome, text, time.monotonic() - self.begun]), file=self.stream, flush=True)


def work(results):
    """Runs the units that come by standard input, or has them prepare, a line each; an empty line says that it has."""
    commands = os.fdopen(os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    with os.fdopen(results, "w") as stream:
        os.set_inheritable(stream.fileno(), False)
        print(file=stream, flush=True)
        for line in commands:
            what, *names = line.split()
            if what == PREPARE:
                prepare(*names)
            else:
                unittest.defaultTestLoader.loadTestsFromNames(names).run(Results(stream))
            print(file=stream, flush=True)


def prepare(name):
    """Has a class prepare itself. What it cannot get is told where its tests run."""
    module, kind = name.rsplit(".", 1)
    kind = getattr(importlib.import_module(module), kind)
    with contextlib.suppress(Exception):
        kind.setUpClass()
        kind.tearDownClass()
    kind.doClassCleanups()


# In the one that hands them out.


class Run:
    """All units, until they have run."""

    def __init__(self, args, units):
        self.args, self.begun = args, time.monotonic()
        self.directory = os.getcwd()
        self.units, self.left = units, []
        # Those that may run, and those that have to prepare before.
        self.waiting, self.unprepared, self.changed = [], [], threading.Condition()
        self.count, self.bad, self.skipped = collections.Counter(), [], []
        self.processes = []
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.give_up)

    def give_up(self, number, _):
        """Ends the processes that run tests; a namespace of processes ends with its first."""
        for process in self.processes:
            process.kill()
        os._exit(128 + number)

    def run(self):
        apart = can_be_alone()
        for by_itself in (True, False):
            units = [unit for unit in self.units if unit.by_itself == by_itself]
            self.unprepared = [unit for unit in units if unit.prepares and apart]
            self.waiting = [unit for unit in units if unit not in self.unprepared]
            workers = min(1 if by_itself or not apart else self.args.workers, len(units))
            threads = [threading.Thread(target=self.work, args=[TEST, apart]) for _ in range(workers)]
            if self.unprepared:
                threads.append(threading.Thread(target=self.work, args=[PREPARE, False]))
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.left += self.waiting
        return self.sum_up()

    def work(self, what, alone):
        """Has a process run units, or have them prepare, until none is left for it."""
        reading, writing = os.pipe()
        argv = [sys.executable, "-B", os.path.abspath(__file__), "--results", str(writing), self.directory]
        # Short, as there are names of sockets in it.
        files = tempfile.TemporaryDirectory(prefix="s", ignore_cleanup_errors=True)
        # As /tmp: tests have programs of other users.
        os.chmod(files.name, 0o1777)
        env = {**os.environ, "TMPDIR": files.name} if alone else None
        argv = ALONE + argv if alone else argv
        process = subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, pass_fds=[writing], text=True)
        self.processes.append(process)
        os.close(writing)
        unit = None
        with os.fdopen(reading) as results:
            for line in results:
                if line.strip():
                    self.note(*json.loads(line))
                elif unit := self.next(unit, what):
                    words = [unit.name] if what == PREPARE else unit.tests
                    process.stdin.write(" ".join([what, *words]) + "\n")
                    process.stdin.flush()
                else:
                    process.stdin.close()
        status = process.wait()
        files.cleanup()
        if status:
            self.note(", ".join(unit.tests if unit else ["no test"]), "ERROR", f"its process ended with {status}\n", 0)
            if what == PREPARE:
                # The others may run all the same.
                while unit := self.next(unit, what):
                    pass

    def next(self, last, what):
        """The next unit, if there is one. What takes longest goes first: classes, as soon as they have prepared."""
        with self.changed:
            if what == PREPARE:
                if last:
                    self.unprepared.remove(last)
                    self.waiting.insert(0, last)
                    self.changed.notify_all()
                return next(iter(self.unprepared), None)
            self.changed.wait_for(lambda: self.waiting or not self.unprepared)
            return self.waiting.pop(0) if self.waiting else None

    def note(self, name, outcome, text, took):
        with self.changed:
            self.count[outcome] += 1
            if self.args.outcomes:
                with self.args.outcomes.open("a") as file:
                    file.write(json.dumps([name, outcome]) + "\n")
            if outcome == "skipped":
                self.skipped.append((name, text))
            elif outcome != "ok":
                self.bad.append((name, outcome, text))
            shown = f" {text!r}" if outcome == "skipped" else ""
            print(f"{name} ... {outcome}{shown}, {took:.1f} s", flush=True)
            if text and not shown:
                print(f"{'-' * 70}\n{text}{'-' * 70}", flush=True)

    def sum_up(self):
        print()
        for name, outcome, text in self.bad:
            print(f"{outcome}: {name}", *text.splitlines()[-LAST_LINES:], sep="\n    ")
        for unit in self.left:
            print(f"not run: {', '.join(unit.tests)}")
        with open(os.environ.get("SOFTRNIC_TEST_SKIPS", os.devnull), "a") as skips:
            skips.writelines(f"{name}: {reason}\n" for name, reason in self.skipped)
        counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.count.items()))
        print(f"{counts}, in {time.monotonic() - self.begun:.0f} s")
        return 1 if self.bad or self.left else 0


def can_be_alone():
    """Whether this user may make namespaces."""
    try:
        return subprocess.run([*ALONE, "true"], stderr=subprocess.DEVNULL).returncode == 0
    except FileNotFoundError:
        return False


if __name__ == "__main__":
    sys.exit(main())
