"""What the planted programs share: two connected queue pairs of one process. With the word "correct" a program makes no mistake."""

import sys

from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context, get_device_list
from pyverbs.enums import (
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_MTU_1024,
    IBV_QPT_RC, IBV_SEND_SIGNALED,
)  # fmt: skip
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

CORRECT = "correct" in sys.argv
SIZE = 4096
ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC


class End:
    def __init__(self, context, pd):
        self.context, self.pd = context, pd
        self.cq = CQ(context, 64)
        options = QPInitAttr(qp_type=IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=QPCap(16, 16, 2, 2, 0))
        self.attributes = QPAttr(port_num=1)
        self.attributes.qp_access_flags = ALL
        self.qp = QP(pd, options, self.attributes)

    def connect(self, peer, psn=77):
        gid = self.context.query_gid(1, 0).gid
        attributes = self.attributes
        attributes.ah_attr = AHAttr(gr=GlobalRoute(dgid=GID(gid), sgid_index=0), is_global=1, port_num=1)
        attributes.dest_qp_num = peer.qp.qp_num
        attributes.path_mtu = IBV_MTU_1024
        attributes.rq_psn, attributes.sq_psn = psn, psn
        attributes.timeout, attributes.retry_cnt, attributes.rnr_retry, attributes.min_rnr_timer = 8, 1, 1, 1
        attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 1
        self.qp.to_rts(attributes)

    def poll(self, wrong=None):
        """Waits for a completion, whose status is wrong unless the program is correct."""
        found = 0
        while not found:
            found, completions = self.cq.poll()
        expected = 0 if CORRECT or wrong is None else wrong
        if completions[0].status != expected:
            sys.exit(f"status {completions[0].status} instead of {expected}")

    def close(self):
        self.qp.close()
        self.cq.close()


def make():
    """Two ends that are not connected yet."""
    context = Context(name=get_device_list()[0].name.decode())
    pd = PD(context)
    return End(context, pd), End(context, pd)


def connect(here, there):
    here.connect(there)
    there.connect(here)


def request(opcode, mr, length=64, wr_id=7, to=None, rkey=None, offset=0):
    """A signaled request over the bytes of a region, to those of another."""
    sge = SGE(mr.buf + offset, length, mr.lkey)
    wr = SendWR(wr_id=wr_id, num_sge=1, sg=[sge], opcode=opcode, send_flags=IBV_SEND_SIGNALED)
    if to is not None:
        wr.set_wr_rdma(rkey if rkey is not None else to.rkey, to.buf)
    return wr


def receive(mr, length=64, wr_id=1):
    return RecvWR(wr_id=wr_id, num_sge=1, sg=[SGE(mr.buf, length, mr.lkey)])


def end(here, there, *others):
    for each in (here, there):
        each.close()
    for each in (*others, here.pd, here.context):
        each.close()
