"""Applications without privileges on real interfaces, and the exact capabilities that it takes."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile

from lab import SOFTRNIC, WORKER, Connection, LabTest, Worker

NOBODY = 65534
# What opening an interface takes; nothing else, and all of it.
CAPABILITIES = ("net_raw", "net_admin", "bpf", "perfmon")


class Grants(LabTest):
    def setUp(self):
        # A directory that no other user can enter.
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="softrnic-test-"))
        self.addCleanup(shutil.rmtree, self.place)
        self.place.chmod(0o755)
        self.program = shutil.copy(WORKER, self.place)
        self.network = self.lab("--cable")

    def unprivileged(self, prefix, device="xdp:eth0", host="h1", **environment):
        worker = Worker(self.network, host, device, prefix=prefix, program=self.program, **environment)
        self.addCleanup(worker.kill)
        return worker

    def status_of(self, program):
        """The status files of the processes that run a program."""
        for status in pathlib.Path("/proc").glob("[0-9]*/status"):
            try:
                if os.path.samefile(status.parent / "exe", program):
                    yield dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
            except OSError:
                continue

    def carries_traffic(self, near):
        far = self.worker(self.network, "h2")
        connection = Connection(near, far, "10.77.0.1", "10.77.0.2")
        connection.drive(messages=500)
        connection.finish()
        near.settled()
        far.settled()
        far.end()

    def test_an_application_runs_as_nobody(self):
        near = self.unprivileged([SOFTRNIC, "grant", "--interface", "eth0", "--user", str(NOBODY), "--"])
        (status,) = self.status_of(self.program)
        self.assertEqual(status["Uid"].split(), [str(NOBODY)] * 4)
        self.assertEqual(status["Groups"].split(), [])
        self.assertEqual({status[name] for name in ("CapPrm", "CapEff", "CapAmb")}, {"0" * 16})
        self.carries_traffic(near)
        # What comes later is followed without privileges, too.
        self.network.ip("h1", "addr add 10.77.0.31/24 dev eth0")
        near.event("GidChange")
        far = self.worker(self.network, "h2")
        connection = Connection(near, far, "10.77.0.31", "10.77.0.2")
        connection.drive(messages=100)
        connection.finish()
        near.end()

    def test_a_helper_serves_one_process_after_the_other(self):
        path = self.place / "grant"
        helper = self.helper(path)
        for _ in range(3):
            near = self.unprivileged(self.as_nobody(), SOFTRNIC_GRANT=str(path))
            self.carries_traffic(near)
            with self.assertRaisesRegex(Exception, "already has an XDP program"):
                self.unprivileged(self.as_nobody(), f"xdp:eth0?grant={path}")
            near.end()
        self.assertIsNone(helper.poll())

    def test_a_helper_serves_whom_it_is_for_and_what_it_is_for(self):
        path = self.place / "grant"
        self.helper(path, "eth0?attach=skb")
        for device, prefix, problem in (
            (f"xdp:lo?grant={path}", self.as_nobody(), "it is for eth0 only"),
            (f"xdp:eth0?grant={path}", [], f"it is for user {NOBODY} only"),
            (f"xdp:eth0?attach=native&grant={path}", self.as_nobody(), "native XDP is requested, but the grant is for SKB"),
            (f"xdp:eth0?queues=3&grant={path}", self.as_nobody(), r"queues \[3\] are requested, but the grant is for \[0\]"),
            (f"xdp:eth0?grant={self.place}/other", self.as_nobody(), "No such file"),
        ):
            with self.subTest(device=device), self.assertRaisesRegex(Exception, problem):
                self.unprivileged(prefix, device)
        near = self.unprivileged(self.as_nobody(), f"xdp:eth0?attach=skb&grant={path}")
        self.assertIn("SKB", near.opened["mode"])
        near.end()
        with self.assertRaisesRegex(Exception, "in another network namespace"):
            lab = self.lab()
            lab.ip("h1", "link set eth0 name eth9")
            worker = Worker(lab, "h1", f"xdp:eth0?grant={path}", prefix=self.as_nobody(), program=self.program)
            self.addCleanup(worker.kill)

    def test_what_one_process_gives_back_is_free_for_the_next_at_once(self):
        path = self.place / "grant"
        self.helper(path)
        # It is granted, and given back at once.
        for _ in range(20):
            with self.assertRaisesRegex(Exception, r"queues \[3\] are requested"):
                self.unprivileged(self.as_nobody(), f"xdp:eth0?queues=3&grant={path}")

    def test_whoever_is_granted_an_interface_has_nothing_else(self):
        path = self.place / "grant"
        self.helper(path)
        self.network.ip("h1", "link add other type veth peer name other-end")
        escape = shutil.copy(pathlib.Path(__file__).parent / "escape.py", self.place)
        words = [*self.as_nobody(), sys.executable, escape, path, "eth0", "other"]
        met = json.loads(self.network.run("h1", *words))
        # Without other namespaces there is nothing to share with.
        self.assertIn(met.pop("share the memory from other namespaces"), ("ENODEV", "EINVAL", "no namespaces"))
        self.assertEqual(met, {
            "bind to another interface": "EBUSY",
            "bind to another queue": "EBUSY",
            "bind again": "EBUSY",
            "register other memory": "EBUSY",
            "make another ring": "EBUSY",
            "a socket of its own": "EPERM",
            "write the counters": "EPERM",
            "freeze the counters": "EPERM",
            "write to the link": "EINVAL",
            "write to the socket": "EINVAL",
            "write to the memory as to a map": "EINVAL",
            "the program by its number": "EPERM",
            "maps by their numbers": ["EPERM"],
            "load a program": "EPERM",
            "another program at the link": "EINVAL",
            "shrink the memory": "EPERM",
            "steer somebody else's address": "closed",
        })
        # Nothing of it is left.
        near = self.unprivileged(self.as_nobody(), SOFTRNIC_GRANT=str(path))
        self.carries_traffic(near)
        near.end()

    def test_nobody_waits_for_a_caller_that_says_nothing(self):
        path = self.place / "grant"
        self.helper(path)
        # One after the other, each would be waited for for two seconds: longer than an application waits in all.
        script = "import socket, sys, time\nall = [socket.socket(socket.AF_UNIX) for _ in range(30)]\n"
        script += "[one.connect(sys.argv[1]) for one in all]\nprint(flush=True)\ntime.sleep(1000)"
        silent = subprocess.Popen([*self.as_nobody(), sys.executable, "-c", script, path], stdout=subprocess.PIPE)
        self.addCleanup(silent.stdout.close)
        self.addCleanup(silent.wait)
        self.addCleanup(silent.kill)
        silent.stdout.readline()
        near = self.unprivileged(self.as_nobody(), SOFTRNIC_GRANT=str(path))
        near.end()

    def test_a_stranger_is_refused_before_it_says_anything(self):
        path = self.place / "grant"
        self.helper(path)
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.settimeout(60)
            stranger.connect(str(path))
            self.assertEqual(stranger.recv(100), f"refused\nit is for user {NOBODY} only\n\n".encode())

    def test_a_grant_follows_the_interface_and_outlives_the_helper(self):
        path = self.place / "grant"
        helper = self.helper(path)
        near = self.unprivileged(self.as_nobody(), SOFTRNIC_GRANT=str(path))
        self.carries_traffic(near)
        for change in ("down", "name eth9", "up"):
            self.network.ip("h1", f"link set {'eth9' if change == 'up' else 'eth0'} {change}")
        self.network.ip("h1", "addr add 10.77.0.31/24 dev eth9")
        near.event("PortError", "PortActive", "GidChange")
        far = self.worker(self.network, "h2")
        connection = Connection(near, far, "10.77.0.31", "10.77.0.2")
        connection.drive(messages=100)
        connection.finish()
        helper.kill()
        helper.wait()
        again = Connection(near, far, "10.77.0.31", "10.77.0.2")
        again.drive(messages=100)
        again.finish()
        far.end()
        near.end()

    def test_exactly_these_capabilities_open_an_interface(self):
        near = self.unprivileged(self.with_capabilities(CAPABILITIES))
        self.carries_traffic(near)
        near.end()
        for missing in CAPABILITIES:
            rest = [name for name in CAPABILITIES if name != missing]
            problem = f"(?i)CAP_{missing}"
            with self.subTest(missing=missing), self.assertRaisesRegex(Exception, problem):
                self.unprivileged(self.with_capabilities(rest))

    def test_the_limit_of_locked_memory_is_respected_and_named(self):
        limited = self.with_capabilities(CAPABILITIES)
        with self.assertRaisesRegex(Exception, "ulimit -l"):
            self.unprivileged(["prlimit", "--memlock=65536", *limited])
        # What fits is used, and what did not is said.
        near = self.unprivileged(["prlimit", f"--memlock={4 << 20}", *limited])
        self.assertRegex(near.opened["mode"], "12288 KiB of packet memory for queue 0: .* 3072 KiB are used")
        self.carries_traffic(near)
        near.end()
        # With the privilege there is no limit.
        near = self.unprivileged(["prlimit", "--memlock=65536", *self.with_capabilities([*CAPABILITIES, "ipc_lock"])])
        self.assertNotIn("packet memory", near.opened["mode"])
        near.end()

    def helper(self, path, interface="eth0"):
        argv = [SOFTRNIC, "grant", "--interface", interface, "--user", str(NOBODY), "--socket", path]
        helper = subprocess.Popen(self.network.inside("h1", *argv), stderr=subprocess.PIPE, text=True)
        self.addCleanup(helper.stderr.close)
        self.addCleanup(helper.wait)
        self.addCleanup(helper.kill)
        self.assertIn("serving", helper.stderr.readline())
        return helper

    def as_nobody(self):
        return self.with_capabilities([])

    def with_capabilities(self, names):
        words = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        if names:
            listed = ",".join(f"+{name}" for name in names)
            words += ["--inh-caps", listed, "--ambient-caps", listed]
        return words
