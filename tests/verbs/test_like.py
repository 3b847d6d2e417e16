"""Devices that report the limits of real ones, and refuse what those would (`softrnic run --like`)."""

import time
import unittest

from harness import VerbsTest


class Imitations(VerbsTest):
    """The same requests, to a device that imitates none and to one that does."""

    def setUp(self):
        super().setUp()
        self.program = self.compile("like.c", "-libverbs")

    def asks(self, words, like=None):
        """What the program gets, in lines."""
        run = [f"--like={like}"] if like else []
        return self.run_ok([self.program, *words.split()], run=run).splitlines()

    def assert_all(self, like, table):
        """Each request gets the first answer by itself, and the second one from the imitation."""
        for words, own, imitated in table:
            with self.subTest(words):
                if own is not None:
                    self.assertEqual("; ".join(self.asks(words)), own)
                self.assertEqual("; ".join(self.asks(words, like)), imitated)


class Mlx5(Imitations):
    def test_it_reports_the_figures_of_a_connectx_5(self):
        self.assertEqual(self.asks("query", "mlx5"), [
            "vendor_id 0x2c9 part_id 4119 fw_ver 16.27.1016 hw_ver 0",
            "max_qp_wr 32768 max_sge 30 max_cqe 4194303 rd_atom 16 init 16 atomic 1",
            "srq 1048576 wr 32767 sge 31 mcast 8192 ack_delay 16 dm 131072",
            "odp 1 xrc 1 2b 1 resize 0 gids 255 message 1073741824",
        ])  # fmt: skip

    def test_queue_pairs(self):
        self.assert_all("mlx5", [
            # An RC request has room for binding a window: 192 bytes and an element are four blocks of 64 bytes, and the
            # queue has 32,768 blocks.
            ("qp rc 8192 1 1 1 0", "8192 1 1 1 16", "8192 4 1 1 60"),
            ("qp rc 8193 1 1 1 0", "8193 1 1 1 16", "EINVAL"),
            ("qp rc 100 100 1 3 0", "100 100 1 3 16", "128 128 1 4 60"),
            ("qp rc 1 32768 1 1 0", None, "1 32768 1 1 60"),
            ("qp rc 1 32769 1 1 0", "1 32769 1 1 16", "EINVAL"),
            ("qp rc 1 1 30 30 0", "1 1 30 30 480", "1 1 30 32 508"),
            ("qp rc 1 1 31 1 0", "1 1 31 1 496", "EINVAL"),
            ("qp rc 1 1 1 31 0", "1 1 1 31 16", "EINVAL"),
            ("qp rc 1 1 1 1 828", "EINVAL", "1 4 1 1 828"),
            ("qp rc 1 1 1 1 829", "EINVAL", "EINVAL"),
            ("qp ud 1 1 1 1 956", "EINVAL", "1 4 1 1 956"),
            ("qp ud 1 1 1 1 957", "EINVAL", "EINVAL"),
            # What it is not used for needs no room.
            ("qp rc 32768 1 1 1 0 send", "32768 1 1 1 16", "32768 4 1 1 44"),
            ("qp rc 1 1 1 1 1004 send", "EINVAL", "1 4 1 1 1004"),
            ("qp rc 1 1 1 1 1005 send", "EINVAL", "EINVAL"),
            ("qp rc 1 1 1 1 989 write", "EINVAL", "EINVAL"),
            ("qp rc 1 1 1 1 972 atomic", "EINVAL", "1 4 1 1 972"),
        ])  # fmt: skip

    def test_other_queues(self):
        self.assert_all("mlx5", [
            ("cq 1", "2", "1"),
            ("cq 2", "4", "3"),
            ("cq 4194303", "4194304", "4194303"),
            ("cq 4194304", "4194304", "EINVAL"),
            ("srq 100 1", "100 1", "127 1"),
            ("srq 100 2", "100 2", "127 3"),
            ("srq 32767 31", "32767 31", "32767 31"),
            ("srq 32768 1", "32768 1", "EINVAL"),
            ("srq 16 32", "16 32", "EINVAL"),
            ("srq 16 1 32", "16 1; ok", "31 1; EINVAL"),
        ])  # fmt: skip

    def test_attributes(self):
        self.assert_all("mlx5", [
            ("atomics 16 16", "ok", "ok"),
            ("atomics 17 16", "ok", "EINVAL"),
            ("atomics 16 17", "ok", "EINVAL"),
        ])  # fmt: skip

    def test_send_slots_are_free_when_a_completion_was_polled(self):
        self.assertEqual(self.asks("slots"), ["complete: ok"])
        self.assertEqual(self.asks("slots", "mlx5"), [
            "complete: ENOMEM", "first polled: half", "second polled: half", "after a reset: one by one",
        ])  # fmt: skip

    def test_each_address_is_there_for_roce_v1_first(self):
        self.assertEqual(self.asks("gids"), ["0 v2 ok", "1 v2 ok"])
        self.assertEqual(self.asks("gids", "mlx5"), ["0 v1 EINVAL", "1 v2 ok", "2 v1 EINVAL", "3 v2 ok"])

    def test_what_it_has(self):
        for what in ["mw1", "mw2", "dm", "null", "odp", "xrcd"]:
            with self.subTest(what):
                self.assertEqual(self.asks(f"make {what}", "mlx5"), ["ok"])


class Choices(Imitations):
    def test_a_device_may_be_unlike_the_others(self):
        devices = ["--device=a=udp:127.7.41.1?like=mlx5,b=udp:127.7.41.2"]
        out = self.run_ok(["ibv_devinfo", "-v"], run=devices)
        self.assertRegex(out, r"(?s)hca_id:\s*a\b.*vendor_id:\s*0x02c9.*hca_id:\s*b\b.*vendor_id:\s*0xffffff")

    def test_sysfs_says_the_same(self):
        out = self.run_ok(["sh", "-c", "cd /sys/class/infiniband/* && cat hca_type fw_ver ports/1/gid_attrs/types/[0-3]"],
                          run=["--like=mlx5"])  # fmt: skip
        self.assertEqual(out.splitlines(), ["MT4119", "16.27.1016", "IB/RoCE v1", "RoCE v2", "IB/RoCE v1", "RoCE v2"])

    def test_an_unknown_device_is_refused(self):
        program = self.start(["true"], run=["--like=x"])
        self.assertEqual(program.wait(time.monotonic() + 60), 2)
        self.assertIn("there is no such device: use mlx5", program.output())


class Programs(VerbsTest):
    """Programs that ask first run on each."""

    def test_rdma_cm_programs(self):
        for out in self.run_pair("ibv_rc_pingpong", "-g", "1", "-n", "200", run=["--like=mlx5"]):
            self.assertIn("200 iters in", out)


if __name__ == "__main__":
    unittest.main()
