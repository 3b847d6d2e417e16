//! Where the fields that `softrnic-inspect` names are in their headers (IBTA 9, 12.6 and 13.4, RFC 791, RFC 768).

/// Bytes of a header; `None` if it has no fixed length.
pub fn header_len(layer: &str) -> Option<usize> {
    Some(match layer {
        "ipv4" => 20,
        "udp" | "deth" | "atomicacketh" => 8,
        "bth" => 12,
        "reth" => 16,
        "atomiceth" => 28,
        "mad" => 24,
        // With the place of the alternate path, which nobody names here.
        "primary_path" => 88,
        "rdma_cm" => 36,
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
        ("mad", "base_version") => (0, 8),
        ("mad", "class") => (8, 8),
        ("mad", "class_version") => (16, 8),
        ("mad", "method") => (24, 8),
        ("mad", "status") => (32, 16),
        ("mad", "transaction_id") => (64, 64),
        ("mad", "attribute_id") => (128, 16),
        ("mad", "attribute_modifier") => (160, 32),
        ("primary_path", "local_lid") => (0, 16),
        ("primary_path", "remote_lid") => (16, 16),
        ("primary_path", "local_gid") => (32, 128),
        ("primary_path", "remote_gid") => (160, 128),
        ("primary_path", "flow_label") => (288, 20),
        ("primary_path", "packet_rate") => (314, 6),
        ("primary_path", "traffic_class") => (320, 8),
        ("primary_path", "hop_limit") => (328, 8),
        ("primary_path", "sl") => (336, 4),
        ("primary_path", "subnet_local") => (340, 1),
        ("primary_path", "ack_timeout") => (344, 5),
        ("rdma_cm", "version") => (0, 8),
        ("rdma_cm", "ip_version") => (8, 4),
        ("rdma_cm", "src_port") => (16, 16),
        ("rdma_cm", "src") => (128, 32),
        ("rdma_cm", "dst") => (256, 32),
        ("immdt", "imm") | ("ieth", "rkey") | ("icrc", "value" | "state") => (0, 32),
        _ => return None,
    })
}

/// First bit and number of bits of the field with a name.
type Bits = fn(&str) -> Option<(usize, usize)>;

/// A message of the connection manager: how it is laid out depends on which one it is.
#[derive(Clone, Copy)]
pub struct Message {
    /// Bytes before its paths and its private data.
    pub len: usize,
    fields: Bits,
}

impl Message {
    /// First bit and number of bits of a field of the message.
    pub fn bits(self, field: &str) -> Option<(usize, usize)> {
        (self.fields)(field)
    }
}

/// The message with this name, if its layout is known here.
pub fn message(name: &str) -> Option<Message> {
    let (len, fields): (usize, Bits) = match name {
        "REQ" => (52, req),
        "REP" => (36, rep),
        "RTU" | "DREP" => (8, ids),
        "DREQ" => (12, dreq),
        _ => return None,
    };
    Some(Message { len, fields })
}

fn ids(field: &str) -> Option<(usize, usize)> {
    match field {
        "local_id" => Some((0, 32)),
        "remote_id" => Some((32, 32)),
        _ => None,
    }
}

fn dreq(field: &str) -> Option<(usize, usize)> {
    if field == "remote_qp" { Some((64, 24)) } else { ids(field) }
}

fn rep(field: &str) -> Option<(usize, usize)> {
    Some(match field {
        "qkey" => (64, 32),
        "local_qp" => (96, 24),
        "local_eecn" => (128, 24),
        "starting_psn" => (160, 24),
        "responder_resources" => (192, 8),
        "initiator_depth" => (200, 8),
        "target_ack_delay" => (208, 5),
        "failover" => (213, 2),
        "flow_control" => (215, 1),
        "rnr_retry_count" => (216, 3),
        "srq" => (219, 1),
        "ca_guid" => (224, 64),
        other => return ids(other),
    })
}

fn req(field: &str) -> Option<(usize, usize)> {
    Some(match field {
        "local_id" => (0, 32),
        "vendor_id" => (40, 24),
        "service_id" => (64, 64),
        "ca_guid" => (128, 64),
        "qkey" => (224, 32),
        "local_qp" => (256, 24),
        "responder_resources" => (280, 8),
        "local_eecn" => (288, 24),
        "initiator_depth" => (312, 8),
        "remote_eecn" => (320, 24),
        "remote_cm_timeout" => (344, 5),
        "transport" => (349, 2),
        "flow_control" => (351, 1),
        "starting_psn" => (352, 24),
        "local_cm_timeout" => (376, 5),
        "retry_count" => (381, 3),
        "pkey" => (384, 16),
        "path_mtu" => (400, 4),
        "rdc_exists" => (404, 1),
        "rnr_retry_count" => (405, 3),
        "max_cm_retries" => (408, 4),
        "srq" => (412, 1),
        "extended_transport" => (413, 3),
        _ => return None,
    })
}
