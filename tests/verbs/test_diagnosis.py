"""What a program that does something wrong is told."""

import re
import unittest

from harness import VerbsTest

# For each mistake: the status and vendor_err of the completion, and the sentences of requester and responder that say why.
RKEY = "rkey 0x[0-9a-f]+"
LKEY = "lkey 0x[0-9a-f]+"
RANGE = r"\(\d+ B from 0x[0-9a-f]+\)"
REMOTE = {
    "unknown_rkey": (0x201, f"no region or window has {RKEY}"),
    "swapped_rkey": (0x202, f"{RKEY} is 0x[0-9a-f]+ with its bytes in the wrong order"),
    "deregistered": (0x203, rf"{RKEY} was deregistered \d+ (µs|ms) ago"),
    "another_domain": (0x206, f"{RKEY} belongs to another protection domain than the queue"),
    "no_right": (0x207, f"{RKEY} was registered without IBV_ACCESS_REMOTE_WRITE"),
    "before_the_start": (0x208, f"0x[0-9a-f]+ is 16 B before the start of {RKEY} {RANGE}"),
    "past_the_end": (0x209, f"64 B at 0x[0-9a-f]+ end 24 B past the end of {RKEY} {RANGE}"),
    "past_the_window": (0x209, rf"64 B at 0x[0-9a-f]+ end 1 B past the end of {RKEY} \(64 B from 0x[0-9a-f]+\)"),
    "swapped_address": (0x20a, "address 0x[0-9a-f]+ is 0x[0-9a-f]+ with its bytes in the wrong order"),
    "cut_address": (0x20b, "address 0x[0-9a-f]+ was cut to 32 bits"),
    "unbound": (0x20c, f"the window with {RKEY} is not bound"),
    "window_of_another_qp": (0x20e, f"the window with {RKEY} is bound to QP 0x[0-9a-f]+"),
}
INVALID = {
    "misaligned": (0x20f, "the address of an atomic is not a multiple of 8"),
    "qp_without_right": (0x704, "the access flags of the QP do not allow the peer's request"),
    "short_receive": (0x801, "the receive holds 24 B, and at least 40 B more have come"),
}
LOCAL = {
    "unknown_lkey": (0x101, f"no region has {LKEY}"),
    "lkey_of_another_domain": (0x106, f"{LKEY} belongs to another protection domain than the queue"),
    "read_into_constant_memory": (0x107, f"{LKEY} was registered without IBV_ACCESS_LOCAL_WRITE"),
    "local_past_the_end": (0x109, f"64 B at 0x[0-9a-f]+ end 54 B past the end of {LKEY} {RANGE}"),
}
REM_ACCESS, REM_INV_REQ, REM_OP, LOC_PROT = 10, 9, 11, 4


class Diagnosis(VerbsTest):
    def setUp(self):
        super().setUp()
        self.program = self.compile("mistakes.c", "-libverbs")

    def said(self, mistake, log="warn"):
        return self.run_ok([self.program, mistake], SOFTRNIC_LOG=log)

    def check(self, mistake, status, code, *sentences):
        out = self.said(mistake)
        self.assertIn(f"{status} {code:#x}\n", out)
        for sentence in sentences:
            self.assertRegex(out, sentence)

    def test_what_a_peer_refuses_is_explained_by_both_ends(self):
        for status, mistakes in [(REM_ACCESS, REMOTE), (REM_INV_REQ, INVALID)]:
            for mistake, (code, why) in mistakes.items():
                with self.subTest(mistake):
                    qp = r"QP 0x[0-9a-f]+ \(RTS, peer [0-9.]+ QP 0x[0-9a-f]+\): "
                    self.check(mistake, status, code, f"{qp}refuses the peer's .*: {why}",
                               f"{qp}.* refused by the peer: {why}")

    def test_a_wrong_lkey_is_explained_on_its_own_side(self):
        for mistake, (code, why) in LOCAL.items():
            with self.subTest(mistake):
                self.check(mistake, LOC_PROT, code, rf"QP .*: .* of 64 B .*: {why}")

    def test_a_receive_with_a_wrong_lkey_is_the_responders_fault(self):
        self.check("receive_with_wrong_lkey", REM_OP, 0x101, f"refuses the peer's SEND of 64 B: no region has {LKEY}",
                   f"SEND of 64 B refused by the peer: no region has {LKEY}")

    def test_a_send_without_a_receive_is_told_after_a_second_and_once(self):
        out = self.said("no_receive", log="")
        told = re.findall(r"^softrnic: QP .*: SEND of 64 B has waited .* for a receive: .* waits for ever$", out, re.M)
        self.assertEqual(len(told), 1, out)
        self.assertIn("0 0\n", out)

    def test_nothing_else_is_told_unless_it_is_asked_for(self):
        self.assertEqual(self.said("unknown_rkey", log=""), "10 0x201\n")
        self.assertNotIn("QP", self.said("no_receive", log="off"))


if __name__ == "__main__":
    unittest.main()
