"""Programs on a NIC that uses every freedom that the specification gives it (`softrnic run --adversarial`)."""

import os
import time
import unittest

from cm import CmTest, rdma_port
from harness import VerbsTest

SEEDS = range(1, 1 + int(os.environ.get("SOFTRNIC_TEST_SEEDS", "3")))


def adversarial(seed):
    return f"--adversarial={seed}"


class LastByte(VerbsTest):
    """A program that takes the last byte of a WRITE for all of them, and its corrected twin."""

    def test_it_works_as_long_as_payload_comes_in_order(self):
        self.assertIn("all bytes were there", self.run_ok([self.compile("last_byte.c", "-libverbs")]))

    def test_it_breaks_within_a_few_seeds(self):
        program = self.compile("last_byte.c", "-libverbs")
        for seed in range(1, 6):
            run = self.start([program], run=[adversarial(seed)])
            status = run.wait(time.monotonic() + 60)
            if status == 3:
                self.assertRegex(run.output(), r"byte \d+ is not there, the last one is")
                return
            self.assertEqual(status, 0, run.describe(status))
        self.fail("no seed has shown the mistake")

    def test_its_corrected_twin_passes_with_100_seeds(self):
        program = self.compile("last_byte.c", "-libverbs", flags=("-Wall", "-Wextra", "-Werror", "-DCORRECT"))
        for seed in range(100):
            self.run_ok([program], run=[adversarial(seed)])


class Seeds(VerbsTest):
    def test_a_run_says_its_seed_first(self):
        program = self.compile("last_byte.c", "-libverbs", flags=("-Wall", "-Wextra", "-Werror", "-DCORRECT"))
        for option, seed in (("--adversarial=77", "77"), ("--adversarial", r"\d+")):
            first = self.run_ok([program], run=[option]).splitlines()[0]
            self.assertRegex(first, rf"^softrnic: adversarial NIC, seed ({seed}); to repeat: --adversarial=\1$")


class Programs(VerbsTest):
    """Public programs move right data all the same."""

    def pairs(self, program, *options, seeds=SEEDS):
        for seed in seeds:
            for out in self.run_pair(program, *options, run=[adversarial(seed)], timeout=120):
                self.assertNotRegex(out, r"(?i)couldn't|failed|error|invalid data")

    def test_rc_pingpong(self):
        self.pairs("ibv_rc_pingpong", "-g", "0", "-n", "200", "-c")

    def test_rc_pingpong_with_events(self):
        self.pairs("ibv_rc_pingpong", "-g", "0", "-n", "200", "-e")

    def test_srq_pingpong(self):
        self.pairs("ibv_srq_pingpong", "-g", "0", "-n", "200", "-c")

    def test_uc_pingpong(self):
        self.pairs("ibv_uc_pingpong", "-g", "0", "-n", "200", "-c")

    def test_ud_pingpong(self):
        self.pairs("ibv_ud_pingpong", "-g", "0", "-n", "200", "-c")

    def test_ib_send_bw(self):
        self.pairs("ib_send_bw", "-x", "0", "-F", "-n", "500")

    def test_ib_send_lat(self):
        self.pairs("ib_send_lat", "-x", "0", "-F", "-n", "200")

    def test_ib_write_bw(self):
        self.pairs("ib_write_bw", "-x", "0", "-F", "-n", "500")

    def test_ib_read_bw(self):
        self.pairs("ib_read_bw", "-x", "0", "-F", "-n", "500")

    def test_ib_atomic_bw(self):
        self.pairs("ib_atomic_bw", "-x", "0", "-F", "-n", "500")


class Rping(CmTest):
    def test_rping(self):
        for seed in SEEDS:
            port, run = rdma_port(), [adversarial(seed)]
            server = self.serve(["rping", "-s", "-C", "20", "-p", port, "-V"], port, run=run)
            self.finish(server, self.start(["rping", "-c", "-a", "127.0.0.1", "-C", "20", "-p", port, "-V"], run=run))


if __name__ == "__main__":
    unittest.main()
