"""Several devices at once, and what programs take them for: their places on PCI, NUMA nodes and speeds."""

import json
import re
import subprocess
import time

from harness import SOFTRNIC, TIMEOUT, VerbsTest, free_port, is_listening

# Four: two of a function each, below bridges of their own, and two functions of one card.
FUNCTIONS = {
    "mlx5_0": "/sys/devices/pci0000:a0/0000:a0:01.0/0000:a1:00.0",
    "mlx5_1": "/sys/devices/pci0000:a0/0000:a0:02.0/0000:a2:00.0",
    "mlx5_2": "/sys/devices/pci0000:e0/0000:e0:01.0/0000:e1:00.0",
    "mlx5_3": "/sys/devices/pci0000:e0/0000:e0:01.0/0000:e1:00.1",
}
RAILS = ["--device", "mlx5_[0-1]=udp:127.7.37.[1-2]?pci=0000:a0:0[1,2].0/0000:a[1,2]:00.0&numa=0&speed=400Gbit",
         "--device", "mlx5_[2-3]=udp:127.7.37.[3-4]?pci=0000:e0:01.0/0000:e1:00.[0-1]&numa=1&speed=100Gbit"]  # fmt: skip


class Rails(VerbsTest):
    def cat(self, *files, run=RAILS):
        return self.run_ok(["cat", *files], run=run).splitlines()

    def test_a_list_makes_eight_devices_with_addresses_of_their_own(self):
        out = self.run_ok(["ibv_devinfo", "-v"], run=["--device", "mlx5_[0-7]=udp"])
        self.assertEqual(re.findall(r"hca_id:\s+(\S+)", out), [f"mlx5_{number}" for number in range(8)])
        self.assertEqual(len(set(re.findall(r"GID\[ *0\]:\s+::ffff:(127\.\S+), RoCE v2", out))), 8)
        self.assertEqual(len(set(re.findall(r"node_guid:\s+(\S+)", out))), 8)

    def test_sysfs_says_what_the_verbs_say(self):
        told = self.run_ok(["ibv_devinfo", "-v"], run=RAILS).split("hca_id:")[1:]
        self.assertEqual(len(told), 4)
        for one in told:
            name = one.split()[0]
            facts = dict(re.findall(r"(?m)^\s*([\w ]+?)(?:\[ *0\])?:\s+(.+?)\s*$", one))
            files = ("node_guid", "sys_image_guid", "ports/1/state", "ports/1/phys_state", "ports/1/rate", "ports/1/link_layer")
            guid, image, state, physical, rate, layer = self.cat(*(f"/sys/class/infiniband/{name}/{file}" for file in files))
            self.assertEqual((guid, image, layer), (facts["node_guid"], facts["sys_image_guid"], facts["link_layer"]))
            self.assertEqual((state, physical), ("4: ACTIVE", "5: LinkUp"))
            self.assertEqual((facts["state"], facts["phys_state"]), ("PORT_ACTIVE (4)", "LINK_UP (5)"))
            lanes, speed = facts["active_width"], facts["active_speed"]
            fast = name in ("mlx5_0", "mlx5_1")
            self.assertEqual(rate, "400 Gb/sec (4X NDR)" if fast else "100 Gb/sec (4X EDR)")
            self.assertIn("4X", lanes)
            self.assertIn("(128)" if fast else "(32)", speed)
        # The links of the class are the kernel's.
        for name, function in FUNCTIONS.items():
            link = self.run_ok(["readlink", f"/sys/class/infiniband/{name}"], run=RAILS)
            self.assertEqual(link, f"../..{function.removeprefix('/sys')}/infiniband/{name}\n")

    def test_programs_find_the_place_of_a_device_in_the_ways_that_they_have(self):
        program = self.compile("places.c")
        for name, function in FUNCTIONS.items():
            bridge, bus_id = function.rsplit("/", 1)
            node = "0" if name in ("mlx5_0", "mlx5_1") else "1"
            out = self.run_ok([program, name, bus_id], run=RAILS).splitlines()
            self.assertEqual(out, [
                f"NCCL {function} {function} {bridge}", "  pci 0x020000 32.0 GT/s PCIe 16 32.0 GT/s PCIe",
                f"UCX {function}/infiniband/{name} {function} {node}", f"Mooncake {function} {node}",
            ])  # fmt: skip
            # These follow links themselves.
            for words in (["readlink", "-f"], ["python3", "-c", "import os, sys; print(os.path.realpath(sys.argv[1]))"]):
                self.assertEqual(self.run_ok([*words, f"/sys/class/infiniband/{name}/device"], run=RAILS), f"{function}\n")

    def test_a_port_that_changes_changes_wherever_it_is_looked_for(self):
        state = f"{FUNCTIONS['mlx5_1']}/infiniband/mlx5_1/ports/1/state"
        program = self.start([self.compile("rail_state.c", "-libverbs"), "mlx5_1", state], run=RAILS)
        self.wait_for_line(program, "begins: 4: ACTIVE")
        subprocess.run([SOFTRNIC, "link", "mlx5_1", "down"], env=self.env, check=True, timeout=TIMEOUT)
        self.wait_for_line(program, "port error: 1: DOWN")

    def wait_for_line(self, program, line):
        self.wait_until(lambda: line in program.output().splitlines(), program)

    def test_the_speed_of_a_port_is_its_own_until_something_slower_is_commanded(self):
        program = self.start([self.compile("ports.c", "-libverbs"), "mlx5_0", "mlx5_1"], run=RAILS)
        self.wait_for_line(program, "send: 0")
        for command, speed in (("off", "400Gbit"), ("1Gbit", "1Gbit"), ("off", "400Gbit")):
            subprocess.run([SOFTRNIC, "link", "mlx5_0", "rate", command], env=self.env, check=True, timeout=TIMEOUT)
            said = subprocess.run([SOFTRNIC, "link", "mlx5_0"], env=self.env, check=True, capture_output=True, text=True).stdout
            self.assertRegex(said, rf"(?m)^mlx5_0 .* ACTIVE +{speed}\b")
        self.assertEqual(program.output().count("device speed change"), 4, program.output())

    def test_hwloc_puts_them_where_they_are(self):
        out = self.run_ok(["lstopo-no-graphics", "--of", "console", "--whole-io"], run=RAILS)
        for name in FUNCTIONS:
            self.assertIn(f'OpenFabrics "{name}"', out)

    def test_two_devices_at_one_place_are_refused(self):
        program = self.start(["true"], run=["--device", "a[0-1]=udp?pci=0000:a1:00.0"])
        self.assertEqual(program.wait(time.monotonic() + TIMEOUT), 2)
        self.assertIn("a0 and a1 are at the same place of PCI", program.output())


class Ucx(VerbsTest):
    def test_ucx_knows_each_rail_by_its_place(self):
        out = self.run_ok(["ucx_info", "-d"], run=RAILS)
        for name in FUNCTIONS:
            self.assertRegex(out, rf"Transport: rc_verbs\n#\s+Device: {name}:1\n#\s+Type: network\n#\s+System device: {name} \(")

    def test_ucx_sends_over_two_rails(self):
        port = free_port()
        extra = {"UCX_TLS": "rc_verbs,ud_verbs:aux,self", "UCX_NET_DEVICES": "mlx5_0:1,mlx5_1:1", "UCX_LOG_LEVEL": "error"}
        server = self.start(["ucx_perftest", "-p", port], run=["--device", "mlx5_[0-1]=udp"], **extra)
        self.wait_until(lambda: is_listening(port), server)
        client = self.start(["ucx_perftest", "127.0.0.1", "-p", port, "-t", "tag_bw", "-s", "4000000", "-n", "100000000"],
                            run=["--device", "mlx5_[0-1]=udp"], **extra)  # fmt: skip
        self.wait_until(lambda: self.moves(client.pid), client, server)

    def moves(self, pid):
        """Whether both rails of a process have sent a good many packets."""
        done = subprocess.run([SOFTRNIC, "stats", "--json"], env=self.env, capture_output=True, timeout=TIMEOUT)
        if done.returncode != 0:
            return False
        rails = [nic for nic in json.loads(done.stdout)["devices"] if nic["pid"] == pid]
        return len(rails) == 2 and all(nic["counters"]["sent_pkts"] + nic["counters"]["rcvd_pkts"] > 5000 for nic in rails)
