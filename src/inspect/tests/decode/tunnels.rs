//! RoCE inside what mirrors and overlays put around it, and in the link types of those who capture them: decode finds the
//! same packets as tshark does.

use std::net::{IpAddr, Ipv6Addr};
use std::process::Command;

use serde_json::Value;
use softrnic_inspect::capture::Reader;
use softrnic_inspect::decode::{Form, Options, Peers, decode};

use super::common::{A, B, Capture, Side, pcap_header, pcap_record, raw_ip, skip};

const ETHERNET: u32 = 1;

/// One way to capture a packet.
struct Variant {
    name: &'static str,
    link: u32,
    v6: bool,
    /// Makes a record of an Ethernet frame.
    wrap: fn(&[u8]) -> Vec<u8>,
}

fn variants() -> Vec<Variant> {
    let on = |link, name, wrap| Variant { name, link, v6: false, wrap };
    let variant = |name, wrap| on(ETHERNET, name, wrap);
    vec![
        variant("vxlan", |f| datagram(4789, &[&[8, 0, 0, 0, 0, 0, 42, 0], f].concat())),
        variant("geneve", |f| datagram(6081, &[&[0, 0, 0x65, 0x58, 0, 0, 42, 0], f].concat())),
        variant("geneve-with-options", |f| {
            datagram(6081, &[&[2, 0, 0x65, 0x58, 0, 0, 42, 0, 1, 2, 3, 1, 0, 0, 0, 7], f].concat())
        }),
        variant("gre", |f| ipv4(47, &[&[0, 0, 8, 0], &raw_ip(f)[..]].concat())),
        variant("gre-with-key-and-checksum", |f| {
            ipv4(47, &[&[0xA0, 0, 0x65, 0x58, 0, 0, 0, 0, 0, 0, 0, 9], f].concat())
        }),
        variant("erspan-1", |f| ipv4(47, &[&[0, 0, 0x88, 0xBE], f].concat())),
        variant("erspan-2", |f| {
            ipv4(47, &[&[0x10, 0, 0x88, 0xBE, 0, 0, 0, 1, 0x10, 0, 0, 100, 0, 0, 0, 0], f].concat())
        }),
        variant("erspan-3", |f| {
            let header = [0x10, 0, 0x22, 0xEB, 0, 0, 0, 1, 0x20, 0, 0, 100, 0, 0, 0, 0, 0, 0, 0, 0];
            ipv4(47, &[&header, f].concat())
        }),
        variant("ip-in-ip", |f| ipv4(4, &raw_ip(f))),
        variant("mpls", |f| typed(&[0x88, 0x47, 0, 6, 0x40, 64, 0, 6, 0x51, 64], &raw_ip(f))),
        variant("qinq-9100", |f| typed(&[0x91, 0, 0, 100, 0x81, 0, 0, 200, 8, 0], &raw_ip(f))),
        variant("three-tags", |f| typed(&[0x88, 0xA8, 0, 1, 0x81, 0, 0, 2, 0x81, 0, 0, 3, 8, 0], &raw_ip(f))),
        variant("vxlan-of-a-tagged-frame", |f| {
            let tagged = [&f[..12], &[0x81, 0, 0, 7], &f[12..]].concat();
            datagram(4789, &[&[8, 0, 0, 0, 0, 0, 42, 0], &tagged[..]].concat())
        }),
        on(0, "null", |f| [&[2, 0, 0, 0], &raw_ip(f)[..]].concat()),
        on(108, "loop", |f| [&[0, 0, 0, 2], &raw_ip(f)[..]].concat()),
        on(197, "erf", |f| erf(&[], f)),
        on(197, "erf-with-extensions", |f| {
            erf(&[[0x80 | 3, 0, 0, 0, 0, 0, 0, 0], [4, 0, 0, 0, 0, 0, 0, 0]], f)
        }),
        Variant { name: "hop-by-hop", link: ETHERNET, v6: true, wrap: |f| extended(f, 0) },
        Variant { name: "destination-options", link: ETHERNET, v6: true, wrap: |f| extended(f, 60) },
    ]
}

/// An Ethernet frame of these tags and types.
fn typed(types: &[u8], content: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8], types, content].concat()
}

/// A frame between the ends of a tunnel.
fn ipv4(protocol: u8, content: &[u8]) -> Vec<u8> {
    let len = (20 + content.len() as u16).to_be_bytes();
    let header = [0x45, 0, len[0], len[1], 0, 7, 0, 0, 64, protocol, 0, 0, 192, 168, 0, 1, 192, 168, 0, 2];
    typed(&[8, 0], &[&header, content].concat())
}

fn datagram(port: u16, content: &[u8]) -> Vec<u8> {
    let (port, len) = (port.to_be_bytes(), (8 + content.len() as u16).to_be_bytes());
    ipv4(17, &[&[0xC3, 0x50, port[0], port[1], len[0], len[1], 0, 0], content].concat())
}

fn erf(extensions: &[[u8; 8]], frame: &[u8]) -> Vec<u8> {
    let len = frame.len() as u16;
    let rlen = (18 + 8 * extensions.len() as u16 + len).to_be_bytes();
    let kind = 2 | if extensions.is_empty() { 0 } else { 0x80 };
    let len = len.to_be_bytes();
    let header = [0, 0, 0, 0, 0, 0, 0x60, 0x65, kind, 4, rlen[0], rlen[1], 0, 0, len[0], len[1]];
    [&header, &extensions.concat()[..], &[0, 0], frame].concat()
}

/// An IPv6 frame with an extension header of eight bytes.
fn extended(frame: &[u8], kind: u8) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let len = u16::from_be_bytes([frame[18], frame[19]]) + 8;
    frame[18..20].copy_from_slice(&len.to_be_bytes());
    frame[20] = kind;
    // Padding of six bytes.
    [&frame[..54], &[17, 0, 1, 4, 0, 0, 0, 0], &frame[54..]].concat()
}

fn exchange(v6: bool) -> Capture {
    let address = |last| IpAddr::V6(Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 0, last));
    let (a, b) = match v6 {
        true => (Side { ip: address(1), ..A }, Side { ip: address(2), ..B }),
        false => (A, B),
    };
    let mut c = Capture::new();
    c.send(a, b, 100);
    c.ack(b, a, 100, 1);
    c
}

fn file(variant: &Variant, cut: usize) -> (Vec<u8>, Capture) {
    let capture = exchange(variant.v6);
    let mut file = pcap_header(0xA1B2_3C4D, variant.link);
    for (time, frame) in &capture.frames {
        let record = (variant.wrap)(frame);
        let kept = record.len().saturating_sub(cut);
        pcap_record(&mut file, *time, &record[..kept], record.len());
    }
    (file, capture)
}

fn decoded(file: &[u8]) -> Vec<Value> {
    let options = Options { form: Form::Json, ..Options::default() };
    let mut out = Vec::new();
    decode(&mut Reader::new(file).unwrap(), &mut out, &options, &mut Peers::new(), |_| {}).unwrap();
    out.split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect()
}

#[test]
fn packets_inside_of_other_packets() {
    for variant in variants() {
        let packets = decoded(&file(&variant, 0).0);
        let seen: Vec<_> = packets.iter().map(|p| [&p["opcode"], &p["layers"]["icrc"]["state"]]).collect();
        assert_eq!(seen, [["RC SEND Only", "good"], ["RC Acknowledge", "good"]], "{}", variant.name);
        let (src, dst) = if variant.v6 { ("fd00::1", "fd00::2") } else { ("10.0.0.1", "10.0.0.2") };
        assert_eq!((&packets[0]["src"], &packets[0]["dst"]), (&src.into(), &dst.into()), "{}", variant.name);
        // Without the ICRC, as a short capture has them.
        let packets = decoded(&file(&variant, 3).0);
        assert_eq!(packets.len(), 2, "{} cut short", variant.name);
        assert_eq!(packets[0]["layers"]["icrc"]["state"], "not captured", "{}", variant.name);
    }
}

#[test]
fn tshark_finds_them_as_well() {
    for variant in variants() {
        let path =
            std::env::temp_dir().join(format!("softrnic-{}-{}.pcap", variant.name, std::process::id()));
        std::fs::write(&path, file(&variant, 0).0).unwrap();
        let output =
            Command::new("tshark").arg("-n").arg("-r").arg(&path).args(["-Y", "infiniband.bth"]).output();
        std::fs::remove_file(&path).unwrap();
        let output = match output {
            Ok(output) => output,
            Err(error) => return skip("tshark", &error),
        };
        let lines = String::from_utf8_lossy(&output.stdout).lines().count();
        assert_eq!(lines, 2, "{}: {}", variant.name, String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn what_is_cut_or_damaged_anywhere_is_skipped() {
    for variant in variants() {
        let record = (variant.wrap)(&exchange(variant.v6).frames[0].1);
        for len in 0..record.len() {
            let mut file = pcap_header(0xA1B2_3C4D, variant.link);
            pcap_record(&mut file, 1, &record[..len], record.len());
            pcap_record(&mut file, 1, &record[..len], len);
            decoded(&file);
        }
        for at in 0..record.len() {
            for bit in 0..8 {
                let mut damaged = record.clone();
                damaged[at] ^= 1 << bit;
                let mut file = pcap_header(0xA1B2_3C4D, variant.link);
                pcap_record(&mut file, 1, &damaged, damaged.len());
                decoded(&file);
            }
        }
    }
}
