"""Programs with a planted mistake each: what `softrnic check` says about them, and that it says nothing about their corrected
twins."""

import json
import pathlib
import re
import subprocess
import sys
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "verbs"))

import foreign_peer  # noqa: E402
import roce  # noqa: E402
from harness import SOFTRNIC, Program, VerbsTest  # noqa: E402

# The kind is the first word of the first line.
KIND = re.compile(r'(?:/\*|"""|//!) ?([a-z-]+): ')
# A line that the report names: `/* posted */` where a call says that something was posted.
MARKED = re.compile(r"(?:/\*|#|//) ([a-z]+)(?: \*/)?$")


# Mistakes of other/efa.c, and what is said of them.
EFA = {
    "none": None, "rkey": "unknown-key", "access": "missing-access", "lkey": "unknown-key", "qkey": "wrong-qkey",
    "short": "short-receive", "domain": "refused-request",
}  # fmt: skip


class Checked(VerbsTest):
    def build(self, source, *flags):
        return self.compile(source, "-libverbs", "-lrdmacm", "-lpthread",
                            flags=("-Wall", "-Wextra", "-Werror", "-Wno-unused-function", *flags))  # fmt: skip

    def check(self, argv, *options, status=0, **extra):
        """Runs a program under `softrnic check`; returns what it printed, and its report."""
        report = self.runtime / "report.json"
        command = [SOFTRNIC, "check", "--report", report, "--leak-check", "full", *options, "--", *argv]
        program = Program(command, {**self.env, **extra})
        self.addCleanup(program.close)
        ended = program.wait(time.monotonic() + 60)
        self.assertEqual(ended, status, program.describe(ended))
        return program.output(), json.loads(report.read_text())

    def planted(self, source, program):
        text = source.read_text()
        kind = KIND.match(text)[1]
        out, report = self.check(program, "--error-exitcode", "99", status=99)
        self.assertEqual([found["kind"] for found in report["findings"]], [kind], out)
        calls = report["findings"][0]["calls"]
        for number, line in enumerate(text.splitlines(), 1):
            if marked := MARKED.search(line):
                place = f"{source.name}:{number}"
                told = any(re.search(rf"\b{marked[1]}\b", call["what"])
                           and any(frame["place"].endswith(place) for frame in call["stack"]) for call in calls)  # fmt: skip
                self.assertTrue(told, f"no call that was {marked[1]} is at {place}\n{out}")

    def correct(self, program):
        out, report = self.check(program, "--error-exitcode", "99")
        self.assertEqual(report["findings"], [], out)


class Planted(Checked):
    def test_fields_of_a_failed_completion_that_mean_nothing_hold_a_pattern(self):
        out, _ = self.check([self.build(HERE / "other/undefined_fields.c")])
        self.assertIn("0x5a5a5a5a 0x5a5a5a5a", out)

    def test_bytes_behind_a_message_hold_a_pattern(self):
        out, _ = self.check([self.build(HERE / "other/undefined_bytes.c")])
        self.assertIn("0 0x5a 0\n", out)

    def test_a_queue_is_found_where_another_device_has_one_of_the_same_name(self):
        source = HERE / "other/two_devices.c"
        out, report = self.check([self.build(source)], "--device", "one=udp", "--device", "two=udp")
        [found] = report["findings"]
        line = next(n for n, line in enumerate(source.read_text().splitlines(), 1) if "/* created */" in line)
        [made] = [call for call in found["calls"] if "completion queue" in call["what"]]
        self.assertEqual(found["kind"], "cq-overrun", out)
        self.assertTrue(made["stack"][0]["place"].endswith(f"two_devices.c:{line}"), out)

    def test_who_has_asked_whether_a_fork_needs_anything_is_not_told_that_it_does(self):
        self.correct([self.build(HERE / "other/asked_before_fork.c")])

    def test_mistakes_of_destructors_are_told(self):
        source = HERE / "other/left_to_destructor.c"
        out, report = self.check([self.build(source)])
        self.assertEqual([found["kind"] for found in report["findings"]], ["still-used", "still-used"], out)
        self.assertNotIn("panicked", out)
        for when, found in zip(("first", "last"), report["findings"]):
            line = next(n for n, line in enumerate(source.read_text().splitlines(), 1) if f"/* {when} */" in line)
            self.assertTrue(found["calls"][0]["stack"][0]["place"].endswith(f"{source.name}:{line}"), out)

    def test_responses_that_come_in_any_order_are_the_nics(self):
        program = self.build(HERE / "other/lossy_reads.c")
        out, report = self.check(
            [program], "--device", "udp?shm=off", "--fault", "seed=3,drop=5%", "--error-exitcode", "99"
        )
        self.assertEqual(report["findings"], [], out)

    def test_what_is_wrong_with_messages_of_efa_is_told(self):
        source = HERE / "other/efa.c"
        program = self.compile(
            source, "-libverbs", "-lefa", flags=("-Wall", "-Wextra", "-Werror", "-Wno-unused-function")
        )
        line = next(n for n, line in enumerate(source.read_text().splitlines(), 1) if "/* posted */" in line)
        for mistake, kind in EFA.items():
            with self.subTest(mistake):
                out, report = self.check([program, mistake], "--like", "efa")
                self.assertEqual([found["kind"] for found in report["findings"]], [kind] if kind else [], out)
                if kind:
                    self.assertIn(f"efa.c:{line}", out)

    def test_a_program_halts_with_its_first_mistake(self):
        program = self.build(HERE / "other/undefined_fields.c")
        out, report = self.check([program], "--halt-on-error", "--error-exitcode", "7", status=7)
        self.assertNotIn("0x5a5a5a5a", out)
        self.assertEqual(len(report["findings"]), 1)

    def test_reports_go_to_a_file_with_the_number_of_the_process(self):
        log = self.runtime / "log.%p"
        program = self.build(HERE / "other/undefined_fields.c")
        out, report = self.check([program], "--log-file", log)
        self.assertNotIn("ERROR", out)
        told = (self.runtime / f"log.{report['pid']}").read_text()
        self.assertIn(f"=={report['pid']}== ERROR: SoftRNIC check: unknown-key", told)


class ForeignPeer(Checked):
    """What is said of a READ from a peer that is no SoftRNIC, by how that answers."""

    def read(self, kind, ended, answer):
        report, source = self.runtime / "report.json", foreign_peer.SOURCE
        with roce.Peer(roce.free_address()) as peer:
            words = [self.build(source), peer.address, answer.retries]
            program = Program([SOFTRNIC, "check", "--report", report, "--", *words], self.env)
            self.addCleanup(program.close)
            foreign_peer.give(peer, program.output, answer)
            self.assertEqual(program.wait(time.monotonic() + 60), 0, program.output())
        out = program.output()
        self.assertIn(ended, out)
        findings = json.loads(report.read_text())["findings"]
        self.assertEqual([found["kind"] for found in findings], [kind] if kind else [], out)
        if kind:
            line = next(n for n, line in enumerate(source.read_text().splitlines(), 1) if "/* posted */" in line)
            self.assertIn(f"{source.name}:{line}", out)

    def test_nothing_of_one_that_answers_as_it_should(self):
        self.read(None, "success", foreign_peer.RIGHT)

    def test_one_that_answers_wrong(self):
        for what, (kind, ended, answer) in foreign_peer.WRONG.items():
            with self.subTest(what):
                self.read(kind, ended, answer)


def add_c(source):
    name = f"test_c_{source.stem}"
    setattr(Planted, name, lambda self: self.planted(source, [self.build(source)]))
    setattr(Planted, f"{name}_correct", lambda self: self.correct([self.build(source, "-DCORRECT")]))


def add_python(source):
    # With the library that the distribution's pyverbs is built for.
    program, name = ["/usr/bin/python3", "-B", source], f"test_python_{source.stem}"
    setattr(Planted, name, lambda self: self.planted(source, program))
    setattr(Planted, f"{name}_correct", lambda self: self.correct([*program, "correct"]))


def rust():
    """The directory of the programs in Rust, which are built once."""
    command = ["cargo", "build", "--locked", "--message-format=json", "--manifest-path", HERE / "rust/Cargo.toml"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    built = (json.loads(line) for line in told.splitlines())
    return next(pathlib.Path(one["executable"]).parent for one in built if one.get("executable"))


class PlantedInRust(Checked):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.programs = rust()


def add_rust(source):
    name = f"test_rust_{source.stem}"
    setattr(PlantedInRust, name, lambda self: self.planted(source, [self.programs / source.stem]))
    setattr(PlantedInRust, f"{name}_correct", lambda self: self.correct([self.programs / source.stem, "correct"]))


for each in sorted(HERE.glob("c/*.c")):
    add_c(each)
for each in sorted(HERE.glob("python/*.py")):
    if each.stem != "pair":
        add_python(each)
for each in sorted(HERE.glob("rust/src/bin/*.rs")):
    add_rust(each)


if __name__ == "__main__":
    unittest.main()
