"""unknown-key: an rkey that nobody has, posted by a function."""

from pyverbs.enums import IBV_WR_RDMA_WRITE
from pyverbs.mr import MR

from pair import ALL, connect, CORRECT, end, make, request, SIZE


def post(end, wr):
    end.qp.post_send(wr)  # posted


here, there = make()
mine, theirs = MR(here.pd, SIZE, ALL), MR(there.pd, SIZE, ALL)
connect(here, there)
post(here, request(IBV_WR_RDMA_WRITE, mine, to=theirs, rkey=theirs.rkey ^ (0 if CORRECT else 0x100)))  # posted
here.poll(wrong=10)
end(here, there, mine, theirs)
