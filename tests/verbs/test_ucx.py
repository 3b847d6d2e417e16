"""UCX, which uses the device in ways of its own: datagrams with addresses checked, receives shared by many peers."""

import re
import time

from harness import TIMEOUT, VerbsTest, free_port, is_listening

TESTS = ["tag_lat", "tag_bw", "stream_bw", "ucp_am_lat", "ucp_am_bw", "ucp_put_lat", "ucp_put_bw", "ucp_get"]
ATOMICS = ["ucp_add", "ucp_fadd", "ucp_cswap"]

# UCX connects its rc endpoints with datagrams.
TRANSPORTS = {"rc_verbs": "rc_verbs,ud_verbs:aux,self", "ud_verbs": "ud_verbs,self"}


class Ucx(VerbsTest):
    def test_ucx_info_finds_both_transports(self):
        out = self.run_ok(["ucx_info", "-d"])
        for transport in TRANSPORTS:
            self.assertRegex(out, rf"Transport: {transport}\n#\s+Device: softrnic0:1")
        self.assertRegex(out, r"atomic_fadd: 64 bit")

    def ucx_perftest(self, transport, test, size):
        port = free_port()
        extra = {"UCX_TLS": TRANSPORTS[transport], "UCX_NET_DEVICES": "softrnic0:1", "UCX_LOG_LEVEL": "error"}
        server = self.start(["ucx_perftest", "-p", port], **extra)
        self.wait_until(lambda: is_listening(port), server)
        client = self.start(
            ["ucx_perftest", "127.0.0.1", "-p", port, "-t", test, "-n", "300", "-w", "20", "-s", size], **extra)
        deadline = time.monotonic() + TIMEOUT
        statuses = client.wait(deadline), server.wait(deadline)
        told = f"{server.describe(statuses[1])}\n{client.describe(statuses[0])}"
        self.assertEqual(statuses, (0, 0), told)
        final = re.search(r"Final:\s+(\d+)\s+([\d.]+)", client.output())
        self.assertIsNotNone(final, told)
        self.assertEqual(int(final[1]), 300, told)


def add_tests():
    for transport in TRANSPORTS:
        cases = [(test, size) for test in TESTS for size in ("8", "4096", "200000")]
        cases += [(test, "8") for test in ATOMICS]
        for test, size in cases:
            def method(self, transport=transport, test=test, size=size):
                self.ucx_perftest(transport, test, size)

            setattr(Ucx, f"test_{transport}_{test}_{size}", method)


add_tests()
