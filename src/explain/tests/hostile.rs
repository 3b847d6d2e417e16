//! Files that are damaged, shuffled or made up: each leads to a clear message or a report, never to a panic.

#[path = "../../inspect/tests/common/mod.rs"]
mod common;

use common::{A, B, Capture, pcap_header, pcap_record};
use proptest::prelude::*;
use softrnic_explain::html::{Details, Page, PageLimits};
use softrnic_explain::svg::write_svg;
use softrnic_explain::{Limits, TextOptions, explain, write_text};
use softrnic_inspect::capture::Reader;
use softrnic_inspect::decode::{Filter, Form, Options, Peers, decode, learn_peers};
use softrnic_wire::Qpn;

/// Does everything that can be done with a file. Returns what `explain` says of it, or the reason it
/// cannot be read at all.
fn use_all(file: &[u8]) -> String {
    for form in [Form::Line, Form::Fields, Form::Json] {
        let Ok(mut reader) = Reader::new(file) else { break };
        let mut out = Vec::new();
        let summary =
            decode(&mut reader, &mut out, &Options { form, ..Options::default() }, &mut Peers::new(), |_| {})
                .unwrap();
        let text = String::from_utf8(out).expect("output is UTF-8");
        if form != Form::Fields {
            assert_eq!(text.lines().count() as u64, summary.shown);
        }
        if form == Form::Json {
            for line in text.lines() {
                serde_json::from_str::<serde_json::Value>(line).expect(line);
            }
        }
        let _ = summary.to_string();
    }
    let mut reader = match Reader::new(file) {
        Ok(reader) => reader,
        Err(error) => return error.to_string(),
    };
    let mut peers = learn_peers(&mut Reader::new(file).unwrap(), |_| {});
    let filter = Filter { qps: vec![Qpn::new(0x11)], ..Filter::default() };
    decode(&mut reader, &mut Vec::new(), &Options { filter, ..Options::default() }, &mut peers, |_| {})
        .unwrap();

    // Indices go wrong where few packets are remembered.
    for history in [0, 1, 3] {
        let limits = Limits { history, ..Limits::default() };
        explain(&mut Reader::new(file).unwrap(), limits, |_| {});
    }
    let report = explain(&mut Reader::new(file).unwrap(), Limits::default(), |_| {});
    let page = Page::new(&report, "hostile", PageLimits { rows: 40, ..PageLimits::default() });
    let details = Details::read(&mut Reader::new(file).unwrap(), &page.wanted(), |_| {});
    page.write(&details, &mut Vec::new()).unwrap();
    write_svg(&report, "hostile", 40, &mut Vec::new()).unwrap();
    let mut text = Vec::new();
    write_text(&report, TextOptions::default(), &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

/// Traffic of every kind between two sides.
fn conversation() -> Capture {
    let mut c = Capture::new();
    c.mad(A, B, 0x10, 1, &common::req(1, A.qpn, 7));
    c.mad(B, A, 0x13, 1, &common::rep(2, 1, B.qpn, 100));
    let mut psn = c.long_send(A, B, 100, 3);
    c.ack(B, A, psn - 1, 1);
    c.read(A, B, psn, 0x1000, 2248);
    c.responses(B, A, psn, 3, 2);
    psn += 3;
    c.fetch_add(A, B, psn, 8);
    c.atomic_ack(B, A, psn, 3, 1);
    for i in 0..6 {
        c.send(A, B, psn + 1 + i);
        c.ack(B, A, psn + 1 + i, 4 + i);
        c.send(B, A, 7 + i);
        c.ack(A, B, 7 + i, 1 + i);
    }
    c
}

fn file_of(frames: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut file = pcap_header(0xA1B2_3C4D, 1);
    for (time, frame) in frames {
        pcap_record(&mut file, *time, frame, frame.len());
    }
    file
}

#[test]
fn every_prefix_of_a_capture() {
    let file = conversation().pcap();
    for end in 0..file.len() {
        let text = use_all(&file[..end]);
        let whole_records = text.starts_with(char::is_numeric);
        let named = text.contains("cut short") || text.contains("empty") || text.contains("first four bytes");
        assert!(named || whole_records, "{end}: {text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes(file in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let text = use_all(&file);
        prop_assert!(text.contains("neither pcap nor pcapng") || text.contains("first four bytes")
            || text.contains("empty") || text.contains("compressed") || text.contains("records"), "{}", text);
    }

    #[test]
    fn arbitrary_bytes_behind_a_true_beginning(
        file in proptest::collection::vec(any::<u8>(), 0..4000),
        pcapng in any::<bool>(),
        link in prop_oneof![Just(1u32), Just(101), Just(113), Just(276), any::<u32>()],
    ) {
        let begin = if pcapng {
            let mut section = vec![0x0A, 0x0D, 0x0D, 0x0A, 28, 0, 0, 0, 0x4D, 0x3C, 0x2B, 0x1A];
            section.extend([1, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 28, 0, 0, 0]);
            section
        } else {
            pcap_header(0xA1B2_3C4D, link)
        };
        use_all(&[begin, file].concat());
    }

    #[test]
    fn arbitrary_frames_of_every_link_type(
        frames in proptest::collection::vec(
            (any::<u64>(), proptest::collection::vec(any::<u8>(), 0..200), 0usize..70_000), 0..20),
        link in prop_oneof![Just(1u32), Just(101), Just(113), Just(276)],
    ) {
        let mut file = pcap_header(0xA1B2_3C4D, link);
        for (time, frame, more) in &frames {
            pcap_record(&mut file, *time, frame, frame.len() + more);
        }
        use_all(&file);
    }

    #[test]
    fn damaged_bytes_anywhere(
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..20),
        frames_only in any::<bool>(),
    ) {
        let capture = conversation();
        let file = if frames_only {
            // The ICRC is made right again afterwards, so the damaged fields are believed.
            let mut frames = capture.frames;
            for (at, value) in &damage {
                let frame = at.get(&frames).1.clone();
                let place = frames.iter().position(|(_, f)| *f == frame).unwrap();
                let frame = &mut frames[place].1;
                let offset = 42 + at.index(frame.len() - 46);
                frame[offset] = *value;
                common::reseal(frame);
            }
            file_of(&frames)
        } else {
            let mut file = capture.pcap();
            for (at, value) in &damage {
                *at.get_mut(&mut file) = *value;
            }
            file
        };
        use_all(&file);
    }

    #[test]
    fn shuffled_doubled_and_missing_frames(
        order in proptest::collection::vec(any::<proptest::sample::Index>(), 0..80),
        keep_times in any::<bool>(),
    ) {
        let capture = conversation();
        let mut frames: Vec<_> = order.iter().map(|at| at.get(&capture.frames).clone()).collect();
        if !keep_times {
            for (i, (time, _)) in frames.iter_mut().enumerate() {
                *time = 1_000_000 * i as u64;
            }
        }
        let text = use_all(&file_of(&frames));
        prop_assert!(text.starts_with(char::is_numeric), "{}", text);
    }

    #[test]
    fn frames_cut_by_the_capture(keep in proptest::collection::vec(0usize..150, 29)) {
        let capture = conversation();
        let mut file = pcap_header(0xA1B2_3C4D, 1);
        for ((time, frame), keep) in capture.frames.iter().zip(keep.iter().cycle()) {
            pcap_record(&mut file, *time, &frame[..frame.len().min(*keep)], frame.len());
        }
        let text = use_all(&file);
        prop_assert!(text.starts_with(char::is_numeric), "{}", text);
    }

    #[test]
    fn psns_and_lengths_of_any_size(
        packets in proptest::collection::vec((any::<bool>(), 0u32..0x100_0000, any::<u32>(), 0u8..0x1E), 1..60),
        near in 0u32..0x100_0000,
        spread in prop_oneof![Just(8u32), Just(1000), Just(0x100_0000)],
    ) {
        let mut c = Capture::new();
        for (from_a, psn, word, opcode) in &packets {
            let (from, to) = if *from_a { (A, B) } else { (B, A) };
            c.any_rc(from, to, near + psn % spread, *opcode, *word);
        }
        use_all(&c.pcap());
    }
}
