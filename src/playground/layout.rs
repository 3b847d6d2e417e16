//! Where the fields that `softrnic-inspect` names are in their headers (IBTA 9, RFC 791, RFC 768).

/// Bytes of a header; `None` if it has no fixed length.
pub fn header_len(layer: &str) -> Option<usize> {
    Some(match layer {
        "ipv4" => 20,
        "udp" | "deth" | "atomicacketh" => 8,
        "bth" => 12,
        "reth" => 16,
        "atomiceth" => 28,
        "aeth" | "immdt" | "ieth" | "icrc" => 4,
        _ => return None,
    })
}

/// First bit and number of bits of a field in its header.
pub fn bits(layer: &str, field: &str) -> Option<(usize, usize)> {
    Some(match (layer, field) {
        ("ipv4", "dscp") => (8, 6),
        ("ipv4", "ecn") => (14, 2),
        ("ipv4", "length") => (16, 16),
        ("ipv4", "id") => (32, 16),
        ("ipv4", "dont_fragment") => (49, 1),
        ("ipv4", "ttl") => (64, 8),
        ("ipv4", "checksum") => (80, 16),
        ("ipv4", "src") => (96, 32),
        ("ipv4", "dst") => (128, 32),
        ("udp", "src_port") => (0, 16),
        ("udp", "dst_port") => (16, 16),
        ("udp", "length") => (32, 16),
        ("udp", "checksum") => (48, 16),
        ("bth", "opcode") => (0, 8),
        ("bth", "solicited") => (8, 1),
        ("bth", "mig_req") => (9, 1),
        ("bth", "pad") => (10, 2),
        ("bth", "tver") => (12, 4),
        ("bth", "pkey") => (16, 16),
        ("bth", "fecn") => (32, 1),
        ("bth", "becn") => (33, 1),
        ("bth", "reserved_6") => (34, 6),
        ("bth", "dest_qp") => (40, 24),
        ("bth", "ack_req") => (64, 1),
        ("bth", "reserved_7") => (65, 7),
        ("bth", "psn") => (72, 24),
        ("reth" | "atomiceth", "va") => (0, 64),
        ("reth" | "atomiceth", "rkey") => (64, 32),
        ("reth", "dma_length") => (96, 32),
        ("atomiceth", "swap" | "add") => (96, 64),
        ("atomiceth", "compare" | "unused") => (160, 64),
        ("atomicacketh", "original") => (0, 64),
        ("aeth", "syndrome") => (0, 8),
        ("aeth", "credits" | "rnr_timer" | "nak_code") => (3, 5),
        ("aeth", "msn") => (8, 24),
        ("deth", "qkey") => (0, 32),
        ("deth", "src_qp") => (40, 24),
        ("immdt", "imm") | ("ieth", "rkey") | ("icrc", "value" | "state") => (0, 32),
        _ => return None,
    })
}
