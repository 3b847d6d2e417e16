//! tshark reads the same frames, and every field that it names must have the value we print.
//!
//! `docs/decode-vs-tshark.md` tells where the two differ, and why. Each difference has its place in
//! [`expected`], so that a new one fails here.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::Command;

use serde_json::Value;
use softrnic_inspect::capture::Reader;
use softrnic_inspect::decode::{Form, Options, Peers, decode};

use super::common::{A, B, Capture, skip};
use super::frames::{Noise, every_cm_message, every_opcode, known_good, tagged};

#[test]
fn agrees_on_the_known_good_frames() {
    let mut capture = Capture::new();
    for (_, frame) in known_good() {
        capture.frame(frame);
    }
    compare("frames", &capture.pcap());
}

#[test]
fn agrees_on_traffic_between_two_linux_devices() {
    compare("rxe", include_bytes!("../data/rxe-rxe.pcap"));
}

#[test]
fn agrees_on_the_captures_of_the_tour() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tour");
    let mut captures: Vec<_> =
        std::fs::read_dir(directory).unwrap().flatten().map(|entry| entry.path()).collect();
    captures.retain(|path| path.extension().is_some_and(|extension| extension == "pcapng"));
    assert!(captures.len() >= 8, "{captures:?}");
    for path in captures {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        compare(&name, &std::fs::read(path).unwrap());
    }
}

#[test]
fn agrees_on_every_opcode_with_every_header_filled() {
    let mut capture = Capture::new();
    every_opcode(&mut capture, &mut Noise(1));
    tagged(&mut capture);
    compare("opcodes", &capture.pcap());
}

#[test]
fn agrees_on_every_connection_message_with_every_bit_filled() {
    let mut capture = Capture::new();
    every_cm_message(&mut capture, &mut Noise(2));
    compare("cm", &capture.pcap());
}

/// Runs both over a capture and compares field by field.
/// The dissector that is installed for Wireshark.
#[test]
fn the_lua_dissector_shows_what_softrnics_add() {
    let mut c = Capture::new();
    c.selective_ack(B, A, 0xFF_FFFF, 4, &[0b10110, 0, 0, 0x80]);
    c.capabilities(A, B, true);
    c.send(A, B, 7);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/wireshark/selective.lua");
    let file = std::env::temp_dir().join(format!("softrnic-lua-{}.pcap", std::process::id()));
    std::fs::write(&file, c.pcap()).unwrap();
    let fields = ["expected_psn", "msn", "arrived", "answer", "to_qp", "from_qp", "reorder_window"];
    let fields = fields.iter().flat_map(|field| ["-e".to_owned(), format!("softrnic.{field}")]);
    let output = Command::new("tshark")
        .args(["-X", &format!("lua_script:{script}"), "-T", "fields", "-E", "separator=;", "-r"])
        .arg(&file)
        .args(fields)
        .output();
    std::fs::remove_file(&file).unwrap();
    let Ok(output) = output else { return };
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(lines, ["16777215;4;0-1, 3, 30;;;;", ";;;1;0x000022;0x000011;512", ";;;;;;"], "{errors}");
}

#[track_caller]
fn compare(name: &str, file: &[u8]) {
    let Some(theirs) = tshark(name, file) else { return };
    let ours = our_json(file);
    assert!(!ours.is_empty());
    let mut compared = BTreeMap::<String, usize>::new();
    let mut wrong = Vec::new();
    for (number, ours) in &ours {
        let theirs = &theirs[number];
        for (key, value) in theirs {
            match expected(key, value, theirs, ours) {
                Expected::Same => *compared.entry(key.clone()).or_default() += 1,
                Expected::Explained => {}
                Expected::Differs(mine) => {
                    wrong.push(format!("packet {number}: {key} is {value:?} for tshark and {mine} for us"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
    // A renamed key must not make the comparison empty.
    assert_eq!(compared["infiniband.bth.opcode"], ours.len());
    assert_eq!(compared["infiniband.bth.psn"], ours.len());
}

enum Expected {
    Same,
    /// Not a field of its own, or a known difference.
    Explained,
    Differs(String),
}

type Fields = BTreeMap<String, String>;

/// What we print for a field that tshark names.
fn expected(key: &str, theirs: &str, all: &Fields, ours: &Value) -> Expected {
    let layers = &ours["layers"];
    let number = |layer: &str, field: &str| parse(&layers[layer][field]);
    let same = |mine: Option<u128>| match mine {
        Some(mine) if parse_text(theirs) == Some(mine) => Expected::Same,
        Some(mine) => Expected::Differs(format!("{mine:#x}")),
        None => Expected::Differs("absent".to_owned()),
    };
    let text = |layer: &str, field: &str| match layers[layer][field].as_str() {
        Some(mine) if mine == theirs => Expected::Same,
        mine => Expected::Differs(format!("{mine:?}")),
    };
    let opcode = number("bth", "opcode").unwrap();
    // tshark knows neither XRC nor the later opcodes, and takes what follows their BTH for payload of
    // a vendor's; it reads on in the RD and other ranges that we do not parse at all.
    let unknown_to_tshark = opcode >= 0xA0 || matches!(opcode, 0x1C | 0x1D | 0x81);
    if unknown_to_tshark
        && !(key.starts_with("infiniband.bth.") || key.starts_with("ip") || key.starts_with("udp"))
    {
        return Expected::Explained;
    }
    if let Some(field) = key.strip_prefix("infiniband.bth.") {
        return same(match field {
            "opcode" => number("bth", "opcode"),
            "se" => number("bth", "solicited"),
            "m" => number("bth", "mig_req"),
            "padcnt" => number("bth", "pad"),
            "tver" => number("bth", "tver"),
            "p_key" => number("bth", "pkey"),
            "destqp" => number("bth", "dest_qp"),
            "a" => number("bth", "ack_req"),
            "reserved7" => number("bth", "reserved_7"),
            "psn" => number("bth", "psn"),
            _ => None,
        });
    }
    if let Some(field) = key.strip_prefix("infiniband.cm.") {
        return connection(field, theirs, layers);
    }
    if let Some(field) = key.strip_prefix("infiniband.aeth.") {
        let syndrome = number("aeth", "syndrome").unwrap_or(0x100);
        // What the type makes of the value; we name it only where bit 7 and the type are legal.
        let value = |field: &str| match (number("aeth", field), syndrome >> 7) {
            (None, 1) => Some(syndrome & 0x1F),
            (mine, _) => mine,
        };
        return same(match field {
            "syndrome" => Some(syndrome),
            "syndrome.reserved" => Some(syndrome >> 7),
            "syndrome.opcode" => Some(syndrome >> 5 & 3),
            "syndrome.credit_count" => value("credits"),
            "syndrome.timer" => value("rnr_timer"),
            "syndrome.error_code" => value("nak_code"),
            "syndrome.reserved_value" => Some(syndrome & 0x1F),
            "msn" => number("aeth", "msn"),
            _ => None,
        });
    }
    let target = |field| number("reth", field).or(number("atomiceth", field));
    match key {
        "infiniband.reth.va" => same(target("va")),
        "infiniband.reth.r_key" => same(target("rkey")),
        "infiniband.reth.dmalen" => same(number("reth", "dma_length")),
        "infiniband.atomiceth.swapdt" => same(number("atomiceth", "swap").or(number("atomiceth", "add"))),
        "infiniband.atomiceth.cmpdt" => {
            same(number("atomiceth", "compare").or(number("atomiceth", "unused")))
        }
        "infiniband.atomicacketh.origremdt" => same(number("atomicacketh", "original")),
        "infiniband.deth.q_key" => same(number("deth", "qkey")),
        "infiniband.deth.srcqp" => same(number("deth", "src_qp")),
        "infiniband.immdt" => same(number("immdt", "imm")),
        "infiniband.ieth" => same(number("ieth", "rkey")),
        "infiniband.invariant.crc" => same(number("icrc", "value")),
        "infiniband.mad.baseversion" => same(number("mad", "base_version")),
        "infiniband.mad.mgmtclass" => same(number("mad", "class")),
        "infiniband.mad.classversion" => same(number("mad", "class_version")),
        "infiniband.mad.method" => same(number("mad", "method")),
        "infiniband.mad.status" => same(number("mad", "status")),
        "infiniband.mad.transactionid" => same(number("mad", "transaction_id")),
        "infiniband.mad.attributeid" => same(number("mad", "attribute_id")),
        "infiniband.mad.attributemodifier" => same(number("mad", "attribute_modifier")),
        "infiniband.grh.tclass" => same(number("grh", "traffic_class")),
        "infiniband.grh.hoplmt" => same(number("grh", "hop_limit")),
        "infiniband.grh.sgid" => same_gid(theirs, &layers["grh"]["src_gid"]),
        "infiniband.grh.dgid" => same_gid(theirs, &layers["grh"]["dst_gid"]),
        "eth.src" => text("ethernet", "src"),
        "eth.dst" => text("ethernet", "dst"),
        "vlan.id" => same(number("ethernet", "vlan")),
        "vlan.priority" => same(number("ethernet", "priority")),
        "ieee8021ad.id" => same(number("ethernet", "outer_vlan")),
        "ieee8021ad.priority" => same(number("ethernet", "outer_priority")),
        "ip.src" => text("ipv4", "src"),
        "ip.dst" => text("ipv4", "dst"),
        "ip.ttl" => same(number("ipv4", "ttl")),
        "ip.len" => same(number("ipv4", "length")),
        "ip.id" => same(number("ipv4", "id")),
        "ip.flags.df" => same(number("ipv4", "dont_fragment")),
        "ip.dsfield.dscp" => same(number("ipv4", "dscp")),
        "ip.dsfield.ecn" => same(number("ipv4", "ecn")),
        "ipv6.src" => text("ipv6", "src"),
        "ipv6.dst" => text("ipv6", "dst"),
        "ipv6.hlim" => same(number("ipv6", "hop_limit")),
        "ipv6.plen" => same(number("ipv6", "payload_length")),
        "ipv6.flow" => same(number("ipv6", "flow_label")),
        "ipv6.tclass.dscp" => same(number("ipv6", "dscp")),
        "ipv6.tclass.ecn" => same(number("ipv6", "ecn")),
        "udp.srcport" => same(number("udp", "src_port")),
        "udp.dstport" => same(number("udp", "dst_port")),
        "udp.length" => same(number("udp", "length")),
        "udp.checksum" => same(number("udp", "checksum")),
        "data.len" => payload_len(theirs, all, layers),
        _ if is_container(key) => Expected::Explained,
        _ => Expected::Differs("not known to this test".to_owned()),
    }
}

/// Bytes of whole headers, values derived from other fields, and what is not ours to print.
fn is_container(key: &str) -> bool {
    const OTHERS: [&str; 27] = [
        "infiniband.bth",
        "infiniband.deth",
        "infiniband.reth",
        "infiniband.aeth",
        "infiniband.atomiceth",
        "infiniband.atomicacketh",
        "infiniband.mad",
        "infiniband.grh",
        "infiniband.reserved",
        "infiniband.payload",
        "infiniband.mad.data",
        "infiniband.mad.classspecific",
        "infiniband.smplid.smpdata",
        "infiniband.vendor",
        "infiniband.grh.ipver",
        "infiniband.grh.flowlabel",
        "infiniband.grh.paylen",
        "infiniband.grh.nxthdr",
        "infiniband.rwh.etype",
        "ip.version",
        "ip.hdr_len",
        "ip.proto",
        "ip.frag_offset",
        "ipv6.version",
        "ipv6.nxt",
        "ipv6.tclass",
        "data.data",
    ];
    OTHERS.contains(&key)
        || ["frame.", "eth.", "ieee8021a", "vlan.", "udp.", "ip.", "ipv6.", "_ws.", "Timestamps"]
            .iter()
            .any(|p| key.starts_with(p))
}

fn payload_len(theirs: &str, all: &Fields, layers: &Value) -> Expected {
    // tshark's data begins behind the headers it knows and ends before the ICRC.
    let mine = parse(&layers["payload"]["length"]).unwrap_or(0) + parse(&layers["bth"]["pad"]).unwrap();
    match theirs.parse::<u128>() {
        Ok(theirs) if theirs == mine => Expected::Same,
        // The data layer of a management datagram, which we read further.
        _ if all.contains_key("infiniband.mad") => Expected::Explained,
        _ => Expected::Differs(mine.to_string()),
    }
}

/// A field of a connection message, by tshark's name for it.
fn connection(key: &str, theirs: &str, layers: &Value) -> Expected {
    let cm = |field: &str| parse(&layers["cm"][field]);
    let path = |layer: &str, field: &str| match layers.get(layer) {
        Some(path) => parse(&path[field]),
        // An alternate path of zeros is no path.
        None => Some(0),
    };
    let same = |mine: Option<u128>| match mine {
        Some(mine) if parse_text(theirs) == Some(mine) => Expected::Same,
        Some(mine) => Expected::Differs(format!("{mine:#x}")),
        None => Expected::Differs("absent".to_owned()),
    };
    let header = &layers["rdma_cm"];
    let text = |mine: &Value| match mine.as_str() {
        Some(mine) if mine == theirs => Expected::Same,
        mine => Expected::Differs(format!("{mine:?}")),
    };
    if let Some(field) = key.strip_prefix("req.prim_") {
        return path_field(field, "primary_path", theirs, layers);
    }
    if let Some(field) = key.strip_prefix("req.alt_") {
        return path_field(field, "alternate_path", theirs, layers);
    }
    same(match key {
        "req" | "rep" => cm("local_id"),
        "rep.remotecommid" => cm("remote_id"),
        "req.serviceid" => cm("service_id"),
        "req.serviceid.dport" => cm("dst_port"),
        "req.localcaguid" | "rep.localcaguid" => cm("ca_guid"),
        "req.localqkey" | "rep.localqkey" => cm("qkey"),
        "req.localqpn" | "rep.localqpn" => cm("local_qp"),
        "req.responderres" | "rep.respres" => cm("responder_resources"),
        "req.localeecn" | "rep.localeecn" => cm("local_eecn"),
        "req.initdepth" | "rep.initdepth" => cm("initiator_depth"),
        "req.remoteeecn" => cm("remote_eecn"),
        "req.remoteresptout" => cm("remote_cm_timeout"),
        "req.transpsvctype" => cm("transport"),
        "req.e2eflowctrl" | "rep.e2eflowctrl" => cm("flow_control"),
        "req.startpsn" | "rep.startpsn" => cm("starting_psn"),
        "req.localresptout" => cm("local_cm_timeout"),
        "req.retrcount" => cm("retry_count"),
        "req.pkey" => cm("pkey"),
        "req.pppmtu" => cm("path_mtu"),
        "req.rdcexist" => cm("rdc_exists"),
        "req.rnrretrcount" | "rep.rnrretrcount" => cm("rnr_retry_count"),
        "req.maxcmretr" => cm("max_cm_retries"),
        "req.srq" | "rep.srq" => cm("srq"),
        "req.ext_transport" => cm("extended_transport"),
        "rep.tgtackdelay" => cm("target_ack_delay"),
        "rep.failoveracc" => cm("failover"),
        "rtu.localcommid" | "rej.localcommid" | "dreq.localcommid" | "drsp.localcommid" => cm("local_id"),
        "rtu.remotecommid" | "rej.remotecommid" | "dreq.remotecommid" | "drsp.remotecommid" => {
            cm("remote_id")
        }
        // tshark reads this field of a DREQ under a name that begins with req.
        "req.remoteqpneecn" => cm("remote_qp"),
        "rej.msgrej" => cm("answers"),
        "rej.rejinfolen" => cm("info_length"),
        "rej.reason" => cm("reason"),
        "req.ip_cm.majv" => parse(&header["version"]).map(|v| v >> 4),
        "req.ip_cm.minv" => parse(&header["version"]).map(|v| v & 0xF),
        "req.ip_cm.ipv" => parse(&header["ip_version"]),
        "req.ip_cm.sport" => parse(&header["src_port"]),
        "req.ip_cm.sip4" | "req.ip_cm.sip6" => return text(&header["src"]),
        "req.ip_cm.dip4" | "req.ip_cm.dip6" => return text(&header["dst"]),
        "req.ip_cm.private" | "req.private" | "rep.private" | "rtu.private" | "rej.private"
        | "dreq.private" | "drsp.private" => return private(theirs, layers),
        // Reserved bits, pieces of the service id, the bytes of the RDMA CM's header and of a reason.
        "rep.reserved"
        | "rej.reserved0"
        | "rej.reserved1"
        | "req.ip_cm.reserved"
        | "req.ip_cm"
        | "rej.ari"
        | "req.serviceid.prefix"
        | "req.serviceid.protocol" => return Expected::Explained,
        _ => path(key, ""),
    })
}

fn path_field(field: &str, layer: &str, theirs: &str, layers: &Value) -> Expected {
    let mine = |field: &str| match layers.get(layer) {
        Some(path) => parse(&path[field]),
        None => Some(0),
    };
    let same = |mine: Option<u128>| match mine {
        Some(mine) if parse_text(theirs) == Some(mine) => Expected::Same,
        Some(mine) => Expected::Differs(format!("{mine:#x}")),
        None => Expected::Differs("absent".to_owned()),
    };
    match field {
        "locallid" => same(mine("local_lid")),
        "remotelid" => same(mine("remote_lid")),
        "localgid" | "localgid_ipv4" | "remotegid" | "remotegid_ipv4" => {
            let name = if field.starts_with("local") { "local_gid" } else { "remote_gid" };
            match layers.get(layer) {
                // tshark takes the last four bytes for an IPv4 address whatever comes before them.
                Some(path) if field.ends_with("ipv4") => same_end(theirs, &path[name]),
                Some(path) => same_gid(theirs, &path[name]),
                None => same(Some(0)),
            }
        }
        // tshark takes 12 bits for the label and 8 after a nibble for the rate; IBTA 12.6.5 has 20, 6, 6.
        "flowlabel" => match (parse_text(theirs), mine("flow_label")) {
            (theirs, Some(label)) if theirs == Some(label >> 8) || theirs == Some(label) => Expected::Same,
            (_, label) => Expected::Differs(format!("{label:x?}")),
        },
        "pktrate" | "reserved0" | "reserved1" | "reserved2" => Expected::Explained,
        "tfcclass" => same(mine("traffic_class")),
        "hoplim" => same(mine("hop_limit")),
        "sl" => same(mine("sl")),
        "subnetlocal" => same(mine("subnet_local")),
        "localacktout" => same(mine("ack_timeout")),
        _ => Expected::Differs("not known to this test".to_owned()),
    }
}

/// We leave out the zeros that fill private data up.
fn private(theirs: &str, layers: &Value) -> Expected {
    let theirs = theirs.replace(':', "");
    let mine = layers["private_data"]["data"].as_str().unwrap_or("");
    match theirs.strip_prefix(mine) {
        Some(rest) if rest.bytes().all(|b| b == b'0') => Expected::Same,
        _ => Expected::Differs(mine.to_owned()),
    }
}

fn same_end(theirs: &str, ours: &Value) -> Expected {
    let end = ours.as_str().and_then(|gid| gid.parse::<Ipv6Addr>().ok()).map(|gid| gid.to_bits() as u32);
    match (theirs.parse::<Ipv4Addr>(), end) {
        (Ok(theirs), Some(mine)) if theirs.to_bits() == mine => Expected::Same,
        _ => Expected::Differs(ours.to_string()),
    }
}

fn same_gid(theirs: &str, ours: &Value) -> Expected {
    let gid = |text: &str| match (text.parse::<Ipv4Addr>(), text.parse::<Ipv6Addr>()) {
        (Ok(v4), _) => Some(u128::from(v4.to_ipv6_mapped())),
        (_, Ok(v6)) => Some(u128::from(v6)),
        _ => parse_text(text),
    };
    match ours.as_str().and_then(gid) {
        Some(mine) if gid(theirs) == Some(mine) => Expected::Same,
        _ => Expected::Differs(ours.to_string()),
    }
}

fn parse(value: &Value) -> Option<u128> {
    match value {
        Value::Bool(flag) => Some(u128::from(*flag)),
        Value::Number(number) => number.as_u64().map(u128::from),
        Value::String(text) => parse_text(text),
        _ => None,
    }
}

/// Decimal, hexadecimal, or bytes with colons.
fn parse_text(text: &str) -> Option<u128> {
    if let Some(hex) = text.strip_prefix("0x") {
        return u128::from_str_radix(hex, 16).ok();
    }
    if text.contains(':') || text.len() == 2 && text.parse::<u128>().is_err() {
        return u128::from_str_radix(&text.replace(':', ""), 16).ok();
    }
    text.parse().ok()
}

/// Our JSON by packet number.
fn our_json(file: &[u8]) -> BTreeMap<u64, Value> {
    let mut out = Vec::new();
    let options = Options { form: Form::Json, ..Options::default() };
    let mut reader = Reader::new(file).unwrap();
    decode(&mut reader, &mut out, &options, &mut Peers::new(), |_| {}).unwrap();
    let lines = std::str::from_utf8(&out).unwrap().lines();
    lines
        .map(|line| {
            let value: Value = serde_json::from_str(line).unwrap();
            (value["packet"].as_u64().unwrap(), value)
        })
        .collect()
}

/// tshark's fields by packet number; `None` without tshark, except in continuous integration.
fn tshark(name: &str, file: &[u8]) -> Option<BTreeMap<u64, Fields>> {
    let path = std::env::temp_dir().join(format!("softrnic-decode-{name}-{}.pcap", std::process::id()));
    std::fs::write(&path, file).unwrap();
    // A source port of 69, which a real NIC was seen to use, must not make it TFTP.
    let output = Command::new("tshark")
        .args(["-n", "-T", "json", "--disable-protocol", "tftp", "--disable-protocol", "rpcordma", "-r"])
        .arg(&path)
        .output();
    std::fs::remove_file(&path).unwrap();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            skip("tshark", &error);
            return None;
        }
    };
    let packets: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let fields = |packet: &Value| {
        let mut fields = Fields::new();
        flatten(&packet["_source"]["layers"], &mut fields);
        (fields["frame.number"].parse().unwrap(), fields)
    };
    Some(packets.iter().map(fields).collect())
}

fn flatten(value: &Value, fields: &mut Fields) {
    let Value::Object(map) = value else { return };
    for (key, value) in map {
        if let Value::String(text) = value {
            fields.insert(key.clone(), text.clone());
        }
        flatten(value, fields);
    }
}
