"""missing-access: a READ into a region without IBV_ACCESS_LOCAL_WRITE."""

from pyverbs.enums import IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_READ, IBV_WR_RDMA_READ
from pyverbs.mr import MR

from pair import ALL, connect, CORRECT, end, make, request, SIZE


here, there = make()
mine = MR(here.pd, SIZE, IBV_ACCESS_LOCAL_WRITE if CORRECT else IBV_ACCESS_REMOTE_READ)  # registered
theirs = MR(there.pd, SIZE, ALL)
connect(here, there)
here.qp.post_send(request(IBV_WR_RDMA_READ, mine, to=theirs))  # posted
here.poll(wrong=4)
end(here, there, mine, theirs)
