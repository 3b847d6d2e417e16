//! The objects of a device, as `rdma resource show` lists them.

use std::net::SocketAddr;

use softrnic_stats::{Resources, Snapshot};

use crate::device::Device;
use crate::number::{attribute::*, command};
use crate::reply::Attributes;

/// A kind of objects.
pub struct Kind {
    /// What tables of them are called, and their entries.
    pub table: (u16, u16),
    /// By what one of them is asked for.
    pub number: u16,
    /// The objects of a NIC, each with its number.
    list: fn(&Snapshot, &Resources) -> Vec<(u32, Attributes)>,
}

impl Kind {
    /// The kind that a command asks for.
    pub fn of(number: u16) -> Option<Kind> {
        Some(match number {
            command::RES_QP_GET => Kind { table: (RES_QP, RES_QP_ENTRY), number: RES_LQPN, list: qps },
            command::RES_CM_ID_GET => {
                Kind { table: (RES_CM_ID, RES_CM_ID_ENTRY), number: RES_CM_IDN, list: cm_ids }
            }
            command::RES_CQ_GET => Kind { table: (RES_CQ, RES_CQ_ENTRY), number: RES_CQN, list: cqs },
            command::RES_MR_GET => Kind { table: (RES_MR, RES_MR_ENTRY), number: RES_MRN, list: mrs },
            command::RES_PD_GET => Kind { table: (RES_PD, RES_PD_ENTRY), number: RES_PDN, list: pds },
            command::RES_CTX_GET => {
                Kind { table: (RES_CTX, RES_CTX_ENTRY), number: RES_CTXN, list: contexts }
            }
            command::RES_SRQ_GET => Kind { table: (RES_SRQ, RES_SRQ_ENTRY), number: RES_SRQN, list: srqs },
            _ => return None,
        })
    }

    /// The objects of all processes with a device of this name, each with its number.
    pub fn list<'d>(&self, device: &'d Device<'_>) -> impl Iterator<Item = (u32, Attributes)> + use<'d> {
        let list = self.list;
        device
            .running()
            .filter_map(move |snapshot| Some(list(snapshot, snapshot.resources.as_ref()?)))
            .flatten()
    }
}

/// How many objects of each kind there are, in the kernel's order.
pub fn summary(device: &Device<'_>) -> Attributes {
    let mut counts = [("pd", 0), ("cq", 0), ("qp", 0), ("cm_id", 0), ("mr", 0), ("ctx", 0), ("srq", 0)];
    for snapshot in device.running() {
        let Some(of) = &snapshot.resources else { continue };
        let own = [
            of.pds.len(),
            of.cqs.len(),
            snapshot.qps.len(),
            of.cm_ids.len(),
            of.mrs.len(),
            of.contexts,
            of.srqs.len(),
        ];
        counts.iter_mut().zip(own).for_each(|((_, count), own)| *count += own as u64);
    }
    let mut table = Attributes::default();
    for (name, count) in counts {
        let mut entry = Attributes::default();
        entry.text(RES_SUMMARY_ENTRY_NAME, name);
        entry.u64(RES_SUMMARY_ENTRY_CURR, count);
        table.nest(RES_SUMMARY_ENTRY, &entry);
    }
    table
}

fn qps(snapshot: &Snapshot, resources: &Resources) -> Vec<(u32, Attributes)> {
    let entry = |qp: &softrnic_stats::QpSnapshot| {
        let kind = qp_type(&qp.service);
        let is_connected = !matches!(kind, UD);
        let mut entry = Attributes::default();
        entry.u32(PORT_INDEX, 1);
        entry.u32(RES_LQPN, qp.qpn);
        if is_connected {
            entry.u32(RES_RQPN, qp.peer_qpn);
            entry.u32(RES_RQ_PSN, qp.expected_psn);
        }
        entry.u32(RES_SQ_PSN, qp.send_psn);
        if is_connected {
            entry.u8(RES_PATH_MIG_STATE, 0);
        }
        entry.u8(RES_TYPE, kind);
        entry.u8(RES_STATE, qp_state(&qp.state));
        // Both are sorted. One may have been read after the QP was gone, or before it was there.
        if let Ok(place) = resources.qps.binary_search_by_key(&qp.qpn, |owners| owners.qpn) {
            entry.u32(RES_PDN, resources.qps[place].pdn);
        }
        entry.u32(RES_PID, snapshot.pid);
        (qp.qpn, entry)
    };
    snapshot.qps.iter().map(entry).collect()
}

fn cm_ids(snapshot: &Snapshot, resources: &Resources) -> Vec<(u32, Attributes)> {
    let entry = |id: &softrnic_stats::CmIdSnapshot| {
        let mut entry = Attributes::default();
        entry.u32(PORT_INDEX, 1);
        if id.qpn != 0 {
            entry.u32(RES_LQPN, id.qpn);
            entry.u8(RES_TYPE, qp_type(&id.service));
        }
        entry.u32(RES_PS, port_space(&id.space));
        entry.u8(RES_STATE, cm_state(&id.state));
        id.local.iter().for_each(|address| entry.put(RES_SRC_ADDR, &sockaddr(address)));
        id.peer.iter().for_each(|address| entry.put(RES_DST_ADDR, &sockaddr(address)));
        entry.u32(RES_CM_IDN, id.number);
        entry.u32(RES_PID, snapshot.pid);
        (id.number, entry)
    };
    resources.cm_ids.iter().map(entry).collect()
}

fn cqs(snapshot: &Snapshot, resources: &Resources) -> Vec<(u32, Attributes)> {
    let entry = |cq: &softrnic_stats::CqSnapshot| {
        let mut entry = Attributes::default();
        entry.u32(RES_CQE, cq.cqe);
        entry.u64(RES_USECNT, cq.users);
        entry.u32(RES_CQN, cq.cqn);
        entry.u32(RES_PID, snapshot.pid);
        (cq.cqn, entry)
    };
    resources.cqs.iter().map(entry).collect()
}

fn mrs(snapshot: &Snapshot, resources: &Resources) -> Vec<(u32, Attributes)> {
    let entry = |mr: &softrnic_stats::MrSnapshot| {
        let mut entry = Attributes::default();
        entry.u32(RES_RKEY, mr.rkey);
        entry.u32(RES_LKEY, mr.lkey);
        entry.u64(RES_IOVA, mr.iova);
        entry.u64(RES_MRLEN, mr.length);
        entry.u32(RES_MRN, mr.mrn);
        entry.u32(RES_PDN, mr.pdn);
        entry.u32(RES_PID, snapshot.pid);
        (mr.mrn, entry)
    };
    resources.mrs.iter().map(entry).collect()
}

fn pds(snapshot: &Snapshot, resources: &Resources) -> Vec<(u32, Attributes)> {
    let entry = |pd: &softrnic_stats::PdSnapshot| {
        let mut entry = Attributes::default();
        entry.u64(RES_USECNT, pd.users);
        entry.u32(RES_PDN, pd.pdn);
        entry.u32(RES_PID, snapshot.pid);
        (pd.pdn, entry)
    };
    resources.pds.iter().map(entry).collect()
}

fn contexts(snapshot: &Snapshot, resources: &Resources) -> Vec<(u32, Attributes)> {
    /// What another process says may be wrong.
    const MOST: usize = 1 << 16;
    let entry = |number: usize| {
        let mut entry = Attributes::default();
        entry.u32(RES_CTXN, number as u32);
        entry.u32(RES_PID, snapshot.pid);
        (number as u32, entry)
    };
    (0..resources.contexts.min(MOST)).map(entry).collect()
}

fn srqs(snapshot: &Snapshot, resources: &Resources) -> Vec<(u32, Attributes)> {
    let entry = |srq: &softrnic_stats::SrqSnapshot| {
        const BASIC: u8 = 0;
        const XRC: u8 = 1;
        let users = resources.qps.iter().filter(|qp| qp.srqn == Some(srq.srqn)).map(|qp| qp.qpn);
        let mut entry = Attributes::default();
        entry.u32(RES_SRQN, srq.srqn);
        entry.u8(RES_TYPE, if srq.xrc_cqn.is_some() { XRC } else { BASIC });
        entry.u32(RES_PDN, srq.pdn);
        srq.xrc_cqn.iter().for_each(|cqn| entry.u32(RES_CQN, *cqn));
        entry.nest(RES_QP, &ranges(users));
        entry.u32(RES_PID, snapshot.pid);
        (srq.srqn, entry)
    };
    resources.srqs.iter().map(entry).collect()
}

/// Numbers in ascending order, those that follow each other as a range. More ranges than fit are left out.
fn ranges(numbers: impl Iterator<Item = u32>) -> Attributes {
    const MOST: usize = 100;
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let mut table = Attributes::default();
    for (first, last) in ranges.into_iter().take(MOST) {
        let mut entry = Attributes::default();
        if first == last {
            entry.u32(RES_LQPN, first);
        } else {
            entry.u32(MIN_RANGE, first);
            entry.u32(MAX_RANGE, last);
        }
        table.nest(RES_QP_ENTRY, &entry);
    }
    table
}

/// `enum ib_qp_type`.
const UD: u8 = 4;

fn qp_type(service: &str) -> u8 {
    match service {
        "RC" => 2,
        "UC" => 3,
        "UD" => UD,
        "XRC initiator" | "XRC_INI" => 9,
        "XRC target" | "XRC_TGT" => 10,
        // Shown as unknown.
        _ => 7,
    }
}

/// `enum ib_qp_state`; what is none is shown as unknown.
fn qp_state(state: &str) -> u8 {
    place(&["RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"], state)
}

/// `enum rdma_cm_state`; what is none is shown as unknown.
fn cm_state(state: &str) -> u8 {
    place(
        &[
            "IDLE",
            "ADDR_QUERY",
            "ADDR_RESOLVED",
            "ROUTE_QUERY",
            "ROUTE_RESOLVED",
            "CONNECT",
            "DISCONNECT",
            "ADDR_BOUND",
            "LISTEN",
        ],
        state,
    )
}

fn place(names: &[&str], name: &str) -> u8 {
    names.iter().position(|known| *known == name).map_or(u8::MAX - 1, |place| place as u8)
}

/// `enum rdma_port_space`.
fn port_space(name: &str) -> u32 {
    match name {
        "IPoIB" => 0x2,
        "TCP" => 0x106,
        "UDP" => 0x111,
        "IB" => 0x13F,
        _ => 0,
    }
}

/// `struct __kernel_sockaddr_storage`.
fn sockaddr(address: &SocketAddr) -> [u8; 128] {
    /// Linux: `AF_INET` and `AF_INET6`.
    const INET: u16 = 2;
    const INET6: u16 = 10;
    let mut bytes = [0; 128];
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    match address {
        SocketAddr::V4(v4) => {
            bytes[..2].copy_from_slice(&INET.to_ne_bytes());
            bytes[4..8].copy_from_slice(&v4.ip().octets());
        }
        SocketAddr::V6(v6) => {
            bytes[..2].copy_from_slice(&INET6.to_ne_bytes());
            bytes[8..24].copy_from_slice(&v6.ip().octets());
            bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
        }
    }
    bytes
}
