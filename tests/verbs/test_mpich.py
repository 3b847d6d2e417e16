"""MPICH, Debian's build of which is over UCX."""

from harness import VerbsTest


class Mpich(VerbsTest):
    def mpirun(self, ranks, transports):
        program = self.compile("ring.c", compiler="mpicc.mpich")
        # No shared memory of MPICH's own, and nothing in UCX but the device. Ranks have to find each other's cards by
        # themselves, so one on this machine goes the same way as one elsewhere.
        out = self.run_ok(
            ["mpirun.mpich", "-n", str(ranks), program], timeout=180,
            MPIR_CVAR_NOLOCAL="1", UCX_TLS=transports,
            UCX_NET_DEVICES="softrnic0:1", UCX_LOG_LEVEL="error",
        )
        self.assertIn(f"all right with {ranks} ranks", out)

    def test_two_ranks(self):
        self.mpirun(2, "rc_verbs,ud_verbs:aux,self")

    def test_three_ranks_over_datagrams(self):
        self.mpirun(3, "ud_verbs,self")
