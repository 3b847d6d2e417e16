"""The command `tools/interop`."""

import argparse
import collections
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import agent
import capture
import connections
import drill
import errors
import in_path
import inside
import matrix
import nvme
import ports
import programs
import report
import sharing
import storage
import userland
from agent import Lost, Refused
from bench import Bench
from ends import End, Pair
from guest import ROOT, Guest
from sides import Far, Near, build_library
from wire import Wire

SUMMARY = "SoftRNIC against Linux kernel rxe, in guests; ARGS as tools/interop --help says"
KERNELS = ["6.1", "sid"]
PARTS = ["matrix", "errors", "programs", "connections", "sharing", "inside", "drill", "ports", "path", "storage", "nvme", "bench"]
SEED = 7


def main():
    args = _parse()
    if args.summary:
        print(SUMMARY)
        return 0
    if os.geteuid() != 0:
        print("interop: network namespaces, taps and AF_XDP need root: run this with sudo", file=sys.stderr)
        return 2
    if missing := capture.missing():
        print(f"interop: not found: {', '.join(missing)} (tools/setup interop)", file=sys.stderr)
        return 2
    # So that guests and agents are ended when we are.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda n, _: sys.exit(128 + n))
    try:
        run = Interop(args)
        for kernel in args.kernels:
            name, _, extent = kernel.partition(":")
            run.kernel(name, core=extent == "core")
        return run.end()
    except KeyboardInterrupt:
        return 130


def _parse():
    parser = argparse.ArgumentParser(prog="interop", description=__doc__)
    parser.add_argument("kernels", nargs="*", default=KERNELS, metavar="KERNEL[:core]",
                        help=f"guest kernels, of {', '.join(userland.kernels.SUITES)}; with :core a part of every "
                        f"test (default: {' '.join(KERNELS)})")  # fmt: skip
    parser.add_argument("--parts", default=",".join(PARTS), help="of %(default)s")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT",
                        help="only cells, cases and programs whose name has this in it; may be repeated")  # fmt: skip
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "target/interop", metavar="DIR",
                        help="for captures and logs (default: %(default)s)")  # fmt: skip
    parser.add_argument("--seed", type=int, default=SEED, help="of the faults (default: %(default)s)")
    parser.add_argument("--library", type=pathlib.Path, metavar="DIR",
                        help="where our libibverbs.so.1 is, if it is not to be built")  # fmt: skip
    parser.add_argument("--keep", action="store_true", help="keep the captures of what passed, too")
    parser.add_argument("--packets", action="store_true", help="show what each error case put on the wire")
    parser.add_argument("--update-docs", action="store_true", help="write the table into docs/interop.md")
    parser.add_argument("--summary", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.parts = args.parts.split(",")
    for part in args.parts:
        if part not in PARTS:
            parser.error(f"no part called {part}; there are {', '.join(PARTS)}")
    for kernel in args.kernels:
        name, colon, extent = kernel.partition(":")
        if name not in userland.kernels.SUITES or (colon and extent != "core"):
            parser.error(f"no kernel called {kernel}")
    return args


class Interop:
    """A run of the command: what it was asked for, and what it found."""

    def __init__(self, args):
        self.args, self.out = args, args.out.resolve()
        shutil.rmtree(self.out / "failed", ignore_errors=True)
        self.out.mkdir(parents=True, exist_ok=True)
        self.table = report.Table()
        self.failures, self.passed = [], collections.Counter()
        # Guests that failed by themselves.
        self.lost = 0
        self.begun = time.monotonic()
        self.library = args.library.resolve() if args.library else build_library()
        self.program = agent.build(self.out, self.library.parent / "softrnic")

    def kernel(self, kernel, core):
        """Everything that was asked for, against one kernel."""
        print(f"== kernel {kernel}{', the core' if core else ''}", flush=True)
        with Guest(kernel, f"interop-{kernel}") as guest:
            near = Near(guest, self.program, self.library, self.out)
            print(f"guest: Linux {guest.version}", flush=True)
            if not guest.sees(self.program):
                raise RuntimeError(f"the guest has directories of its own instead of that of {self.program}; see --out")
            with Far(guest, self.program, self.out, userland.wrapper(kernel)) as far:
                if "matrix" in self.args.parts:
                    self._matrix(guest, near, far, core)
                if "errors" in self.args.parts:
                    self._errors(kernel, guest, near, far, core)
            if "programs" in self.args.parts:
                self._programs(guest, near, core)
            if "connections" in self.args.parts:
                self._connections(kernel, guest, near, core)
            if "sharing" in self.args.parts:
                self._sharing(guest, near, core)
            if "inside" in self.args.parts:
                self._inside(guest)
            if "drill" in self.args.parts:
                self._drill(kernel, guest, core)
            if "ports" in self.args.parts:
                self._ports(guest)
            if "path" in self.args.parts:
                self._path(kernel, guest)
            if "storage" in self.args.parts:
                self._storage(guest, near, core)
            if "nvme" in self.args.parts:
                self._nvme(guest, near, core)
            if "bench" in self.args.parts and not core and not self.args.only:
                self._bench(guest)
            if problem := guest.clock_problem():
                self._fail(f"Linux {guest.version}: its clock", problem)

    def end(self):
        """Print what came of it; the exit status."""
        if "matrix" in self.args.parts:
            text = self.table.markdown()
            print(f"\n{text}")
            if self.args.update_docs:
                report.update(ROOT / "docs/interop.md", text)
        for what, why in self.failures:
            print(f"FAIL {what}: {why}")
        passed = ", ".join(f"{count} {what}" for what, count in self.passed.items()) or "nothing"
        lost = f" guests lost: {self.lost};" if self.lost else ""
        print(f"passed: {passed}; failed: {len(self.failures)};{lost} {time.monotonic() - self.begun:.0f} s")
        return 1 if self.failures or not self.passed else 0

    def _wanted(self, name):
        return all(text in str(name) for text in self.args.only)

    def _fail(self, what, why):
        self.failures.append((what, why))
        print(f"FAIL {what}: {why}", flush=True)

    def _matrix(self, guest, near, far, core):
        for column in matrix.columns():
            cells = [cell for cell in matrix.cells(column, core) if self._wanted(cell)]
            if not cells:
                continue
            begun = time.monotonic()
            name = f"{guest.version}-{column}".replace(", ", "-")
            faults = matrix.FAULTS.format(seed=self.args.seed) if column.lossy else None

            def start(attempt):
                return near.start(f"{name}.{attempt}", column.link, column.family, faults)

            run = matrix.Run(column, start, far)
            results = []
            with contextlib.closing(run(cells)) as running:
                for result in running:
                    results.append(result)
                    self.table.add(guest.version, result)
                    if result.outcome == "fail" and result.begun:
                        self._fail(f"Linux {guest.version}: {result.cell}", result.why)
            counts = collections.Counter(result.outcome for result in results)
            self.passed["cells"] += counts["pass"]
            self._captures(name, run.starts, [result for result in results if result.outcome == "fail" and result.begun])
            if run.given_up:
                self._give_up(name, guest, far, sum(result.why == "not tried" for result in results))
            print(f"{column}: {counts['pass']} pass, {counts['fail']} fail, {counts['no']} not supported; "
                  f"{time.monotonic() - begun:.1f} s", flush=True)  # fmt: skip

    def _bench(self, guest):
        try:
            print(Bench(guest, self.library).run(), flush=True)
            self.passed["benches"] += 1
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            self._fail(f"Linux {guest.version}: bench", error)

    def _give_up(self, name, guest, far, untried):
        """Go on with another guest."""
        where = self._replace(guest, name)
        self._fail(f"{name}", f"the ends could not be connected any more, {untried} cells not tried; see {where}")
        far.restart()

    def _replace(self, guest, name):
        """Another guest instead of one that may not work any more; where that is what it had to say."""
        (self.out / "failed").mkdir(exist_ok=True)
        where = self.out / f"failed/{name}-guest.txt"
        where.write_text(guest.condition())
        guest.renew()
        return where

    def _captures(self, name, starts, failed=()):
        """Ask tshark about each capture, keep the parts that belong to failures, and remove the rest."""
        for attempt in range(starts):
            path = self.out / f"{name}.{attempt}.pcapng"
            if not path.exists():
                continue
            complaints = capture.complaints(path)
            for complaint in complaints:
                self._fail(f"tshark on {path.name}", complaint)
            for result in failed:
                (self.out / "failed").mkdir(exist_ok=True)
                cell = str(result.cell).replace(", ", "-").replace(" ", "_")
                capture.cut(path, result.begun, result.ended, self.out / f"failed/{name}.{attempt}-{cell}.pcapng")
            if not complaints and not self.args.keep:
                path.unlink()

    def _errors(self, kernel, guest, near, far, core):
        with Wire(guest) as wire:
            with self._pair(guest, near, far, 0) as pair:
                self._cases("we initiate", guest, errors.run(pair, wire, pair.near, kernel, ("SoftRNIC", "rxe")))
                self._cases("they initiate", guest, errors.run(pair, wire, pair.far, kernel, ("rxe", "SoftRNIC")))
                self._cases("they initiate", guest, errors.run_killed(pair, wire, pair.far))
            with self._pair(guest, near, far, 1) as pair:
                self._cases("we initiate", guest, errors.run_killed(pair, wire, pair.near))
            far.restart()
            self._captures(f"{guest.version}-errors", 2)
            if not core:
                # What rxe gives rxe: the same cases between two guests.
                with (
                    Guest(kernel, f"{guest.name}-b", guest.name) as other,
                    Far(other, self.program, self.out, far.wrapper) as second,
                ):
                    pair = Pair(second.end(4), far.end(4))
                    self._cases("rxe to rxe", guest, errors.run(pair, wire, pair.near, kernel, ("rxe", "rxe")))

    @contextlib.contextmanager
    def _pair(self, guest, near, far, attempt):
        """Our side and the peer's; ours sends one packet a frame, so that the wire is easily read."""
        with near.start(f"{guest.version}-errors.{attempt}", "udp", 4, options="?segmentation=off") as ours:
            yield Pair(End(ours, 0, guest.near_address[4]), far.end(4))

    def _cases(self, who, guest, outcomes):
        before = len(self.failures), self.passed["error cases"]
        try:
            for case, outcome, expected, packets in outcomes:
                if not self._wanted(case.name):
                    continue
                if self.args.packets:
                    print(f"{case.name}, {who}: {outcome}", *packets, sep="\n    ")
                if outcome == expected:
                    self.passed["error cases"] += 1
                else:
                    self._fail(f"Linux {guest.version}: {case.name}, {who}", f"{outcome} instead of {expected}")
        except (Lost, Refused) as error:
            self._fail(f"Linux {guest.version}: error cases, {who}", error)
        failed, passed = len(self.failures) - before[0], self.passed["error cases"] - before[1]
        print(f"errors, {who}: {passed} pass, {failed} fail", flush=True)

    def _programs(self, guest, near, core):
        begun, before, passed = time.monotonic(), len(self.failures), self.passed["programs"]
        # The link that has the address only, then the one that has the whole interface.
        for link, gid_index, part in (("udp", 0, core), ("xdp", 1, True)):
            prefix = ["ip", "netns", "exec", guest.namespace]
            env = near.environment(link, 4)
            ours = programs.Side("our side", prefix, env, guest.near_address[4], gid_index, "softrnic0")
            ours.counters = [near.library.parent / "softrnic", "stats"]
            theirs = programs.Side("the guest", guest.command(), None, guest.address[4], 1, "rxe0")
            for outcome in programs.run(ours, theirs, part, self._wanted):
                if outcome.problem:
                    self._fail(f"Linux {guest.version}: {outcome}, {link}", outcome.problem)
                else:
                    self.passed["programs"] += 1
        passed, failed = self.passed["programs"] - passed, len(self.failures) - before
        print(f"programs: {passed} pass, {failed} fail; {time.monotonic() - begun:.1f} s", flush=True)

    def _connections(self, kernel, guest, near, core):
        begun, before, passed = time.monotonic(), len(self.failures), self.passed["connections"]
        for link, part in (("udp", core), ("xdp", True)):

            def ours(family, faults, link=link):
                command, env = self._softrnic(guest, near, "connections", link, family, faults)
                return connections.Near("our side", command, env, guest.near_address[family])

            def theirs(family):
                return connections.Far("the guest", guest.command(), None, guest.address[family])

            for outcome in connections.run(ours, theirs, kernel, part, self._wanted):
                if outcome.problem:
                    self._fail(f"Linux {guest.version}: {outcome}, {link}", outcome.problem)
                    self._keep_captures(guest, "connections")
                else:
                    self.passed["connections"] += 1
        if self.passed["connections"] > passed:
            self._judge(guest, "connections")
        passed, failed = self.passed["connections"] - passed, len(self.failures) - before
        print(f"connections: {passed} pass, {failed} fail; {time.monotonic() - begun:.1f} s", flush=True)

    def _sharing(self, guest, near, core):
        begun, before, passed = time.monotonic(), len(self.failures), self.passed["shared"]

        def ours(family):
            env = near.environment("udp", family)
            variables = [f"PATH={self.library.parent}:{env['PATH']}", f"SOFTRNIC_DEVICES={env['SOFTRNIC_DEVICES']}"]
            command = ["ip", "netns", "exec", guest.namespace, "env", *variables, "softrnic", "run", "--"]
            return connections.Near("our side", command, env, guest.near_address[family], 0, "softrnic0")

        def theirs(family):
            gid_index = 1 if family == 4 else 2
            return connections.Far("the guest", guest.command(), None, guest.address[family], gid_index, "rxe0")

        for outcome in sharing.run(ours, theirs, core, self._wanted):
            if outcome.problem:
                self._fail(f"Linux {guest.version}: {outcome}", outcome.problem)
            else:
                self.passed["shared"] += 1
        passed, failed = self.passed["shared"] - passed, len(self.failures) - before
        print(f"sharing: {passed} pass, {failed} fail; {time.monotonic() - begun:.1f} s", flush=True)

    def _inside(self, guest):
        begun, before, passed = time.monotonic(), len(self.failures), self.passed["inside"]
        for outcome in inside.run(guest, self.library, self._wanted):
            if outcome.problem:
                self._fail(f"Linux {guest.version}: {outcome}", outcome.problem)
            else:
                self.passed["inside"] += 1
        passed, failed = self.passed["inside"] - passed, len(self.failures) - before
        print(f"inside: {passed} pass, {failed} fail; {time.monotonic() - begun:.1f} s", flush=True)

    def _drill(self, kernel, guest, core):
        begun, before, verdicts = time.monotonic(), len(self.failures), collections.Counter()
        softrnic, program = self.library.parent / "softrnic", [*userland.wrapper(kernel), self.program]
        drilling = drill.Drill(guest, softrnic, self.out, program)
        try:
            for outcome in drilling.run(drill.KNOWN.get(kernel), core, self._wanted):
                if outcome.problem:
                    self._fail(f"Linux {guest.version}: {outcome}", outcome.problem)
                if outcome.note:
                    print(f"note: {outcome}: {outcome.note}", flush=True)
                verdicts[outcome.verdict.replace("_", " ")] += 1
        except (RuntimeError, subprocess.SubprocessError) as error:
            self._fail(f"Linux {guest.version}: drill", error)
        self.passed["scripts"] += sum(verdicts.values()) - len(self.failures) + before
        counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
        failed = len(self.failures) - before
        print(f"drill: {counts or 'nothing'}; {failed} fail; {time.monotonic() - begun:.1f} s", flush=True)

    def _ports(self, guest):
        begun, problem = time.monotonic(), ports.run(guest, self.out)
        if problem:
            self._fail(f"Linux {guest.version}: a port that goes down", problem)
        else:
            self.passed["ports"] += 1
        print(f"ports: {'fail' if problem else 'pass'}; {time.monotonic() - begun:.1f} s", flush=True)

    def _path(self, kernel, guest):
        begun = time.monotonic()
        with Guest(kernel, f"{guest.name}-b", guest.name) as other:
            try:
                problem = in_path.run(guest, other, self.library.parent / "softrnic", self.out)
            except (RuntimeError, subprocess.SubprocessError) as error:
                problem = str(error)
        if problem:
            self._fail(f"Linux {guest.version}: a network in the path", problem)
        else:
            self.passed["paths"] += 1
        print(f"path: {'fail' if problem else 'pass'}; {time.monotonic() - begun:.1f} s", flush=True)

    def _storage(self, guest, near, core):
        def disk(ours):
            return storage.Disk(guest, storage.build(self.out), self.out, ours)

        self._disks(guest, near, core, "storage", storage, disk)

    def _nvme(self, guest, near, core):
        def disks(ours):
            return nvme.Disks(guest, self.library.parent / "nvmf-target", self.out, ours)

        self._disks(guest, near, core, "nvme", nvme, disks)

    def _disks(self, guest, near, core, part, module, make):
        """The cases of a module that writes disks; `make` gets what runs programs at our side."""
        begun, before, passed = time.monotonic(), len(self.failures), self.passed["disks"]
        cases = [case for case in module.CASES if (case.core or not core) and self._wanted(case)]

        def ours(case):
            return self._softrnic(guest, near, part, case.link, case.family, module.faults(case))

        disk = make(ours) if cases else None
        for case in cases:
            known = guest.faults()
            problem = disk.run(case)
            if problem and (said := guest.faults(seen=known)):
                # That says nothing of ours, and the guest is of no use any longer.
                print(f"{case}: {problem}", "The guest's kernel failed:", *said, "Once more, in another guest", sep="\n", flush=True)
                self.lost += 1
                self._replace(guest, part)
                disk = make(ours)
                problem = disk.run(case)
            if problem:
                self._fail(f"Linux {guest.version}: {case}", problem)
                self._keep_captures(guest, part)
                self._replace(guest, part)
                disk = make(ours)
            else:
                self.passed["disks"] += 1
        if cases:
            self._judge(guest, part)
        passed, failed = self.passed["disks"] - passed, len(self.failures) - before
        print(f"{part}: {passed} pass, {failed} fail; {time.monotonic() - begun:.1f} s", flush=True)

    def _softrnic(self, guest, near, part, link, family, faults):
        """How programs of rdma_cm run at our side: the start of their command line, and their environment."""
        command = ["ip", "netns", "exec", guest.namespace, str(self.library.parent / "softrnic"), "run", "--"]
        capture = self.out / f"{guest.version}-{part}-{link}.%p.pcapng"
        return command, near.environment(link, family, ",".join([f"seed={self.args.seed}", *faults]), capture)

    def _process_captures(self, guest, part):
        """What processes of a part recorded, the last one last."""
        return sorted(self.out.glob(f"{guest.version}-{part}-*.pcapng"), key=lambda path: path.stat().st_mtime)

    def _keep_captures(self, guest, part):
        """Keep what the process recorded last that failed just now."""
        (self.out / "failed").mkdir(exist_ok=True)
        for path in self._process_captures(guest, part)[-1:]:
            shutil.copy(path, self.out / "failed")

    def _judge(self, guest, part):
        """Ask tshark about the captures of a part's processes, and remove those that it finds nothing wrong with."""
        paths = self._process_captures(guest, part)
        if not paths:
            self._fail(f"Linux {guest.version}: {part}", "no process left a capture for tshark")
        for path in paths:
            complaints = capture.complaints(path)
            for complaint in complaints:
                self._fail(f"tshark on {path.name}", complaint)
            if not complaints and not self.args.keep:
                path.unlink()
