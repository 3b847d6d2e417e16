//! `softrnic explain`: several files, and JSON.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{directory, softrnic};

fn tour(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tour").join(name)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// A pcapng file with the packet blocks of another that `keep` says, by their number from 0.
fn part(of: &Path, to: &Path, keep: impl Fn(usize) -> bool) {
    let bytes = std::fs::read(of).expect("the capture");
    let (mut part, mut at, mut packets) = (Vec::new(), 0, 0);
    while at < bytes.len() {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let (kind, len) = (word(at), word(at + 4) as usize);
        let is_packet = kind == 6;
        if !is_packet || keep(packets) {
            part.extend_from_slice(&bytes[at..at + len]);
        }
        packets += usize::from(is_packet);
        at += len;
    }
    std::fs::write(to, part).expect("written");
}

fn json(arguments: &[&str], status: i32) -> Value {
    let outcome = softrnic(arguments).expect(status);
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}:\n{}", outcome.stdout))
}

#[test]
fn several_files_are_merged_by_time() {
    let directory = directory("explain-several");
    let whole = tour("5-loss.pcapng");
    let (first, second) = (directory.join("first.pcapng"), directory.join("second.pcapng"));
    // Cut before a repeat, which is no copy of what the first file has.
    part(&whole, &first, |packet| packet < 13);
    part(&whole, &second, |packet| packet >= 13);
    let expected = softrnic(&["explain", text(&whole)]).expect(3).stdout;
    for files in [[&first, &second], [&second, &first]] {
        let found = json(&["explain", "--json", text(files[0]), text(files[1])], 3);
        assert_eq!((found["packets"].as_u64(), found["pairs"].as_array().map(Vec::len)), (Some(15), Some(1)));
        let kinds: Vec<_> =
            found["findings"].as_array().expect("findings").iter().map(|f| &f["kind"]).collect();
        assert_eq!(kinds, ["request-lost", "timeout"], "{expected}");
    }
    // The same capture twice is what two places saw of the same packets.
    let twice = softrnic(&["explain", text(&whole), text(&whole)]).expect(3).stdout;
    assert!(twice.contains("0 errors, 2 warnings") && twice.contains("captured-twice"), "{twice}");
    let page = directory.join("page.html");
    softrnic(&["explain", "--html", text(&page), text(&first), text(&second)]).expect(3);
    assert!(std::fs::read_to_string(&page).expect("a page").contains("first.pcapng, second.pcapng"));
}

#[test]
fn the_damaged_one_of_several_files_is_named() {
    let directory = directory("explain-damaged");
    let (good, bad) = (tour("1-send.pcapng"), directory.join("bad.pcapng"));
    let bytes = std::fs::read(tour("2-write.pcapng")).expect("the capture");
    std::fs::write(&bad, &bytes[..bytes.len() - 5]).expect("written");
    let outcome = softrnic(&["explain", text(&bad), text(&good)]).expect(1);
    outcome.says("bad.pcapng: ");
    softrnic(&["explain", "-", "-"]).expect(1).says("standard input can be read only once");
}

#[test]
fn json_says_what_the_text_says() {
    let report = json(&["explain", "--json", text(&tour("7-error.pcapng"))], 3);
    assert_eq!((&report["version"], &report["errors"]), (&1.into(), &1.into()), "{report}");
    let finding = &report["findings"][0];
    assert_eq!((&finding["kind"], &finding["severity"]), (&"nak-remote-access".into(), &"error".into()));
    assert_eq!(finding["pair"], 1);
    assert!(finding["psns"][0].is_u64() && finding["text"].as_str().is_some_and(|text| text.contains("NAK")));
    let clean = json(&["explain", "--json", "--messages", "1", text(&tour("1-send.pcapng"))], 0);
    assert_eq!((&clean["errors"], &clean["warnings"]), (&0.into(), &0.into()));
    assert_eq!(clean["pairs"][0]["messages"].as_array().map(Vec::len), Some(1));
    assert_eq!(clean["pairs"][0]["message_count"], 3);
    softrnic(&["explain", "--json", "--html", "x", "y"]).expect(2);
}

/// Every field is in `docs/looking.md`, so that scripts can rely on it.
#[test]
fn the_fields_of_the_json_are_documented() {
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/looking.md");
    let manual = std::fs::read_to_string(manual).expect("the manual");
    let mut names = Vec::new();
    for capture in ["5-loss.pcapng", "7-error.pcapng", "8-congestion.pcapng"] {
        let output = softrnic(&["explain", "--json", text(&tour(capture))]).stdout;
        collect(&serde_json::from_str(&output).expect("JSON"), &mut names);
    }
    names.sort();
    names.dedup();
    assert!(names.len() > 30, "{names:?}");
    let missing: Vec<_> = names.iter().filter(|name| !manual.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "not in docs/looking.md: {missing:?}");
}

fn collect(value: &Value, names: &mut Vec<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| {
            names.push(name.clone());
            collect(value, names);
        }),
        Value::Array(values) => values.iter().for_each(|value| collect(value, names)),
        _ => {}
    }
}
