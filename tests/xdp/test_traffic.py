"""Every operation between hosts, over AF_XDP on both sides or on one; every byte is checked by the workers."""

import pathlib
import subprocess
import sys

from lab import OPERATIONS, TIMEOUT, Connection, LabTest, has_vlans, kernel_is, note

V4 = ("10.77.0.1", "10.77.0.2")
V6 = ("fd77::1", "fd77::2")

# Enough that each operation is there dozens of times.
MESSAGES = 600


class Traffic(LabTest):
    def exchange(self, near, far, addresses, messages=MESSAGES, **path):
        connection = Connection(near, far, *addresses, **path)
        connection.drive(messages=messages)
        finished = connection.finish()
        self.assertEqual(sorted(finished["messages"]), sorted(OPERATIONS))
        self.assertEqual(sum(finished["messages"].values()), messages)
        connection.drop()
        return finished

    def settle(self, *workers):
        for worker in workers:
            counters = worker.settled()["counters"]
            wrong = ("drop_icrc", "drop_malformed", "drop_link_malformed", "drop_wrong_address", "send_err")
            self.assertEqual({name: counters[name] for name in wrong}, dict.fromkeys(wrong, 0))
            worker.end()

    def devices(self, lab, near, far):
        addresses = {"h1": V4[0], "h2": V4[1]}
        spec = {"xdp": "xdp:eth0", "udp": None}
        return [
            self.worker(lab, host, spec[kind] or f"udp:{addresses[host]}")
            for host, kind in (("h1", near), ("h2", far))
        ]

    def test_xdp_on_both_sides_with_every_mtu_and_family(self):
        lab = self.lab("--mtu", "4500")
        near, far = self.devices(lab, "xdp", "xdp")
        self.assertIn("native", near.opened["mode"])
        obtained = near.opened["mode"].split("; refused")[0]
        self.assertEqual("multi-buffer" in obtained, kernel_is(6, 6))
        self.assertEqual(near.opened["active_mtu"], 4096 if kernel_is(6, 6) else 2048)
        for addresses in (V4, V6):
            for mtu in (256, 512, 1024, 2048, 4096):
                if mtu <= near.opened["active_mtu"]:
                    with self.subTest(mtu=mtu, addresses=addresses):
                        self.exchange(near, far, addresses, mtu=mtu)
        self.settle(near, far)

    def test_both_sides_drive_at_once(self):
        lab = self.lab("--mtu", "4500")
        near, far = self.devices(lab, "xdp", "xdp")
        ends = [Connection(near, far, *V4), Connection(far, near, *reversed(V4)), Connection(near, far, *V6)]
        for end in ends:
            end.drive(messages=MESSAGES, events=end is ends[2])
        for end in ends:
            self.assertEqual(sum(end.finish()["messages"].values()), MESSAGES)
        self.settle(near, far)

    def test_xdp_drives_udp(self):
        lab = self.lab("--mtu", "4500")
        near, far = self.devices(lab, "xdp", "udp")
        for mtu in (256, 1024, near.opened["active_mtu"]):
            self.exchange(near, far, V4, mtu=mtu)
        self.settle(near, far)

    def test_udp_drives_xdp(self):
        lab = self.lab("--mtu", "4500")
        near, far = self.devices(lab, "udp", "xdp")
        for mtu in (256, 1024, far.opened["active_mtu"]):
            self.exchange(near, far, V4, mtu=mtu)
        self.settle(near, far)

    def test_udp_drives_xdp_over_ipv6(self):
        lab = self.lab("--mtu", "1500")
        near, far = self.worker(lab, "h1", f"udp:{V6[0]}"), self.worker(lab, "h2")
        self.exchange(near, far, V6)
        self.settle(near, far)

    def test_link_local_default_gids(self):
        lab = self.lab("--cable")
        near, far = self.devices(lab, "xdp", "xdp")
        gids = [worker.look()["gids"]["0"] for worker in (near, far)]
        self.assertTrue(all(gid.startswith("fe80::") for gid in gids))
        self.exchange(near, far, gids)
        self.settle(near, far)

    def test_through_a_gateway(self):
        lab = self.lab("--gateway", "--mtu", "4500")
        near, far = self.worker(lab, "h1"), self.worker(lab, "h2")
        for addresses in (("10.77.0.1", "10.77.1.2"), ("fd77::1", "fd77:0:0:1::2")):
            self.exchange(near, far, addresses)
        self.settle(near, far)

    def test_through_a_gateway_against_udp(self):
        lab = self.lab("--gateway", "--mtu", "1500")
        near, far = self.worker(lab, "h1"), self.worker(lab, "h2", "udp:10.77.1.2")
        self.exchange(near, far, ("10.77.0.1", "10.77.1.2"))
        self.settle(near, far)

    def test_frames_that_a_switch_has_tagged(self):
        for tags in (["8100:6007"], ["88a8:0064", "8100:0007"]):
            with self.subTest(tags=tags):
                lab = self.lab("--mtu", "4500")
                tagger = self.tagger(lab, tags)
                near, far = self.devices(lab, "xdp", "xdp")
                for addresses in (V4, V6):
                    self.exchange(near, far, addresses)
                self.settle(near, far)
                tagged, _ = tagger.communicate(timeout=TIMEOUT)
                # There is no way around it.
                self.assertGreater(int(tagged), 2 * MESSAGES)

    def tagger(self, lab, tags):
        """Puts a tagging switch in the place of a lab's bridge."""
        for port in ("h1", "h2"):
            lab.ip("switch", f"link set {port} nomaster")
        words = lab.inside("switch", sys.executable, "-B", pathlib.Path(__file__).with_name("tagger.py"), "h1", "h2", *tags)
        tagger = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(tagger.communicate)
        self.addCleanup(tagger.kill)
        self.assertEqual(tagger.stdout.readline(), "ready\n")
        return tagger

    def test_tagged_with_a_vlan(self):
        if not has_vlans():
            note("VLAN-tagged traffic: this kernel has no VLAN interfaces (CONFIG_VLAN_8021Q)")
            return
        lab = self.lab("--vlan", "7", "--mtu", "4500")
        near, far = self.devices(lab, "xdp", "xdp")
        for addresses in (V4, V6):
            self.exchange(near, far, addresses)
        self.settle(near, far)
        near, far = self.devices(lab, "xdp", "udp")
        self.exchange(near, far, V4)
        self.settle(near, far)

    def test_every_way_to_attach_and_copy(self):
        lab = self.lab("--cable", "--mtu", "4500", "--queues", "2")
        for options in ("attach=skb", "attach=native&copy=copy", "multibuffer=off", "chunk=2048", "queues=0.1",
                        "wakeup=off", "busypoll=20"):
            with self.subTest(options=options):
                near, far = (self.worker(lab, host, f"xdp:eth0?{options}") for host in ("h1", "h2"))
                self.exchange(near, far, V4)
                self.settle(near, far)
