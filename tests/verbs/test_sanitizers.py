"""Programs built with AddressSanitizer or ThreadSanitizer, or run by Valgrind's helgrind and drd."""

import pathlib
import subprocess

from harness import ROOT, VerbsTest

SUPPRESSIONS = ROOT / "src/ibverbs/suppressions"
COMPILERS = ("gcc", "clang")


def runtime(compiler, name):
    """The path of a library of the compiler's."""
    found = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return pathlib.Path(found.stdout.strip())


class AddressSanitizer(VerbsTest):
    def build(self, compiler, *flags):
        return self.compile("sanitized.c", "-libverbs", compiler=compiler, flags=("-fsanitize=address", *flags))

    def builds(self):
        """The runtime is a library, and part of the program, with either compiler."""
        yield "gcc", self.build("gcc")
        yield "gcc, static", self.build("gcc", "-static-libasan")
        yield "clang", self.build("clang")
        directory = runtime("clang", "libclang_rt.asan-x86_64.so").parent
        yield "clang, shared", self.build("clang", "-shared-libasan", f"-Wl,-rpath,{directory}")

    def test_programs_start_as_they_are_and_their_errors_are_found(self):
        for name, program in self.builds():
            with self.subTest(name):
                self.assertEqual(self.run_ok([program]), "1 device, 1\n")
                broken = self.start([program, "after-free"])
                self.assertNotEqual(broken.process.wait(60), 0)
                self.assertIn("heap-use-after-free", broken.output())

    def test_they_start_through_scripts_that_set_options(self):
        program = self.build("gcc")
        script = f"ASAN_OPTIONS=detect_stack_use_after_return=1 {program} && env ASAN_OPTIONS= {program}"
        self.assertEqual(self.run_ok(["sh", "-c", script]), "1 device, 1\n" * 2)
        shell = f'eval "$({self.command} env)" && {program}'
        done = subprocess.run(["sh", "-c", shell], env=self.env, capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (0, "1 device, 1\n"), done.stderr)

    def test_options_of_the_program_and_of_the_user_hold(self):
        program = self.build("gcc", '-DOPTIONS="exitcode=77"')
        self.assertEqual(self.run_ok([program]), "1 device, 1\n")
        for options, status in (("", 77), ("exitcode=78", 78)):
            broken = self.start([program, "after-free"], ASAN_OPTIONS=options)
            self.assertEqual(broken.process.wait(60), status, broken.output())

    def test_a_runtime_may_be_preloaded(self):
        library = runtime("gcc", "libasan.so").resolve()
        for program in (self.build("gcc"), self.compile("sanitized.c", "-libverbs")):
            self.assertEqual(self.run_ok([program], LD_PRELOAD=str(library)), "1 device, 1\n")
            before = ["sh", "-c", f'LD_PRELOAD="{library}:$LD_PRELOAD" exec {program}']
            self.assertEqual(self.run_ok(before), "1 device, 1\n")

    def test_traffic_of_many_threads_is_clean(self):
        for compiler in COMPILERS:
            program = self.compile("threads.c", "-libverbs", "-lpthread", compiler=compiler,
                                   flags=("-fsanitize=address",))
            self.assertIn("800 messages by 8 threads", self.run_ok([program, "shared", "100"]))


class RaceDetectors(VerbsTest):
    """They see no more of what the library does between its threads than of what hardware does."""

    def test_thread_sanitizer_finds_nothing_with_the_suppressions_that_are_installed(self):
        options = {"TSAN_OPTIONS": f"suppressions={SUPPRESSIONS}/tsan.supp"}
        for compiler in COMPILERS:
            program = self.compile("threads.c", "-libverbs", "-lpthread", compiler=compiler,
                                   flags=("-fsanitize=thread",))
            for how in ("separate", "shared"):
                out = self.run_ok([program, how, "20"], **options)
                self.assertEqual(out, f"160 messages by 8 threads, {how}\n")

    def test_helgrind_and_drd_find_nothing_with_the_suppressions_that_are_installed(self):
        program = self.compile("threads.c", "-libverbs", "-lpthread")
        for tool in ("helgrind", "drd"):
            out = self.run_ok(["valgrind", f"--tool={tool}", f"--suppressions={SUPPRESSIONS}/valgrind.supp",
                               "--error-exitcode=9", program, "separate", "5"], timeout=300)
            self.assertIn("ERROR SUMMARY: 0 errors", out)

    def test_they_still_find_the_program_s_own_races(self):
        racing = self.compile("racing.c", "-libverbs", "-lpthread")
        for tool in ("helgrind", "drd"):
            program = self.start(["valgrind", f"--tool={tool}", f"--suppressions={SUPPRESSIONS}/valgrind.supp",
                                  "--error-exitcode=9", racing])
            self.assertEqual(program.process.wait(120), 9, program.output())
        racing = self.compile("racing.c", "-libverbs", "-lpthread", flags=("-fsanitize=thread",))
        program = self.start([racing], TSAN_OPTIONS=f"suppressions={SUPPRESSIONS}/tsan.supp")
        self.assertEqual(program.process.wait(60), 66, program.output())
