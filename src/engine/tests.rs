//! What only shows from inside the engine.

use softrnic_transport::{AttrMask, QpAttr, QpType, Status};
use softrnic_wire::Time;

use super::*;

#[test]
fn a_receive_that_is_posted_while_its_qp_fails_is_flushed() {
    let mut engine = Engine::new(EngineConfig::with_seed(1));
    let pd = engine.memory().alloc_pd().expect("PD");
    let (cq, mut completions, _arming) = engine.create_cq(8, None).expect("CQ");
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
        AttrMask::STATE.union(AttrMask::PKEY_INDEX).union(AttrMask::PORT).union(AttrMask::ACCESS_FLAGS);
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

/// XRC SRQs are found by their number, so none may have that of another.
#[test]
fn a_wrapped_srq_number_names_no_live_srq() {
    let mut engine = Engine::new(EngineConfig::with_seed(1));
    let pd = engine.memory().alloc_pd().expect("a PD");
    let (cq, ..) = engine.create_cq(1, None).expect("a CQ");
    let xrcd = engine.create_xrcd().expect("an XRC domain");
    let init = SrqInit { pd, max_wr: 1, xrc: Some((xrcd, cq)) };
    let first = engine.create_srq(init).expect("an SRQ");
    engine.srq_numbers.skip((1 << 24) - 1);
    let second = engine.create_srq(init).expect("an SRQ");
    assert_ne!(second.srqn, first.srqn, "the first is still there");
    engine.destroy_srq(first.key).expect("destroyed");
    engine.srq_numbers.skip((1 << 24) - 2);
    assert_eq!(engine.create_srq(init).expect("an SRQ").srqn, first.srqn, "and now it is not");
}

#[test]
fn a_wrapped_qp_number_names_no_live_qp() {
    let mut engine = Engine::new(EngineConfig::with_seed(1));
    let pd = engine.memory().alloc_pd().expect("a PD");
    let (cq, ..) = engine.create_cq(1, None).expect("a CQ");
    let receive = ReceiveSource::Own(1);
    let init = QpInit { service: QpType::Ud, pd, send_cq: cq, recv_cq: cq, max_send_wr: 1, receive };
    let first = engine.create_qp(init).expect("a QP").qpn;
    engine.qp_numbers.skip((1 << 24) - 1);
    assert_ne!(engine.create_qp(init).expect("a QP").qpn, first);
}

/// From the first QPN a 64-bit seed could be found by trying, and from that every key.
#[test]
fn keys_do_not_follow_from_qp_numbers() {
    let numbers = |secret: [u8; 32]| {
        let mut engine = Engine::new(EngineConfig::with_seed(Seed::new(secret)));
        let pd = engine.memory().alloc_pd().expect("a PD");
        let (cq, ..) = engine.create_cq(1, None).expect("a CQ");
        let receive = ReceiveSource::Own(1);
        let init = QpInit { service: QpType::Ud, pd, send_cq: cq, recv_cq: cq, max_send_wr: 1, receive };
        let qpns: Vec<u32> = (0..16).map(|_| engine.create_qp(init).expect("a QP").qpn.get()).collect();
        let keys: Vec<u32> =
            (0..16).map(|_| engine.memory().alloc_null_mr(pd).expect("a region").lkey.0).collect();
        (qpns, keys)
    };
    // A bit anywhere in the secret, those beyond the first 64 too, changes all that can be seen.
    for bit in [0, 63, 64, 100, 255] {
        let mut other = [9; 32];
        other[bit / 8] ^= 1 << (bit % 8);
        let ((qpns, keys), (other_qpns, other_keys)) = (numbers([9; 32]), numbers(other));
        assert!(qpns.iter().all(|qpn| !other_qpns.contains(qpn)), "bit {bit}");
        assert!(keys.iter().all(|key| !other_keys.contains(key)), "bit {bit}");
    }
}

/// Whatever makes a QP or an SRQ fail, the PD, CQ, SRQ and XRC domain that it named can be given back at once.
#[test]
fn a_qp_or_srq_that_is_refused_leaves_nothing_in_use() {
    let mut engine = Engine::new(EngineConfig::with_seed(1));
    let (gone_cq, ..) = engine.create_cq(1, None).expect("CQ");
    let gone_pd = engine.memory().alloc_pd().expect("PD");
    let gone_xrcd = engine.create_xrcd().expect("XRC domain");
    let gone_srq = engine.create_srq(SrqInit { pd: gone_pd, max_wr: 1, xrc: None }).expect("SRQ").key;
    drop(engine.destroy_srq(gone_srq).expect("unused"));
    drop(engine.destroy_cq(gone_cq).expect("unused"));
    engine.destroy_xrcd(gone_xrcd).expect("unused");
    engine.memory().dealloc_pd(gone_pd).expect("unused");

    let pd = engine.memory().alloc_pd().expect("PD");
    let (cq, ..) = engine.create_cq(1, None).expect("CQ");
    let xrcd = engine.create_xrcd().expect("XRC domain");
    let srq = engine.create_srq(SrqInit { pd, max_wr: 1, xrc: None }).expect("SRQ").key;
    let qp = |service, pd, send_cq, recv_cq, receive| QpInit {
        service,
        pd,
        send_cq,
        recv_cq,
        max_send_wr: 1,
        receive,
    };
    let refused = [
        qp(QpType::Rc, gone_pd, cq, cq, ReceiveSource::Own(1)),
        qp(QpType::Rc, gone_pd, cq, cq, ReceiveSource::Shared(srq)),
        qp(QpType::XrcTarget, gone_pd, cq, cq, ReceiveSource::Xrc(xrcd)),
        qp(QpType::Rc, pd, gone_cq, cq, ReceiveSource::Shared(srq)),
        qp(QpType::Rc, pd, cq, gone_cq, ReceiveSource::Shared(srq)),
        qp(QpType::Rc, pd, cq, cq, ReceiveSource::Shared(gone_srq)),
        qp(QpType::XrcTarget, pd, cq, cq, ReceiveSource::Xrc(gone_xrcd)),
    ];
    for init in refused {
        assert!(engine.create_qp(init).is_err(), "{init:?}");
    }
    for (pd, xrc) in [(gone_pd, Some((xrcd, cq))), (pd, Some((gone_xrcd, cq))), (pd, Some((xrcd, gone_cq)))] {
        assert!(engine.create_srq(SrqInit { pd, max_wr: 1, xrc }).is_err(), "{xrc:?}");
    }
    assert!(engine.destroy_srq(srq).is_ok());
    assert_eq!(engine.destroy_xrcd(xrcd), Ok(()));
    assert!(engine.destroy_cq(cq).is_ok());
    assert_eq!(engine.memory().dealloc_pd(pd), Ok(()));
}

#[test]
fn one_object_beyond_the_limit_is_refused_until_another_is_destroyed() {
    let mut config = EngineConfig::with_seed(1);
    config.caps = DeviceCaps { max_cq: 2, max_srq: 2, max_qp: 2, ..DeviceCaps::default() };
    let mut engine = Engine::new(config);
    let pd = engine.memory().alloc_pd().expect("PD");
    let cqs: Vec<_> = (0..2).map(|_| engine.create_cq(1, None).expect("CQ").0).collect();
    assert!(matches!(engine.create_cq(1, None), Err(ControlError::NoMemory)));
    drop(engine.destroy_cq(cqs[1]).expect("unused"));
    engine.create_cq(1, None).expect("a place is free");

    let init = SrqInit { pd, max_wr: 1, xrc: None };
    let srqs: Vec<_> = (0..2).map(|_| engine.create_srq(init).expect("SRQ").key).collect();
    assert!(matches!(engine.create_srq(init), Err(ControlError::NoMemory)));
    drop(engine.destroy_srq(srqs[1]).expect("unused"));
    engine.create_srq(init).expect("a place is free");

    let init = QpInit {
        service: QpType::Rc,
        pd,
        send_cq: cqs[0],
        recv_cq: cqs[0],
        max_send_wr: 1,
        receive: ReceiveSource::Own(1),
    };
    let qps: Vec<_> = (0..2).map(|_| engine.create_qp(init).expect("QP").key).collect();
    assert!(matches!(engine.create_qp(init), Err(ControlError::NoMemory)));
    drop(engine.destroy_qp(Time::ZERO, qps[1]).expect("unused"));
    engine.create_qp(init).expect("a place is free");
}

/// What an adversary keeps would be read where the peer may write something else meanwhile.
#[test]
fn payloads_stay_with_the_peer_unless_an_adversary_keeps_them() {
    let plain = || EngineConfig::with_seed(1);
    assert!(plain().leaves_payloads());
    assert!(!EngineConfig { adversary: Some(1), ..plain() }.leaves_payloads());
}
