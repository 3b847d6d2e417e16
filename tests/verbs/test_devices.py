"""The device as ibverbs-utils show it."""

import re

from harness import VerbsTest


class Devices(VerbsTest):
    def test_ibv_devices_lists_one_device(self):
        out = self.run_ok(["ibv_devices"])
        self.assertRegex(out, r"(?m)^\s+softrnic0\s+[0-9a-f]{16}$")

    def test_two_devices_can_be_asked_for(self):
        out = self.run_ok(["ibv_devices"], run=["--device", "one=udp:127.9.8.1", "--device", "two=udp:127.9.8.2"])
        self.assertEqual(re.findall(r"(?m)^\s+(one|two)\s+[0-9a-f]{16}$", out), ["one", "two"])

    def test_devinfo_is_complete_and_honest(self):
        out = self.run_ok(["ibv_devinfo", "-v"])
        facts = dict(re.findall(r"(?m)^\s*([\w ]+?)(?:\[ *0\])?:\s+(.+?)\s*$", out))
        self.assertEqual(facts["state"], "PORT_ACTIVE (4)")
        self.assertEqual(facts["link_layer"], "Ethernet")
        self.assertEqual(facts["max_mtu"], "4096 (5)")
        self.assertEqual(facts["atomic_cap"], "ATOMIC_HCA (1)")
        self.assertIn("RoCE v2", facts["GID"])
        self.assertRegex(facts["GID"], r"::ffff:127\.")
        # At least as wide as the kernel's rxe.
        for name, least in {
            "max_qp": 1048560,
            "max_qp_wr": 1048576,
            "max_sge": 32,
            "max_cq": 1048576,
            "max_cqe": 32767,
            "max_mr": 524287,
            "max_mw": 524287,
            "max_pd": 1048576,
            "max_qp_rd_atom": 128,
            "max_qp_init_rd_atom": 128,
            "max_srq": 917503,
            "max_srq_wr": 1048576,
            "max_srq_sge": 27,
            "max_mcast_grp": 8192,
            "max_mcast_qp_attach": 56,
            "max_ah": 32767,
            "gid_tbl_len": 1024,
            "pkey_tbl_len": 1,
        }.items():
            self.assertGreaterEqual(int(facts[name].split()[0], 0), least, name)

    def test_a_device_that_makes_no_sense_is_said_loudly(self):
        program = self.start(["ibv_devices"], run=["--device", "udp:300.1.1.1"])
        self.assertNotEqual(program.process.wait(20), 0)
        self.assertIn("300.1.1.1", program.output())

    def test_a_device_that_cannot_be_opened_is_said_loudly(self):
        # An address of documentation (RFC 5737), which no machine has.
        program = self.start(["ibv_devinfo"], run=["--device", "udp:192.0.2.77"])
        self.assertNotEqual(program.process.wait(20), 0)
        self.assertIn("192.0.2.77", program.output())

    def test_programs_find_the_device_in_sysfs_and_dev(self):
        self.run_ok(["ibv_devices"])
        attributes = "/sys/class/infiniband/softrnic0/ports/1/gid_attrs"
        self.assertEqual(self.run_ok(["cat", f"{attributes}/types/0"]), "RoCE v2\n")
        self.assertEqual(self.run_ok(["cat", f"{attributes}/ndevs/0"]), "lo\n")
        self.assertEqual(self.run_ok(["ls", "/sys/class/infiniband/softrnic0/device/net"]), "lo\n")
        self.assertEqual(self.run_ok(["stat", "-c", "%F", "/dev/infiniband/uverbs0"]), "character special file\n")
        self.run_ok(["test", "-r", "/dev/infiniband/uverbs0", "-a", "-w", "/dev/infiniband/uverbs0"])
        # What is not ours is left alone.
        missing = self.start(["stat", "/dev/infiniband/uverbs1"])
        self.assertNotEqual(missing.process.wait(20), 0)
        self.assertEqual(self.run_ok(["cat", "/proc/sys/kernel/ostype"]), "Linux\n")
