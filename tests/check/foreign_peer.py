"""A peer that is no SoftRNIC, and how it answers the READ of other/foreign_peer.c."""

import dataclasses
import pathlib
import re

SOURCE = pathlib.Path(__file__).resolve().parent / "other/foreign_peer.c"
READ_REQUEST, READ_RESPONSE, ACKNOWLEDGE, ATOMIC_ACKNOWLEDGE = 0x0C, 0x10, 0x11, 0x12
# Syndromes of the AETH.
ACK, SEQUENCE_NAK, INVALID_REQUEST_NAK, ACCESS_NAK, OPERATIONAL_NAK = 0x1F, 0x60, 0x61, 0x62, 0x63


@dataclasses.dataclass(frozen=True)
class Answer:
    opcode: int
    syndrome: int
    payload: bytes = b""
    # The QP's retry_cnt.
    retries: int = 3


RIGHT = Answer(READ_RESPONSE, ACK, bytes(64))
# What the peer does: the kind of report, how the READ ends, and the answer.
WRONG = {
    "it refuses the access": ("refused-by-peer", "remote access error", Answer(ACKNOWLEDGE, ACCESS_NAK)),
    "it refuses the request": ("refused-by-peer", "remote invalid request error", Answer(ACKNOWLEDGE, INVALID_REQUEST_NAK)),
    "it fails": ("refused-by-peer", "remote operation error", Answer(ACKNOWLEDGE, OPERATIONAL_NAK)),
    "it misses a packet, and `retry_cnt` is 0": ("lost-packets", "transport retry counter exceeded", Answer(ACKNOWLEDGE, SEQUENCE_NAK, retries=0)),
    "its answer is too short": ("broken-answer", "local length error", Answer(READ_RESPONSE, ACK, bytes(60))),
    "its answer is too long": ("broken-answer", "local length error", Answer(READ_RESPONSE, ACK, bytes(68))),
    "it answers as to an atomic": ("broken-answer", "bad response error", Answer(ATOMIC_ACKNOWLEDGE, ACK, bytes(8))),
}  # fmt: skip


def give(peer, output, answer):
    """Answers the request of a program, whose output has the number of its QP."""
    psn, address = peer.receive(READ_REQUEST)
    qpn = int(re.search(r"QP (\d+)", output())[1])
    peer.respond(address, qpn, psn, answer.opcode, answer.syndrome, 1, answer.payload)
