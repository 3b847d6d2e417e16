//! changed-buffer: a buffer is written to before its request is complete.
use softrnic_abi::*;
use softrnic_planted::*;

fn main() {
    let pair = Pair::connected();
    let mut mine = Region::new(&pair.domain, ALL); // registered
    let theirs = Region::new(&pair.domain, ALL);
    let to = Some((theirs.addr(), theirs.rkey()));
    let status = pair.here.post(IBV_WR_RDMA_WRITE, mine.bytes(64), to, IBV_SEND_SIGNALED); // posted
    assert_eq!(status, 0);
    if correct() {
        pair.here.finish(0);
        mine.set(3, 1);
    } else {
        mine.set(3, 1);
        pair.here.finish(0);
    }
    pair.close([mine, theirs]);
}
