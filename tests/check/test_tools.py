"""`softrnic check` together with other tools, as docs/which-tool.md says."""

import pathlib
import shutil
import sys
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "verbs"))

from harness import SOFTRNIC, Program, VerbsTest  # noqa: E402

OWN, KEY = HERE / "other/own_mistakes.c", HERE / "c/destroyed_rkey.c"
SUPPRESSIONS = HERE.parent.parent / "src/ibverbs/suppressions/valgrind.supp"
FLAGS = ("-Wno-unused-function",)


def line_of(source, mark):
    """The line with a mark."""
    (number,) = [n for n, line in enumerate(source.read_text().splitlines(), 1) if f"/* {mark} */" in line]
    return f"{source.name}:{number}"


class Together(VerbsTest):
    def build(self, source, *flags):
        return self.compile(source, "-libverbs", "-lpthread", flags=(*FLAGS, *flags))

    def says(self, *words, command="check", status=0, options=(), **extra):
        """What a command prints, which must end with a status; None is any but 0."""
        program = Program([SOFTRNIC, command, *options, "--", *words], {**self.env, **extra})
        self.addCleanup(program.close)
        ended = program.wait(time.monotonic() + 120)
        if status is None:
            self.assertNotIn(ended, (0, None), program.describe(ended))
        else:
            self.assertEqual(ended, status, program.describe(ended))
        return program.output()

    def valgrind(self, *words, **options):
        if not shutil.which("valgrind"):
            self.skipTest("there is no valgrind")
        return self.says("valgrind", "-q", "--error-exitcode=9", *words, **options)

    def assert_key(self, out):
        self.assertIn("ERROR: SoftRNIC check: destroyed-key", out)
        self.assertIn(f"main c/{line_of(KEY, 'posted')}", out)


class AddressSanitizer(Together):
    def test_it_says_that_the_nic_reads_what_the_program_has_freed(self):
        for command in ("run", "check"):
            out = self.says(self.build(OWN, "-fsanitize=address"), "freed", command=command, status=None)
            self.assertIn("heap-use-after-free", out)
            self.assertIn(line_of(OWN, "freed"), out.split("freed by thread")[1])

    def test_it_says_what_the_program_does_itself(self):
        out = self.says(self.build(OWN, "-fsanitize=address"), "stale", status=None)
        self.assertIn("heap-use-after-free", out)
        self.assertIn(line_of(OWN, "stale"), out)

    def test_check_says_what_is_wrong_with_verbs(self):
        # The region is deregistered; what else the program has left is not looked for.
        self.assert_key(self.says(self.build(KEY, "-fsanitize=address"), ASAN_OPTIONS="detect_leaks=0"))


class Memcheck(Together):
    def test_it_says_that_bytes_are_read_which_no_message_has_written(self):
        for command in ("run", "check"):
            out = self.valgrind(self.build(OWN), "unwritten", command=command, status=9)
            self.assertIn("uninitialised", out)
            self.assertIn(line_of(OWN, "unwritten"), out)

    def test_it_says_that_the_nic_reads_what_the_program_has_freed(self):
        out = self.valgrind(self.build(OWN), "freed", status=9)
        self.assertIn("Invalid read", out)
        self.assertIn(line_of(OWN, "freed"), out.split("free'd")[1])

    def test_a_correct_program_is_correct(self):
        self.assertIn("done", self.valgrind(self.build(OWN), "none"))

    def test_check_says_what_is_wrong_with_verbs(self):
        self.assert_key(self.valgrind(self.build(KEY)))


class Helgrind(Together):
    def test_it_says_which_threads_race(self):
        for tool in ("helgrind", "drd"):
            words = [f"--tool={tool}", f"--suppressions={SUPPRESSIONS}", self.build(OWN)]
            out = self.valgrind(*words, "race", status=9)
            self.assertIn(line_of(OWN, "race"), out)
            self.assertIn("done", self.valgrind(*words, "none"))


@unittest.skipUnless(shutil.which("gdb"), "there is no gdb")
class Gdb(Together):
    def gdb(self, *commands, **options):
        words = [word for command in commands for word in ("-ex", command)]
        return self.says("gdb", "-batch", "-nx", *words, "--args", self.build(KEY), **options)

    def test_it_stops_where_a_mistake_is_found(self):
        out = self.gdb("catch syscall exit_group", "run", "bt", options=["--halt-on-error"])
        self.assert_key(out)
        self.assertRegex(out, r"#\d+ .*main \(\) at .*destroyed_rkey.c:\d+")

    def test_it_stops_in_a_verb(self):
        out = self.gdb("set breakpoint pending on", "break ibv_dereg_mr", "run", "bt", "kill", command="run")
        self.assertIn(f"c/{line_of(KEY, 'deregistered')}", out)


if __name__ == "__main__":
    unittest.main()
