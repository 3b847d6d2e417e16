//! What the kernel leaves to a NIC: checksums, and cutting long TCP and UDP streams into packets.
//!
//! The kernel says so in the header that virtio devices use (struct virtio_net_hdr, include/uapi/linux/virtio_net.h).

/// Bytes of that header.
pub const HEADER: usize = 10;

/// The checksum is to be computed from `csum_start` on, and stored `csum_offset` behind that.
const NEEDS_CSUM: u8 = 1;
/// Kinds of segmentation; the highest bit says that TCP's CWR is for the first segment alone.
const TCP_V4: u8 = 1;
const TCP_V6: u8 = 4;
const UDP_L4: u8 = 5;
const ECN: u8 = 0x80;

/// Offsets in Ethernet, IP, TCP.
const MACS: usize = 12;
const VLAN_TYPES: [u16; 2] = [0x8100, 0x88A8];
const TCP_FLAGS: usize = 13;
const FIN_PSH: u8 = 0x09;
const CWR: u8 = 0x80;
const TCP_CHECKSUM: usize = 16;
const UDP_CHECKSUM: usize = 6;
const UDP_HEADER: usize = 8;

/// What the kernel says of a frame.
#[derive(Clone, Copy, Debug, Default)]
pub struct Offload {
    flags: u8,
    gso_type: u8,
    gso_size: u16,
    csum_start: u16,
    csum_offset: u16,
}

impl Offload {
    pub fn read(header: &[u8; HEADER]) -> Offload {
        let [flags, gso_type, _, _, size0, size1, start0, start1, offset0, offset1] = *header;
        Offload {
            flags,
            gso_type,
            gso_size: u16::from_ne_bytes([size0, size1]),
            csum_start: u16::from_ne_bytes([start0, start1]),
            csum_offset: u16::from_ne_bytes([offset0, offset1]),
        }
    }

    /// Gives the frames to `sink` that a NIC would make of this one. Returns whether it made sense.
    pub fn complete(&self, frame: &mut [u8], scratch: &mut Vec<u8>, sink: &mut dyn FnMut(&[u8])) -> bool {
        match self.gso_type & !ECN {
            0 => {
                if self.flags & NEEDS_CSUM != 0 && self.checksum(frame).is_none() {
                    return false;
                }
                sink(frame);
                true
            }
            TCP_V4 | TCP_V6 | UDP_L4 => self.segment(frame, scratch, sink).is_some(),
            _ => false,
        }
    }

    /// The field has the sum over the pseudo-header already.
    fn checksum(&self, frame: &mut [u8]) -> Option<()> {
        let covered = frame.get_mut(usize::from(self.csum_start)..)?;
        let sum = match !folded(sum_of(covered)) {
            0 => u16::MAX,
            sum => sum,
        };
        covered
            .get_mut(usize::from(self.csum_offset)..)?
            .first_chunk_mut()
            .map(|field| *field = sum.to_be_bytes())
    }

    fn segment(&self, frame: &[u8], segment: &mut Vec<u8>, sink: &mut dyn FnMut(&[u8])) -> Option<()> {
        let ip = ip_of(frame)?;
        let transport = usize::from(self.csum_start);
        let is_udp = self.gso_type & !ECN == UDP_L4;
        let header = if is_udp { UDP_HEADER } else { usize::from(*frame.get(transport + 12)? >> 4) * 4 };
        let is_v4 = frame.get(ip)? >> 4 == 4;
        let addresses = if is_v4 { ip + 12..ip + 20 } else { ip + 8..ip + 40 };
        if addresses.end > transport || (!is_udp && header < 20) || self.gso_size == 0 {
            return None;
        }
        let (headers, payload) = frame.split_at_checked(transport + header)?;
        let size = usize::from(self.gso_size);
        let count = payload.len().div_ceil(size);
        for (number, part) in payload.chunks(size).enumerate() {
            segment.clear();
            segment.extend_from_slice(headers);
            segment.extend_from_slice(part);
            let ip_len = segment.len() - ip;
            if is_v4 {
                put(segment, ip + 2, ip_len as u16);
                let id = word(segment, ip + 4).wrapping_add(number as u16);
                put(segment, ip + 4, id);
                put(segment, ip + 10, 0);
                let sum = !folded(sum_of(&segment[ip..ip + 4 * usize::from(segment[ip] & 15)]));
                put(segment, ip + 10, sum);
            } else {
                put(segment, ip + 4, (ip_len - 40) as u16);
            }
            let length = segment.len() - transport;
            let (protocol, field) = match is_udp {
                true => {
                    put(segment, transport + 4, length as u16);
                    (17, transport + UDP_CHECKSUM)
                }
                false => {
                    let sequence = &mut segment[transport + 4..transport + 8];
                    let first = u32::from_be_bytes(sequence.try_into().ok()?);
                    sequence.copy_from_slice(&first.wrapping_add((number * size) as u32).to_be_bytes());
                    let flags = &mut segment[transport + TCP_FLAGS];
                    if number + 1 < count {
                        *flags &= !FIN_PSH;
                    }
                    if number > 0 && self.gso_type & ECN != 0 {
                        *flags &= !CWR;
                    }
                    (6, transport + TCP_CHECKSUM)
                }
            };
            put(segment, field, 0);
            let pseudo = sum_of(&segment[addresses.clone()]) + protocol + length as u64;
            let sum = match !folded(pseudo + sum_of(&segment[transport..])) {
                0 if is_udp => u16::MAX,
                sum => sum,
            };
            put(segment, field, sum);
            sink(segment);
        }
        Some(())
    }
}

/// Where the IP header begins, behind Ethernet's and VLAN tags.
fn ip_of(frame: &[u8]) -> Option<usize> {
    let mut at = MACS;
    while VLAN_TYPES.contains(&frame.get(at..at + 2).map(|kind| u16::from_be_bytes([kind[0], kind[1]]))?) {
        at += 4;
    }
    (frame.len() >= at + 2 + 20).then_some(at + 2)
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// The sum of 16-bit words (RFC 1071).
fn sum_of(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<2>();
    let sum: u64 = words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum();
    sum + rest.first().map_or(0, |last| u64::from(*last) << 8)
}

fn folded(mut sum: u64) -> u16 {
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ethernet, IPv4 from 10.0.0.1 to 10.0.0.2, and a transport header.
    fn frame(protocol: u8, transport: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
        frame
            .extend_from_slice(&[0x45, 0, 0, 0, 0, 7, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend_from_slice(transport);
        frame.extend_from_slice(payload);
        frame
    }

    fn offload(gso_type: u8, gso_size: u16, csum_offset: u16) -> Offload {
        Offload { flags: NEEDS_CSUM, gso_type, gso_size, csum_start: 34, csum_offset }
    }

    fn completed(offload: Offload, mut frame: Vec<u8>) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        assert!(offload.complete(&mut frame, &mut Vec::new(), &mut |frame| frames.push(frame.to_vec())));
        frames
    }

    /// Over addresses, protocol, length and the whole: 0xFFFF if the checksum is right.
    fn verified(frame: &[u8], protocol: u64) -> u16 {
        folded(sum_of(&frame[26..34]) + protocol + (frame.len() - 34) as u64 + sum_of(&frame[34..]))
    }

    #[test]
    fn a_checksum_is_completed() {
        let mut udp = [0x12, 0x34, 0x12, 0xB7, 0, 13, 0, 0];
        let pseudo = folded(10 * 256 + 1 + 10 * 256 + 2 + 17 + 13);
        udp[6..].copy_from_slice(&pseudo.to_be_bytes());
        let frames = completed(offload(0, 0, 6), frame(17, &udp, b"hello"));
        assert_eq!((frames.len(), verified(&frames[0], 17)), (1, 0xFFFF));
    }

    #[test]
    fn a_long_tcp_stream_becomes_packets_with_their_own_headers() {
        let mut tcp = [0; 24];
        tcp[4..8].copy_from_slice(&1000_u32.to_be_bytes());
        (tcp[12], tcp[TCP_FLAGS]) = (6 << 4, 0x98 | 0x01);
        let payload: Vec<u8> = (0..250).map(|byte| byte as u8).collect();
        let frames = completed(offload(TCP_V4 | ECN, 100, 16), frame(6, &tcp, &payload));
        let sequences =
            frames.iter().map(|frame| u32::from_be_bytes(frame[38..42].try_into().expect("4 bytes")));
        assert!(sequences.eq([1000, 1100, 1200]));
        assert_eq!(frames.iter().map(|frame| word(frame, 16)).collect::<Vec<_>>(), [144, 144, 94]);
        assert_eq!(frames.iter().map(|frame| word(frame, 18)).collect::<Vec<_>>(), [7, 8, 9]);
        assert_eq!(frames.iter().map(|frame| frame[47]).collect::<Vec<_>>(), [0x90, 0x10, 0x19]);
        for frame in &frames {
            assert_eq!((verified(frame, 6), folded(sum_of(&frame[14..34]))), (0xFFFF, 0xFFFF));
        }
        assert_eq!(frames.iter().flat_map(|frame| frame[58..].to_vec()).collect::<Vec<_>>(), payload);
    }

    #[test]
    fn many_datagrams_of_one_send_become_datagrams() {
        let udp = [0x12, 0x34, 0x12, 0xB7, 0, 0, 0, 0];
        let frames = completed(offload(UDP_L4, 64, 6), frame(17, &udp, &[9; 150]));
        assert_eq!(frames.iter().map(|frame| word(frame, 38)).collect::<Vec<_>>(), [72, 72, 30]);
        assert!(frames.iter().all(|frame| verified(frame, 17) == 0xFFFF));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let whole = frame(6, &[0; 20], &[0; 100]);
        for (offload, len) in [
            (offload(TCP_V4, 10, 16), whole.len()),
            (offload(TCP_V4, 0, 16), whole.len()),
            (offload(UDP_L4, 10, 6), 30),
            (offload(UDP_L4, 10, 6), 13),
            (offload(9, 10, 6), whole.len()),
            (offload(0, 0, 900), whole.len()),
            (Offload { csum_start: 20, ..offload(UDP_L4, 10, 6) }, whole.len()),
            (Offload { csum_start: 900, ..offload(0, 0, 6) }, whole.len()),
        ] {
            let mut frame = whole[..len].to_vec();
            assert!(!offload.complete(&mut frame, &mut Vec::new(), &mut |_| {}), "{offload:?}");
        }
    }
}
