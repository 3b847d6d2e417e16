//! unknown-key: a WRITE with a key that nobody has.
use softrnic_abi::*;
use softrnic_planted::*;

fn main() {
    let pair = Pair::connected();
    let (mine, theirs) = (Region::new(&pair.domain, ALL), Region::new(&pair.domain, ALL));
    let rkey = theirs.rkey() ^ right(0, 0x100);
    let status = pair.here.post(IBV_WR_RDMA_WRITE, mine.bytes(64), Some((theirs.addr(), rkey)), IBV_SEND_SIGNALED); // posted
    assert_eq!(status, 0);
    pair.here.finish(10);
    pair.close([mine, theirs]);
}
