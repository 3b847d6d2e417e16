"""The device as ibverbs-utils show it."""

import ipaddress
import re
import signal
import time

from harness import ON_KERNEL, TIMEOUT, VerbsTest


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
        # At least as wide as the kernel's rxe, but for queue pairs: an address has as many, in 64 parts for as many
        # processes.
        for name, least in {
            "max_qp": 262142,
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
        attributes = "/sys/class/infiniband/softrnic0/ports/1/gid_attrs"
        for place in ("0", "1"):
            self.assertEqual(self.run_ok(["cat", f"{attributes}/types/{place}"]), "RoCE v2\n")
            self.assertEqual(self.run_ok(["cat", f"{attributes}/ndevs/{place}"]), "lo\n")
        self.assertEqual(self.run_ok(["ls", "/sys/class/infiniband/softrnic0/device/net"]), "lo\n")
        self.assertEqual(self.run_ok(["stat", "-c", "%F", "/dev/infiniband/uverbs0"]), "character special file\n")
        self.run_ok(["test", "-r", "/dev/infiniband/uverbs0", "-a", "-w", "/dev/infiniband/uverbs0"])
        # What is not ours is left alone.
        missing = self.start(["stat", "/dev/infiniband/uverbs1"])
        self.assertNotEqual(missing.process.wait(20), 0)
        self.assertEqual(self.run_ok(["cat", "/proc/sys/kernel/ostype"]), "Linux\n")

    def test_programs_find_the_device_from_where_they_have_gone(self):
        state = "softrnic0/ports/1/state"
        for directory in ("/sys/class/infiniband", "/sys/class/infiniband/softrnic0/ports"):
            rest = f"/sys/class/infiniband/{state}".removeprefix(f"{directory}/")
            self.assertEqual(self.run_ok(["sh", "-c", f"cd {directory} && cat {rest}"]), "4: ACTIVE\n")
        self.assertEqual(self.run_ok(["sh", "-c", f"cd /sys/class && cat infiniband/{state}"]), "4: ACTIVE\n")
        self.assertEqual(self.run_ok(["sh", "-c", "cd /sys && ls class/infiniband"]), "softrnic0\n")
        program = self.compile("sysfs.c")
        self.assertIn("all right", self.run_ok([program, "softrnic0"]))

    def test_the_gid_is_at_both_places_that_clients_have_built_in(self):
        out = self.run_ok(["ibv_devinfo", "-v"], run=["--device", "udp:127.9.8.3"])
        self.assertEqual(re.findall(r"GID\[ *(\d+)\]:\s+(\S+), RoCE v2", out),
                         [("0", "::ffff:127.9.8.3"), ("1", "::ffff:127.9.8.3")])

    def test_ibstat_and_ibstatus_say_what_the_verbs_say(self):
        device = ["--device", "udp:127.9.8.4"]
        info = self.run_ok(["ibv_devinfo", "-v"], run=device)
        told = dict(re.findall(r"(?m)^\s*([\w ]+):\s+(.+?)\s*$", info))
        gid = ipaddress.ip_address(re.search(r"GID\[ *0\]:\s+([^\s,]+)", info)[1])
        lanes, rate = int(told["active_width"].split("X")[0]), float(told["active_speed"].split()[0])
        status = self.run_ok(["ibstatus"], run=device)
        self.assertIn("Infiniband device 'softrnic0' port 1 status:", status)
        self.assertIn(f"default gid:\t {gid.exploded}", status)
        self.assertNotIn("unknown", status)
        out = self.run_ok(["ibstat"], run=device)
        facts = dict(re.findall(r"(?m)^\s*([\w ]+): (.+)$", out))
        self.assertEqual(facts["Node GUID"], "0x" + told["node_guid"].replace(":", ""))
        self.assertEqual(facts["System image GUID"], "0x" + told["sys_image_guid"].replace(":", ""))
        self.assertEqual((facts["State"], facts["Physical state"]), ("Active", "LinkUp"))
        self.assertEqual((facts["Rate"], facts["Link layer"]), (f"{lanes * rate:g}", told["link_layer"]))
        self.assertEqual(int(facts["Capability mask"], 16), int(told["port_cap_flags"], 16))
        if not ON_KERNEL:  # rxe gives ibstat no version
            self.assertEqual(facts["Firmware version"], told["fw_ver"])
            self.assertEqual((gid, facts["Rate"]), (ipaddress.ip_address("::ffff:127.9.8.4"), "10"))

    def test_a_program_that_does_not_close_its_device_leaves_no_socket(self):
        leaves = self.compile("leaves.c", "-libverbs")
        self.assertEqual(self.run_ok([leaves]), "softrnic0\n")
        self.assertEqual([path.name for path in self.runtime.rglob("*.sock")], [])
        # One that is killed leaves it to the next.
        killed = self.start([leaves, "abort"])
        self.assertEqual(killed.wait(time.monotonic() + TIMEOUT), -signal.SIGABRT, killed.output())
        self.assertEqual(len(list(self.runtime.rglob("*.sock"))), 1)
        self.run_ok([leaves])
        self.assertEqual([path.name for path in self.runtime.rglob("*.sock")], [])

    def test_ibv_asyncwatch_opens_the_device_and_waits(self):
        program = self.start(["stdbuf", "-oL", "ibv_asyncwatch", "-d", "softrnic0"])
        self.wait_until(lambda: re.search(r"softrnic0: async event FD \d+", program.output()), program)
