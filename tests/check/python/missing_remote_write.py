"""missing-access: a WRITE to a region that peers may not write."""

from pyverbs.enums import IBV_ACCESS_LOCAL_WRITE, IBV_WR_RDMA_WRITE
from pyverbs.mr import MR

from pair import ALL, connect, CORRECT, end, make, request, SIZE


here, there = make()
mine = MR(here.pd, SIZE, ALL)
theirs = MR(there.pd, SIZE, ALL if CORRECT else IBV_ACCESS_LOCAL_WRITE)  # registered
connect(here, there)
here.qp.post_send(request(IBV_WR_RDMA_WRITE, mine, to=theirs))  # posted
here.poll(wrong=10)
end(here, there, mine, theirs)
