"""`softrnic why`: what a program that hangs waits for."""

import os
import re
import signal
import subprocess
import tempfile
import unittest

from cm import CmTest, rdma_port
from harness import SOFTRNIC, TIMEOUT, Program


class Why(CmTest):
    def why(self, pid):
        return subprocess.run([SOFTRNIC, "why", str(pid)], env=self.env, capture_output=True, text=True, timeout=TIMEOUT)

    def test_a_send_without_a_receive_is_told_from_both_sides(self):
        program = self.start([self.compile("no_receive.c", "-libverbs")])
        self.wait_until(lambda: "the peer has no receive" in self.why(program.pid).stdout, program)
        told = self.why(program.pid).stdout
        self.assertRegex(told, r"(?m)^QP 0x[0-9a-f]+ of softrnic0 \(RC, RTS, peer [0-9.]+ QP 0x[0-9a-f]+\): 1 request is not complete, and nothing has gone on for [0-9.]+ m?s$")
        self.assertRegex(told, r"the peer has no receive: it has said so [1-9]\d* times \(RNR NAK\)")
        self.assertRegex(told, rf"the peer:  no_receive \({program.pid}\): the QP is in RTS, expects PSN 0x[0-9a-f]+ and has answered [1-9]\d* times")

    def test_the_nic_of_a_peer_that_cannot_be_looked_into_is_asked(self):
        program, port = self.compile("no_receive_at_peer.c", "-libverbs", "-lrdmacm"), rdma_port()
        elsewhere = tempfile.TemporaryDirectory(prefix="softrnic-test-")
        self.addCleanup(elsewhere.cleanup)
        server = self.serve([program, "server", port], port, XDG_RUNTIME_DIR=elsewhere.name)
        client = self.start([program, "client", port])
        self.wait_until(lambda: "the peer has no receive" in self.why(client.pid).stdout, client)
        said = r"  the peer:  its NIC said \d+ ms ago: the QP is in RTS, expects PSN 0x[0-9a-f]+, has 0 receives posted and 0 requests of its own that are not complete, and has answered [1-9]\d* times that it has no receive\n"
        self.assertRegex(self.why(client.pid).stdout, said)
        os.killpg(server.pid, signal.SIGSTOP)
        self.wait_until(lambda: re.search(r"said \d\.\d s ago", self.why(client.pid).stdout), client)

    def test_a_request_is_shown_with_where_it_was_posted(self):
        program = Program([SOFTRNIC, "check", "--", self.compile("no_receive.c", "-libverbs")], self.env)
        self.addCleanup(program.close)
        posted = r"(?m)^  posted:    the SEND of 0 B, wr_id 0x7, by main \S*no_receive\.c:27$"
        self.wait_until(lambda: re.search(posted, self.why(program.pid).stdout), program)

    def test_completions_that_nobody_polls_are_told(self):
        program = self.start([self.compile("completions_that_nobody_polls.c", "-libverbs")])
        told = (r"A completion queue of \d+ entries holds 2 completions that were not polled\n"
                "  it reports to no channel, so a thread has to poll it\n")
        self.wait_until(lambda: re.fullmatch(told, self.why(program.pid).stdout), program)

    def test_a_process_without_a_device_is_named(self):
        asked = self.why(os.getpid())
        self.assertEqual(asked.returncode, 1)
        self.assertIn(f"process {os.getpid()} has no SoftRNIC device", asked.stderr)


if __name__ == "__main__":
    unittest.main()
