"""short-receive: the message is longer than the receive."""

from pyverbs.enums import IBV_WR_SEND
from pyverbs.mr import MR

from pair import ALL, connect, CORRECT, end, make, receive, request, SIZE


here, there = make()
mine, theirs = MR(here.pd, SIZE, ALL), MR(there.pd, SIZE, ALL)
connect(here, there)
there.qp.post_recv(receive(theirs, 64 if CORRECT else 24))  # posted
here.qp.post_send(request(IBV_WR_SEND, mine))  # posted
here.poll(wrong=9)
end(here, there, mine, theirs)
