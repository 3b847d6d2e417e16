"""Programs that load libibverbs under other names, and what preloading it costs those that do not use it."""

import pathlib
import shutil
import subprocess
import tempfile

from harness import DISTRIBUTION, LIBRARY, VerbsTest

# Says which files with libibverbs in their names are mapped.
MAPPED = """
import ctypes, sys
ctypes.CDLL(sys.argv[1])
for path in sorted({line.split()[-1] for line in open("/proc/self/maps") if "libibverbs" in line}):
    print(path)
"""


class Loading(VerbsTest):
    def test_the_name_without_a_number_is_ours_as_well(self):
        for name in ("libibverbs.so", "libibverbs.so.1"):
            out = self.run_ok(["/usr/bin/python3", "-c", MAPPED, name])
            self.assertEqual(out, f"{LIBRARY}\n")

    def test_a_path_to_another_is_ours_as_well(self):
        directory = tempfile.TemporaryDirectory(prefix="softrnic-test-")
        self.addCleanup(directory.cleanup)
        wheel = pathlib.Path(directory.name) / "libibverbs-1de1263b.so.1.14.48.0"
        shutil.copy(DISTRIBUTION, wheel)
        for path in (DISTRIBUTION, wheel):
            self.assertEqual(self.run_ok(["/usr/bin/python3", "-c", MAPPED, path]), f"{LIBRARY}\n")
        # Where there is none, there is none.
        missing = self.start(["/usr/bin/python3", "-c", MAPPED, wheel.with_suffix(".1")])
        self.assertEqual(missing.process.wait(60), 1)
        self.assertIn("cannot open shared object file", missing.output())

    def test_a_library_still_loads_others_from_where_its_runpath_says(self):
        directory = tempfile.TemporaryDirectory(prefix="softrnic-test-")
        self.addCleanup(directory.cleanup)
        here = pathlib.Path(directory.name)
        (here / "plugins").mkdir()
        (here / "plugin.c").write_text("int plugin;\n")
        (here / "host.c").write_text(
            "#define _GNU_SOURCE\n#include <dlfcn.h>\nint load(void) {\n"
            'return dlopen("libsoftrnic-plugin.so", RTLD_NOW) && dlmopen(LM_ID_BASE, "libsoftrnic-plugin.so", RTLD_NOW); }\n')
        for command in (
            ["cc", "-shared", "-fPIC", here / "plugin.c", "-o", here / "plugins/libsoftrnic-plugin.so"],
            ["cc", "-shared", "-fPIC", here / "host.c", "-Wl,--enable-new-dtags,-rpath,$ORIGIN/plugins", "-o",
             here / "host.so"],
        ):
            done = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
        load = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).load())"
        self.assertEqual(self.run_ok(["/usr/bin/python3", "-c", load, here / "host.so"]), "1\n")

    def test_a_renamed_copy_that_a_program_brings_along_is_not_used(self):
        # As Python wheels have it: under a name of its own, found by the program's DT_RPATH.
        directory = tempfile.TemporaryDirectory(prefix="softrnic-test-")
        self.addCleanup(directory.cleanup)
        here = pathlib.Path(directory.name)
        (here / "copy.c").write_text("void *ibv_get_device_list(int *n) { *n = 0; return n; }\n")
        (here / "copy.map").write_text("IBVERBS_1.1 { global: ibv_get_device_list; local: *; };\n")
        (here / "program.c").write_text(
            "#include <stdio.h>\nvoid *ibv_get_device_list(int *);\n"
            'int main(void) { int n = -1; ibv_get_device_list(&n); printf("%d devices\\n", n); return 0; }\n')
        copy = here / "libibverbs-1de1263b.so"
        for command in (
            ["cc", "-shared", "-fPIC", here / "copy.c", f"-Wl,--version-script={here}/copy.map",
             f"-Wl,-soname,{copy.name}", "-o", copy],
            ["cc", here / "program.c", copy, "-Wl,--disable-new-dtags,-rpath,$ORIGIN", "-o", here / "program"],
        ):
            done = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
        alone = subprocess.run([here / "program"], capture_output=True, text=True, env=self.env)
        self.assertEqual(alone.stdout, "0 devices\n")
        self.assertEqual(self.run_ok([here / "program"]), "1 devices\n")
