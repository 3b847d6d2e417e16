"""destroyed-key: the region is closed before the peer writes to it."""

from pyverbs.enums import IBV_WR_RDMA_WRITE
from pyverbs.mr import MR

from pair import ALL, connect, CORRECT, end, make, request, SIZE


here, there = make()
mine, theirs = MR(here.pd, SIZE, ALL), MR(there.pd, SIZE, ALL)  # registered
connect(here, there)
wr = request(IBV_WR_RDMA_WRITE, mine, to=theirs)
if not CORRECT:
    theirs.close()  # deregistered
here.qp.post_send(wr)  # posted
here.poll(wrong=10)
end(here, there, mine, theirs)
