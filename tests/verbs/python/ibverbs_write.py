"""The bindings `ibverbs`: two queue pairs of one process, a WRITE and a READ, data compared.

    ibverbs_write.py SGID-INDEX
"""

import sys
import time

import ibverbs as v
import numpy

SIZE = 100_000
ACCESS = v.AccessFlags.LOCAL_WRITE | v.AccessFlags.REMOTE_WRITE | v.AccessFlags.REMOTE_READ


class End:
    def __init__(self, device, array):
        self.context = device.open()
        self.pd = self.context.alloc_pd()
        self.cq = self.context.create_cq(16)
        self.mr = v.reg_tensor(self.pd, array, ACCESS)
        self.qp = self.pd.create_qp(v.QPInitAttr(self.cq, self.cq))

    def info(self, place):
        gid = self.context.query_gid(1, place)
        return v.local_qp_info(self.qp, self.context.query_port(1), gid, port=1, psn=7)

    def work(self, opcode, peer):
        self.qp.post_send(v.SendWR(wr_id=1, sg_list=[v.SGE(self.mr, SIZE)], opcode=opcode,
                                   send_flags=v.SendFlags.SIGNALED, remote_addr=peer.mr.addr, rkey=peer.mr.rkey))
        deadline = time.monotonic() + 20
        while not (done := self.cq.poll(1)):
            assert time.monotonic() < deadline, "no completion"
        done[0].raise_for_status()


def main(place):
    (device,) = v.get_device_list()
    ours = numpy.random.default_rng(3).integers(0, 256, SIZE, numpy.uint8)
    theirs = numpy.zeros(SIZE, numpy.uint8)
    one, two = End(device, ours), End(device, theirs)
    for end, peer in ((one, two), (two, one)):
        v.connect_rc(end.qp, peer.info(place), port=1, sgid_index=place, access=ACCESS, local_psn=7)
    one.work(v.WROpcode.RDMA_WRITE, two)
    assert (theirs == ours).all(), "what was written"
    theirs[:] = theirs[::-1].copy()
    one.work(v.WROpcode.RDMA_READ, two)
    assert (ours == theirs).all(), "what was read"


if __name__ == "__main__":
    main(int(sys.argv[1]))
    print("all right")
