use super::*;

#[test]
fn a_mask_has_the_bits_of_verbs() {
    // enum ibv_qp_attr_mask.
    let masks = [
        AttrMask::STATE,
        AttrMask::CUR_STATE,
        AttrMask::EN_SQD_ASYNC_NOTIFY,
        AttrMask::ACCESS_FLAGS,
        AttrMask::PKEY_INDEX,
        AttrMask::PORT,
        AttrMask::QKEY,
        AttrMask::AV,
        AttrMask::PATH_MTU,
        AttrMask::TIMEOUT,
        AttrMask::RETRY_CNT,
        AttrMask::RNR_RETRY,
        AttrMask::RQ_PSN,
        AttrMask::MAX_QP_RD_ATOMIC,
        AttrMask::ALT_PATH,
        AttrMask::MIN_RNR_TIMER,
        AttrMask::SQ_PSN,
        AttrMask::MAX_DEST_RD_ATOMIC,
        AttrMask::PATH_MIG_STATE,
        AttrMask::CAP,
        AttrMask::DEST_QPN,
    ];
    let mut bit = 1;
    for mask in masks {
        assert_eq!(mask.bits(), bit);
        bit += bit;
    }
    assert_eq!(AttrMask::RATE_LIMIT.bits(), 0x200_0000);
}

#[test]
fn only_named_attributes_must_be_in_range() {
    type Set = fn(&mut QpAttr, u8);
    let ranges: [(AttrMask, u8, Set); 5] = [
        (AttrMask::TIMEOUT, 31, |attr, value| attr.timeout = value),
        (AttrMask::RETRY_CNT, 7, |attr, value| attr.retry_cnt = value),
        (AttrMask::RNR_RETRY, 7, |attr, value| attr.rnr_retry = value),
        (AttrMask::MAX_QP_RD_ATOMIC, 128, |attr, value| attr.max_rd_atomic = value),
        (AttrMask::MAX_DEST_RD_ATOMIC, 128, |attr, value| attr.max_dest_rd_atomic = value),
    ];
    for (mask, most, set) in ranges {
        for (value, result) in [(0, Ok(())), (most, Ok(())), (most + 1, Err(AttrError::Value(mask)))] {
            let mut attr = QpAttr::default();
            set(&mut attr, value);
            assert_eq!(attr.check(mask), result, "{value}");
            assert_eq!(attr.check(!mask), Ok(()), "{value}");
        }
    }
}

#[test]
fn a_refusal_gives_its_reason() {
    use std::string::ToString;
    let refusals = [
        (AttrError::Transition { from: QpState::Init, to: QpState::Rts }, "from Init to Rts"),
        (AttrError::Missing(AttrMask::AV), "0x80 are required"),
        (AttrError::Excess(AttrMask::AV), "0x80 are not allowed"),
        (AttrError::Value(AttrMask::AV), "0x80 is out of range"),
        (AttrError::CurState, "cur_qp_state"),
    ];
    for (refusal, words) in refusals {
        assert!(refusal.to_string().contains(words), "{refusal}");
    }
}
