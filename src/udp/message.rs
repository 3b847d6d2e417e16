//! Socket addresses and control messages as bytes, built and parsed without `unsafe`.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

const V4_LEN: usize = size_of::<libc::sockaddr_in>();
const V6_LEN: usize = size_of::<libc::sockaddr_in6>();

/// A `sockaddr_in` or `sockaddr_in6`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, align(8))]
pub(super) struct SockAddr {
    bytes: [u8; V6_LEN],
    len: u32,
}

impl SockAddr {
    /// The size of the larger of the two.
    pub(super) const CAPACITY: u32 = V6_LEN as u32;

    pub(super) fn empty() -> SockAddr {
        SockAddr { bytes: [0; V6_LEN], len: 0 }
    }

    /// An address of no family (`AF_UNSPEC`).
    pub(super) fn nowhere() -> SockAddr {
        SockAddr { bytes: [0; V6_LEN], len: V4_LEN as u32 }
    }

    /// `scope` is the interface index that link-local IPv6 addresses need.
    pub(super) fn new(ip: IpAddr, port: u16, scope: u32) -> SockAddr {
        let mut bytes = [0; V6_LEN];
        bytes[2..4].copy_from_slice(&port.to_be_bytes());
        let (family, len) = match ip {
            IpAddr::V4(ip) => {
                bytes[4..8].copy_from_slice(&ip.octets());
                (libc::AF_INET, V4_LEN)
            }
            IpAddr::V6(ip) => {
                bytes[8..24].copy_from_slice(&ip.octets());
                bytes[24..28].copy_from_slice(&scope.to_ne_bytes());
                (libc::AF_INET6, V6_LEN)
            }
        };
        bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
        SockAddr { bytes, len: len as u32 }
    }

    /// Copies `len` bytes of an address from the C library.
    ///
    /// # Safety
    ///
    /// At `from`, `len` bytes can be read, or as many as the longest address has.
    pub(super) unsafe fn copy_from(from: *const u8, len: usize) -> SockAddr {
        let mut address = SockAddr::empty();
        let len = len.min(V6_LEN);
        // SAFETY: the source can be read, as the caller promises; the destination has room for the longest address.
        unsafe { address.bytes.as_mut_ptr().copy_from_nonoverlapping(from, len) };
        address.len = len as u32;
        address
    }

    /// The bytes of an address, as far as they fit.
    pub(super) fn of_bytes(from: &[u8]) -> SockAddr {
        let mut address = SockAddr::empty();
        let len = from.len().min(V6_LEN);
        address.bytes[..len].copy_from_slice(&from[..len]);
        address.len = len as u32;
        address
    }

    pub(super) fn as_ptr(&self) -> *const u8 {
        self.bytes.as_ptr()
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr()
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// Reads the first `len` bytes; `None` if they are not an IP address.
    pub(super) fn to_std(self, len: u32) -> Option<SocketAddr> {
        let b = &self.bytes;
        let port = u16::from_be_bytes([b[2], b[3]]);
        match (c_int::from(u16::from_ne_bytes([b[0], b[1]])), len as usize) {
            (libc::AF_INET, V4_LEN..) => {
                Some(SocketAddrV4::new(Ipv4Addr::new(b[4], b[5], b[6], b[7]), port).into())
            }
            (libc::AF_INET6, V6_LEN..) => {
                let mut octets = [0; 16];
                octets.copy_from_slice(&b[8..24]);
                let scope = u32::from_ne_bytes([b[24], b[25], b[26], b[27]]);
                Some(SocketAddrV6::new(Ipv6Addr::from(octets), port, 0, scope).into())
            }
            _ => None,
        }
    }
}

const HEADER: usize = size_of::<libc::cmsghdr>();
const WORD: usize = size_of::<usize>();
const _: () = assert!(HEADER == WORD + 8, "cmsghdr is a length, a level and a type");

/// Buffer for the control messages of one datagram, or of one run.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct Control {
    bytes: [u8; Control::CAPACITY],
}

impl Control {
    /// Three messages: TOS, TTL and the segment size.
    pub(super) const CAPACITY: usize = 3 * ControlWriter::space(size_of::<c_int>());

    pub(super) fn new() -> Control {
        Control { bytes: [0; Control::CAPACITY] }
    }

    /// The bytes of control messages, as far as they fit.
    pub(super) fn of_bytes(from: &[u8]) -> Control {
        let mut control = Control::new();
        let len = from.len().min(Control::CAPACITY);
        control.bytes[..len].copy_from_slice(&from[..len]);
        control
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Appends control messages of at most four bytes to a [`Control`].
pub(super) struct ControlWriter<'a> {
    control: &'a mut Control,
    len: usize,
}

impl<'a> ControlWriter<'a> {
    pub(super) fn new(control: &'a mut Control) -> ControlWriter<'a> {
        ControlWriter { control, len: 0 }
    }

    /// Continues behind the first `len` bytes.
    pub(super) fn resume(control: &'a mut Control, len: usize) -> ControlWriter<'a> {
        ControlWriter { control, len }
    }

    /// The bytes that a message with a value of `len` bytes takes.
    pub(super) const fn space(len: usize) -> usize {
        HEADER + align(len)
    }

    pub(super) fn push(&mut self, level: c_int, kind: c_int, value: &[u8]) {
        let end = self.len + HEADER + align(value.len());
        let Some(room) = self.control.bytes.get_mut(self.len..end) else {
            debug_assert!(false, "a control buffer holds every message that is ever written to it");
            return;
        };
        room.fill(0);
        room[..WORD].copy_from_slice(&(HEADER + value.len()).to_ne_bytes());
        room[WORD..WORD + 4].copy_from_slice(&level.to_ne_bytes());
        room[WORD + 4..HEADER].copy_from_slice(&kind.to_ne_bytes());
        room[HEADER..HEADER + value.len()].copy_from_slice(value);
        self.len = end;
    }

    pub(super) fn finish(self) -> usize {
        self.len
    }
}

/// What the control messages of a received datagram say.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct RxFacts {
    pub(super) tos: u8,
    pub(super) ttl: Option<u8>,
    /// The size of each datagram when several were coalesced.
    pub(super) segment: Option<usize>,
}

impl RxFacts {
    pub(super) fn parse(mut bytes: &[u8]) -> RxFacts {
        let mut facts = RxFacts::default();
        while let Some((level, kind, data, rest)) = next_message(bytes) {
            match (level, kind) {
                (libc::SOL_IP, libc::IP_TOS) => facts.tos = data.first().copied().unwrap_or(0),
                (libc::SOL_IPV6, libc::IPV6_TCLASS) => facts.tos = int(data).unwrap_or(0) as u8,
                (libc::SOL_IP, libc::IP_TTL) | (libc::SOL_IPV6, libc::IPV6_HOPLIMIT) => {
                    facts.ttl = int(data).and_then(|ttl| u8::try_from(ttl).ok());
                }
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    facts.segment = int(data).and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
                }
                _ => {}
            }
            bytes = rest;
        }
        facts
    }
}

fn next_message(bytes: &[u8]) -> Option<(c_int, c_int, &[u8], &[u8])> {
    let (header, _) = bytes.split_at_checked(HEADER)?;
    let mut word = [0; WORD];
    word.copy_from_slice(&header[..WORD]);
    let len = usize::from_ne_bytes(word);
    let data = bytes.get(HEADER..len)?;
    let rest = bytes.get(HEADER + align(data.len())..).unwrap_or(&[]);
    Some((int(&header[WORD..])?, int(&header[WORD + 4..])?, data, rest))
}

fn int(data: &[u8]) -> Option<c_int> {
    data.first_chunk().map(|b| c_int::from_ne_bytes(*b))
}

const fn align(len: usize) -> usize {
    (len + WORD - 1) & !(WORD - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_messages_read_back_as_written() {
        let mut control = Control::new();
        let mut writer = ControlWriter::new(&mut control);
        writer.push(libc::SOL_IP, libc::IP_TOS, &[0x2a]);
        writer.push(libc::SOL_UDP, libc::UDP_GRO, &1040_i32.to_ne_bytes());
        writer.push(libc::SOL_IP, libc::IP_TTL, &63_i32.to_ne_bytes());
        let len = writer.finish();
        assert_eq!(
            RxFacts::parse(&control.bytes()[..len]),
            RxFacts { tos: 0x2a, ttl: Some(63), segment: Some(1040) }
        );
    }

    #[test]
    fn truncated_control_messages_end_the_walk() {
        let mut control = Control::new();
        let mut writer = ControlWriter::new(&mut control);
        writer.push(libc::SOL_IP, libc::IP_TTL, &63_i32.to_ne_bytes());
        let len = writer.finish();
        for cut in 0..len - 4 {
            assert_eq!(RxFacts::parse(&control.bytes()[..cut]), RxFacts::default(), "{cut}");
        }
        let mut lying = control.bytes;
        lying[..WORD].copy_from_slice(&usize::MAX.to_ne_bytes());
        assert_eq!(RxFacts::parse(&lying), RxFacts::default());
        lying[..WORD].copy_from_slice(&3_usize.to_ne_bytes());
        assert_eq!(RxFacts::parse(&lying), RxFacts::default());
    }

    #[test]
    fn socket_addresses_survive_the_round_trip() {
        for (ip, scope) in
            [("127.3.4.5".parse::<IpAddr>().unwrap(), 0), ("fe80::1234:5678".parse::<IpAddr>().unwrap(), 3)]
        {
            let address = SockAddr::new(ip, 4791, scope);
            let std = address.to_std(address.len()).unwrap();
            assert_eq!((std.ip(), std.port()), (ip, 4791));
            assert!(address.to_std(3).is_none());
        }
    }
}
