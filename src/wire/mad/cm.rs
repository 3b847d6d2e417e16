//! Connection management messages (IBTA 12.6 and following), laid out as the kernel's `ibta_vol1_c12.h` has them.

use super::MAD_BODY_LEN;
use super::layout::Layout;
use super::messages::{Apr, CmIds, Dreq, Lap, Mra, Rej, Rep, Req, SidrRep, SidrReq};

/// A message of the connection manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CmMessage<'a> {
    body: CmBody<'a>,
    private: &'a [u8],
}

/// The message and its fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(clippy::large_enum_variant, reason = "lives on the stack, one at a time")]
pub enum CmBody<'a> {
    /// Asks for a connection.
    Req(Req),
    /// Asks for more time to answer.
    Mra(Mra),
    /// Refuses.
    Rej(Rej<'a>),
    /// Agrees.
    Rep(Rep),
    /// Confirms that the connection is in use.
    Rtu(CmIds),
    /// Asks to end it.
    Dreq(Dreq),
    /// Agrees to end it.
    Drep(CmIds),
    /// Asks for the datagram QP of a service.
    SidrReq(SidrReq),
    /// Names it.
    SidrRep(SidrRep<'a>),
    /// Proposes an alternate path.
    Lap(Lap),
    /// Answers such a proposal.
    Apr(Apr<'a>),
}

impl<'a> CmMessage<'a> {
    /// A message to be sent; `None` when the private data is longer than [`CmBody::private_room`].
    pub fn new(body: CmBody<'a>, private: &'a [u8]) -> Option<CmMessage<'a>> {
        (private.len() <= body.private_room()).then_some(CmMessage { body, private })
    }

    /// What it says.
    pub const fn body(&self) -> &CmBody<'a> {
        &self.body
    }

    /// Bytes for the application on the other side, or for its RDMA CM. In a received message they fill all of their
    /// field, since nothing on the wire says how many were meant.
    pub const fn private(&self) -> &'a [u8] {
        self.private
    }

    /// Reads the message with this attribute id, `None` when no message has it.
    pub fn read(attribute_id: u16, bytes: &'a [u8; MAD_BODY_LEN]) -> Option<CmMessage<'a>> {
        let mut body = match attribute_id {
            0x0010 => CmBody::Req(Req::read(bytes)),
            0x0011 => CmBody::Mra(Mra::read(bytes)),
            0x0012 => CmBody::Rej(Rej::read(bytes)),
            0x0013 => CmBody::Rep(Rep::read(bytes)),
            0x0014 => CmBody::Rtu(CmIds::read(bytes)),
            0x0015 => CmBody::Dreq(Dreq::read(bytes)),
            0x0016 => CmBody::Drep(CmIds::read(bytes)),
            0x0017 => CmBody::SidrReq(SidrReq::read(bytes)),
            0x0018 => CmBody::SidrRep(SidrRep::read(bytes)),
            0x0019 => CmBody::Lap(Lap::read(bytes)),
            0x001A => CmBody::Apr(Apr::read(bytes)),
            _ => return None,
        };
        match &mut body {
            CmBody::Rej(rej) => rej.info.take_from(&bytes[REJ_INFO..]),
            CmBody::SidrRep(rep) => rep.info.take_from(&bytes[SIDR_INFO..]),
            CmBody::Apr(apr) => apr.info.take_from(&bytes[APR_INFO..]),
            _ => {}
        }
        Some(CmMessage { body, private: &bytes[MAD_BODY_LEN - body.private_room()..] })
    }

    /// Writes the message over the whole of `bytes`.
    pub fn emit(&self, bytes: &mut [u8; MAD_BODY_LEN]) {
        bytes.fill(0);
        match self.body {
            CmBody::Req(req) => req.write(bytes),
            CmBody::Mra(mra) => mra.write(bytes),
            CmBody::Rej(rej) => {
                rej.write(bytes);
                rej.info.put_into(&mut bytes[REJ_INFO..]);
            }
            CmBody::Rep(rep) => rep.write(bytes),
            CmBody::Rtu(ids) | CmBody::Drep(ids) => ids.write(bytes),
            CmBody::Dreq(dreq) => dreq.write(bytes),
            CmBody::SidrReq(req) => req.write(bytes),
            CmBody::SidrRep(rep) => {
                rep.write(bytes);
                rep.info.put_into(&mut bytes[SIDR_INFO..]);
            }
            CmBody::Lap(lap) => lap.write(bytes),
            CmBody::Apr(apr) => {
                apr.write(bytes);
                apr.info.put_into(&mut bytes[APR_INFO..]);
            }
        }
        let private = MAD_BODY_LEN - self.body.private_room();
        bytes[private..private + self.private.len()].copy_from_slice(self.private);
    }
}

// Where the additional information of a message begins.
const REJ_INFO: usize = 12;
const SIDR_INFO: usize = 24;
const APR_INFO: usize = 12;

impl CmBody<'_> {
    /// The attribute id of the MAD that carries it.
    pub const fn attribute_id(&self) -> u16 {
        match self {
            CmBody::Req(_) => 0x0010,
            CmBody::Mra(_) => 0x0011,
            CmBody::Rej(_) => 0x0012,
            CmBody::Rep(_) => 0x0013,
            CmBody::Rtu(_) => 0x0014,
            CmBody::Dreq(_) => 0x0015,
            CmBody::Drep(_) => 0x0016,
            CmBody::SidrReq(_) => 0x0017,
            CmBody::SidrRep(_) => 0x0018,
            CmBody::Lap(_) => 0x0019,
            CmBody::Apr(_) => 0x001A,
        }
    }

    /// Size of the private data field, at the end of the message.
    pub const fn private_room(&self) -> usize {
        match self {
            CmBody::Req(_) => 92,
            CmBody::Mra(_) => 222,
            CmBody::Rej(_) | CmBody::Apr(_) => 148,
            CmBody::Rep(_) => 196,
            CmBody::Rtu(_) | CmBody::Drep(_) => 224,
            CmBody::Dreq(_) => 220,
            CmBody::SidrReq(_) => 216,
            CmBody::SidrRep(_) => 136,
            CmBody::Lap(_) => 168,
        }
    }
}
