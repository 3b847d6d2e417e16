//! RoCE version 1: a global route header straight on Ethernet. Read, so that captures can be
//! decoded and its ICRC checked; never sent.

use crate::bytes::Reader;
use crate::eth::{EthHeader, EtherType};
use crate::frame::FrameError;
use crate::gid::Gid;

/// Bytes of a global route header.
pub const GRH_LEN: usize = 40;

const NEXT_HEADER_IBA: u8 = 0x1B;

/// A received RoCE version 1 frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoceV1Frame<'a> {
    /// Ethernet addresses and VLAN tags.
    pub eth: EthHeader,
    /// Source GID.
    pub src: Gid,
    /// Destination GID.
    pub dst: Gid,
    /// Traffic class.
    pub tclass: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// The route header itself, for [`crate::icrc_roce_v1`].
    pub grh: &'a [u8; GRH_LEN],
    /// BTH to ICRC inclusive.
    pub transport: &'a [u8],
}

impl<'a> RoceV1Frame<'a> {
    /// Finds the transport bytes in `frame`, which starts at the destination MAC.
    ///
    /// # Errors
    /// [`FrameError::NotIp`] for other Ethernet types, [`FrameError::NotUdp`] for another next
    /// header, [`FrameError::Truncated`] and [`FrameError::BadIpVersion`].
    pub fn parse(frame: &'a [u8]) -> Result<RoceV1Frame<'a>, FrameError> {
        let mut r = Reader(frame);
        let (eth, ether_type) = EthHeader::read(&mut r).ok_or(FrameError::Truncated)?;
        if ether_type != EtherType::ROCE_V1 {
            return Err(FrameError::NotIp(ether_type));
        }
        let grh = r.take::<GRH_LEN>().ok_or(FrameError::Truncated)?;
        let mut fields = Reader(grh);
        let truncated = FrameError::Truncated;
        let word = fields.u32().ok_or(truncated)?;
        let payload_len = usize::from(fields.u16().ok_or(truncated)?);
        let next_header = fields.u8().ok_or(truncated)?;
        let hop_limit = fields.u8().ok_or(truncated)?;
        let src = Gid(*fields.take().ok_or(truncated)?);
        let dst = Gid(*fields.take().ok_or(truncated)?);
        match (word >> 28, next_header) {
            (6, NEXT_HEADER_IBA) => {}
            (6, other) => return Err(FrameError::NotUdp(other)),
            (version, _) => return Err(FrameError::BadIpVersion(version as u8)),
        }
        let transport = r.0.get(..payload_len).ok_or(truncated)?;
        Ok(RoceV1Frame { eth, src, dst, tclass: (word >> 20) as u8, hop_limit, grh, transport })
    }
}
