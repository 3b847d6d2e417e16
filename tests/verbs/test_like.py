"""Devices that report the limits of real ones, and refuse what those would (`softrnic run --like`)."""

import time
import unittest

from cm import CmTest, rdma_port
from harness import TIMEOUT, VerbsTest, free_port

MODELS = ["mlx5", "irdma", "bnxt_re", "rxe"]


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

    def test_a_nic_with_every_freedom_frees_no_slot_earlier(self):
        for seed in (1, 2, 3):
            out = self.run_ok([self.program, "slots"], run=["--like=mlx5", f"--adversarial={seed}"])
            self.assertIn("complete: ENOMEM", out)
            self.assertIn("after a reset: one by one", out)

    def test_each_address_is_there_for_roce_v1_first(self):
        self.assertEqual(self.asks("gids"), ["0 v2 ok", "1 v2 ok"])
        self.assertEqual(self.asks("gids", "mlx5"), ["0 v1 EINVAL", "1 v2 ok", "2 v1 EINVAL", "3 v2 ok"])

    def test_what_it_has(self):
        for what in ["mw1", "mw2", "dm", "null", "odp", "xrcd"]:
            with self.subTest(what):
                self.assertEqual(self.asks(f"make {what}", "mlx5"), ["ok"])


class Irdma(Imitations):
    def test_it_reports_the_figures_of_an_e810(self):
        self.assertEqual(self.asks("query", "irdma"), [
            "vendor_id 0x8086 part_id 5522 fw_ver 1.74 hw_ver 2",
            "max_qp_wr 8127 max_sge 13 max_cqe 1048574 rd_atom 127 init 128 atomic 0",
            "srq 0 wr 0 sge 0 mcast 4096 ack_delay 0 dm 0",
            "odp 0 xrc 0 2b 1 resize 0 gids 32 message 2147483647",
        ])  # fmt: skip

    def test_queues(self):
        self.assert_all("irdma", [
            # 258 quanta of 32 bytes are the device's.
            ("qp rc 1 1 1 1 0", "1 1 1 1 16", "127 7 1 1 0"),
            ("qp rc 128 128 1 1 0", "128 128 1 1 16", "383 255 1 1 0"),
            ("qp rc 16255 1 1 1 0", "16255 1 1 1 16", "16255 7 1 1 0"),
            ("qp rc 16256 1 1 1 0", "16256 1 1 1 16", "EINVAL"),
            ("qp rc 8127 1 6 1 0", "8127 1 6 1 96", "8127 7 6 1 0"),
            ("qp rc 8128 1 6 1 0", "8128 1 6 1 96", "EINVAL"),
            ("qp rc 4063 1 13 1 0", "4063 1 13 1 208", "4063 7 13 1 0"),
            ("qp rc 4064 1 13 1 0", "4064 1 13 1 208", "EINVAL"),
            ("qp rc 1 32767 1 1 0", "1 32767 1 1 16", "127 32767 1 1 0"),
            ("qp rc 1 32768 1 1 0", "1 32768 1 1 16", "EINVAL"),
            ("qp rc 1 1 1 1 101", "1 1 1 1 101", "63 7 1 1 101"),
            ("qp rc 1 1 1 1 102", "1 1 1 1 102", "EINVAL"),
            ("qp rc 1 1 14 1 0", "1 1 14 1 224", "EINVAL"),
            ("qp ud 1 1 1 14 0", "1 1 1 14 16", "EINVAL"),
            ("qp uc 1 1 1 1 0", "1 1 1 1 16", "EOPNOTSUPP"),
            ("qp rc 1 1 1 1 0 atomic", "1 1 1 1 16", "EOPNOTSUPP"),
            ("cq 100", "128", "100"),
            ("cq 1048574", "1048576", "1048574"),
            ("cq 1048575", "1048576", "EINVAL"),
            ("srq 16 1", "16 1", "EOPNOTSUPP"),
        ])  # fmt: skip

    def test_requests_and_attributes(self):
        self.assert_all("irdma", [
            ("atomics 128 127", "ok", "ok"),
            ("atomics 128 128", "ok", "EINVAL"),
            ("post cas", "ok", "EINVAL"),
            ("post add", "ok", "EINVAL"),
            ("post write", "ok", "ok"),
            ("gids", "0 v2 ok; 1 v2 ok", "0 v2 ok; 1 v2 ok"),
        ])  # fmt: skip
        self.assertEqual(self.asks("slots", "irdma")[0], "complete: ENOMEM")

    def test_what_it_has(self):
        table = [("mw1", "ok"), ("mw2", "ok")]
        table += [(what, "EOPNOTSUPP") for what in ("dm", "null", "odp", "xrcd")]
        self.assert_all("irdma", [(f"make {what}", "ok", answer) for what, answer in table])


class BnxtRe(Imitations):
    def test_it_reports_the_figures_of_a_bcm57608(self):
        self.assertEqual(self.asks("query", "bnxt_re")[1:], [
            "max_qp_wr 4351 max_sge 13 max_cqe 4194304 rd_atom 126 init 126 atomic 1",
            "srq 1048576 wr 1048576 sge 32 mcast 0 ack_delay 16 dm 0",
            "odp 0 xrc 0 2b 0 resize 0 gids 256 message 1073741824",
        ])  # fmt: skip
        self.assertIn("vendor_id 0x14e4 part_id 5984", self.asks("query", "bnxt_re")[0])

    def test_queues(self):
        self.assert_all("bnxt_re", [
            ("qp rc 4351 4351 13 13 208", "4351 4351 13 13 208", "4351 4351 13 13 208"),
            ("qp rc 4352 1 1 1 0", "4352 1 1 1 16", "EINVAL"),
            ("qp rc 1 4352 1 1 0", "1 4352 1 1 16", "EINVAL"),
            ("qp rc 1 1 14 1 0", "1 1 14 1 224", "EINVAL"),
            ("qp rc 1 1 1 1 209", "1 1 1 1 209", "EINVAL"),
            ("qp rc 1 1 1 1 0", "1 1 1 1 16", "1 1 1 1 0"),
            ("qp uc 1 1 1 1 0", "1 1 1 1 16", "EOPNOTSUPP"),
            ("cq 100", "128", "100"),
            ("srq 16 1 32", "16 1; ok", "16 1; EINVAL"),
        ])  # fmt: skip

    def test_requests_and_attributes(self):
        self.assert_all("bnxt_re", [
            ("atomics 126 126", "ok", "ok"),
            ("atomics 126 127", "ok", "EINVAL"),
            ("post cas", "ok", "ok"),
            ("gids", "0 v2 ok; 1 v2 ok", "0 v1 EINVAL; 1 v2 ok; 2 v1 EINVAL; 3 v2 ok"),
        ])  # fmt: skip
        self.assertEqual(self.asks("slots", "bnxt_re")[0], "complete: ENOMEM")

    def test_what_it_has(self):
        self.assert_all("bnxt_re", [(f"make {what}", "ok", "EOPNOTSUPP") for what in
                                    ("mw1", "mw2", "dm", "null", "odp", "xrcd")])  # fmt: skip


class Rxe(Imitations):
    def test_it_reports_the_figures_of_linux(self):
        self.assertEqual(self.asks("query", "rxe"), [
            "vendor_id 0xffffff part_id 0 fw_ver 0.0.0 hw_ver 0",
            "max_qp_wr 1048576 max_sge 32 max_cqe 32767 rd_atom 128 init 128 atomic 1",
            "srq 917503 wr 1048576 sge 27 mcast 8192 ack_delay 15 dm 0",
            "odp 1 xrc 0 2b 1 resize 1 gids 1024 message 2147483648",
        ])  # fmt: skip

    def test_queues(self):
        self.assert_all("rxe", [
            ("qp rc 100 100 1 3 0", "100 100 1 3 16", "127 127 1 3 16"),
            ("qp rc 1 1 1 1 100", "1 1 1 1 100", "1 1 6 1 100"),
            ("qp rc 1 1 32 1 512", "1 1 32 1 512", "1 1 32 1 512"),
            ("qp rc 1 1 1 1 513", "EINVAL", "EINVAL"),
            ("qp uc 1 1 1 1 0", "1 1 1 1 16", "1 1 1 1 16"),
            ("cq 32767", "32768", "32767"),
            ("cq 32768", "65536", "EINVAL"),
            ("cq 100", "128", "127"),
            ("srq 100 27", "100 27", "127 27"),
            ("srq 100 28", "100 28", "EINVAL"),
            ("srq 16 1 32", "16 1; ok", "31 1; ok"),
        ])  # fmt: skip

    def test_requests_and_attributes(self):
        self.assert_all("rxe", [
            ("atomics 128 128", "ok", "ok"),
            ("post cas", "ok", "ok"),
            ("slots", "complete: ok", "complete: ok"),
            ("gids", "0 v2 ok; 1 v2 ok", "0 v2 ok; 1 v2 ok"),
        ])  # fmt: skip

    def test_what_it_has(self):
        table = [("mw1", "ok"), ("mw2", "ok"), ("odp", "ok")]
        table += [(what, "EOPNOTSUPP") for what in ("dm", "null", "xrcd")]
        self.assert_all("rxe", [(f"make {what}", "ok", answer) for what, answer in table])


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


class Programs(CmTest):
    """Programs that ask first run on each."""

    def pairs(self, program, *options, expected):
        for like in MODELS:
            with self.subTest(like):
                for out in self.run_pair(program, *options, run=[f"--like={like}"]):
                    self.assertIn(expected, out)

    def test_pingpong_with_a_gid_for_roce_v2(self):
        self.pairs("ibv_rc_pingpong", "-g", "1", "-n", "200", expected="200 iters in")

    def test_perftest(self):
        for program, *options in (["ib_send_bw"], ["ib_write_lat", "-I", "96"], ["ib_read_bw"]):
            with self.subTest(program):
                self.pairs(program, "-n", "100", *options, expected="#bytes")

    def test_perftest_asks_an_e810_for_too_many_inline_bytes(self):
        """As linux-rdma/perftest#139 says of the real one."""
        words, run = ["ib_write_lat", "-n", "100", "-p", port := free_port()], ["--like=irdma"]
        server = self.serve_by_tcp(words, port, run=run)
        for program in (self.start([*words, "127.0.0.1"], run=run), server):
            self.assertEqual(program.wait(time.monotonic() + TIMEOUT), 1)
            self.assertIn("Unable to create QP.", program.output())

    def test_rdma_cm_finds_a_gid_for_roce_v2(self):
        for like in MODELS:
            with self.subTest(like):
                port, run = rdma_port(), [f"--like={like}"]
                server = self.serve(["rping", "-s", "-C", "3", "-p", str(port)], port, run=run)
                client = self.start(["rping", "-c", "-a", "127.0.0.1", "-C", "3", "-p", str(port), "-V"], run=run)
                self.finish(server, client)


if __name__ == "__main__":
    unittest.main()
