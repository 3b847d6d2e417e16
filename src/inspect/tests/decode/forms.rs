//! What is printed: lines, fields, JSON; time forms; filters; frames that are not plain Ethernet.

use serde_json::Value;
use softrnic_inspect::capture::Reader;
use softrnic_inspect::decode::{
    Filter, Form, Options, Peers, Summary, TimeForm, decode, learn_peers, parse_qpn,
};
use softrnic_wire::*;

use super::common::{A, B, Capture, Side, cooked, pcap_header, pcap_record, raw_ip};
use super::frames::{Noise, every_opcode, known_good};

fn print(file: &[u8], options: &Options) -> (String, Summary) {
    let mut out = Vec::new();
    let mut reader = Reader::new(file).unwrap();
    let summary = decode(&mut reader, &mut out, options, &mut Peers::new(), |_| {}).unwrap();
    (String::from_utf8(out).unwrap(), summary)
}

fn lines(file: &[u8]) -> Vec<String> {
    print(file, &Options::default()).0.lines().map(str::to_owned).collect()
}

fn filtered(file: &[u8], filter: Filter) -> Vec<u64> {
    let mut reader = Reader::new(file).unwrap();
    let mut peers = learn_peers(&mut Reader::new(file).unwrap(), |_| {});
    let mut out = Vec::new();
    let options = Options { form: Form::Json, filter, ..Options::default() };
    decode(&mut reader, &mut out, &options, &mut peers, |_| {}).unwrap();
    let numbers = std::str::from_utf8(&out).unwrap().lines();
    numbers.map(|l| serde_json::from_str::<Value>(l).unwrap()["packet"].as_u64().unwrap()).collect()
}

#[test]
fn a_line_per_packet() {
    let mut c = Capture::new();
    c.read(A, B, 7, 0x7F00, 3000);
    c.nak(B, A, 7, 3, Syndrome::Nak(NakCode::RemoteAccess));
    c.nak(B, A, 8, 3, Syndrome::RnrNak(RnrTimer::new(12)));
    c.fetch_add(A, B, 9, 0x2000);
    c.send(A, B, 10);
    c.corrupt_last();
    let lines = lines(&c.pcap());
    assert_eq!(
        lines[0],
        "      1    0.000000000  10.0.0.1 → 10.0.0.2  RC RDMA READ Request         qp 0x000022 psn 7        A \
         va 0x0000000000007f00 rkey 0x00001234 dma_len 3000 len 0 icrc good"
    );
    assert!(
        lines[1].ends_with("psn 7        NAK remote access error (0x62) msn 3 len 0 icrc good"),
        "{}",
        lines[1]
    );
    assert!(lines[2].contains("RNR NAK wait 0.64 ms msn 3"), "{}", lines[2]);
    assert!(lines[3].contains("add 0x0000000000000001"), "{}", lines[3]);
    assert!(lines[4].contains("len 100 icrc BAD ") && lines[4].contains(", should be "), "{}", lines[4]);
}

#[test]
fn what_softrnics_add_to_rocev2_is_named() {
    let mut c = Capture::new();
    c.selective_ack(B, A, 0xFF_FFFF, 4, &[0b10110, 0, 0, 0x80]);
    c.capabilities(A, B, true);
    let lines = lines(&c.pcap());
    assert!(
        lines[0].contains("SoftRNIC Selective Acknowledge")
            && lines[0].contains("psn 16777215 ACK msn 4 came 0-1,3,30 len 4"),
        "{}",
        lines[0]
    );
    assert!(lines[1].contains("MAD capabilities"), "{}", lines[1]);
    let fields = print(&c.pcap(), &Options { form: Form::Json, ..Options::default() }).0;
    let fields: Vec<Value> = fields.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(fields[0]["layers"]["aeth"]["msn"], 4);
    let told = &fields[1]["layers"]["softrnic"];
    assert_eq!((&told["message"], &told["reorder_window"]), (&"answer".into(), &512.into()));
}

#[test]
fn every_known_good_frame_has_a_good_icrc() {
    let mut c = Capture::new();
    let frames = known_good();
    for (_, frame) in &frames {
        c.frame(frame.clone());
    }
    let (text, summary) = print(&c.pcap(), &Options::default());
    assert_eq!((summary.roce, summary.bad_icrc, summary.malformed), (frames.len() as u64, 0, 0));
    for (line, (name, _)) in text.lines().zip(&frames) {
        assert!(line.ends_with("icrc good"), "{name}: {line}");
        assert_eq!(line.contains("RoCEv1"), name.contains("rocev1"), "{name}: {line}");
    }
}

#[test]
fn flush_with_the_icrc_of_rxe_is_named() {
    let mut c = Capture::new();
    let reth = Reth { va: 0x1000, rkey: Rkey(7), dma_len: 64 };
    let feth = Feth { placement: Placement::BOTH, selectivity: Selectivity::Range };
    c.rc(A, B, 5, Op::Flush(feth, reth), true, 0);
    let frame = &mut c.frames[0].1;
    let facts = Frame::parse(frame).unwrap().facts();
    let end = frame.len() - ICRC_LEN;
    let icrc = rxe_flush_icrc(&facts, &frame[42..end]).to_le_bytes();
    frame[end..].copy_from_slice(&icrc);
    let (text, summary) = print(&c.pcap(), &Options::default());
    assert!(text.contains("for global visibility and persistence of memory range"), "{text}");
    assert!(text.ends_with("icrc rxe-FLUSH\n") && summary.rxe_flush_icrc == 1 && summary.bad_icrc == 0);
}

#[test]
fn json_and_fields_of_every_opcode() {
    let mut c = Capture::new();
    every_opcode(&mut c, &mut Noise(3));
    let (text, _) = print(&c.pcap(), &Options { form: Form::Json, ..Options::default() });
    for (line, frame) in text.lines().zip(&c.frames) {
        let value: Value = serde_json::from_str(line).unwrap();
        let opcode = Opcode::from_byte(frame.1[42]).unwrap();
        assert_eq!(value["opcode"], opcode.name());
        assert_eq!(value["layers"]["bth"]["opcode_name"], opcode.name());
        assert_eq!(value["layers"]["icrc"]["state"], "good");
        for header in opcode.info().headers {
            let name = format!("{header:?}").to_lowercase();
            assert!(value["layers"][&name].is_object(), "{name} in {line}");
        }
    }
    let (text, _) = print(&c.pcap(), &Options { form: Form::Fields, ..Options::default() });
    assert_eq!(text.matches("\n  bth\n").count(), c.frames.len());
}

#[test]
fn time_forms() {
    let mut c = Capture::new();
    c.send(A, B, 1);
    c.wait_us(1_000_000);
    c.send(A, B, 2);
    let times = |time| {
        let (text, _) = print(&c.pcap(), &Options { time, ..Options::default() });
        text.lines().map(|l| l.split_whitespace().nth(1).unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(times(TimeForm::Relative), ["0.000000000", "1.000010000"]);
    assert_eq!(times(TimeForm::Delta), ["0.000000000", "1.000010000"]);
    assert_eq!(times(TimeForm::Epoch), ["1700000000.000000000", "1700000001.000010000"]);
    assert_eq!(times(TimeForm::Utc), ["2023-11-14T22:13:20.000000000Z", "2023-11-14T22:13:21.000010000Z"]);
}

#[test]
fn filters_by_qp_opcode_and_address() {
    let mut c = Capture::new();
    let (c1, c2) = (Side { qpn: 0x33, ip: "10.0.0.9".parse().unwrap() }, Side { qpn: 0x44, ..B });
    c.send(A, B, 1);
    c.send(c1, c2, 500);
    c.ack(B, A, 1, 1);
    c.nak(c2, c1, 500, 0, Syndrome::Nak(NakCode::PsnSequence));
    c.mad(A, B, 0x10, 1, &super::common::req(1, 0x55, 9));
    let file = c.pcap();
    let by = |qps: &[&str], opcodes: &[&str], addresses: &[&str]| {
        filtered(
            &file,
            Filter {
                qps: qps.iter().map(|q| parse_qpn(q).unwrap()).collect(),
                opcodes: opcodes.iter().map(|o| o.parse().unwrap()).collect(),
                addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
            },
        )
    };
    assert_eq!(by(&[], &[], &[]), [1, 2, 3, 4, 5]);
    // Either side: the packet to QP 0x22 names it, the one from it does not.
    assert_eq!(by(&["0x22"], &[], &[]), [1, 3]);
    assert_eq!(by(&["0x11", "0x44"], &[], &[]), [1, 2, 3, 4]);
    assert_eq!(by(&["1"], &[], &[]), [5]);
    assert_eq!(by(&["9"], &[], &[]), [0u64; 0]);
    assert_eq!(by(&[], &["send*"], &[]), [1, 2, 5]);
    assert_eq!(by(&[], &["0x11"], &[]), [3, 4]);
    assert_eq!(by(&[], &["nak"], &[]), [4]);
    assert_eq!(by(&[], &["NAK PSN*", "cm req"], &[]), [4, 5]);
    assert_eq!(by(&[], &["UD *"], &[]), [5]);
    assert_eq!(by(&[], &[], &["10.0.0.9"]), [2, 4]);
    assert_eq!(by(&[], &[], &["10.0.0.0/29"]), [1, 2, 3, 4, 5]);
    assert_eq!(by(&["0x33"], &["RC Acknowledge"], &["10.0.0.0/8"]), [4]);
}

#[test]
fn link_types() {
    let mut c = Capture::new();
    c.send(A, B, 1);
    let v6 = |last: u16| std::net::Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 0, last).into();
    c.send(Side { ip: v6(1), ..A }, Side { ip: v6(2), ..B }, 2);
    let plain = lines(&c.pcap());
    for (link, wrap) in
        [(101, raw_ip as fn(&[u8]) -> Vec<u8>), (113, |f| cooked(f, false)), (276, |f| cooked(f, true))]
    {
        let mut file = pcap_header(0xA1B2_3C4D, link);
        for (time, frame) in &c.frames {
            let frame = wrap(frame);
            pcap_record(&mut file, *time, &frame, frame.len());
        }
        assert_eq!(lines(&file), plain, "link type {link}");
        let (text, _) = print(&file, &Options { form: Form::Fields, ..Options::default() });
        assert!(!text.contains("ethernet"), "a made-up header is shown");
    }
    let mut file = pcap_header(0xA1B2_3C4D, 147);
    pcap_record(&mut file, 0, &[1, 2, 3], 3);
    let (_, summary) = print(&file, &Options::default());
    assert!(summary.to_string().contains("1 of a link type not supported"), "{summary}");
}

#[test]
fn frames_cut_by_the_capture_show_what_there_is() {
    let mut c = Capture::new();
    c.rc(A, B, 1, Op::WriteOnly(Reth { va: 0x1000, rkey: Rkey(7), dma_len: 500 }, None), true, 500);
    let (time, frame) = &c.frames[0];
    let cut = |keep: usize| {
        let mut file = pcap_header(0xA1B2_3C4D, 1);
        pcap_record(&mut file, *time, &frame[..keep], frame.len());
        print(&file, &Options::default())
    };
    let (text, summary) = cut(100);
    assert!(text.contains("dma_len 500 len 500 icrc not captured"), "{text}");
    assert_eq!((summary.cut, summary.malformed, summary.bad_icrc), (1, 0, 0));
    let (text, _) = cut(60);
    assert!(text.contains("RC RDMA WRITE Only, headers cut by the capture qp 0x000022 psn 1"), "{text}");
    let (text, summary) = cut(45);
    assert!(text.contains("RC RDMA WRITE Only, headers cut by the capture icrc"), "{text}");
    assert_eq!(summary.roce, 1);
    let (text, summary) = cut(30);
    assert_eq!(
        (text.as_str(), summary.to_string().as_str()),
        ("", "1 records: 0 RoCE; 1 skipped (1 cut too short by the capture)")
    );
}

#[test]
fn what_is_not_roce_is_counted() {
    let mut c = Capture::new();
    c.send(A, B, 1);
    let mut other_port = c.frames[0].1.clone();
    other_port[36..38].copy_from_slice(&53u16.to_be_bytes());
    let mut tcp = c.frames[0].1.clone();
    tcp[23] = 6;
    let mut arp = c.frames[0].1.clone();
    arp[12..14].copy_from_slice(&[8, 6]);
    let mut fragment = c.frames[0].1.clone();
    fragment[20] = 0x20;
    let mut lengths = c.frames[0].1.clone();
    lengths[38..40].copy_from_slice(&20u16.to_be_bytes());
    for frame in [other_port, tcp, arp, fragment, lengths] {
        c.frame(frame);
    }
    let (text, summary) = print(&c.pcap(), &Options::default());
    assert_eq!(text.lines().count(), 1);
    assert_eq!(
        summary.to_string(),
        "6 records: 1 RoCE; 5 skipped (1 IP fragments or IP options, 1 UDP to other ports, \
         1 damaged below the transport, 1 not IP, 1 not UDP)"
    );
}

#[test]
fn helper_threads_print_the_same() {
    let mut c = Capture::new();
    every_opcode(&mut c, &mut Noise(4));
    let once = c.frames.clone();
    for _ in 0..100 {
        for (_, frame) in &once {
            c.frame(frame.clone());
        }
    }
    let mut file = c.pcap();
    file.truncate(file.len() - 3);
    for form in [Form::Line, Form::Json] {
        let options = Options { form, ..Options::default() };
        let (alone, summary) = print(&file, &options);
        for threads in [1, 3] {
            let (text, with_help) = print(&file, &Options { threads, ..options.clone() });
            assert!(text == alone, "{threads} threads");
            assert_eq!(with_help.to_string(), summary.to_string());
        }
    }
}

#[test]
fn no_more_than_asked_for() {
    let mut c = Capture::new();
    for i in 0..10 {
        c.send(A, B, i);
    }
    let (text, summary) = print(&c.pcap(), &Options { limit: Some(3), threads: 2, ..Options::default() });
    assert_eq!((text.lines().count(), summary.shown, summary.records), (3, 3, 3));
}

/// What a capture on loopback sees of a send with `UDP_SEGMENT`.
fn unsegmented(frames: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut whole = frames[0].1[..42].to_vec();
    for (_, frame) in frames {
        whole.extend_from_slice(&frame[42..]);
    }
    let len = whole.len() - 14;
    whole[16..18].copy_from_slice(&(len as u16).to_be_bytes());
    whole[38..40].copy_from_slice(&(len as u16 - 20).to_be_bytes());
    whole
}

#[test]
fn datagrams_of_several_packets_are_taken_apart() {
    let reth = Reth { va: 0x1000, rkey: Rkey(7), dma_len: 333 };
    let make = |which: usize| {
        let mut c = Capture::new();
        c.counting_ids = true;
        for psn in 0..5 {
            match which {
                0 => c.rc(A, B, psn, Op::SendMiddle, false, 1024),
                1 => c.send(A, B, psn),
                2 => c.rc(A, B, psn, Op::WriteOnly(reth, None), true, 333),
                _ => c.ack(A, B, psn, psn),
            };
        }
        // The last one may be shorter.
        c.ack(A, B, 5, 5);
        c
    };
    for which in 0..4 {
        let apart = make(which);
        let mut together = Capture::new();
        together.frame(unsegmented(&apart.frames));
        let strip = |lines: Vec<String>| lines.iter().map(|l| l[24..].to_owned()).collect::<Vec<_>>();
        assert_eq!(strip(lines(&together.pcap())), strip(lines(&apart.pcap())), "{which}");
        let (_, summary) = print(&together.pcap(), &Options::default());
        assert_eq!((summary.records, summary.roce, summary.merged, summary.bad_icrc), (1, 6, 1, 0));
    }
}
