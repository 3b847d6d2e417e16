//! UDP source ports, which spread flows over equal-cost paths. Receivers accept any.

use crate::ids::Qpn;

const FIRST_DYNAMIC_PORT: u16 = 0xC000;

/// The source port for a 20-bit flow label, folded into 0xC000..=0xFFFF as the Linux RDMA core does
/// for every provider (`rdma_flow_label_to_udp_sport`).
#[inline]
pub const fn flow_label_to_sport(flow_label: u32) -> u16 {
    let folded = (flow_label & 0x3FFF) ^ ((flow_label & 0xF_C000) >> 14);
    FIRST_DYNAMIC_PORT | folded as u16
}

/// The flow label of a connected QP whose path names none: a hash of both QPNs, the same whichever
/// of them is local (`rdma_calc_flow_label`).
#[inline]
pub const fn default_flow_label(local: Qpn, remote: Qpn) -> u32 {
    let mut v = local.get() as u64 * remote.get() as u64;
    v ^= v >> 20;
    v ^= v >> 40;
    (v & 0xF_FFFF) as u32
}

/// The port rxe sends datagrams from: a multiplicative hash of the sender's QPN, 14 bits wide.
#[inline]
pub const fn rxe_qpn_to_sport(qpn: Qpn) -> u16 {
    const GOLDEN_RATIO_32: u32 = 0x61C8_8647;
    FIRST_DYNAMIC_PORT + (qpn.get().wrapping_mul(GOLDEN_RATIO_32) >> 18) as u16
}
