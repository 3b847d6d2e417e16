"""The end of a connection: what a completion says, at either end, and what a process that ends has acknowledged."""

import re
import unittest

from harness import SHARED_MEMORY, VerbsTest

# By which nothing of ours runs any more.
ABRUPT = ("_exit", "exec", "signal")


class Leaving(VerbsTest):
    def failures(self, way, *how, runs=60):
        """How many of so many senders did not get the completions of what their receiver had received."""
        program = self.compile("leaving.c", "-libverbs")
        output = self.run_ok([program, runs, way, *how], timeout=300)
        return int(re.search(r"(?m)^(\d+) of \d+ senders failed$", output)[1])

    def test_what_was_received_is_acknowledged_before_the_qp_or_the_process_ends(self):
        for way in ("destroy", "return"):
            for how in ((), ("events",)):
                with self.subTest(way, how=how):
                    self.assertEqual(self.failures(way, *how), 0)

    @unittest.skipIf(SHARED_MEMORY == "off", "over sockets an ACK may wait for the next call")
    def test_what_was_received_through_shared_memory_is_acknowledged_however_the_process_ends(self):
        for way in ABRUPT:
            for how in ((), ("events",)):
                with self.subTest(way, how=how):
                    self.assertEqual(self.failures(way, *how), 0)


class Arrived(VerbsTest):
    def test_what_was_acknowledged_is_in_the_cq_of_its_receiver(self):
        program = self.compile("arrived.c", "-libverbs")
        for size in (64, 4096):
            with self.subTest(size=size):
                self.assertIn("0 of 5000 came after", self.run_ok([program, 5000, size]))
