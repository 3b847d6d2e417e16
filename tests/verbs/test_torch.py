"""PyTorch of Debian, and Gloo, which it is built on."""

import pathlib
import tempfile
import time

from harness import LONG_TIMEOUT, TIMEOUT, VerbsTest
from test_shared_address import MPIRUN, RC

SCRIPT = pathlib.Path(__file__).parent / "python/train_torch.py"


class Torch(VerbsTest):
    def test_data_parallel_training_with_gradients_by_mpi(self):
        words = [*MPIRUN, "-n", "3", "/usr/bin/python3", "-B", SCRIPT, self.runtime / "store"]
        self.assertIn("3 ranks have the weights of one", self.run_ok(words, timeout=LONG_TIMEOUT, **RC))


class Gloo(VerbsTest):
    def test_collectives_over_its_ibverbs_transport(self):
        program = self.compile("gloo_allreduce.cc", "-lgloo", "-libverbs", compiler="g++")
        for ranks in (2, 4):
            with tempfile.TemporaryDirectory(prefix="softrnic-test-") as directory:
                started = [self.start([program, rank, ranks, directory]) for rank in range(ranks)]
                deadline = time.monotonic() + TIMEOUT
                statuses = [rank.wait(deadline) for rank in started]
                told = "\n".join(rank.describe(status) for rank, status in zip(started, statuses))
                self.assertEqual(statuses, [0] * ranks, told)
                self.assertEqual([rank.output() for rank in started], ["all right\n"] * ranks)
