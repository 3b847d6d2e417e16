//! Which attributes `modify_qp` needs and allows: every transition of every service, against a table that was
//! written for this test (IBTA 10.3.1, 11.2.4.2, as the Linux core enforces it).

use std::net::Ipv4Addr;

use softrnic_engine::{
    Budget, ControlError, Engine, EngineConfig, QpHandle, QpInit, QpKey, ReceiveSource, SendRequest,
};
use softrnic_link::sim::{Fabric, SimOptions};
use softrnic_sim_tests::world::empty_send;
use softrnic_transport::{AttrError, AttrMask, QpAttr, QpState, QpType, check_transition};
use softrnic_wire::Time;

const STATES: [(&str, QpState); 7] = [
    ("RESET", QpState::Reset),
    ("INIT", QpState::Init),
    ("RTR", QpState::Rtr),
    ("RTS", QpState::Rts),
    ("SQD", QpState::Sqd),
    ("SQE", QpState::Sqe),
    ("ERR", QpState::Err),
];

const SERVICES: [(&str, QpType); 5] = [
    ("RC", QpType::Rc),
    ("UC", QpType::Uc),
    ("UD", QpType::Ud),
    ("INI", QpType::XrcInitiator),
    ("TGT", QpType::XrcTarget),
];

/// Bits as in `enum ibv_qp_attr_mask`.
const BITS: [(&str, u32); 22] = [
    ("STATE", 1),
    ("CUR_STATE", 1 << 1),
    ("EN_SQD_ASYNC_NOTIFY", 1 << 2),
    ("ACCESS_FLAGS", 1 << 3),
    ("PKEY_INDEX", 1 << 4),
    ("PORT", 1 << 5),
    ("QKEY", 1 << 6),
    ("AV", 1 << 7),
    ("PATH_MTU", 1 << 8),
    ("TIMEOUT", 1 << 9),
    ("RETRY_CNT", 1 << 10),
    ("RNR_RETRY", 1 << 11),
    ("RQ_PSN", 1 << 12),
    ("MAX_QP_RD_ATOMIC", 1 << 13),
    ("ALT_PATH", 1 << 14),
    ("MIN_RNR_TIMER", 1 << 15),
    ("SQ_PSN", 1 << 16),
    ("MAX_DEST_RD_ATOMIC", 1 << 17),
    ("PATH_MIG_STATE", 1 << 18),
    ("CAP", 1 << 19),
    ("DEST_QPN", 1 << 20),
    ("RATE_LIMIT", 1 << 25),
];

/// Services, from, to: required; optional. ALT_PATH is optional in many rows of the specification, and always
/// refused on RoCE, so it is in none of these.
const TABLE: &str = "
RC UC INI TGT  RESET INIT  PKEY_INDEX PORT ACCESS_FLAGS ;
UD             RESET INIT  PKEY_INDEX PORT QKEY ;
RC UC INI TGT  INIT INIT   ; PKEY_INDEX PORT ACCESS_FLAGS
UD             INIT INIT   ; PKEY_INDEX PORT QKEY
RC TGT         INIT RTR    AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER ; ACCESS_FLAGS PKEY_INDEX
UC INI         INIT RTR    AV PATH_MTU DEST_QPN RQ_PSN ; ACCESS_FLAGS PKEY_INDEX
UD             INIT RTR    ; PKEY_INDEX QKEY
RC INI         RTR RTS     TIMEOUT RETRY_CNT RNR_RETRY SQ_PSN MAX_QP_RD_ATOMIC ; CUR_STATE ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE
TGT            RTR RTS     TIMEOUT SQ_PSN ; CUR_STATE ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE
UC             RTR RTS     SQ_PSN ; CUR_STATE ACCESS_FLAGS PATH_MIG_STATE
UD             RTR RTS     SQ_PSN ; CUR_STATE QKEY
RC INI TGT     RTS RTS     ; CUR_STATE ACCESS_FLAGS PATH_MIG_STATE MIN_RNR_TIMER
UC             RTS RTS     ; CUR_STATE ACCESS_FLAGS PATH_MIG_STATE
UD             RTS RTS     ; CUR_STATE QKEY
RC UC UD INI TGT RTS SQD   ; EN_SQD_ASYNC_NOTIFY
RC INI TGT     SQD RTS     ; CUR_STATE ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE
UC             SQD RTS     ; CUR_STATE ACCESS_FLAGS PATH_MIG_STATE
UD             SQD RTS     ; CUR_STATE QKEY
RC INI         SQD SQD     ; PORT AV TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC MAX_DEST_RD_ATOMIC ACCESS_FLAGS PKEY_INDEX MIN_RNR_TIMER PATH_MIG_STATE
TGT            SQD SQD     ; PORT AV TIMEOUT MAX_DEST_RD_ATOMIC ACCESS_FLAGS PKEY_INDEX MIN_RNR_TIMER PATH_MIG_STATE
UC             SQD SQD     ; AV ACCESS_FLAGS PKEY_INDEX PATH_MIG_STATE
UD             SQD SQD     ; PKEY_INDEX QKEY
RC INI TGT     SQE RTS     ;
UC             SQE RTS     ; CUR_STATE ACCESS_FLAGS
UD             SQE RTS     ; CUR_STATE QKEY
RC UC UD INI TGT RESET RESET ;
RC UC UD INI TGT INIT RESET  ;
RC UC UD INI TGT RTR RESET   ;
RC UC UD INI TGT RTS RESET   ;
RC UC UD INI TGT SQD RESET   ;
RC UC UD INI TGT SQE RESET   ;
RC UC UD INI TGT ERR RESET   ;
RC UC UD INI TGT INIT ERR    ;
RC UC UD INI TGT RTR ERR     ;
RC UC UD INI TGT RTS ERR     ;
RC UC UD INI TGT SQD ERR     ;
RC UC UD INI TGT SQE ERR     ;
RC UC UD INI TGT ERR ERR     ;
";

/// Required and optional bits of a transition, or `None` when there is no such transition.
fn rule(service: &str, from: &str, to: &str) -> Option<(u32, u32)> {
    let bits = |names: &str| {
        let bit = |name: &str| BITS.iter().find(|(known, _)| *known == name).expect("a bit").1;
        names.split_whitespace().map(bit).sum::<u32>()
    };
    TABLE.trim().lines().find_map(|line| {
        let (head, optional) = line.split_once(';').expect("a semicolon");
        let services: Vec<_> =
            head.split_whitespace().take_while(|word| SERVICES.iter().any(|s| s.0 == *word)).collect();
        let mut rest = head.split_whitespace().skip(services.len());
        let applies = services.contains(&service) && rest.next() == Some(from) && rest.next() == Some(to);
        let required: Vec<_> = rest.collect();
        applies.then(|| (bits(&required.join(" ")), bits(optional)))
    })
}

/// Masks worth trying for a rule: every choice of optional attributes, one required one missing, and one or two too
/// many.
fn masks(required: u32, optional: u32) -> Vec<u32> {
    let base = required | 1;
    let mut masks = Vec::new();
    let mut subset = optional;
    loop {
        masks.push(base | subset);
        if subset == 0 {
            break;
        }
        subset = (subset - 1) & optional;
    }
    for (_, one) in BITS {
        masks.push(base & !one);
        masks.push((base | optional) & !one);
        for (_, other) in BITS {
            masks.push(base | one | other);
            masks.push(base | optional | one | other);
            masks.push(one | other);
        }
    }
    masks
}

#[test]
fn every_transition_of_every_service_takes_exactly_its_attributes() {
    let (mut allowed, mut refused) = (0, 0);
    for (service_name, service) in SERVICES {
        for (from_name, from) in STATES {
            for (to_name, to) in STATES {
                let rule = rule(service_name, from_name, to_name);
                let (required, optional) = rule.unwrap_or_default();
                for mask in masks(required, optional) {
                    let legal = rule.is_some()
                        && mask & required == required
                        && mask & !(required | optional | 1) == 0;
                    let found = check_transition(service, from, to, AttrMask::from_bits_retain(mask));
                    let what = format!("{service_name} {from_name} -> {to_name} with {mask:#x}");
                    assert_eq!(found.is_ok(), legal, "{what}: {found:?}");
                    *(if legal { &mut allowed } else { &mut refused }) += 1;
                }
            }
        }
    }
    assert!(allowed > 1000 && refused > 10_000, "{allowed} allowed, {refused} refused");
}

/// A NIC with one QP in `state`.
fn qp_in(service: QpType, state: QpState) -> (Engine, QpKey) {
    let mut engine = Engine::new(EngineConfig::with_seed(1));
    let pd = engine.memory().alloc_pd().expect("a PD");
    let cq = engine.create_cq(4, None).expect("a CQ").0;
    let xrcd = engine.create_xrcd().expect("an XRC domain");
    let receive = match service {
        QpType::XrcTarget => ReceiveSource::Xrc(xrcd),
        QpType::XrcInitiator => ReceiveSource::None,
        _ => ReceiveSource::Own(4),
    };
    let init = QpInit { service, pd, send_cq: cq, recv_cq: cq, max_send_wr: 4, receive };
    let key = engine.create_qp(init).expect("a QP").key;
    let way: &[&str] = match state {
        QpState::Reset => &[],
        QpState::Init => &["INIT"],
        QpState::Rtr => &["INIT", "RTR"],
        QpState::Rts | QpState::Sqe => &["INIT", "RTR", "RTS"],
        QpState::Sqd => &["INIT", "RTR", "RTS", "SQD"],
        QpState::Err => &["INIT", "ERR"],
    };
    let mut from = "RESET";
    for &to in way {
        let name = SERVICES.iter().find(|s| s.1 == service).expect("a service").0;
        let (required, _) = rule(name, from, to).expect("a transition");
        modify(&mut engine, key, required | 1, to).expect("legal");
        from = to;
    }
    (engine, key)
}

fn modify(engine: &mut Engine, key: QpKey, mask: u32, to: &str) -> Result<(), ControlError> {
    let state = STATES.iter().find(|s| s.0 == to).expect("a state").1;
    let mut attr = QpAttr { state, ..QpAttr::default() };
    attr.path.src = Ipv4Addr::new(10, 0, 0, 1).into();
    attr.path.dst = Ipv4Addr::new(10, 0, 0, 2).into();
    engine.modify_qp(Time::ZERO, key, AttrMask::from_bits_retain(mask), &attr)
}

#[test]
fn a_refused_change_changes_nothing() {
    for (name, service) in SERVICES {
        for (from, state) in STATES.into_iter().filter(|s| s.1 != QpState::Sqe) {
            for (to, _) in STATES {
                let (mut engine, key) = qp_in(service, state);
                let before = engine.query_qp(key).expect("a QP").attr;
                let Some((required, _)) = rule(name, from, to) else {
                    assert!(modify(&mut engine, key, 1, to).is_err(), "{name} {from} -> {to}");
                    assert_eq!(engine.query_qp(key).expect("a QP").status.state, state);
                    continue;
                };
                for (_, bit) in BITS.into_iter().filter(|b| b.1 & required != 0) {
                    let refused = modify(&mut engine, key, (required | 1) & !bit, to);
                    assert!(
                        matches!(refused, Err(ControlError::Attributes(AttrError::Missing(_)))),
                        "{refused:?}"
                    );
                }
                let refused = modify(&mut engine, key, required | 1 | 1 << 14, to);
                assert!(
                    matches!(refused, Err(ControlError::Attributes(AttrError::Excess(_)))),
                    "{refused:?}"
                );
                let after = engine.query_qp(key).expect("a QP");
                assert_eq!((after.status.state, after.attr), (state, before), "{name} {from} -> {to}");
            }
        }
    }
}

#[test]
fn values_out_of_range_are_refused() {
    type Change = fn(&mut QpAttr);
    let cases: [(u32, Change); 5] = [
        (1 << 9, |attr| attr.timeout = 32),
        (1 << 10, |attr| attr.retry_cnt = 8),
        (1 << 11, |attr| attr.rnr_retry = 8),
        (1 << 13, |attr| attr.max_rd_atomic = 129),
        (1 << 17, |attr| attr.max_dest_rd_atomic = 129),
    ];
    for (bit, change) in cases {
        let (mut engine, key) = qp_in(QpType::Rc, QpState::Sqd);
        let mut attr = QpAttr { state: QpState::Sqd, ..QpAttr::default() };
        let mask = AttrMask::from_bits_retain(bit | 1);
        assert_eq!(engine.modify_qp(Time::ZERO, key, mask, &attr), Ok(()));
        change(&mut attr);
        let refused = engine.modify_qp(Time::ZERO, key, mask, &attr);
        assert_eq!(refused, Err(ControlError::Attributes(AttrError::Value(AttrMask::from_bits_retain(bit)))));
    }
}

#[test]
fn a_wrong_idea_of_the_current_state_is_refused() {
    for (_, cur_state) in STATES {
        let (mut engine, key) = qp_in(QpType::Rc, QpState::Rts);
        let attr = QpAttr { state: QpState::Rts, cur_state, ..QpAttr::default() };
        let result = engine.modify_qp(Time::ZERO, key, AttrMask::from_bits_retain(3), &attr);
        assert_eq!(result.is_ok(), cur_state == QpState::Rts, "{cur_state:?}");
    }
}

#[test]
fn reset_forgets_everything_but_the_number() {
    let (mut engine, key) = qp_in(QpType::Rc, QpState::Rts);
    assert_eq!(engine.usage().peers, 1);
    modify(&mut engine, key, 1, "RESET").expect("legal");
    let query = engine.query_qp(key).expect("a QP");
    assert_eq!((query.attr, query.status.state), (QpAttr::default(), QpState::Reset));
    assert_eq!(engine.usage().peers, 0);
}

/// A NIC with one RC QP in RTS, and a request without bytes for it.
fn connected() -> (Engine, QpHandle, SendRequest) {
    let mut engine = Engine::new(EngineConfig::with_seed(1));
    let pd = engine.memory().alloc_pd().expect("a PD");
    let cq = engine.create_cq(4, None).expect("a CQ").0;
    let receive = ReceiveSource::Own(4);
    let init = QpInit { service: QpType::Rc, pd, send_cq: cq, recv_cq: cq, max_send_wr: 4, receive };
    let qp = engine.create_qp(init).expect("a QP");
    for (from, to) in [("RESET", "INIT"), ("INIT", "RTR"), ("RTR", "RTS")] {
        modify(&mut engine, qp.key, rule("RC", from, to).expect("a rule").0 | 1, to).expect("legal");
    }
    let request = empty_send(1);
    (engine, qp, request)
}

#[test]
fn a_qp_that_moves_to_another_peer_takes_its_bytes_in_flight_along() {
    let fabric = Fabric::new(1);
    let mut link = fabric.attach(Ipv4Addr::new(10, 0, 0, 1).into(), SimOptions::default()).expect("a link");
    let (mut engine, mut qp, request) = connected();
    assert!(qp.sends.push(request).is_ok());
    engine.on_doorbell(Time::ZERO, qp.key.index());
    engine.step(Time::ZERO, &mut link, Budget::default());
    let in_flight = engine.usage().in_flight;
    assert!(in_flight > 0);

    modify(&mut engine, qp.key, 1, "SQD").expect("legal");
    let mut attr = QpAttr { state: QpState::Sqd, ..QpAttr::default() };
    attr.path.dst = Ipv4Addr::new(10, 0, 0, 3).into();
    engine.modify_qp(Time::ZERO, qp.key, AttrMask::from_bits_retain(1 | 1 << 7), &attr).expect("legal");
    assert_eq!((engine.usage().in_flight, engine.usage().peers), (in_flight, 1));
    engine.destroy_qp(Time::ZERO, qp.key).expect("destroyed");
    assert_eq!((engine.usage().in_flight, engine.usage().timers), (0, 0));
}

#[test]
fn posts_before_a_reset_are_forgotten_though_no_doorbell_was_rung() {
    let (mut engine, mut qp, request) = connected();
    assert!(qp.sends.push(request).is_ok());
    modify(&mut engine, qp.key, 1, "RESET").expect("legal");
    assert_eq!(qp.sends.outstanding(), 0);
    assert_eq!(engine.query_qp(qp.key).expect("a QP").status.queued_sends, 0);
}
