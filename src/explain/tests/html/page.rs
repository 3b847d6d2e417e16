//! Sample pages, and checks of their text.

use softrnic_explain::html::{Details, Page, PageLimits};
use softrnic_explain::{Limits, Report, explain};
use softrnic_inspect::capture::Reader;
use softrnic_wire::*;

use super::common::{A, B, Capture, MTU, Side, ids, losses_and_an_error, rej, rep, req};

pub fn render(file: &[u8], title: &str, limits: PageLimits) -> String {
    let report: Report = explain(&mut Reader::new(file).unwrap(), Limits::default(), |_| {});
    let page = Page::new(&report, title, limits);
    let details = Details::read(&mut Reader::new(file).unwrap(), &page.wanted(), |_| {});
    let mut out = Vec::new();
    page.write(&details, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// A conversation in which nearly everything happens.
pub fn eventful() -> Capture {
    let mut c = Capture::new();
    let seq = Syndrome::Nak(NakCode::PsnSequence);
    c.mad(A, B, 0x10, 1, &req(0x100, A.qpn, 9000));
    c.mad(B, A, 0x13, 1, &rep(0x200, 0x100, B.qpn, 100));
    c.mad(A, B, 0x14, 1, &ids(0x100, 0x200));
    c.wait_us(200);
    c.long_send(A, B, 100, 4);
    c.ack(B, A, 103, 1);
    c.send(A, B, 104);
    c.send(A, B, 106);
    c.nak(B, A, 105, 2, seq);
    c.send(A, B, 105);
    c.send(A, B, 106);
    c.ack(B, A, 106, 4);
    c.wait_us(500);
    c.read(A, B, 107, 0x7f00_0000_1000, 2 * 1024 + 200);
    c.response(B, A, 107, 0, 3, 5);
    c.response(B, A, 107, 2, 3, 5);
    c.read(A, B, 108, 0x7f00_0000_1400, 1024 + 200);
    c.response(B, A, 107, 1, 3, 5);
    c.response(B, A, 107, 2, 3, 5);
    let atomic = c.fetch_add(A, B, 110, 0x2000);
    c.atomic_ack(B, A, 110, 6, 41);
    c.repeat(atomic);
    c.atomic_ack(B, A, 110, 6, 41);
    c.rc(A, B, 111, Op::WriteOnly(Reth { va: 0x9000, rkey: Rkey(0x77), dma_len: 600 }, None), true, 600);
    c.corrupt_last();
    c.wait_us(67_109);
    c.rc(A, B, 111, Op::WriteOnly(Reth { va: 0x9000, rkey: Rkey(0x77), dma_len: 600 }, None), true, 600);
    c.ack(B, A, 111, 7);
    c.send(A, B, 113);
    c.send(A, B, 112);
    c.send(A, B, 114);
    c.ack(B, A, 114, 10);
    c.send(B, A, 9000);
    c.nak(A, B, 9000, 0, Syndrome::RnrNak(RnrTimer::new(12)));
    c.wait_us(660);
    c.send(B, A, 9000);
    c.ack(A, B, 9000, 1);
    c.packet(B, A, cnp_headers(Qpn::new(A.qpn), Pkey::DEFAULT).bth, Body::Cnp, &[0; 16]);
    c.rc(A, B, 115, Op::SendFirst, false, MTU / 2);
    c.rc(A, B, 116, Op::WriteOnly(Reth { va: 0x9000, rkey: Rkey(0xBAD), dma_len: 64 }, None), true, 64);
    c.nak(B, A, 116, 10, Syndrome::Nak(NakCode::RemoteAccess));
    c.mad(A, B, 0x15, 1, &ids(0x100, 0x200));
    c.mad(B, A, 0x16, 1, &ids(0x200, 0x100));
    c.mad(A, B, 0x10, 2, &req(0x101, 0x33, 1));
    c.mad(B, A, 0x12, 2, &rej(0, 0x101, 8));
    c
}

/// Many pairs and many packets, with a loss here and there.
pub fn large() -> Capture {
    let mut c = Capture::new();
    for i in 0..100u32 {
        let (a, b) = (Side { qpn: 0x100 + i, ..A }, Side { qpn: 0x1000 + 7 * i, ..B });
        for round in 0..100u32 {
            let psn = 1000 * i + round;
            if round % 50 == 20 && i % 3 == 0 {
                c.send(a, b, psn + 1);
                c.nak(b, a, psn, round, Syndrome::Nak(NakCode::PsnSequence));
                c.send(a, b, psn);
            }
            c.send(a, b, psn);
            c.ack(b, a, psn, round + 1);
        }
    }
    c
}

#[test]
fn page_of_a_large_capture_stays_small_and_says_so() {
    let file = large().pcap();
    let page = render(&file, "large", PageLimits::default());
    assert!(page.len() < 8 << 20, "{} bytes", page.len());
    assert!(page.contains("packets of these pairs are not drawn"));
    assert!(page.contains("without faults have no ladder"));
    let small = PageLimits { rows: 50, ladders: 3, points: 20, messages: 2 };
    let page = render(&file, "large", small);
    assert!(page.len() < 1 << 20, "{} bytes", page.len());
}

/// The kinds of findings as the page has them: severity, name, count, and whether the list is open.
fn kinds(page: &str) -> Vec<(&str, &str, u64, bool)> {
    page.split("<details class=\"kind ")
        .skip(1)
        .map(|kind| {
            let severity = kind.split('"').next().unwrap();
            let name = kind.split("<b>").nth(1).unwrap().split("</b>").next().unwrap();
            let count = kind.split("class=\"count\">").nth(1).unwrap().split(' ').next().unwrap();
            let open = kind[severity.len()..].starts_with("\" open>");
            (severity, name.split(' ').nth(1).unwrap(), count.parse().unwrap(), open)
        })
        .collect()
}

#[test]
fn hundred_losses_do_not_hide_the_one_error() {
    let page = render(&losses_and_an_error(1, 100).pcap(), "losses", PageLimits::default());
    let kinds = kinds(&page);
    assert_eq!(kinds[0].0, "error", "{kinds:?}");
    assert!(kinds[0].2 == 1 && kinds[0].3, "{kinds:?}");
    let losses = kinds.iter().find(|kind| kind.1 == "request-lost").unwrap_or_else(|| panic!("{kinds:?}"));
    assert_eq!(*losses, ("warning", "request-lost", 100, false), "{kinds:?}");
    assert!(page.contains("<p class=\"note\">and 60 findings not listed</p>"), "40 are kept of one pair");
}

#[test]
fn timelines_are_also_described_in_words() {
    let page = render(&losses_and_an_error(1, 60).pcap(), "losses", PageLimits::default());
    assert!(
        page.contains(
            "aria-label=\"time-line: 60 findings in 60 of 60 equal parts of the time; the most, 1,"
        ),
        "{}",
        page.split("aria-label=\"time-line").nth(2).unwrap()
    );
    let error = page.split("class=\"timeline\"").nth(1).unwrap().split("</svg>").next().unwrap();
    assert!(error.contains("1 finding in 1 of 60 equal parts"), "{error}");
    let bars = error.split("class=\"bars\" d=\"").nth(1).unwrap().split('"').next().unwrap();
    assert_eq!(bars.matches('z').count(), 1, "{bars}");
    let place: u32 = bars[1..].split(' ').next().unwrap().parse().unwrap();
    assert!((110..=130).contains(&place), "a finding in the middle of the time is drawn at {place} of 240");
}

#[test]
fn a_hundred_thousand_findings_make_a_small_page() {
    let file = losses_and_an_error(1250, 80).pcap();
    let page = render(&file, "losses", PageLimits::default());
    let kinds = kinds(&page);
    assert!(kinds.iter().map(|kind| kind.2).sum::<u64>() >= 100_000, "{kinds:?}");
    assert_eq!((kinds[0].0, kinds[0].2), ("error", 1), "{kinds:?}");
    assert!(page.len() < 8 << 20, "{} bytes", page.len());
    // The error's packet is drawn, whatever else there is to draw.
    let number = page.split("<a href=\"#p").nth(1).unwrap().split('"').next().unwrap();
    assert!(page.contains(&format!("number {number}\\n")), "packet {number} is not drawn");
}

#[test]
fn page_is_self_contained() {
    let page = render(&eventful().pcap(), "eventful", PageLimits::default());
    for reference in ["http:", "https:", "src=", "@import", "url("] {
        let found: Vec<_> = page.match_indices(reference).map(|(at, _)| &page[at..at + 40]).collect();
        let outside = found.iter().filter(|text| !text.starts_with("http://www.w3.org/2000/svg"));
        assert_eq!(outside.count(), 0, "{found:?}");
    }
}

#[test]
fn names_from_outside_cannot_become_markup() {
    let title = "</title><script>alert(1)</script>\"'&";
    let page = render(&eventful().pcap(), title, PageLimits::default());
    assert!(!page.contains("<script>alert"));
    assert!(page.contains("&lt;script&gt;alert(1)"));
}

#[test]
fn every_drawn_packet_has_its_fields() {
    let page = render(&eventful().pcap(), "eventful", PageLimits::default());
    let start = page.find("id=\"data\">").unwrap() + 10;
    let end = start + page[start..].find("</script>").unwrap();
    let data: serde_json::Value = serde_json::from_str(&page[start..end]).unwrap();
    let mut drawn = 0;
    for row in data["pairs"].as_array().unwrap().iter().flat_map(|p| p["rows"].as_array().unwrap()) {
        if let Some(number) = row.get(4).and_then(serde_json::Value::as_u64).filter(|n| *n > 0) {
            let fields = row[6].as_str().unwrap();
            assert!(fields.contains(&format!("number {number}\n")));
            assert!(fields.contains("#bth\nopcode 0x") && fields.contains("#icrc\n"), "{fields}");
            drawn += 1;
        }
    }
    assert_eq!(drawn, eventful().frames.len());
}

#[test]
fn page_of_an_empty_capture() {
    let page = render(&super::common::pcap_header(0xA1B2_C3D4, 1), "empty", PageLimits::default());
    assert!(page.contains("No RoCE packets.") && page.contains("no fault found"));
}
