"""wrong-domain: the rkey is of a region of another protection domain."""

from pyverbs.enums import IBV_WR_RDMA_WRITE
from pyverbs.mr import MR
from pyverbs.pd import PD

from pair import ALL, connect, CORRECT, end, make, request, SIZE


here, there = make()
other = PD(here.context)  # allocated
mine, theirs = MR(here.pd, SIZE, ALL), MR(there.pd if CORRECT else other, SIZE, ALL)  # registered
connect(here, there)
here.qp.post_send(request(IBV_WR_RDMA_WRITE, mine, to=theirs))  # posted
here.poll(wrong=10)
end(here, there, mine, theirs, other)
