"""What `make install` leaves behind, and a shell that was set up by `softrnic env`."""

import pathlib
import re
import subprocess
import tempfile

from harness import PROFILE, ROOT, VerbsTest


class Install(VerbsTest):
    def setUp(self):
        super().setUp()
        if PROFILE != "release":
            self.skipTest("make install installs the release build")
        directory = tempfile.TemporaryDirectory(prefix="softrnic-test-")
        self.addCleanup(directory.cleanup)
        self.prefix = pathlib.Path(directory.name) / "prefix"
        # What is installed if somebody has made it, which another stage may do meanwhile.
        page = ROOT / "target/playground/playground.html"
        before = page.exists()
        # What the test runs was built already.
        command = ["make", "-C", ROOT, "--old-file=build", "install", f"PREFIX={self.prefix}"]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.page_was_there = {before, page.exists()}

    def test_the_command_and_its_libraries_and_nothing_else_are_installed(self):
        installed = {str(file.relative_to(self.prefix)) for file in self.prefix.rglob("*") if file.is_file()}
        page = "share/softrnic/playground.html"
        self.assertIn(page in installed, self.page_was_there)
        self.assertEqual(installed - {page}, {
            "bin/softrnic",
            "lib/softrnic/libefa.so",
            "lib/softrnic/libefa.so.1",
            "lib/softrnic/libibverbs.so",
            "lib/softrnic/libibverbs.so.1",
            "lib/softrnic/libsoftrnic_interpose.so",
            "share/softrnic/selective.lua",
            "share/softrnic/softrnic.lua",
            "share/softrnic/tsan.supp",
            "share/softrnic/valgrind.supp",
        })

    def test_the_name_without_a_number_is_a_link(self):
        self.assertEqual((self.prefix / "lib/softrnic/libibverbs.so").readlink(), pathlib.Path("libibverbs.so.1"))

    def test_programs_run_with_the_installed_libraries(self):
        self.command = self.prefix / "bin/softrnic"
        out = self.run_ok(["ldd", "/usr/bin/ibv_rc_pingpong"])
        self.assertEqual(re.findall(r"\S*/libibverbs\.so\S*", out), [f"{self.prefix}/lib/softrnic/libibverbs.so.1"])
        self.assertIn(f"{self.prefix}/lib/softrnic/libsoftrnic_interpose.so", out)
        for out in self.run_pair("ibv_rc_pingpong", "-g", "0", "-c"):
            self.assertRegex(out, r"(?m)^1000 iters in")

    def test_a_shell_is_set_up_by_env(self):
        script = """
            eval "$("$0" env --device shelled=udp:127.9.8.7)"
            ibv_devices && cat /sys/class/infiniband/shelled/node_type
        """
        done = subprocess.run(["/bin/sh", "-c", script, self.prefix / "bin/softrnic"], env=self.env,
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(re.search(r"(?m)^\s+shelled\s+[0-9a-f]{16}$", done.stdout), done.stdout)
        self.assertIn("1: CA", done.stdout)
