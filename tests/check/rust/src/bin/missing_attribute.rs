//! refused-verb: an attribute is missing in the mask of `ibv_modify_qp`.
use softrnic_planted::*;

fn main() {
    let pair = Pair::new();
    pair.here.to_init();
    let (mut attr, mask) = pair.here.for_rtr(pair.there.number());
    let min_rnr_timer = 1 << 15;
    let status = pair.here.modify(&mut attr, right(mask, mask & !min_rnr_timer)); // called
    assert_eq!(status, right(0, 22));
    pair.close([]);
}
