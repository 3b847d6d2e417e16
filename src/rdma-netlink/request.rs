//! What a program has sent.

use crate::number::{NLDEV, command, flag};

/// `struct nlmsghdr`, and the alignment of everything behind it.
pub const HEADER: usize = 16;
const ALIGNMENT: usize = 4;

/// One message of a datagram.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Its head, as it came.
    pub head: [u8; HEADER],
    pub kind: u16,
    pub flags: u16,
    pub sequence: u32,
    attributes: &'a [u8],
}

impl<'a> Request<'a> {
    /// The messages of a datagram. Like the kernel, it ends with the first that makes no sense.
    pub fn all(mut datagram: &'a [u8]) -> impl Iterator<Item = Request<'a>> {
        std::iter::from_fn(move || {
            let head: [u8; HEADER] = *datagram.first_chunk()?;
            let length = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]) as usize;
            let attributes = datagram.get(HEADER..length)?;
            datagram = datagram.get(aligned(length)..).unwrap_or_default();
            Some(Request {
                head,
                kind: u16::from_ne_bytes([head[4], head[5]]),
                flags: u16::from_ne_bytes([head[6], head[7]]),
                sequence: u32::from_ne_bytes([head[8], head[9], head[10], head[11]]),
                attributes,
            })
        })
    }

    /// Whether it asks for anything.
    pub fn is_request(&self) -> bool {
        self.flags & flag::REQUEST != 0
    }

    /// The command about devices; `None` for other clients of NETLINK_RDMA.
    pub fn command(&self) -> Option<u16> {
        (self.kind >> 10 == NLDEV).then_some(self.kind & 0x3FF)
    }

    /// Whether it asks for all there is.
    pub fn is_dump(&self) -> bool {
        self.flags & flag::DUMP != 0 && self.command().is_some_and(can_dump)
    }

    pub fn wants_ack(&self) -> bool {
        self.flags & flag::ACK != 0
    }

    /// The first attribute of a kind.
    pub fn find(&self, attribute: u16) -> Option<&'a [u8]> {
        attributes(self.attributes).find(|(kind, _)| *kind == attribute).map(|(_, value)| value)
    }

    pub fn number(&self, attribute: u16) -> Option<u32> {
        Some(u32::from_ne_bytes(*self.find(attribute)?.first_chunk()?))
    }

    /// A text, up to its zero.
    pub fn text(&self, attribute: u16) -> Option<&'a [u8]> {
        self.find(attribute)?.split(|byte| *byte == 0).next()
    }
}

/// The attributes of a message, or of another attribute.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    /// Says that there are attributes inside, or the byte order.
    const MARKS: u16 = 0xC000;
    std::iter::from_fn(move || {
        let head: [u8; 4] = *bytes.first_chunk()?;
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let value = bytes.get(4..length)?;
        bytes = bytes.get(aligned(length)..).unwrap_or_default();
        Some((u16::from_ne_bytes([head[2], head[3]]) & !MARKS, value))
    })
}

pub fn aligned(length: usize) -> usize {
    length.next_multiple_of(ALIGNMENT)
}

fn can_dump(number: u16) -> bool {
    use command::*;
    [
        GET,
        PORT_GET,
        RES_GET,
        RES_QP_GET,
        RES_CM_ID_GET,
        RES_CQ_GET,
        RES_MR_GET,
        RES_PD_GET,
        STAT_GET,
        RES_CTX_GET,
        RES_SRQ_GET,
    ]
    .contains(&number)
}
