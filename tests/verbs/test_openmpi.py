"""OpenMPI over UCX."""

from harness import LONG_TIMEOUT, VerbsTest


class OpenMpi(VerbsTest):
    def mpirun(self, ranks, transports, **extra):
        program = self.compile("ring.c", compiler="mpicc")
        # Nothing but UCX, and nothing in UCX but the device.
        selection = ["--mca", "pml", "ucx", "--mca", "osc", "ucx", "--mca", "btl", "self"]
        out = self.run_ok(
            ["mpirun", "--allow-run-as-root", "--oversubscribe", *selection, "-n", str(ranks), program],
            timeout=LONG_TIMEOUT, UCX_TLS=transports, UCX_NET_DEVICES="softrnic0:1", UCX_LOG_LEVEL="error", **extra,
        )
        self.assertIn(f"all right with {ranks} ranks", out)

    def test_two_ranks(self):
        self.mpirun(2, "rc_verbs,ud_verbs:aux,self")

    def test_four_ranks(self):
        self.mpirun(4, "rc_verbs,ud_verbs:aux,self")

    def test_two_ranks_from_either_place_of_the_gid_table(self):
        for place in ("0", "1"):
            self.mpirun(2, "rc_verbs,ud_verbs:aux,self", UCX_IB_GID_INDEX=place)

    def test_two_ranks_over_datagrams(self):
        self.mpirun(2, "ud_verbs,self")
