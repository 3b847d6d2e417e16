//! no-receive: a SEND to a queue pair without a receive.
use softrnic_abi::*;
use softrnic_planted::*;

fn main() {
    let pair = Pair::connected();
    let (mine, theirs) = (Region::new(&pair.domain, ALL), Region::new(&pair.domain, ALL));
    if correct() {
        pair.there.receive(theirs.bytes(64));
    }
    let status = pair.here.post(IBV_WR_SEND, mine.bytes(64), None, IBV_SEND_SIGNALED); // posted
    assert_eq!(status, 0);
    pair.here.finish(13);
    pair.close([mine, theirs]);
}
