"""Tools of the newest rdma-core that Debian has, with the C library that they were built for."""

import re
import subprocess

import packages
from harness import LIBRARY, ROOT, VerbsTest
from test_perftest import RESULT

PACKAGES = [
    "ibverbs-providers", "ibverbs-utils", "libc6", "libibumad3", "libibverbs1", "libnl-3-200",
    "libnl-route-3-200", "libpci3", "librdmacm1t64", "libudev1", "perftest", "zlib1g",
]


class NewestRdmaCore(VerbsTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = packages.debian("sid", PACKAGES)

    def program(self, name):
        """What to run one of its programs with."""
        return [*packages.on(self.root, [LIBRARY.parent]), self.root / "usr/bin" / name]

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
            self.assertTrue(RESULT.search(out), out)
