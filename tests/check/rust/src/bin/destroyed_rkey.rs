//! destroyed-key: a region is dropped while the peer has its key.
use softrnic_abi::*;
use softrnic_planted::*;

fn main() {
    let pair = Pair::connected();
    let mine = Region::new(&pair.domain, ALL);
    let theirs = Region::new(&pair.domain, ALL); // registered
    let to = (theirs.addr(), theirs.rkey());
    let mut kept = vec![mine];
    if correct() {
        kept.push(theirs);
    } else {
        theirs.close(); // deregistered
    }
    let status = pair.here.post(IBV_WR_RDMA_WRITE, kept[0].bytes(64), Some(to), IBV_SEND_SIGNALED); // posted
    assert_eq!(status, 0);
    pair.here.finish(10);
    pair.close(kept);
}
