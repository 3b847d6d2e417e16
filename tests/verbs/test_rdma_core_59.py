"""Tools of rdma-core 59, which link with the private symbols of its generation."""

import subprocess

import packages
from harness import ON_KERNEL, VerbsTest


class RdmaCore59(VerbsTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.tools = packages.rdma_core_59() / "bin"

    def setUp(self):
        super().setUp()
        if ON_KERNEL:
            self.env.update(LD_LIBRARY_PATH=str(self.tools.parent / "lib"), RDMAV_DRIVERS="rxe")

    def test_devinfo_needs_a_private_symbol_and_finds_it(self):
        tool = self.tools / "ibv_devinfo"
        needs = subprocess.run(["readelf", "-V", "-W", tool], check=True, capture_output=True, text=True).stdout
        self.assertIn("IBVERBS_PRIVATE_59", needs)
        out = self.run_ok([tool, "-v"])
        # Built without libnl, its libibverbs knows rxe by the device's name.
        self.assertRegex(out, r"(?m)^hca_id:\s+rxe0$" if ON_KERNEL else r"(?m)^hca_id:\s+softrnic0$")
        self.assertRegex(out, r"GID\[ *0\]:\s+\S+, RoCE v2")

    def test_pingpong(self):
        for name in ("rc", "uc", "ud", "srq"):
            for out in self.run_pair([self.tools / f"ibv_{name}_pingpong"], "-g", "0", "-c", "-n", "500"):
                self.assertRegex(out, r"(?m)\d+ iters in")
