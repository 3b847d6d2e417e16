//! Broadcom BCM57608 (Thor 2), with requests of variable size: `bnxt_re` of Linux, `providers/bnxt_re` of rdma-core 65.
//!
//! What the firmware says is from `ibv_devinfo -vv` of such a device (uccl-project/uccl#250). It shows no figures for regions,
//! windows, address handles and SRQs, so these are SoftRNIC's.

use crate::{Asked, Features, Granted, Identity, Limits, Model, Rule};

pub(crate) static MODEL: Model = Model {
    name: "bnxt_re",
    identity: Identity {
        hardware: "Broadcom BCM57608",
        vendor_id: 0x14E4,
        // CHIP_NUM_57608 (main.h).
        part_id: 0x1760,
        hw_ver: 0,
        fw_ver: None,
        hca_type: None,
    },
    limits: Limits {
        max_qp: 131_073,
        // BNXT_VAR_MAX_WQE - 1 (qplib_sp.h).
        max_qp_wr: 4_351,
        max_sge: MOST_ELEMENTS,
        max_cq: 65_536,
        max_cqe: 8_388_607,
        max_mr: NOT_PUBLIC,
        max_mw: NOT_PUBLIC,
        // bnxt_qplib_get_dev_attr (qplib_sp.c).
        max_pd: 65_536,
        // BNXT_QPLIB_MAX_OUT_RD_ATOM (qplib_sp.h).
        max_qp_rd_atom: 126,
        max_qp_init_rd_atom: 126,
        max_ah: NOT_PUBLIC,
        max_srq: NOT_PUBLIC,
        max_srq_wr: NOT_PUBLIC,
        max_srq_sge: NOT_PUBLIC,
        // bnxt_re_query_device (ib_verbs.c).
        max_mcast_groups: 0,
        max_mcast_qp_attach: 0,
        // BNXT_RE_DEFAULT_ACK_DELAY (ib_verbs.h).
        local_ca_ack_delay: 16,
        // BNXT_QPLIB_NUM_GIDS_SUPPORTED (qplib_sp.h).
        gid_table_len: 256,
        // BNXT_RE_MAX_MR_SIZE_LOW (bnxt_re.h).
        max_message: 1 << 30,
        max_dm_size: 0,
        max_inline: MOST_INLINE,
    },
    features: Features {
        rc: true,
        // bnxt_re_check_qp_limits (verbs.c).
        uc: false,
        xrc: false,
        atomics: true,
        // bnxt_re_post_send (verbs.c).
        persistence: false,
        // bnxt_re_modify_srq (ib_verbs.c) takes a size and does nothing with it.
        srq_resize: false,
        // `bnxt_re_cntx_ops` (main.c) has no alloc_mw.
        windows_1: false,
        windows_2: false,
        on_demand: false,
        null_mr: false,
        // RDMA_CORE_PORT_IBA_ROCE with UDP_ENCAP: bnxt_re_get_port_immutable (ib_verbs.c).
        roce_v1: true,
        // `head` moves in bnxt_re_poll_cq (verbs.c).
        polling_frees_slots: true,
    },
    srd: None,
    queue_pair,
    completion_queue,
    shared_receive_queue: |max_wr, max_sge| match max_wr {
        0 => Err(Rule::Zero("max_wr of an SRQ")),
        _ => Ok((max_wr, max_sge)),
    },
};

/// No limit but SoftRNIC's.
const NOT_PUBLIC: u32 = u32::MAX;
/// BNXT_VAR_MAX_SGE (qplib_sp.h).
const MOST_ELEMENTS: u32 = 13;
/// `max_qp_sges * sizeof(struct sq_sge)`: bnxt_qplib_get_dev_attr (qplib_sp.c), and the same by bnxt_re_get_sq_slots (verbs.c).
const MOST_INLINE: u32 = MOST_ELEMENTS * 16;

/// `bnxt_re_check_qp_limits` (verbs.c), `bnxt_re_test_qp_limits` (ib_verbs.c). Neither changes what was asked for.
fn queue_pair(asked: &Asked) -> Result<Granted, Rule> {
    for (what, asked, most) in [
        ("max_send_wr", asked.max_send_wr, MODEL.limits.max_qp_wr),
        ("max_recv_wr", asked.max_recv_wr, MODEL.limits.max_qp_wr),
        ("max_inline_data", asked.max_inline, MOST_INLINE),
    ] {
        if asked > most {
            return Err(Rule::Above { what, asked, most });
        }
    }
    Ok(Granted {
        max_send_wr: asked.max_send_wr,
        max_recv_wr: asked.max_recv_wr,
        max_send_sge: asked.max_send_sge,
        max_recv_sge: asked.max_recv_sge,
        max_inline: asked.max_inline,
    })
}

/// At least as many as asked for.
fn completion_queue(cqe: u32) -> Result<u32, Rule> {
    if cqe == 0 { Err(Rule::Zero("cqe")) } else { Ok(cqe) }
}
