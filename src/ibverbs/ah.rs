//! Address handles, and addresses in received datagrams.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use softrnic_netdev::{Host, Neighbour, Query};
use softrnic_nic::verbs::{AddressHandle, AddressVector, Gid, Pd};
use softrnic_wire::Time;

use crate::abi::*;
use crate::c_view::Shown;
use crate::context::Ctx;
use crate::errno::Errno;
use crate::ffi_boundary::{OrMinusOne, borrow, borrow_mut, call, guard};
use crate::object::{Kind, ObjectSlot, Seal, find_last, object, retire};
use crate::pd::PdObject;
use crate::query::check_port;
use crate::registry::registry;

/// An address handle as C sees it, and what it stands for.
#[repr(C)]
pub(crate) struct AhObject {
    ibv: Shown<ibv_ah>,
    seal: Seal,
    owner: *mut ibv_pd,
    pub(crate) nic: AddressHandle,
    /// Keeps the domain.
    _pd: Arc<Pd>,
}

object!(AhObject, Ah, ibv_ah, handle);

/// The attributes of a C address handle, checked as the kernel does for RoCE.
pub(crate) fn address_vector(attr: &ibv_ah_attr) -> Result<AddressVector, Errno> {
    // RoCE addresses only by GID.
    if attr.is_global == 0 {
        return Err(Errno::invalid("ah_attr.is_global is 0, but RoCE has only GIDs as addresses"));
    }
    check_port(attr.port_num.into()).map_err(|_| Errno::invalid("ah_attr.port_num is not 1"))?;
    // SAFETY: every bit pattern of a GID is 16 bytes.
    let dgid = Gid(unsafe { attr.grh.dgid.raw });
    Ok(AddressVector {
        dgid,
        sgid_index: attr.grh.sgid_index.into(),
        flow_label: attr.grh.flow_label & 0xF_FFFF,
        traffic_class: attr.grh.traffic_class,
        hop_limit: attr.grh.hop_limit,
    })
}

/// The reverse conversion.
pub(crate) fn ah_attr(address: &AddressVector) -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: address.dgid.0 },
            flow_label: address.flow_label,
            sgid_index: address.sgid_index as u8,
            hop_limit: address.hop_limit,
            traffic_class: address.traffic_class,
        },
        dlid: 0,
        sl: 0,
        src_path_bits: 0,
        static_rate: 0,
        is_global: 1,
        port_num: crate::query::PORT as u8,
    }
}

/// No address at all.
pub(crate) const NO_ADDRESS: ibv_ah_attr = ibv_ah_attr {
    grh: ibv_global_route {
        dgid: ibv_gid { raw: [0; 16] },
        flow_label: 0,
        sgid_index: 0,
        hop_limit: 0,
        traffic_class: 0,
    },
    dlid: 0,
    sl: 0,
    src_path_bits: 0,
    static_rate: 0,
    is_global: 0,
    port_num: 0,
};

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    guard::<*mut ibv_ah>(call!(ibv_create_ah, pd, attr), move || {
        // SAFETY: a struct of the application's, valid for the call and changed by nothing else, as `verbs.h` asks.
        let (object, attr) = (PdObject::of(pd)?, unsafe { borrow(attr)? });
        create(object, attr)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    guard::<()>(call!(ibv_destroy_ah, ah), move || {
        let object: &AhObject = find_last(ah)?;
        PdObject::of(object.owner)?.users.leave();
        // SAFETY: just found; the application, which gives it up, no longer uses it.
        drop(unsafe { retire::<AhObject>(ah) });
        Ok(())
    })
}

/// The path back to the sender of a received datagram.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_init_ah_from_wc(
    context: *mut ibv_context,
    port: u8,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    attr: *mut ibv_ah_attr,
) -> c_int {
    guard::<OrMinusOne>(call!(ibv_init_ah_from_wc, context, port, wc, grh, attr), move || {
        // SAFETY: structs of the application's, valid for the call and changed by nothing else, as `verbs.h` asks.
        let (ctx, wc, attr) = unsafe { (Ctx::of(context)?, borrow(wc)?, borrow_mut(attr)?) };
        // SAFETY: the 40 bytes before a datagram, valid for the call; read as bytes, since IPv4 has its own form.
        let grh = unsafe { grh.cast::<[u8; GRH]>().as_ref() };
        *attr = way_back(ctx, port, wc, grh)?;
        Ok(OrMinusOne(0))
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    port: u8,
) -> *mut ibv_ah {
    guard::<*mut ibv_ah>(call!(ibv_create_ah_from_wc, pd, wc, grh, port), move || {
        // SAFETY: structs of the application's, valid for the call and changed by nothing else, as `verbs.h` asks.
        let (object, wc) = unsafe { (PdObject::of(pd)?, borrow(wc)?) };
        // SAFETY: as in `ibv_init_ah_from_wc`.
        let grh = unsafe { grh.cast::<[u8; GRH]>().as_ref() };
        create(object, &way_back(object.ctx()?, port, wc, grh)?)
    })
}

/// The hardware address of a GID's owner, and the VLAN that leads there (0xFFFF for none).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_resolve_eth_l2_from_gid(
    context: *mut ibv_context,
    attr: *mut ibv_ah_attr,
    eth_mac: *mut [u8; 6],
    vid: *mut u16,
) -> c_int {
    guard::<()>(call!(ibv_resolve_eth_l2_from_gid, context, attr, eth_mac, vid), move || {
        // SAFETY: structs of the application's, valid for the call and changed by nothing else, as `verbs.h` asks.
        let (ctx, attr, mac) = unsafe { (Ctx::of(context)?, borrow(attr)?, borrow_mut(eth_mac)?) };
        let address = address_vector(attr)?;
        let src = ctx.nic()?.gid(address.sgid_index)?;
        if src == Gid::ZERO {
            return Err(Errno::invalid(format_args!(
                "grh.sgid_index {}: the GID table has no entry there",
                address.sgid_index
            )));
        }
        let query = Query { dst: address.dgid.to_ip(), src: Some(src.to_ip()), oif: None };
        let mut host = Host::open()?;
        let resolution = host.resolve(Time::ZERO, &query).map_err(|_| Errno(libc::EHOSTUNREACH))?;
        let Neighbour::Known(found) = resolution.neighbour else { return Err(Errno(libc::EHOSTUNREACH)) };
        *mac = found.0;
        if !vid.is_null() {
            // SAFETY: a number of the application's, valid for the call.
            unsafe { *vid = resolution.vlans.first().map_or(0xFFFF, |vlan| vlan.id) };
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int {
    guard::<()>(call!(ibv_attach_mcast, qp, gid, lid), move || {
        // SAFETY: a QP that the application keeps for the call, and a GID that is valid for it.
        unsafe { crate::qp::multicast(qp, gid, lid, true) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int {
    guard::<()>(call!(ibv_detach_mcast, qp, gid, lid), move || {
        // SAFETY: a QP that the application keeps for the call, and a GID that is valid for it.
        unsafe { crate::qp::multicast(qp, gid, lid, false) }
    })
}

fn create(pd: &PdObject, attr: &ibv_ah_attr) -> Result<*mut ibv_ah, Errno> {
    let ctx = pd.ctx()?;
    let slot = ObjectSlot::new()?;
    let nic = pd.nic.create_ah(&address_vector(attr)?)?;
    pd.users.join();
    let owner = pd.as_ibv();
    let ibv = Shown::new(ibv_ah { context: ctx.as_ibv(), pd: owner, handle: registry().handle() });
    Ok(slot.publish(AhObject { ibv, seal: Seal::new(Kind::Ah), owner, nic, _pd: pd.nic.clone() }))
}

/// Bytes in front of a datagram: a GRH, or for IPv4 20 undefined bytes and the IP header.
const GRH: usize = 40;

fn way_back(ctx: &Ctx, port: u8, wc: &ibv_wc, grh: Option<&[u8; GRH]>) -> Result<ibv_ah_attr, Errno> {
    check_port(port.into())?;
    let mut attr = NO_ADDRESS;
    attr.dlid = wc.slid;
    attr.src_path_bits = wc.dlid_path_bits;
    attr.port_num = port;
    if wc.wc_flags & IBV_WC_GRH == 0 {
        return Ok(attr);
    }
    let header = Header::read(grh.ok_or_else(|| Errno::invalid("grh is null"))?)
        .ok_or_else(|| Errno::invalid("grh: these 40 bytes are no network header"))?;
    let own = Gid::from(header.dst);
    let index = gid_index(ctx, own)?;
    attr.is_global = 1;
    attr.grh = ibv_global_route {
        dgid: ibv_gid { raw: Gid::from(header.src).0 },
        flow_label: header.flow_label,
        sgid_index: index,
        hop_limit: header.hop_limit,
        traffic_class: header.traffic_class,
    };
    Ok(attr)
}

/// The index of our GID in the GID table; for a datagram to a group, the first that is set.
fn gid_index(ctx: &Ctx, gid: Gid) -> Result<u8, Errno> {
    let nic = ctx.nic()?;
    for index in 0..nic.gids_used()?.min(256) {
        let own = nic.gid(index)?;
        if own == gid || (gid.is_multicast() && own != Gid::ZERO) {
            return Ok(index as u8);
        }
    }
    Err(Errno::NOENT)
}

/// The network header of a received datagram.
#[derive(PartialEq, Eq, Debug)]
struct Header {
    src: IpAddr,
    dst: IpAddr,
    flow_label: u32,
    traffic_class: u8,
    hop_limit: u8,
}

impl Header {
    /// The two forms differ in the version: an IPv4 header is preceded by undefined bytes, so it is IPv4 if there is an
    /// IPv4 header with a correct checksum (IBTA A17.4.5.1).
    fn read(bytes: &[u8; GRH]) -> Option<Header> {
        let (_, v4) = bytes.split_at(20);
        if v4[0] == 0x45 && checksum_is_right(v4) {
            let address = |at: usize| IpAddr::V4(Ipv4Addr::new(v4[at], v4[at + 1], v4[at + 2], v4[at + 3]));
            return Some(Header {
                src: address(12),
                dst: address(16),
                flow_label: 0,
                traffic_class: v4[1],
                hop_limit: v4[8],
            });
        }
        if bytes[0] >> 4 != 6 {
            return None;
        }
        let word = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let address = |at: usize| {
            let octets: [u8; 16] = bytes[at..at + 16].try_into().unwrap_or_default();
            Gid(octets).to_ip()
        };
        Some(Header {
            src: address(8),
            dst: address(24),
            flow_label: word & 0xF_FFFF,
            traffic_class: (word >> 20) as u8,
            hop_limit: bytes[7],
        })
    }
}

/// Whether the words of a header add up to all ones (RFC 791).
fn checksum_is_right(header: &[u8]) -> bool {
    let sum: u32 = header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    (sum & 0xFFFF) + (sum >> 16) == 0xFFFF
}

#[cfg(test)]
mod tests;
