//! What the kernel reports about a message received on a UDP socket: control messages, coalescing, addresses, and how
//! much room another socket has.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use softrnic_link::HeaderId;
use softrnic_udp::{RawMessage, answered_room, replay};

use super::Choices;

/// Levels and kinds that the link looks for, and some that it does not.
const MESSAGES: [(c_int, c_int); 9] = [
    (libc::SOL_IP, libc::IP_TOS),
    (libc::SOL_IP, libc::IP_TTL),
    (libc::SOL_IPV6, libc::IPV6_TCLASS),
    (libc::SOL_IPV6, libc::IPV6_HOPLIMIT),
    (libc::SOL_UDP, libc::UDP_GRO),
    (libc::SOL_UDP, libc::UDP_GRO),
    (libc::SOL_SOCKET, libc::SO_RXQ_OVFL),
    (libc::SOL_SOCKET, libc::SCM_RIGHTS),
    (0, 0),
];

/// Each choice is a message as the receive calls describe one, or an answer about a socket.
pub fn sockets(data: &[u8]) {
    let mut choices = Choices(data);
    while !choices.is_empty() {
        match choices.byte() % 4 {
            0 => room(&mut choices),
            _ => message(&mut choices),
        }
    }
}

fn message(choices: &mut Choices<'_>) {
    let v6 = choices.byte() & 1 != 0;
    let to: IpAddr = if v6 { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() };
    let mode = choices.byte();
    let (from, from_len) = address(choices, mode, v6);
    let (control, control_len) = controls(choices, mode);
    let flags = choices.pick(&[0, 0, 0, libc::MSG_CTRUNC, libc::MSG_TRUNC, libc::MSG_ERRQUEUE, -1]);
    let len = choices.number(2) as usize;
    let payload: Vec<u8> = (0..len).map(|n| n as u8).collect();
    let message = RawMessage {
        payload: &payload,
        from: (&from, from_len),
        control: (&control, control_len),
        flags,
        to,
    };

    let mut rebuilt: Vec<u8> = Vec::new();
    let (mut count, mut first) = (0, 0);
    let (counters, given) = replay(&message, &mut |datagram| {
        // Of one length, except that the last may be shorter; and the place is that in the message.
        assert!(!datagram.bytes.is_empty());
        assert!(count == 0 || (1..=first).contains(&datagram.bytes.len()));
        assert_eq!(rebuilt.len(), count * first);
        if count == 0 {
            first = datagram.bytes.len();
        }
        match datagram.id {
            HeaderId::Hidden { place } => assert_eq!((usize::from(place), v6), (count, false)),
            HeaderId::None => assert!(v6),
            HeaderId::Seen { .. } => panic!("nobody has seen the header"),
        }
        assert_eq!(datagram.dst, to);
        rebuilt.extend(datagram.bytes);
        count += 1;
    });
    assert_eq!(counters.rx_datagrams, count as u64);
    assert_eq!(counters.rx_bytes, rebuilt.len() as u64);
    if counters.rx_malformed == 0 {
        assert_eq!(rebuilt, payload);
        assert_eq!(given, count);
    } else {
        assert_eq!((count, given, counters.rx_malformed), (0, 1, 1));
    }
}

/// An address of one of the families, or anything, with a length that may be wrong.
fn address(choices: &mut Choices<'_>, mode: u8, v6: bool) -> (Vec<u8>, u32) {
    let mut bytes = vec![0; 28];
    let family = if v6 { libc::AF_INET6 } else { libc::AF_INET };
    bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    let rest = choices.take(8);
    bytes[2..2 + rest.len()].copy_from_slice(rest);
    if mode & 1 == 0 {
        return (bytes, if v6 { 28 } else { 16 });
    }
    let (at, byte) = (usize::from(choices.byte()) % 28, choices.byte());
    bytes[at] = byte;
    (bytes, choices.pick(&[0, 2, 15, 16, 27, 28, 128, u32::MAX]))
}

/// Control messages in a row, with lengths that may be wrong, cut off anywhere.
fn controls(choices: &mut Choices<'_>, mode: u8) -> (Vec<u8>, usize) {
    let mut bytes = Vec::new();
    for _ in 0..choices.byte() % 5 {
        let (level, kind) = choices.pick(&MESSAGES);
        let value = choices.take(if mode & 2 == 0 { 4 } else { usize::from(mode >> 4) });
        let honest = 16 + value.len();
        let len = if mode & 4 == 0 {
            honest
        } else {
            choices.pick(&[honest, 0, 1, 15, 16, 17, honest + 1, 1 << 20, usize::MAX, usize::MAX - 7])
        };
        bytes.extend(len.to_ne_bytes());
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
    }
    let len = bytes.len();
    (bytes, if mode & 8 == 0 { len } else { choices.pick(&[0, 7, 16, 31, 72, 1 << 16, usize::MAX]) })
}

/// An answer of `sock_diag(7)`, often a sensible one.
fn room(choices: &mut Choices<'_>) {
    let sequence = u32::from(choices.byte());
    let mut answer = vec![0; 88];
    answer[4..6].copy_from_slice(&20_u16.to_ne_bytes());
    answer[8..12].copy_from_slice(&sequence.to_ne_bytes());
    for _ in 0..choices.byte() % 4 {
        let (len, kind) = (choices.number(2) as u16, choices.pick(&[7_u16, 0, 1, 8]));
        answer.extend(len.to_ne_bytes());
        answer.extend(kind.to_ne_bytes());
        let value = choices.take(usize::from(len).clamp(4, 64) - 4);
        answer.extend(value);
        answer.resize(answer.len().next_multiple_of(4), 0);
    }
    if let Some((used, limit)) = answered_room(sequence, &answer) {
        assert!(u32::try_from(used).is_ok() && u32::try_from(limit).is_ok());
    }
    assert_eq!(answered_room(sequence + 1, &answer), None, "the answer to another question");
    let cut = usize::from(choices.byte());
    let _ = answered_room(sequence, &answer[..cut.min(answer.len())]);
}
