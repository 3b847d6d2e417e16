"""Captures of programs that are faster than the disk."""

import pathlib
import re
import subprocess

from captures import Capture, difference
from harness import SOFTRNIC, VerbsTest


class Captures(VerbsTest):
    def capture_pair(self, program, *options, run=()):
        """Runs a pair with a capture of each process; returns the files of client and server."""
        self.run_pair(program, *options, run=["--pcap", self.runtime / "%p.pcapng", *run], timeout=120)
        files = sorted(self.runtime.glob("*.pcapng"), key=lambda file: int(re.match(r"\d+", file.name)[0]))
        self.assertEqual(len(files), 2, files)
        return files[1], files[0]

    def fast_run(self, *run):
        """A quarter of a million packets, as fast as they go."""
        files = self.capture_pair("ib_write_bw", "-x", "0", "-F", "-s", "4096", "-m", "1024", "-n", "50000", run=run)
        client, server = (Capture(file) for file in files)
        self.assertGreaterEqual(len(client.sent), 200_000)
        for capture in (client, server):
            self.assertEqual(capture.drops, 0)
            self.assertEqual(capture.missing_psns(), 0)
        return client, server

    def test_a_fast_run_through_shared_memory_loses_nothing(self):
        client, server = self.fast_run("--device", "udp?shm=on")
        self.assertEqual(difference(client, server), 0)

    def test_a_fast_run_through_sockets_loses_nothing(self):
        # The kernel may drop what does not fit in a socket's buffer; the client then sends it again.
        client, server = self.fast_run("--device", "udp?shm=off")
        self.assertGreaterEqual(len(server.received), 200_000)
        self.assertGreaterEqual(len(client.sent), len(server.received))
        self.assertGreaterEqual(len(server.sent), len(client.received))

    def test_short_packets_and_a_ring(self):
        self.run_pair("ib_write_bw", "-x", "0", "-F", "-s", "4096", "-n", "20000", timeout=120,
                      run=["--pcap", self.runtime / "x.pcapng", "--pcap-snaplen", "100", "--pcap-filesize", "1M",
                           "--pcap-files", "2"])
        files = sorted(self.runtime.glob("x.*_*.pcapng"))
        self.assertEqual(len(files), 4, files)
        for file in files:
            self.assertLess(file.stat().st_size, 1_001_000)
            capture = Capture(file)
            self.assertEqual(capture.missing_psns(), 0)
            explained = subprocess.run([SOFTRNIC, "decode", file], capture_output=True, text=True)
            self.assertEqual(explained.returncode, 0, explained.stderr)

    def test_each_rule_says_at_the_end_how_often_it_matched(self):
        run = ["--fault", "drop:op=rc_send_only:nth=5,drop:op=rc_read_request"]
        outputs = self.run_pair("ibv_rc_pingpong", "-g", "0", "-n", "20", "-s", "64", run=run)
        for said in outputs:
            self.assertRegex(said, r"fault rule 1, drop:op=rc_send_only:nth=5: matched 1 of \d\d+ packets")
            self.assertRegex(said, r"fault rule 2, drop:op=rc_read_request: matched 0 of \d\d+ packets")

    def test_explain_names_the_rule_that_dropped_a_packet(self):
        run = ["--fault", "delay=1us:nth=1000000,drop:op=rc_send_only:nth=5"]
        files = self.capture_pair("ibv_rc_pingpong", "-g", "0", "-n", "20", "-s", "64", run=run)
        for file in files:
            self.assertEqual(Capture(file).comments, ["fault: dropped by rule 2, drop:op=rc_send_only:nth=5"])
            explained = subprocess.run([SOFTRNIC, "explain", file], capture_output=True, text=True)
            self.assertRegex(explained.stdout, r"packet \d+ was dropped on purpose, by your rule 2, drop:op=rc_send_only:nth=5")
            # That finding is above information, and its cause is named.
            self.assertRegex(explained.stdout, r"packet \d+ was dropped by your rule 2, drop:op=rc_send_only:nth=5")
            self.assertEqual(explained.returncode, 3, explained.stdout)
            page = pathlib.Path(f"{file}.html")
            subprocess.run([SOFTRNIC, "explain", "--html", page, file], capture_output=True, check=False)
            self.assertIn("by your rule 2, drop:op=rc_send_only:nth=5", page.read_text())
