"""past-end: the local bytes end past the region."""

from pyverbs.enums import IBV_WR_RDMA_WRITE
from pyverbs.mr import MR

from pair import ALL, connect, CORRECT, end, make, request, SIZE


here, there = make()
mine, theirs = MR(here.pd, SIZE, ALL), MR(there.pd, SIZE, ALL)  # registered
connect(here, there)
here.qp.post_send(request(IBV_WR_RDMA_WRITE, mine, to=theirs, offset=SIZE - (64 if CORRECT else 10)))  # posted
here.poll(wrong=4)
end(here, there, mine, theirs)
