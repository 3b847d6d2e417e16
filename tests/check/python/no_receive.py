"""no-receive: a SEND to a QP without a receive."""

from pyverbs.enums import IBV_WR_SEND
from pyverbs.mr import MR

from pair import ALL, connect, CORRECT, end, make, receive, request, SIZE


here, there = make()
mine, theirs = MR(here.pd, SIZE, ALL), MR(there.pd, SIZE, ALL)
connect(here, there)
if CORRECT:
    there.qp.post_recv(receive(theirs))
here.qp.post_send(request(IBV_WR_SEND, mine))  # posted
here.poll(wrong=13)
end(here, there, mine, theirs)
