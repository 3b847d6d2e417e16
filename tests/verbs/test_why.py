"""`softrnic why`: what a program that hangs waits for."""

import os
import subprocess
import unittest

from cm import CmTest
from harness import SOFTRNIC, TIMEOUT


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

    def test_a_process_without_a_device_is_named(self):
        asked = self.why(os.getpid())
        self.assertEqual(asked.returncode, 1)
        self.assertIn(f"process {os.getpid()} has no SoftRNIC device", asked.stderr)


if __name__ == "__main__":
    unittest.main()
