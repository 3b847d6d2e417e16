//! RoCEv2 congestion notification packets (IBTA A17.9.3).

use crate::body::Body;
use crate::headers::{BTH_LEN, Bth};
use crate::icrc::{ICRC_LEN, UdpFacts, seal};
use crate::ids::{Pkey, Psn, Qpn};
use crate::packet::Headers;

/// Reserved bytes after the BTH of a CNP, sent as zero.
pub const CNP_RESERVED_LEN: usize = 16;

/// Bytes of a CNP from BTH to ICRC.
pub const CNP_LEN: usize = BTH_LEN + CNP_RESERVED_LEN + ICRC_LEN;

/// Headers of the CNP that tells the sender of a marked packet, its QP `dest_qpn`, to slow down.
/// `pkey` is that of the marked packet.
pub const fn cnp_headers(dest_qpn: Qpn, pkey: Pkey) -> Headers {
    let bth = Bth { mig_req: false, becn: true, pkey, ..Bth::new(dest_qpn, Psn::ZERO) };
    Headers { bth, body: Body::Cnp }
}

/// Writes a complete CNP, sealed for `facts`, to the front of `buf`; returns [`CNP_LEN`].
///
/// # Panics
/// When `buf` is shorter than [`CNP_LEN`].
pub fn emit_cnp(facts: &UdpFacts, dest_qpn: Qpn, pkey: Pkey, buf: &mut [u8]) -> usize {
    let buf = &mut buf[..CNP_LEN];
    let at = cnp_headers(dest_qpn, pkey).emit(buf);
    buf[at..].fill(0);
    seal(facts, buf);
    CNP_LEN
}
