//! Intel E810 with RoCEv2: `irdma` of Linux, `providers/irdma` of rdma-core 65.
//!
//! What is not a constant of these is from `ibv_devinfo -v` of part 5522 (deepseek-ai/3FS#192). That was Intel's own driver, which
//! reports fewer elements (6) and READs at once (8) than Linux does.

use crate::{Asked, Features, Granted, Identity, Limits, Model, Rule};

pub(crate) static MODEL: Model = Model {
    name: "irdma",
    identity: Identity {
        hardware: "Intel E810",
        vendor_id: 0x8086,
        part_id: 5522,
        hw_ver: 2,
        fw_ver: Some("1.74"),
        hca_type: None,
    },
    limits: Limits {
        max_qp: 4_092,
        // IRDMA_MAX_QP_WRS of 4 quanta; the queue may have more requests if they are small, see `queue_pair`.
        max_qp_wr: 8_127,
        // IRDMA_MAX_WQ_FRAGMENT_COUNT (user.h); IRDMA_MAX_SGE_RD is the same.
        max_sge: 13,
        max_cq: 8_189,
        // IRDMA_MAX_CQ_SIZE - 1 (user.h).
        max_cqe: 1_048_574,
        max_mr: 4_194_301,
        max_mw: 4_194_301,
        max_pd: 262_141,
        // ICRDMA_MAX_IRD_SIZE, ICRDMA_MAX_ORD_SIZE (icrdma_hw.h).
        max_qp_rd_atom: 127,
        max_qp_init_rd_atom: 255,
        max_ah: 131_072,
        // SRQs are for the third generation (IPU E2000).
        max_srq: 0,
        max_srq_wr: 0,
        max_srq_sge: 0,
        max_mcast_groups: 4_096,
        // IRDMA_MAX_MGS_PER_CTX
        max_mcast_qp_attach: 8,
        local_ca_ack_delay: 0,
        // irdma_query_port (verbs.c).
        gid_table_len: 32,
        // IRDMA_MAX_OUTBOUND_MSG_SIZE (user.h).
        max_message: 2_147_483_647,
        max_dm_size: 0,
        max_inline: MOST_INLINE,
    },
    features: Features {
        rc: true,
        // irdma_ucreate_qp (uverbs.c).
        uc: false,
        xrc: false,
        // IRDMA_FEATURE_ATOMIC_OPS is the third generation's.
        atomics: false,
        // irdma_upost_send (uverbs.c).
        persistence: false,
        srq_resize: false,
        // irdma_upost_send binds both.
        windows_1: true,
        windows_2: true,
        on_demand: false,
        null_mr: false,
        // RDMA_CORE_PORT_IBA_ROCE_UDP_ENCAP alone: irdma_roce_port_immutable (verbs.c).
        roce_v1: false,
        // `sq_ring.tail` moves in irdma_uk_cq_poll_cmpl (uk.c).
        polling_frees_slots: true,
    },
    srd: None,
    queue_pair,
    completion_queue,
    // It has none.
    shared_receive_queue: |max_wr, max_sge| Ok((max_wr, max_sge)),
};

/// IRDMA_QP_SW_MAX_WQ_QUANTA, IRDMA_QP_SW_MAX_RQ_QUANTA.
const QUANTA: u32 = 32_768;
/// IRDMA_QP_WQE_MIN_SIZE (defs.h).
const QUANTUM: u32 = 32;
/// IRDMA_SQ_RSVD, IRDMA_RQ_RSVD (defs.h).
const RESERVED_FOR_SENDS: u32 = 258;
const RESERVED_FOR_RECEIVES: u32 = 1;
/// ICRDMA_MIN_WQ_SIZE (icrdma_hw.h).
const FEWEST: u32 = 8;
/// IRDMA_MAX_INLINE_DATA_SIZE (user.h).
const MOST_INLINE: u32 = 101;

/// `irdma_ucreate_qp` (uverbs.c).
fn queue_pair(asked: &Asked) -> Result<Granted, Rule> {
    if asked.max_inline > MOST_INLINE {
        return Err(Rule::Above { what: "max_inline_data", asked: asked.max_inline, most: MOST_INLINE });
    }
    // Immediate data takes the place of an element.
    let shift = shift(asked.max_send_sge + 1, asked.max_inline);
    let max_send_wr = depth("send", asked.max_send_wr, shift, RESERVED_FOR_SENDS)?;
    let max_recv_wr = match asked.receives {
        true => {
            depth("receive", asked.max_recv_wr, self::shift(asked.max_recv_sge, 0), RESERVED_FOR_RECEIVES)?
        }
        false => 0,
    };
    Ok(Granted {
        max_send_wr,
        max_recv_wr,
        max_send_sge: asked.max_send_sge,
        max_recv_sge: asked.max_recv_sge,
        max_inline: asked.max_inline,
    })
}

/// The logarithm of an entry's size in quanta: `irdma_get_wqe_shift` (uk.c).
fn shift(elements: u32, inline: u32) -> u32 {
    match (elements, inline) {
        (..=1, ..=8) => 0,
        (..=3, ..=39) => 1,
        (..=7, ..=101) => 2,
        _ => 3,
    }
}

/// How many requests a queue has: `irdma_get_sqdepth`, `irdma_get_rqdepth` (uk.c).
fn depth(queue: &'static str, asked: u32, shift: u32, reserved: u32) -> Result<u32, Rule> {
    let refused =
        Rule::TooLarge { queue, entries: asked, size: QUANTUM << shift, units: QUANTA, unit: QUANTUM };
    if asked > QUANTA {
        return Err(refused);
    }
    let quanta = ((asked << shift) + reserved).next_power_of_two().max(FEWEST << shift);
    if quanta > QUANTA { Err(refused) } else { Ok((quanta - reserved) >> shift) }
}

/// As many as asked for: `ucreate_cq` (uverbs.c).
fn completion_queue(cqe: u32) -> Result<u32, Rule> {
    if cqe == 0 { Err(Rule::Zero("cqe")) } else { Ok(cqe) }
}
