//! short-receive: the message is longer than the receive.
use softrnic_abi::*;
use softrnic_planted::*;

fn main() {
    let pair = Pair::connected();
    let (mine, theirs) = (Region::new(&pair.domain, ALL), Region::new(&pair.domain, ALL));
    pair.there.receive(theirs.bytes(right(64, 60))); // posted
    let status = pair.here.post(IBV_WR_SEND, mine.bytes(64), None, IBV_SEND_SIGNALED); // posted
    assert_eq!(status, 0);
    pair.here.finish(9);
    pair.close([mine, theirs]);
}
