//! What only shows from inside the engine.

use softrnic_transport::{AttrMask, QpAttr, QpType, Status};
use softrnic_wire::Time;

use super::*;

#[test]
fn a_receive_that_is_posted_while_its_qp_fails_is_flushed() {
    let mut engine = Engine::new(EngineConfig::with_seed(1));
    let pd = engine.memory().alloc_pd().expect("PD");
    let (cq, mut completions, _arming) = engine.create_cq(8, None);
    let init = QpInit {
        service: QpType::Rc,
        pd,
        send_cq: cq,
        recv_cq: cq,
        max_send_wr: 4,
        receive: ReceiveSource::Own(4),
    };
    let made = engine.create_qp(init).expect("QP");
    let mut receives = made.receives.expect("a receive queue of its own");
    let to_init =
        AttrMask::STATE.with(AttrMask::PKEY_INDEX).with(AttrMask::PORT).with(AttrMask::ACCESS_FLAGS);
    let attr = QpAttr { state: QpState::Init, ..QpAttr::default() };
    engine.modify_qp(Time::ZERO, made.key, to_init, &attr).expect("INIT");

    engine.with_qp(Time::ZERO, None, made.key, |qp, host| {
        qp.abort(host);
        // The application, which cannot see the new state yet, and so will not ring the doorbell.
        assert_ne!(host.io.shared_state.load(Ordering::SeqCst), QpState::Err as u8);
        let request = RecvRequest { wr_id: 7, data: LocalData::empty(), length: 0 };
        receives.push(request).expect("room");
    });
    engine.publish(Time::ZERO);
    let flushed = completions.pop().expect("flushed");
    assert_eq!((flushed.wr_id, flushed.status), (7, Status::Flushed));
}
