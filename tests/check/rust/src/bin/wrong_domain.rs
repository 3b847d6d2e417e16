//! wrong-domain: the region is of another protection domain than the queue pair.
use softrnic_abi::*;
use softrnic_planted::*;

fn main() {
    let pair = Pair::connected();
    let other = pair.other_domain();
    let mine = Region::new(if correct() { &pair.domain } else { &other }, ALL); // registered
    let theirs = Region::new(&pair.domain, ALL);
    let to = Some((theirs.addr(), theirs.rkey()));
    let status = pair.here.post(IBV_WR_RDMA_WRITE, mine.bytes(64), to, IBV_SEND_SIGNALED); // posted
    assert_eq!(status, 0);
    pair.here.finish(4);
    mine.close();
    other.close();
    pair.close([theirs]);
}
