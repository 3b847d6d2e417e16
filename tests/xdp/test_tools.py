"""`softrnic lab`, `softrnic doctor` and `softrnic devices`, in labs."""

import json
import signal
import subprocess

from lab import SOFTRNIC, TIMEOUT, Lab, LabTest, has_vlans, run

NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]

# Holds UDP port 4791 on an address until standard input ends.
HOLDER = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as holder:
    holder.bind((sys.argv[1], 4791))
    print("bound", flush=True)
    sys.stdin.read()
"""


class Tool(LabTest):
    def fails(self, *argv):
        """Runs a command that must fail; returns what it said."""
        argv = [str(word) for word in argv]
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def background(self, argv, ready):
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        self.assertIn(ready, process.stdout.readline())
        return process


class TheLab(Tool):
    def namespaces(self, lab):
        return [name for name in run("ip", "netns", "list").split() if name.startswith(f"softrnic-{lab.name}-")]

    def test_hosts_reach_each_other_and_nothing_is_left(self):
        for options, other in (
            (["--hosts", "4"], ["10.77.0.4", "fd77::4"]),
            (["--cable"], ["10.77.0.2", "fd77::2"]),
            (["--gateway"], ["10.77.1.2", "fd77:0:0:1::2"]),
            (["--ipv4", "192.168.9.0", "--ipv6", "fd99:1::"], ["192.168.9.2", "fd99:1::2"]),
        ):
            with self.subTest(options=options):
                lab = Lab(*options)
                try:
                    for address in other:
                        lab_run = run(SOFTRNIC, "lab", "run", "--name", lab.name, "h1", "--", "ping", "-c", "1", address)
                        self.assertIn("1 received", lab_run)
                finally:
                    lab.down()
                self.assertEqual(self.namespaces(lab), [])
                # There is nothing to do any more, which is fine.
                lab.down()

    def test_a_lab_is_made_once(self):
        lab = self.lab()
        self.assertIn("up already", self.fails(SOFTRNIC, "lab", "up", "--name", lab.name))
        self.assertEqual(len(self.namespaces(lab)), 3)

    def test_the_exit_status_is_the_programs(self):
        lab = self.lab()
        command = [SOFTRNIC, "lab", "run", "--name", lab.name, "1", "--", "sh", "-c", "exit 42"]
        self.assertEqual(subprocess.run(command).returncode, 42)

    def test_a_signal_for_it_is_one_for_the_command(self):
        lab = self.lab()
        command = [SOFTRNIC, "lab", "run", "--name", lab.name, "1", "--", "sh", "-c", "echo $$; exec sleep 20"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
            number = int(running.stdout.readline())
            running.terminate()
            self.assertEqual((running.wait(), number), (-signal.SIGTERM, running.pid))

    def test_what_cannot_be_done_is_said(self):
        lab = self.lab()
        self.assertIn("h1, h2", self.fails(SOFTRNIC, "lab", "run", "--name", lab.name, "h3", "true"))
        self.assertIn("there is no lab", self.fails(SOFTRNIC, "lab", "run", "--name", "nosuchlab", "h1", "true"))
        self.assertIn("takes root", self.fails(*NOBODY, SOFTRNIC, "lab", "up", "--name", "nobodys"))
        if not has_vlans():
            self.assertIn("CONFIG_VLAN_8021Q", self.fails(SOFTRNIC, "lab", "up", "--name", "tagged", "--vlan", "5"))
            self.assertNotIn("softrnic-tagged", run("ip", "netns", "list"))


class Doctor(Tool):
    def findings(self, lab, host, *options, prefix=()):
        argv = lab.inside(host, *prefix, SOFTRNIC, "doctor", "--json", *options)
        done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT)
        findings = json.loads(done.stdout)
        self.assertEqual(done.returncode, int(any(finding["level"] == "fail" for finding in findings)))
        return findings

    def finds(self, findings, level, subject, text):
        """A finding is there, and says what to do unless all is well."""
        there = [one for one in findings if (one["level"], one["subject"]) == (level, subject) and text in one["text"]]
        self.assertTrue(there, json.dumps(findings, indent=1))
        return there[0].get("advice", "")

    def test_all_is_well_between_two_hosts(self):
        lab = self.lab("--mtu", "4500")
        self.worker(lab, "h2")
        findings = self.findings(lab, "h1", "--interface", "eth0", "--peer", "10.77.0.2", "--peer", "fd77::2")
        self.assertEqual([finding for finding in findings if finding["level"] == "fail"], [])
        self.finds(findings, "ok", "interface", "MTU 4500, so IB MTU 4096")
        self.finds(findings, "ok", "xdp", "xdp eth0 (native")
        self.finds(findings, "ok", "port 4791", "free on all addresses")
        self.finds(findings, "ok", "peer", "10.77.0.2 does not refuse")
        self.finds(findings, "ok", "peer", "fd77::2, by eth0 from fd77::1: hardware address")

    def test_a_peer_that_is_not_there_or_refuses(self):
        lab = self.lab()
        findings = self.findings(lab, "h1", "--peer", "10.77.0.2", "--peer", "10.77.0.9", "--peer", "192.0.2.1")
        self.assertIn("rdma link add", self.finds(findings, "fail", "peer", "10.77.0.2 refuses UDP port 4791"))
        self.assertIn("ip neigh", self.finds(findings, "fail", "peer", "10.77.0.9 does not answer"))
        self.finds(findings, "fail", "peer", "192.0.2.1: no route")

    def test_through_a_gateway(self):
        lab = self.lab("--gateway", "--mtu", "1500")
        self.worker(lab, "h2", "udp:10.77.1.2")
        findings = self.findings(lab, "h1", "--peer", "10.77.1.2")
        self.finds(findings, "ok", "peer", "through 10.77.0.254: hardware address")
        self.finds(findings, "ok", "peer", "10.77.1.2 does not refuse")

    def test_somebody_has_the_port(self):
        lab = self.lab()
        for address, level, subject in (("0.0.0.0", "fail", "has it on all addresses"),
                                        ("10.77.0.1", "warn", "has it on 10.77.0.1")):
            holder = self.background(lab.inside("h1", "python3", "-c", HOLDER, address), "bound")
            findings = self.findings(lab, "h1")
            self.assertTrue(self.finds(findings, level, "port 4791", f"process {holder.pid} (python3) {subject}"))
            holder.communicate()

    def test_what_xdp_lacks(self):
        lab = self.lab()
        self.worker(lab, "h1")
        findings = self.findings(lab, "h1", "--interface", "eth0", "--interface", "eth7")
        self.finds(findings, "warn", "interface", "eth0 already has an XDP program")
        self.finds(findings, "fail", "xdp", "already has an XDP program")
        self.finds(findings, "fail", "interface", "there is no eth7")
        lab.ip("h2", "link set eth0 down")
        findings = self.findings(lab, "h2", "--interface", "eth0", prefix=NOBODY)
        self.assertIn("softrnic grant", self.finds(findings, "fail", "privileges", "missing: CAP_NET_RAW"))
        self.assertIn("ip link set eth0 up", self.finds(findings, "fail", "interface", "eth0 is down"))
        self.finds(findings, "fail", "xdp", "needs CAP_NET_RAW")
        # xdp was not asked for.
        findings = self.findings(lab, "h2", prefix=NOBODY)
        self.finds(findings, "warn", "privileges", "missing: CAP_NET_RAW")


class Devices(Tool):
    def test_the_mode_and_what_was_refused_are_said(self):
        lab = self.lab("--mtu", "4500")
        output = lab.run("h1", SOFTRNIC, "devices", "--device", "xdp:eth0", "--device", "b=xdp:eth0?attach=skb")
        self.assertIn("native, copy", output)
        self.assertIn("zero copy", output)
        self.assertIn("fe80:", output)
        self.assertIn("SKB", output)

    def test_the_start_is_logged(self):
        lab = self.lab("--mtu", "4500")
        words = [SOFTRNIC, "run", "--device", "xdp:eth0", "--log", "info", "--", "ibv_devinfo"]
        said = lab.run("h1", "sh", "-c", "exec \"$@\" 2>&1", "sh", *words)
        self.assertRegex(said, "WARN.*refused|WARN.*zero copy")
        self.assertRegex(said, r"INFO.*xdp eth0 \(native, copy.*device open|INFO.*device open.*xdp eth0 \(native")
