//! The rules of the table; each of its rows is compared with another table in tests/sim/attributes.rs.

use super::*;

#[test]
fn a_transition_needs_all_that_is_required_and_takes_what_is_optional() {
    let required = M::TIMEOUT | M::SQ_PSN;
    assert_eq!(check(XrcTarget, Rtr, Rts, M::STATE), Result::Err(AttrError::Missing(required)));
    let mask = M::STATE | M::TIMEOUT;
    assert_eq!(check(XrcTarget, Rtr, Rts, mask), Result::Err(AttrError::Missing(M::SQ_PSN)));
    let mask = M::STATE | required;
    assert_eq!(check(XrcTarget, Rtr, Rts, mask), Ok(()));
    assert_eq!(check(XrcTarget, Rtr, Rts, mask | M::MIN_RNR_TIMER), Ok(()));
    assert_eq!(check(XrcTarget, Rtr, Rts, required), Ok(()), "the state itself may be left out");
}

#[test]
fn attributes_neither_required_nor_optional_are_refused() {
    let mask = M::STATE | M::TIMEOUT | M::SQ_PSN | M::QKEY | M::CAP;
    let excess = M::QKEY | M::CAP;
    assert_eq!(check(XrcTarget, Rtr, Rts, mask), Result::Err(AttrError::Excess(excess)));
}

#[test]
fn an_alternate_path_is_refused_wherever_the_table_has_it() {
    for (from, to, mask) in [(Rts, Rts, M::STATE), (Sqd, Rts, M::STATE), (Rts, Sqd, M::STATE)] {
        assert_eq!(check(Rc, from, to, mask), Ok(()));
        let found = check(Rc, from, to, mask | M::ALT_PATH);
        assert_eq!(found, Result::Err(AttrError::Excess(M::ALT_PATH)));
    }
}

#[test]
fn reset_and_error_need_nothing_and_allow_nothing() {
    for from in [Init, Rtr, Rts, Sqd, Sqe, Err] {
        for to in [Reset, Err] {
            assert_eq!(check(Rc, from, to, M::STATE), Ok(()), "{from:?} to {to:?}");
            let found = check(Rc, from, to, M::STATE | M::QKEY);
            assert_eq!(found, Result::Err(AttrError::Excess(M::QKEY)));
        }
    }
    assert_eq!(check(Rc, Reset, Reset, M::STATE), Ok(()));
    let found = check(Rc, Reset, Err, M::STATE);
    assert_eq!(found, Result::Err(AttrError::Transition { from: Reset, to: Err }));
}

#[test]
fn a_row_holds_for_its_services_and_states() {
    assert_eq!(check(Ud, Init, Rtr, M::STATE), Ok(()));
    assert!(matches!(check(Rc, Init, Rtr, M::STATE), Result::Err(AttrError::Missing(_))));
    for (from, to) in [(Init, Rts), (Rtr, Init), (Rts, Rtr), (Err, Rts), (Rtr, Rtr)] {
        let found = check(Ud, from, to, M::STATE);
        assert_eq!(found, Result::Err(AttrError::Transition { from, to }));
    }
}
