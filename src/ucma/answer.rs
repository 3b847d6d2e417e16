//! What is answered: queries, QP attributes and events.

use softrnic_cma::{
    Address, ConnParams, DeviceIdentity, Event, EventData, EventStatus, IbAddress, PathRecord, Query,
    UdParams,
};
use softrnic_nic::verbs::{Access, AddressVector, AttrMask, QpAccess, QpAttributes};
use softrnic_wire::{Gid, ServiceId};

use crate::command::path_data;
use crate::errno::Errno;
use crate::fields::Struct;
use crate::sockaddr;

const PORT: u8 = 1;
/// `IB_RATE_10_GBPS`, as `ibv_query_port` has it.
const RATE: u8 = 3;
/// Selectors of a path record: exactly this.
const EXACTLY: u8 = 2;
/// The same, where the selector has the upper two bits of the value.
const EXACTLY_BITS: u8 = EXACTLY << 6;

/// `rdma_ucm_query_addr_resp`.
pub fn addresses(query: &Query) -> [u8; 280] {
    address_pair(query, query.local.as_ref(), query.peer.as_ref())
}

/// The same with the GIDs, as `sockaddr_ib`.
pub fn gids(query: &Query) -> [u8; 280] {
    let of = |address: Option<&Address>, gid: Gid| match address {
        Some(Address::Ib(ib)) => Address::Ib(IbAddress { gid, ..*ib }),
        address => Address::Ib(IbAddress {
            pkey: query.pkey,
            gid,
            service: ServiceId::of_port(query.kind.space, address.map_or(0, Address::port)).0,
            ..IbAddress::default()
        }),
    };
    let (local, peer) = (of(query.local.as_ref(), query.local_gid), of(query.peer.as_ref(), query.peer_gid));
    address_pair(query, Some(&local), Some(&peer))
}

fn address_pair(query: &Query, local: Option<&Address>, peer: Option<&Address>) -> [u8; 280] {
    let mut to = Struct::new();
    let index = device(&mut to, query.device, 0, 8);
    to.put(10, &query.pkey.to_be_bytes()).u32(272, index);
    for (address, size, at) in [(local, 12, 16), (peer, 14, 144)] {
        if let Some(address) = address {
            to.u16(size, sockaddr::size(address) as u16).put(at, &sockaddr::bytes(address));
        }
    }
    to.0
}

/// Writes the GUID and port of a device, and returns its index. Without a device all are zero.
fn device<const N: usize>(
    to: &mut Struct<N>,
    device: Option<DeviceIdentity>,
    guid: usize,
    port: usize,
) -> u32 {
    let Some(device) = device else { return 0 };
    to.put(guid, &device.guid.to_be_bytes()).u8(port, PORT);
    device.index as u32
}

/// `rdma_ucm_query_path_resp`, with as many paths as fit.
pub fn paths(query: &Query, room: usize) -> Vec<u8> {
    let path = query.path.as_ref().map(path_data);
    let mut to = u32::from(path.is_some()).to_ne_bytes().to_vec();
    to.extend([0; 4]);
    // The kernel's test for whether another one fits.
    if room >= to.len() + path_data::SIZE {
        to.extend(path.into_iter().flatten());
    }
    to
}

/// `ibv_path_data`: flags, and the record as a subnet administrator would send it, in network order.
fn path_data(path: &PathRecord) -> [u8; path_data::SIZE] {
    let mut record = Struct::<64>::new();
    record.put(8, &path.dgid.0).put(24, &path.sgid.0);
    record.put(44, &(path.flow_label << 8 | u32::from(path.hop_limit)).to_be_bytes());
    // Reversible, and one path.
    record.u8(48, path.traffic_class).u8(49, 0x81).put(50, &path.pkey.to_be_bytes());
    record.put(52, &u16::from(path.sl).to_be_bytes());
    record.u8(54, EXACTLY_BITS | path.mtu as u8).u8(55, EXACTLY_BITS | RATE);
    record.u8(56, EXACTLY_BITS | path.packet_life);
    let mut to = Struct::new();
    to.u32(0, path_data::USABLE).put(path_data::RECORD, &record.0);
    to.0
}

/// `rdma_ucm_query_route_resp`, for older versions of the library.
pub fn route(query: &Query) -> [u8; 208] {
    let mut to = Struct::new();
    let index = device(&mut to, query.device, 0, 196);
    to.put(8, &path_record(query)).u32(192, query.path.is_some().into()).u32(200, index);
    for (address, at) in [(&query.local, 136), (&query.peer, 164)] {
        if let Some(address) = address {
            to.put(at, &sockaddr::bytes(address)[..sockaddr::IN6]);
        }
    }
    to.0
}

/// `ib_user_path_rec`. Until there is a path it holds only the GIDs.
fn path_record(query: &Query) -> [u8; 64] {
    let mut to = Struct::new();
    to.put(0, &query.peer_gid.0).put(16, &query.local_gid.0).put(52, &query.pkey.to_be_bytes());
    let Some(path) = &query.path else { return to.0 };
    to.put(0, &path.dgid.0).put(16, &path.sgid.0).put(40, &path.flow_label.to_be_bytes());
    to.u32(44, 1).u32(48, path.mtu as u32).put(52, &path.pkey.to_be_bytes());
    to.u8(54, path.hop_limit).u8(55, path.traffic_class).u8(56, 1).u8(57, path.sl);
    to.u8(58, EXACTLY).u8(59, EXACTLY).u8(60, RATE).u8(61, EXACTLY).u8(62, path.packet_life);
    to.0
}

/// `ib_uverbs_qp_attr`.
pub fn qp_attributes(attributes: &QpAttributes, mask: AttrMask) -> [u8; 144] {
    let attr = &attributes.transport;
    let mut to = Struct::new();
    to.u32(0, mask.bits()).u32(4, attr.state as u32).u32(8, attr.cur_state as u32).u32(12, attr.mtu as u32);
    to.u32(20, attr.qkey.0).u32(24, attr.rq_psn.get()).u32(28, attr.sq_psn.get());
    to.u32(32, attr.dest_qpn.get()).u32(36, access(attr.access));
    if let Some(address) = &attributes.address {
        to.put(40, &address_handle(address));
    }
    to.u8(130, attr.max_rd_atomic).u8(131, attr.max_dest_rd_atomic).u8(132, attr.min_rnr_timer.code());
    to.u8(133, PORT).u8(134, attr.timeout).u8(135, attr.retry_cnt).u8(136, attr.rnr_retry);
    to.0
}

fn access(access: QpAccess) -> u32 {
    let mut flags = Access::empty();
    flags.set(Access::REMOTE_WRITE, access.remote_write);
    flags.set(Access::REMOTE_READ, access.remote_read);
    flags.set(Access::REMOTE_ATOMIC, access.remote_atomic);
    flags.set(Access::FLUSH_GLOBAL, access.flush_global);
    flags.set(Access::FLUSH_PERSISTENT, access.flush_persistent);
    flags.bits()
}

/// `ib_uverbs_ah_attr`.
fn address_handle(address: &AddressVector) -> [u8; 32] {
    let mut to = Struct::new();
    to.put(0, &address.dgid.0).u32(16, address.flow_label).u8(20, address.sgid_index as u8);
    to.u8(21, address.hop_limit).u8(22, address.traffic_class).u8(29, 1).u8(30, PORT);
    to.0
}

/// `rdma_ucm_event_resp`.
pub fn event(event: &Event) -> [u8; 336] {
    const DATA: usize = 20;
    let mut to = Struct::new();
    to.u64(0, event.context).u32(8, event.number).u32(12, event.kind as u32);
    to.u32(16, status(event.status) as u32);
    match &event.data {
        EventData::None => {}
        EventData::Conn(params) => {
            to.put(DATA, &conn_param(params));
        }
        EventData::Ud(params) => {
            to.put(DATA, &ud_param(params));
        }
        EventData::Own(argument) => {
            to.u64(DATA, *argument);
        }
    }
    to.u32(328, event.ece.vendor_id).u32(332, event.ece.options);
    to.0
}

/// Errors are negative; a status from the peer is not.
fn status(status: EventStatus) -> i32 {
    match status {
        EventStatus::Done => 0,
        EventStatus::Failed(error) => -Errno::from(error).0,
        EventStatus::Refused(reason) => reason.into(),
        EventStatus::Own(status) => status,
    }
}

/// `rdma_ucm_conn_param`. Like the kernel, does not set its `valid` field.
fn conn_param(params: &ConnParams) -> [u8; 272] {
    let mut to = Struct::new();
    to.u32(0, params.qpn.get()).put(8, &params.private).u8(264, params.private.len() as u8);
    to.u8(265, params.srq.into()).u8(266, params.responder_resources).u8(267, params.initiator_depth);
    to.u8(268, params.flow_control.into()).u8(269, params.retry_count).u8(270, params.rnr_retry);
    to.0
}

/// `rdma_ucm_ud_param`.
fn ud_param(params: &UdParams) -> [u8; 304] {
    let mut to = Struct::new();
    to.u32(0, params.qpn.get()).u32(4, params.qkey.0);
    if let Some(address) = &params.address {
        to.put(8, &address_handle(address));
    }
    to.put(40, &params.private).u8(296, params.private.len() as u8);
    to.0
}

#[cfg(test)]
mod tests;
