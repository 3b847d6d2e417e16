//! swapped-key: the key of the peer is turned into network order.
use softrnic_abi::*;
use softrnic_planted::*;

fn main() {
    let pair = Pair::connected();
    let mine = Region::new(&pair.domain, ALL);
    let theirs = Region::new(&pair.domain, ALL); // registered
    let rkey = right(theirs.rkey(), theirs.rkey().to_be());
    let status = pair.here.post(IBV_WR_RDMA_WRITE, mine.bytes(64), Some((theirs.addr(), rkey)), IBV_SEND_SIGNALED); // posted
    assert_eq!(status, 0);
    pair.here.finish(10);
    pair.close([mine, theirs]);
}
