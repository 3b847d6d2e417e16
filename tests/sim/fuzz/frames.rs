//! Whatever arrives can be read or is refused, and what was read can be written again.

use softrnic_wire::{
    Frame, Packet, RoceV1Frame, icrc, icrc_roce_v1, rxe_flush_icrc, verify, verify_either_flush,
    verify_unknown_id, verify_unknown_id_rxe_flush,
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
        let _ = (
            verify_unknown_id(&facts, frame.transport),
            verify_unknown_id_rxe_flush(&facts, frame.transport),
        );
        let _ = (icrc(&facts, frame.transport), rxe_flush_icrc(&facts, frame.transport));
        packet(frame.transport);
    }
    if let Ok(frame) = RoceV1Frame::parse(data) {
        let _ = icrc_roce_v1(frame.grh, frame.transport);
        packet(frame.transport);
    }
    packet(data);
}

fn packet(bytes: &[u8]) {
    let Ok(packet) = Packet::parse(bytes) else { return };
    let headers = packet.headers();
    assert_eq!(headers.transport_len(packet.payload.len()), bytes.len());
    let mut again = bytes.to_vec();
    let at = headers.emit(&mut again);
    assert_eq!(at, headers.len());
    // What was written reads the same; only reserved bits may have changed.
    assert_eq!(Packet::parse(&again).map(|packet| packet.headers()), Ok(headers));
}
