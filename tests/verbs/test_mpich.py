"""MPICH, Debian's build of which is over UCX, and PyPI's over UCX or libfabric."""

import pathlib

import packages
from harness import LONG_TIMEOUT, VerbsTest

TRAIN = pathlib.Path(__file__).parent / "python/train.py"


class Mpich(VerbsTest):
    def mpirun(self, ranks, transports):
        program = self.compile("ring.c", compiler="mpicc.mpich")
        # No shared memory of MPICH's own, and nothing in UCX but the device. Ranks have to find each other's cards by
        # themselves, so one on this machine goes the same way as one elsewhere.
        out = self.run_ok(
            ["mpirun.mpich", "-n", str(ranks), program], timeout=LONG_TIMEOUT,
            MPIR_CVAR_NOLOCAL="1", UCX_TLS=transports,
            UCX_NET_DEVICES="softrnic0:1", UCX_LOG_LEVEL="error",
        )
        self.assertIn(f"all right with {ranks} ranks", out)

    def test_two_ranks(self):
        self.mpirun(2, "rc_verbs,ud_verbs:aux,self")

    def test_three_ranks_over_datagrams(self):
        self.mpirun(3, "ud_verbs,self")


class MpichOfPypi(VerbsTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        (cls.bin,) = packages.mpich().glob("**/bin")
        (cls.python,) = (found.parent for found in packages.mpich().glob("**/dist-packages/mpi4py"))

    def train(self, **extra):
        out = self.run_ok(
            [self.bin / "mpirun", "-n", "2", "/usr/bin/python3", "-B", TRAIN], timeout=LONG_TIMEOUT,
            PYTHONPATH=str(self.python), MPI4PY_LIBMPI=str(self.bin.parent / "lib/libmpi.so.12"), MPIR_CVAR_NOLOCAL="1",
            MPIR_CVAR_DEBUG_SUMMARY="1", **extra,
        )
        self.assertIn("2 ranks have learned what one learns", out)
        return out

    def test_training_a_model_over_ucx(self):
        self.train(MPIR_CVAR_CH4_NETMOD="ucx", UCX_TLS="rc_verbs,ud_verbs:aux,self", UCX_NET_DEVICES="softrnic0:1",
                   UCX_LOG_LEVEL="error")

    def test_training_a_model_over_libfabric(self):
        out = self.train(MPIR_CVAR_CH4_NETMOD="ofi", FI_PROVIDER="verbs;ofi_rxm")
        self.assertRegex(out, r"provider: verbs;ofi_rxm")
