//! missing-access: a WRITE to a region that peers may only read.
use softrnic_abi::*;
use softrnic_planted::*;

fn main() {
    let pair = Pair::connected();
    let mine = Region::new(&pair.domain, ALL);
    let access = right(ALL, LOCAL_WRITE | REMOTE_READ);
    let theirs = Region::new(&pair.domain, access); // registered
    let to = Some((theirs.addr(), theirs.rkey()));
    let status = pair.here.post(IBV_WR_RDMA_WRITE, mine.bytes(64), to, IBV_SEND_SIGNALED); // posted
    assert_eq!(status, 0);
    pair.here.finish(10);
    pair.close([mine, theirs]);
}
