//! Whatever arrives can be read or is refused, and what was read can be written again.

use softrnic_wire::{
    DF, Frame, IpFacts, Packet, RoceV1Frame, SrdPacket, UdpFacts, icrc, icrc_roce_v1, rxe_flush_icrc, verify,
    verify_either_flush, verify_unknown_id, verify_unknown_id_rxe_flush,
};

/// Takes the bytes as an Ethernet frame, and as what UDP carries.
pub fn frames(data: &[u8]) {
    if let Ok(frame) = Frame::parse(data) {
        let facts = frame.facts();
        let _ = (
            frame.ip_checksum_ok(),
            verify(&facts, frame.transport),
            verify_either_flush(&facts, frame.transport),
        );
        recovered(&facts, frame.transport);
        let _ = (icrc(&facts, frame.transport), rxe_flush_icrc(&facts, frame.transport));
        packet(frame.transport);
    }
    if let Ok(frame) = RoceV1Frame::parse(data) {
        let _ = icrc_roce_v1(frame.grh, frame.transport);
        packet(frame.transport);
    }
    packet(data);
}

/// The ID that makes a packet sound does not depend on the one that was guessed, and does make it sound.
fn recovered(facts: &UdpFacts, transport: &[u8]) {
    let IpFacts::V4 { src, dst, id, .. } = facts.ip else { return };
    let with = |id| UdpFacts { ip: IpFacts::V4 { src, dst, id, flags_frag: DF }, ..*facts };
    let found = verify_unknown_id(facts, transport);
    for guess in [0, 1, id ^ 0x55AA] {
        assert_eq!(verify_unknown_id(&with(guess), transport), found);
    }
    assert!(found.is_none_or(|id| verify(&with(id), transport)));
    let found = verify_unknown_id_rxe_flush(facts, transport);
    assert_eq!(verify_unknown_id_rxe_flush(&with(!id), transport), found);
    assert!(found.is_none_or(|id| verify_either_flush(&with(id), transport).is_some()));
}

fn packet(bytes: &[u8]) {
    srd_packet(bytes);
    let Ok(packet) = Packet::parse(bytes) else { return };
    let headers = packet.headers();
    assert_eq!(headers.transport_len(packet.payload.len()), bytes.len());
    let mut again = bytes.to_vec();
    let at = headers.emit(&mut again);
    assert_eq!(at, headers.len());
    // What was written reads the same; only reserved bits may have changed.
    assert_eq!(Packet::parse(&again).map(|packet| packet.headers()), Ok(headers));
}

fn srd_packet(bytes: &[u8]) {
    let Ok(packet) = SrdPacket::parse(bytes) else { return };
    let headers = packet.headers;
    assert_eq!(headers.transport_len(packet.payload.len()), bytes.len());
    let mut again = bytes.to_vec();
    let at = headers.emit(&mut again);
    assert_eq!(SrdPacket::parse(&again).map(|packet| (packet.headers, at)), Ok((headers, headers.len())));
}
