//! Elastic Fabric Adapter (EFA) of Amazon, third generation, as it is with RDMA READ and WRITE: `drivers/infiniband/hw/efa` of
//! Linux, `providers/efa` of rdma-core 65. Figures that the device reports itself are those that UCX's mock of it (ibmock) has
//! from one.

use crate::{Asked, Features, Granted, Identity, Limits, Model, Rule, Service, Srd};

pub(crate) static MODEL: Model = Model {
    name: "efa",
    identity: Identity {
        hardware: "Amazon EFA",
        // PCI_VENDOR_ID_AMAZON
        vendor_id: 0x1D0F,
        part_id: 0xEFA1,
        hw_ver: 0xEFA1,
        fw_ver: Some("0.0.0.0"),
        hca_type: None,
    },
    limits: Limits {
        // Numbers of queue pairs have 16 bits, 6 of which say which process of an address it is. Two are special.
        max_qp: 1_022,
        max_qp_wr: SQ_DEPTH,
        max_sge: SQ_ELEMENTS,
        max_cq: 512,
        max_cqe: 32_768,
        max_mr: 262_144,
        max_mw: 0,
        max_pd: 256,
        max_qp_rd_atom: 0,
        max_qp_init_rd_atom: 0,
        max_ah: 1_024,
        max_srq: 0,
        max_srq_wr: 0,
        max_srq_sge: 0,
        max_mcast_groups: 0,
        max_mcast_qp_attach: 0,
        local_ca_ack_delay: 0,
        gid_table_len: 1,
        // `max_mtu` of the device, without headers.
        max_message: 8_928,
        max_dm_size: 0,
        max_inline: INLINE,
    },
    features: Features {
        rc: false,
        uc: false,
        xrc: false,
        atomics: false,
        persistence: false,
        srq_resize: false,
        windows_1: false,
        windows_2: false,
        on_demand: false,
        null_mr: false,
        roce_v1: false,
        // Not so strict: the provider frees a slot when its completion is polled, and so do we.
        polling_frees_slots: true,
    },
    srd: Some(Srd {
        max_sq_wr: SQ_DEPTH,
        max_rq_wr: RQ_DEPTH,
        max_sq_sge: SQ_ELEMENTS,
        max_rq_sge: RQ_ELEMENTS,
        max_inline: INLINE,
        max_rdma: 1 << 30,
    }),
    queue_pair,
    completion_queue: |cqe| match cqe {
        0 => Err(Rule::Zero("cqe")),
        // efa_create_cq: a power of two.
        cqe => Ok(cqe.next_power_of_two()),
    },
    shared_receive_queue: |_, _| Err(Rule::Lacks("SRQs")),
};

const SQ_DEPTH: u32 = 4_096;
const RQ_DEPTH: u32 = 32_768;
const SQ_ELEMENTS: u32 = 2;
const RQ_ELEMENTS: u32 = 3;
const INLINE: u32 = 32;

/// `efa_check_qp_limits` and `efa_setup_qp` (verbs.c).
fn queue_pair(asked: &Asked) -> Result<Granted, Rule> {
    if !matches!(asked.service, Service::Ud | Service::Srd) {
        return Err(Rule::Lacks("QPs but UD and SRD"));
    }
    // Receives with several elements take as many places of the queue.
    let receives = RQ_DEPTH / asked.max_recv_sge.max(1);
    for (what, asked, most) in [
        ("max_send_sge", asked.max_send_sge, SQ_ELEMENTS),
        ("max_recv_sge", asked.max_recv_sge, RQ_ELEMENTS),
        ("max_send_wr", asked.max_send_wr, SQ_DEPTH),
        ("max_recv_wr", asked.max_recv_wr, receives),
        ("max_inline_data", asked.max_inline, INLINE),
    ] {
        if asked > most {
            return Err(Rule::Above { what, asked, most });
        }
    }
    if !asked.receives {
        return Err(Rule::Lacks("SRQs"));
    }
    Ok(Granted {
        max_send_wr: asked.max_send_wr.next_power_of_two(),
        max_recv_wr: asked.max_recv_wr.next_power_of_two(),
        max_send_sge: asked.max_send_sge,
        max_recv_sge: asked.max_recv_sge,
        max_inline: asked.max_inline,
    })
}
