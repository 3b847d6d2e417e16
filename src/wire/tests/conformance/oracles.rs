//! Agreement with code that others wrote: `crc` for the ICRC, `pnet` for Ethernet, IP and UDP.

use crc::{CRC_32_ISO_HDLC, Crc};
use pnet_packet::Packet as _;
use pnet_packet::ethernet::{EtherTypes, EthernetPacket};
use pnet_packet::ip::IpNextHeaderProtocols;
use pnet_packet::ipv4::{self, Ipv4Flags, Ipv4Packet};
use pnet_packet::ipv6::Ipv6Packet;
use pnet_packet::udp::UdpPacket;
use pnet_packet::vlan::VlanPacket;
use proptest::collection::vec;
use proptest::prelude::*;
use softrnic_wire::*;

use super::{legal, vectors};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn icrc_is_the_crc_of_the_masked_packet(header in legal::frame_header(), body in vec(any::<u8>(), 12..4200)) {
        let mut bytes = vec![0; header.wire_len() + body.len() + ICRC_LEN];
        let bth = header.emit(&mut bytes, body.len() + ICRC_LEN);
        bytes[bth..bth + body.len()].copy_from_slice(&body);
        let l3 = &bytes[header.eth.wire_len()..];
        prop_assert_eq!(icrc(&header.facts(), &body), masked_crc(&l3[..l3.len() - ICRC_LEN], &[]));
    }

    #[test]
    fn rxe_s_flush_hashes_the_headers_twice(header in legal::frame_header(), body in any::<[u8; 32]>()) {
        let mut bytes = vec![0; header.wire_len() + 36];
        let bth = header.emit(&mut bytes, 36);
        bytes[bth..bth + 32].copy_from_slice(&body);
        let l3 = &bytes[header.eth.wire_len()..];
        prop_assert_eq!(rxe_flush_icrc(&header.facts(), &body), masked_crc(&l3[..l3.len() - ICRC_LEN], &body));
    }

    #[test]
    fn pnet_reads_what_we_emit(header in legal::frame_header(), transport in vec(any::<u8>(), 16..2000)) {
        let mut bytes = vec![0; header.wire_len()];
        prop_assert_eq!(header.emit(&mut bytes, transport.len()), bytes.len());
        bytes.extend(&transport);
        pnet_agrees(&header, &transport, &bytes);
    }
}

#[test]
fn pnet_reads_the_known_frames_as_we_do() {
    let mut read = 0;
    for v in vectors::load() {
        if let Ok(frame) = Frame::parse(&v.bytes) {
            pnet_agrees(&frame.header, frame.transport, &v.bytes);
            read += 1;
        }
    }
    assert_eq!(read, 70);
}

/// The ICRC exactly as IBTA A17.3.3 describes it: copy, mask, hash with eight bytes of ones in front.
fn masked_crc(l3: &[u8], again: &[u8]) -> u32 {
    let mut masked = l3.to_vec();
    let ones: &[usize] =
        if l3[0] >> 4 == 4 { &[1, 8, 10, 11, 26, 27, 32] } else { &[1, 2, 3, 7, 46, 47, 52] };
    for &at in ones {
        masked[at] = 0xFF;
    }
    if l3[0] >> 4 == 6 {
        masked[0] |= 0x0F;
    }
    let crc = Crc::<u32>::new(&CRC_32_ISO_HDLC);
    let mut digest = crc.digest();
    for part in [&[0xFF; 8][..], &masked, again] {
        digest.update(part);
    }
    digest.finalize()
}

fn pnet_agrees(header: &FrameHeader, transport: &[u8], bytes: &[u8]) {
    let eth = EthernetPacket::new(bytes).unwrap();
    assert_eq!(eth.get_destination().octets(), header.eth.dst.0);
    assert_eq!(eth.get_source().octets(), header.eth.src.0);
    let mut ether_type = eth.get_ethertype();
    let mut rest = eth.payload().to_vec();
    for tag in [header.eth.outer_vlan, header.eth.vlan].into_iter().flatten() {
        assert_eq!(ether_type.0, tag.tpid.0);
        let vlan = VlanPacket::new(&rest).unwrap();
        assert_eq!((vlan.get_vlan_identifier(), vlan.get_priority_code_point().0), (tag.id(), tag.pcp()));
        ether_type = vlan.get_ethertype();
        rest = vlan.payload().to_vec();
    }
    let udp = match header.ip.facts {
        IpFacts::V4 { src, dst, id, flags_frag } => {
            assert_eq!(ether_type, EtherTypes::Ipv4);
            let ip = Ipv4Packet::new(&rest).unwrap();
            assert_eq!((ip.get_source(), ip.get_destination()), (src, dst));
            assert_eq!((ip.get_version(), ip.get_header_length(), ip.get_fragment_offset()), (4, 5, 0));
            assert_eq!(ip.get_dscp() << 2 | ip.get_ecn(), header.ip.tos);
            assert_eq!((ip.get_identification(), ip.get_ttl()), (id, header.ip.ttl));
            assert_eq!(ip.get_flags() & Ipv4Flags::DontFragment != 0, flags_frag == DF);
            assert_eq!(usize::from(ip.get_total_length()), 28 + transport.len());
            assert_eq!(ip.get_next_level_protocol(), IpNextHeaderProtocols::Udp);
            assert_eq!(ip.get_checksum(), ipv4::checksum(&ip));
            ip.payload().to_vec()
        }
        IpFacts::V6 { src, dst } => {
            assert_eq!(ether_type, EtherTypes::Ipv6);
            let ip = Ipv6Packet::new(&rest).unwrap();
            assert_eq!((ip.get_source(), ip.get_destination()), (src, dst));
            assert_eq!((ip.get_version(), ip.get_traffic_class()), (6, header.ip.tos));
            assert_eq!((ip.get_flow_label(), ip.get_hop_limit()), (header.ip.flow_label, header.ip.ttl));
            assert_eq!(usize::from(ip.get_payload_length()), 8 + transport.len());
            assert_eq!(ip.get_next_header(), IpNextHeaderProtocols::Udp);
            ip.payload().to_vec()
        }
    };
    let udp = UdpPacket::new(&udp).unwrap();
    assert_eq!((udp.get_source(), udp.get_destination()), (header.src_port, header.dst_port));
    assert_eq!(usize::from(udp.get_length()), 8 + transport.len());
    assert_eq!(udp.payload(), transport);
}
