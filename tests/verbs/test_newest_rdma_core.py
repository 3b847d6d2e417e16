"""Tools of the newest rdma-core that Debian has, with the C library that they were built for."""

import pathlib
import re
import subprocess
import tempfile

import packages
from harness import ROOT, SUITE_TIMEOUT, VerbsTest
from perftest import results
from test_pyverbs import copy_tests, documented, generic

PACKAGES = [
    "ibverbs-providers", "ibverbs-utils", "libbz2-1.0", "libc6", "libexpat1", "libffi8", "libibumad3", "libibverbs1",
    "liblzma5", "libnl-3-200", "libnl-route-3-200", "libpci3", "lib{python}", "lib{python}-minimal",
    "lib{python}-stdlib", "librdmacm1t64", "libssl3t64", "libudev1", "libzstd1", "perftest", "python3-pyverbs",
    "{python}-minimal", "rdma-core", "zlib1g",
]

# As many of the Python tests must pass at least.
PASSES = 170


class NewestRdmaCore(VerbsTest):
    # One of them needs huge pages. UCX, which other tests use, takes all there are.
    by_itself = True

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = packages.debian("sid", PACKAGES)

    def program(self, name):
        """What to run one of its programs with."""
        return [*packages.on(self.root), self.root / "usr/bin" / name]

    def test_every_symbol_that_programs_can_link_with_is_ours_too(self):
        (library,) = self.root.glob("usr/lib/*/libibverbs.so.1")
        out = subprocess.run(["readelf", "--dyn-syms", "-W", library], check=True, capture_output=True, text=True)
        theirs = set(re.findall(r" (\w+)@@(IBVERBS_[\w.]+)", out.stdout))
        self.assertTrue(any(node.startswith("IBVERBS_PRIVATE_") for _, node in theirs))
        lines = (ROOT / "src/ibverbs/exports.txt").read_text().splitlines()
        ours = {(line.split()[2], line.split()[0]) for line in lines if not line.startswith("#")}
        self.assertEqual(sorted(theirs - ours), [])

    def test_devinfo(self):
        out = self.run_ok([*self.program("ibv_devinfo"), "-v"])
        self.assertRegex(out, r"(?m)^hca_id:\s+softrnic0$")
        self.assertRegex(out, r"state:\s+PORT_ACTIVE")

    def test_pingpong(self):
        for program in ("ibv_rc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong"):
            for out in self.run_pair(self.program(program), "-g", "0", "-c", "-n", "500"):
                self.assertRegex(out, r"(?m)\d+ iters in")

    def test_perftest_which_is_linked_with_the_providers(self):
        for program in ("ib_write_bw", "ib_send_lat"):
            _, out = self.run_pair(self.program(program), "-F", "-n", "200")
            self.assertTrue(results(out), out)

    def test_its_own_generic_tests(self):
        directory = tempfile.TemporaryDirectory(prefix="softrnic-test-")
        self.addCleanup(directory.cleanup)
        here = pathlib.Path(directory.name)
        copy_tests(self.root / "usr/share/doc/rdma-core/tests", here)
        (python,) = self.root.glob("usr/bin/python3.*")
        out = self.run_ok(
            [*self.program(python.name), "-B", "pyverbs_results.py", "results.json"], timeout=SUITE_TIMEOUT, cwd=here,
            PYTHONHOME=str(self.root / "usr"),
            PYTHONPATH=str(self.root / "usr/lib/python3/dist-packages"),
        )
        results = generic(here / "results.json")
        bad = [f"{name}: {outcome}\n{reason}" for name, (outcome, reason) in results.items()
               if outcome not in ("ok", "skipped")]
        self.assertEqual(bad, [], out + "\n".join(bad))
        self.assertGreaterEqual(sum(outcome == "ok" for outcome, _ in results.values()), PASSES)
        skipped = {name.removeprefix("tests.") for name, (outcome, _) in results.items() if outcome == "skipped"}
        self.assertEqual(sorted(skipped - set(documented(newest=True))), [])
