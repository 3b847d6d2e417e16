"""The crate `sideway`, a wrapper of verbs for Rust, which finds the library by its name when it runs."""

import packages
from harness import VerbsTest


class Sideway(VerbsTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.tests = packages.crate_tests("sideway", "0.4.3")

    def test_its_own_tests(self):
        # `compiletest` is about what does not compile, and needs no device.
        programs = sorted(path for path in self.tests.iterdir() if path.name != "compiletest")
        self.assertGreaterEqual(len(programs), 6)
        for program in programs:
            with self.subTest(program.name):
                out = self.run_ok([program])
                self.assertRegex(out, r"test result: ok\. [1-9]\d* passed; 0 failed; 0 ignored")
