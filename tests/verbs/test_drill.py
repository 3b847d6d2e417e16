"""`softrnic drill` against a SoftRNIC device, over loopback: its agent, its verdicts, its reports."""

import json
import pathlib
import re
import socket
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree

import cm
from harness import SOFTRNIC, VerbsTest, free_port, is_listening

PEER = "127.9.22.2"

# Requests and responses, posts on the peer, errors, timers; each takes a few milliseconds.
SCRIPTS = ["12-1-responder", "12-5-lost-ack", "12-6-atomic-retry", "12-7-rnr", "12-8-access-error", "12-9-zero-length",
           "duplicates", "flush-access", "naks", "psn-wrap", "sequences-at-start", "states", "uc-messages",
           "ud-receive", "window-bounds"]

# What a stock rdma_cm server is asked, and what its QP is.
OF_SERVER = ["cm-connection", "cm-duplicate-request", "cm-end", "cm-refusals", "cm-stale-connection", "server-refuses",
             "server-requests"]

# Nobody answers a WRITE with MSN 7 after one request.
WRONG = """title: A responder that counts wrongly
rules: C9-148
qp a rc
mr m 4K
< RC RDMA WRITE Only psn 100 A len 4 va m+0 key m dma 4
> RC Acknowledge psn 100 ACK msn 7
"""

# rping exits when its reply is refused.
FAREWELL = """title: A server that goes on after it was refused
rules: IBTA 12.9.7
server
< CM REQ c
> CM REP c
< CM REJ c
> CM REP c
"""


class Drill(VerbsTest):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        source, self.program = self.folder / "agent.c", self.folder / "agent"
        source.write_text(self.drill("--agent").stdout)
        # As its first comment says, and strictly.
        compile_line = ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", self.program, source, "-libverbs"]
        subprocess.run(compile_line, check=True, timeout=120)
        self.port = free_port()
        self.agent = self.start_agent(self.port, f"udp:{PEER}?early=off&shared=off")

    def start_agent(self, port, *devices):
        agent = self.start([self.program, port], run=[word for device in devices for word in ("--device", device)])
        self.wait_until(lambda: is_listening(port), agent)
        return agent

    def drill(self, *args):
        argv = [SOFTRNIC, "drill", *map(str, args)]
        return subprocess.run(argv, capture_output=True, text=True, timeout=120)

    def play(self, *args):
        return self.drill("--peer", PEER, "--port", self.port, "--captures", self.folder / "captures", *args)

    def test_softrnic_conforms(self):
        done = self.play("--json", *SCRIPTS)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        scripts = json.loads(done.stdout)["scripts"]
        self.assertEqual({script["script"]: script["verdict"] for script in scripts}, dict.fromkeys(SCRIPTS, "conforms"))
        self.assertTrue(all(pathlib.Path(script["capture"]).stat().st_size for script in scripts))

    def test_a_device_with_many_paths_answers_on_each_in_turn(self):
        peer, port = "127.9.22.10", free_port()
        self.start_agent(port, f"udp:{peer}?shared=off&paths=4")
        done = self.drill("--peer", peer, "--port", port, "--json", "--captures", self.folder / "captures", "paths-responder")
        self.assertEqual(json.loads(done.stdout)["scripts"][0]["verdict"], "conforms", done.stdout + done.stderr)
        of_one_path = self.play("--json", "paths-responder")
        self.assertEqual(json.loads(of_one_path.stdout)["scripts"][0]["verdict"], "not_applicable")

    def test_a_stock_server_is_enough(self):
        server, port = "127.9.22.4", free_port()
        self.serve(server, port, ["rping", "-s", "-P", "-a", server, "-p", port])
        self.judge_server(server, port, OF_SERVER)

    def test_a_server_that_repeats_its_reply_is_one(self):
        # As one does that waited long for the confirmation.
        server, port = "127.9.22.11", free_port()
        self.serve(server, port, ["rping", "-s", "-P", "-a", server, "-p", port], "--fault", "dup:op=cm_rep:nth=1")
        self.judge_server(server, port, ["cm-connection", "server-requests"])

    def test_a_server_of_one_connection_is_enough_if_it_is_started_again(self):
        server, port = "127.9.22.6", free_port()
        self.serve(server, port, ["sh", "-c", f"while :; do rping -s -a {server} -p {port}; done"])
        self.judge_server(server, port, ["cm-connection", "cm-lost-confirmation", "server-requests"])

    def test_what_has_ended_the_server_is_told(self):
        server, port, script = "127.9.22.7", free_port(), self.folder / "farewell.txt"
        script.write_text(FAREWELL)
        self.serve(server, port, ["rping", "-s", "-P", "-a", server, "-p", port])
        done = self.drill("--peer", server, "--server", port, "--json", "--captures", self.folder / "captures", script)
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertIn("it does not listen any more", done.stderr)
        [judged] = json.loads(done.stdout)["scripts"]
        [case] = judged["cases"]
        self.assertEqual((case["verdict"], case["line_number"]), ("cannot_tell", 7), case)
        self.assertIn("no message was sent; it could not be played again", case["what"])

    def serve(self, server, port, argv, *options):
        program = self.start(argv, run=["--device", f"udp:{server}?early=off", *options])
        self.wait_until(lambda: cm.is_listening(port, "tcp", program.pid), program)

    def judge_server(self, server, port, wanted):
        done = self.drill("--peer", server, "--server", port, "--json", "--captures", self.folder / "captures", *wanted)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        scripts = json.loads(done.stdout)["scripts"]
        self.assertEqual({script["script"]: script["verdict"] for script in scripts}, dict.fromkeys(wanted, "conforms"))

    def test_nothing_else_is_sent_where_no_server_accepts(self):
        done = self.drill("--peer", PEER, "--server", "9", "--captures", self.folder / "none", "cm-connection")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn(f"no rdma_cm server accepts connections at {PEER}:9", done.stderr)

    def test_shared_memory_is_a_connection_too(self):
        done = self.play("--json", "--shm", "12-1-responder", "naks", "12-6-atomic-retry")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual({script["verdict"] for script in json.loads(done.stdout)["scripts"]}, {"conforms"})

    def test_a_deviation_is_told_with_its_packets_until_it_is_known(self):
        script, known = self.folder / "wrong.txt", self.folder / "known.txt"
        script.write_text(WRONG)
        junit, page = self.folder / "drill.xml", self.folder / "drill.html"
        done = self.play(script, "--junit", junit, "--html", page)
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertIn("msn is 1, not 7", done.stdout)
        suite = xml.etree.ElementTree.parse(junit).getroot().find("testsuite")
        self.assertEqual((suite.get("tests"), suite.get("failures")), ("1", "1"))
        self.assertIn("<svg", page.read_text())
        self.assertEqual(len(list(self.folder.glob("captures/wrong.case-1.pcapng"))), 1)

        known.write_text("wrong:6 counts as it should\n")
        done = self.play(script, "--known", known)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("known deviation", done.stdout)

    def test_what_cannot_be_played_is_no_deviation(self):
        done = self.play("--json", "early-retransmission", "too-many-reads")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        verdicts = {script["verdict"] for script in json.loads(done.stdout)["scripts"]}
        self.assertEqual(verdicts, {"not_applicable"})

    def test_what_was_judged_before_the_agent_is_lost_is_reported(self):
        argv = [SOFTRNIC, "drill", "--peer", PEER, "--port", self.port, "--captures", self.folder / "captures", "--all"]
        argv += ["--junit", self.folder / "drill.xml"]
        with subprocess.Popen(list(map(str, argv)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as drill:
            first = [drill.stdout.readline() for _ in range(2)]
            self.agent.kill()
            rest, errors = drill.communicate(timeout=60)
        self.assertEqual(drill.returncode, 3, rest + errors)
        self.assertRegex(first[1], r"^12-1-responder +1 +conforms$")
        self.assertRegex(rest, r"xrc-unknown-srq +\d+ +cannot tell +not played\n")
        self.assertIn("the rest was not played: the agent at", errors)
        cases = xml.etree.ElementTree.parse(self.folder / "drill.xml").getroot().iter("testcase")
        told = {case.get("classname"): [child.tag for child in case] for case in cases}
        self.assertEqual((told["12-1-responder"], told["xrc-unknown-srq"]), ([], ["error"]), rest)

    def talk(self, *commands, peer=PEER, port=None):
        """What the agent answers to the last of these, with its device open. It obeys the others."""
        commands = ("open dev=0", "cq cq=0", *commands)
        with socket.create_connection((peer, port or self.port), timeout=20) as stream, stream.makefile("rw") as lines:
            lines.writelines(f"{command}\n" for command in commands)
            lines.flush()
            answers = [lines.readline() for _ in commands]
        for command, answer in zip(commands[:-1], answers):
            self.assertRegex(answer, "^ok\\b", command)
        return answers[-1]

    def test_the_agent_listens_at_the_address_of_its_device_alone(self):
        with self.assertRaises(ConnectionRefusedError):
            socket.create_connection(("127.9.22.3", self.port), timeout=20)
        self.assertRegex(self.talk("open dev=1"), "^ok device=")

    def test_an_agent_serves_each_address_with_the_device_that_has_it(self):
        first, second, port = "127.9.22.8", "127.9.22.9", free_port()
        self.start_agent(port, f"udp:{first}", f"udp:{second}")
        told = [self.talk("open dev=1", peer=peer, port=port) for peer in (first, second, first)]
        self.assertEqual([re.match(r"ok device=(\S+)", answer)[1] for answer in told], ["softrnic0", "softrnic1", "softrnic0"])

    def test_no_client_reads_what_is_not_the_agents_to_show(self):
        memory = "mr mr=0 size=65536 access=7"
        self.assertRegex(self.talk(memory, "unmap mr=0 page=2", "read mr=0 off=8191 len=2"), "^error 14 ")
        self.assertEqual(self.talk(memory, "unmap mr=0 page=2", "read mr=0 off=8191 len=1"), "ok data=e6\n")
        connected = ["qp qp=0 cq=0 type=rc", "modify qp=0 state=1 access=15",
                     f"modify qp=0 state=2 gid=::ffff:{PEER} dest=5 mtu=1024",
                     "modify qp=0 state=3 begin=1 rd=4"]
        anywhere = "post qp=0 op=atomic_write rkey=1 va=4096 sges=1:8:1"
        self.assertRegex(self.talk(memory, *connected, anywhere), "^error 95 ")
        unconnected = ["qp qp=0 cq=0 type=ud", "modify qp=0 state=1 qkey=1", "post qp=0 op=send dest=1 qkey=1 inline=00"]
        self.assertRegex(self.talk(*unconnected), "^error 22 ")
        self.assertIsNone(self.agent.process.poll())

    def test_who_reaches_the_port_has_one_device_and_cannot_end_the_agent(self):
        self.assertRegex(self.talk(f"open dev=1 gid=::ffff:{PEER}"), "^error 1 ")
        self.assertRegex(self.talk("die"), "^error 1 ")
        buffer = "mr=0 off=64 len=100"
        memory, filled = "mr mr=0 size=4096 access=1", f"fill {buffer} seed=7 back=1"
        self.assertRegex(self.talk(memory, filled, "write mr=0 off=70 data=00", f"prefix {buffer} seed=7 back=1 mtu=0"), "^error 0 ")
        self.assertIsNone(self.agent.process.poll())

    def test_the_agent_finds_bytes_that_are_wrong(self):
        memory, buffer = "mr mr=0 size=4096 access=1", "mr=0 off=64 len=100"
        pattern = f"{buffer} seed=7 back=1"
        filled = [memory, f"fill {pattern}"]
        self.assertEqual(self.talk(*filled, f"check {pattern}"), "ok\n")
        self.assertEqual(self.talk(*filled, f"which {buffer} seed=5 count=4"), "ok index=2\n")
        self.assertEqual(self.talk(*filled, f"prefix {pattern} mtu=64"), "ok bytes=100\n")
        wrong = {"write mr=0 off=163 data=": "byte 99 of 100", "write mr=0 off=63 data=": "before the buffer",
                 "write mr=0 off=164 data=": "after the buffer"}
        for change, told in wrong.items():
            # Of two values one at most is right.
            answers = [self.talk(*filled, f"{change}{value}", f"check {pattern}") for value in ("00", "ff")]
            self.assertTrue(any(answer.startswith("error 0 ") and told in answer for answer in answers), answers)
        self.assertRegex(self.talk(*filled, f"which {buffer} seed=8 count=4"), "^error 0 ")

    def test_mistakes_are_told_before_anything_is_sent(self):
        script = self.folder / "mistaken.txt"
        script.write_text("qp a rx\n")
        done = self.play(script)
        self.assertEqual(done.returncode, 1)
        self.assertIn("mistaken:1: qp a rx: `rx` is not a service", done.stderr)
        self.assertEqual(self.play("no-such-script").returncode, 2)
        self.assertEqual(self.drill("--all").returncode, 2)
        done = self.drill("--peer", "127.9.22.3", "naks", "--captures", self.folder / "none")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--agent", done.stderr)


if __name__ == "__main__":
    unittest.main()
