"""Tools of rdma-core 59, which link with the private symbols of its generation."""

import subprocess

import packages
from harness import VerbsTest


class RdmaCore59(VerbsTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.tools = packages.rdma_core_59()

    def test_devinfo_needs_a_private_symbol_and_finds_it(self):
        tool = self.tools / "ibv_devinfo"
        needs = subprocess.run(["readelf", "-V", "-W", tool], check=True, capture_output=True, text=True).stdout
        self.assertIn("IBVERBS_PRIVATE_59", needs)
        out = self.run_ok([tool, "-v"])
        self.assertRegex(out, r"(?m)^hca_id:\s+softrnic0$")
        self.assertRegex(out, r"GID\[ *0\]:\s+::ffff:127\.[\d.]+, RoCE v2")

    def test_pingpong(self):
        for name in ("rc", "uc", "ud", "srq"):
            for out in self.run_pair([self.tools / f"ibv_{name}_pingpong"], "-g", "0", "-c", "-n", "500"):
                self.assertRegex(out, r"(?m)\d+ iters in")
