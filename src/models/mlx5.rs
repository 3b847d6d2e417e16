//! NVIDIA ConnectX-5: `mlx5_ib` of Linux, `providers/mlx5` of rdma-core 65.
//!
//! The driver reports what the firmware says (`mlx5_ib_query_device` in `drivers/infiniband/hw/mlx5/main.c`), so the figures
//! are those of a device: `ibv_devinfo -v` of part 4119 with firmware 16.27.1016 (openucx/ucx#9830), and where that is cut off,
//! of parts 4119 (open-mpi/ompi#6137) and 4123 (openucx/ucx#10317), whose other figures are the same.

use crate::{Asked, Features, Granted, Identity, Limits, Model, Rule, SendOps, Service};

pub(crate) static MODEL: Model = Model {
    name: "mlx5",
    identity: Identity {
        hardware: "ConnectX-5",
        vendor_id: 0x02C9,
        part_id: 4119,
        hw_ver: 0,
        fw_ver: Some("16.27.1016"),
        // hca_type_show in main.c: "MT%d" with the device's PCI number.
        hca_type: Some("MT4119"),
    },
    limits: Limits {
        max_qp: 262_144,
        // In units of 64 B: `log_max_qp_sz`. How many requests that is depends on what they may be, see `queue_pair`.
        max_qp_wr: BASIC_BLOCKS,
        // The lesser of max_send_sge, (512 - 16 - 16) / 16, and max_recv_sge, 512 / 16 (main.c).
        max_sge: 30,
        max_cq: 16_777_216,
        // (1 << log_max_cq_sz) - 1
        max_cqe: 4_194_303,
        max_mr: 16_777_216,
        max_mw: 16_777_216,
        max_pd: 16_777_216,
        max_qp_rd_atom: 16,
        max_qp_init_rd_atom: 16,
        // INT_MAX (main.c).
        max_ah: i32::MAX as u32,
        max_srq: 8_388_608,
        // (1 << log_max_srq_sz) - 1
        max_srq_wr: 32_767,
        // max_rq_sg - 1 (main.c).
        max_srq_sge: 31,
        max_mcast_groups: 2_097_152,
        max_mcast_qp_attach: 240,
        local_ca_ack_delay: 16,
        // `roce_address_table_size`
        gid_table_len: 255,
        // 1 << log_max_msg
        max_message: 1 << 30,
        max_dm_size: 131_072,
        max_inline: SEND_ENTRY - CONTROL - INLINE_HEADER,
    },
    features: Features {
        rc: true,
        uc: true,
        xrc: true,
        atomics: true,
        // `mlx5_ib_opcode` in providers/mlx5/qp.c has neither.
        persistence: false,
        // mlx5_ib_modify_srq in srq.c: "We don't support resizing SRQs yet".
        srq_resize: false,
        windows_1: true,
        windows_2: true,
        on_demand: true,
        null_mr: true,
        // RDMA_CORE_PORT_IBA_ROCE with ROCE_UDP_ENCAP: `get_core_cap_flags` in main.c.
        roce_v1: true,
        // `wq->tail` moves in providers/mlx5/cq.c.
        polling_frees_slots: true,
    },
    srd: None,
    queue_pair,
    completion_queue,
    shared_receive_queue,
};

/// MLX5_SEND_WQE_BB (mlx5.h).
const BASIC_BLOCK: u32 = 64;
/// `max_send_wqebb`, which the kernel sets to 1 << log_max_qp_sz, as `max_recv_wr`.
const BASIC_BLOCKS: u32 = 32_768;
/// `max_sq_desc_sz`, which the kernel sets to `max_wqe_sz_sq`. An RC QP for SENDs gets at most 1,004 inline bytes
/// (linux-rdma/perftest#176), which is what is left of 1,024.
const SEND_ENTRY: u32 = 1024;
/// `max_rq_desc_sz`: 32 elements.
const RECEIVE_ENTRY: u32 = 512;

// Sizes of segments (wqe.h).
const CONTROL: u32 = 16;
const REMOTE: u32 = 16;
const ATOMIC: u32 = 16;
const UMR_CONTROL: u32 = 48;
const KEY_CONTEXT: u32 = 64;
/// At least, `_sq_overhead`.
const UMR_DATA: u32 = 64;
const DATAGRAM: u32 = 48;
const XRC: u32 = 16;
const DATA: u32 = 16;
const INLINE_HEADER: u32 = 4;
const NEXT: u32 = 16;

/// The bytes of a request that are not data: `_sq_overhead` (verbs.c).
fn overhead(service: Service, ops: SendOps) -> u32 {
    let mut most = CONTROL;
    // A UD QP that says nothing of its requests is made for SENDs.
    if service != Service::Ud {
        if ops.rdma {
            most = most.max(CONTROL + REMOTE);
        }
        if ops.atomics {
            most = most.max(CONTROL + REMOTE + ATOMIC);
        }
        if ops.windows {
            most = most.max(CONTROL + UMR_CONTROL + KEY_CONTEXT + UMR_DATA);
        }
    }
    most + match service {
        Service::Rc | Service::Uc => 0,
        Service::Ud | Service::Srd => DATAGRAM,
        Service::Xrc => XRC,
    }
}

/// `mlx5_calc_sq_size` and `mlx5_calc_rq_size` (verbs.c).
fn queue_pair(asked: &Asked) -> Result<Granted, Rule> {
    let (max_send_wr, max_inline) = send_queue(asked)?;
    let (max_recv_wr, max_recv_sge) = receive_queue(asked)?;
    Ok(Granted { max_send_wr, max_recv_wr, max_send_sge: asked.max_send_sge, max_recv_sge, max_inline })
}

fn send_queue(asked: &Asked) -> Result<(u32, u32), Rule> {
    if asked.max_send_wr == 0 {
        return Ok((0, asked.max_inline));
    }
    let overhead = overhead(asked.service, asked.ops);
    let most = SEND_ENTRY - overhead - INLINE_HEADER;
    if asked.max_inline > most {
        return Err(Rule::Above { what: "max_inline_data", asked: asked.max_inline, most });
    }
    let elements = overhead + asked.max_send_sge * DATA;
    let inline = match asked.max_inline {
        0 => 0,
        bytes => overhead + (INLINE_HEADER + bytes).next_multiple_of(DATA),
    };
    let entry = elements.max(inline).next_multiple_of(BASIC_BLOCK);
    let bytes = (u64::from(asked.max_send_wr) * u64::from(entry)).next_power_of_two();
    if bytes > u64::from(BASIC_BLOCKS * BASIC_BLOCK) {
        return Err(Rule::TooLarge {
            queue: "send",
            entries: asked.max_send_wr,
            size: entry,
            units: BASIC_BLOCKS,
            unit: BASIC_BLOCK,
        });
    }
    Ok((bytes as u32 / entry, entry.saturating_sub(overhead + INLINE_HEADER)))
}

fn receive_queue(asked: &Asked) -> Result<(u32, u32), Rule> {
    if !asked.receives || asked.max_recv_wr == 0 {
        return Ok((0, 0));
    }
    if asked.max_recv_wr > BASIC_BLOCKS {
        return Err(Rule::Above { what: "max_recv_wr", asked: asked.max_recv_wr, most: BASIC_BLOCKS });
    }
    let entry = (asked.max_recv_sge.max(1) * DATA).next_power_of_two();
    let bytes = (asked.max_recv_wr.next_power_of_two() * entry).max(BASIC_BLOCK);
    Ok((bytes / entry, entry / DATA))
}

/// `align_queue_size(cqe + 1)`, of which one is reported less (`create_cq` in verbs.c, `mlx5_ib_create_cq` in cq.c).
fn completion_queue(cqe: u32) -> Result<u32, Rule> {
    match cqe {
        0 => Err(Rule::Zero("cqe")),
        _ => Ok((cqe + 1).next_power_of_two() - 1),
    }
}

/// `mlx5_alloc_srq_buf` (srq.c).
fn shared_receive_queue(max_wr: u32, max_sge: u32) -> Result<(u32, u32), Rule> {
    let entry = (NEXT + max_sge * DATA).next_power_of_two().max(32);
    debug_assert!(entry <= RECEIVE_ENTRY);
    Ok(((max_wr + 1).next_power_of_two() - 1, (entry - NEXT) / DATA))
}
