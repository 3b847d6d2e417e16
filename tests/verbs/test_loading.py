"""Programs that load libibverbs under other names, and what preloading it costs those that do not use it."""

import pathlib
import subprocess
import tempfile

from harness import LIBRARY, VerbsTest

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
