//! past-end: a slice that ends past its region.
use softrnic_abi::*;
use softrnic_planted::*;

fn main() {
    let pair = Pair::connected();
    let mine = Region::new(&pair.domain, ALL);
    let theirs = Region::new(&pair.domain, ALL); // registered
    let addr = theirs.addr() + (SIZE - right(64, 40)) as u64;
    let status = pair.here.post(IBV_WR_RDMA_WRITE, mine.bytes(64), Some((addr, theirs.rkey())), IBV_SEND_SIGNALED); // posted
    assert_eq!(status, 0);
    pair.here.finish(10);
    pair.close([mine, theirs]);
}
