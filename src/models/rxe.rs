//! Kernel rxe: `drivers/infiniband/sw/rxe` of Linux, `providers/rxe` of rdma-core 65. Its figures are in `rxe_param.h`, where
//! most are DEFAULT_MAX_VALUE, 1 << 20.

use crate::{Asked, Features, Granted, Identity, Limits, Model, Rule};

pub(crate) static MODEL: Model = Model {
    name: "rxe",
    identity: Identity {
        hardware: "Linux rxe",
        // RXE_VENDOR_ID
        vendor_id: 0xFF_FFFF,
        part_id: 0,
        hw_ver: 0,
        fw_ver: Some("0.0.0"),
        hca_type: None,
    },
    limits: Limits {
        // DEFAULT_MAX_VALUE - RXE_MIN_QP_INDEX
        max_qp: DEFAULT - 16,
        max_qp_wr: DEFAULT,
        // RXE_MAX_SGE
        max_sge: 32,
        max_cq: DEFAULT,
        // (1 << RXE_MAX_LOG_CQE) - 1
        max_cqe: 32_767,
        // DEFAULT_MAX_VALUE - RXE_MIN_MR_INDEX
        max_mr: DEFAULT - 1,
        // DEFAULT_MAX_VALUE - RXE_MIN_MW_INDEX
        max_mw: DEFAULT - 0x1_0001,
        max_pd: DEFAULT,
        // RXE_MAX_QP_RD_ATOM, RXE_MAX_QP_INIT_RD_ATOM
        max_qp_rd_atom: 128,
        max_qp_init_rd_atom: 128,
        max_ah: 32_767,
        // DEFAULT_MAX_VALUE - RXE_MIN_SRQ_INDEX
        max_srq: DEFAULT - 0x2_0001,
        max_srq_wr: DEFAULT,
        // RXE_MAX_SRQ_SGE
        max_srq_sge: 27,
        // RXE_MAX_MCAST_GRP, RXE_MAX_MCAST_QP_ATTACH
        max_mcast_groups: 8_192,
        max_mcast_qp_attach: 56,
        // RXE_LOCAL_CA_ACK_DELAY
        local_ca_ack_delay: 15,
        // RXE_PORT_GID_TBL_LEN
        gid_table_len: 1_024,
        max_message: u32::MAX,
        max_dm_size: 0,
        max_inline: MOST_INLINE,
    },
    features: Features {
        rc: true,
        uc: true,
        // rxe_qp_chk_init (rxe_qp.c).
        xrc: false,
        atomics: true,
        persistence: true,
        srq_resize: true,
        windows_1: true,
        windows_2: true,
        on_demand: true,
        null_mr: false,
        // RDMA_CORE_CAP_PROT_ROCE_UDP_ENCAP alone: RXE_PORT_PORT_CAP_FLAGS.
        roce_v1: false,
        // The kernel advances the queue when a request is complete (rxe_comp.c).
        polling_frees_slots: false,
    },
    srd: None,
    queue_pair,
    completion_queue,
    shared_receive_queue: |max_wr, max_sge| match max_wr {
        0 => Err(Rule::Zero("max_wr of an SRQ")),
        _ => Ok((slots(max_wr), max_sge)),
    },
};

/// DEFAULT_MAX_VALUE
const DEFAULT: u32 = 1 << 20;
/// RXE_MAX_INLINE_DATA: 32 elements of 16 B.
const MOST_INLINE: u32 = 512;
/// `sizeof(struct ib_sge)`
const ELEMENT: u32 = 16;

/// `rxe_qp_chk_cap`, `rxe_init_sq` and `rxe_init_rq` (rxe_qp.c).
fn queue_pair(asked: &Asked) -> Result<Granted, Rule> {
    for (what, asked, most) in [
        ("max_send_wr", asked.max_send_wr, DEFAULT),
        ("max_recv_wr", asked.max_recv_wr, DEFAULT),
        ("max_inline_data", asked.max_inline, MOST_INLINE),
    ] {
        if asked > most {
            return Err(Rule::Above { what, asked, most });
        }
    }
    // Elements and inline bytes are in the same place.
    let entry = (asked.max_send_sge * ELEMENT).max(asked.max_inline);
    Ok(Granted {
        max_send_wr: slots(asked.max_send_wr),
        max_recv_wr: if asked.receives { slots(asked.max_recv_wr) } else { 0 },
        max_send_sge: entry / ELEMENT,
        max_recv_sge: asked.max_recv_sge,
        max_inline: entry,
    })
}

/// `rxe_cq_chk_attr` (rxe_cq.c).
fn completion_queue(cqe: u32) -> Result<u32, Rule> {
    if cqe == 0 { Err(Rule::Zero("cqe")) } else { Ok(slots(cqe)) }
}

/// One slot is always empty: `rxe_queue_init` (rxe_queue.c).
fn slots(entries: u32) -> u32 {
    (entries + 1).next_power_of_two() - 1
}
