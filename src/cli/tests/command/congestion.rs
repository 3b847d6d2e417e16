//! The pages of `docs/congestion` have the tables and pictures that their studies give.
//!
//! `SOFTRNIC_UPDATE=1` writes what they give now.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{directory, softrnic};

fn pages() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/congestion")
}

fn updating() -> bool {
    std::env::var_os("SOFTRNIC_UPDATE").is_some()
}

/// A study's report. Its pictures are in a directory of its own.
struct Played {
    report: Value,
    pictures: PathBuf,
}

fn play(name: &str) -> Played {
    let pictures = directory(&format!("congestion-{name}"));
    let file = pages().join(format!("{name}.toml"));
    let (file, svg) = (file.to_str().expect("a name"), pictures.to_str().expect("a name"));
    // The flows of a deadlock do not end.
    let status = i32::from(name == "deadlock");
    let json = softrnic(&["fabric", "study", file, "--svg", svg, "--json"]).expect(status).stdout;
    Played { report: serde_json::from_str(&json).expect("JSON"), pictures }
}

/// Every study of the directory.
fn all() -> HashMap<String, Played> {
    let entries = fs::read_dir(pages()).expect("the pages").map(|entry| entry.expect("a file").path());
    let studies = entries.filter(|path| path.extension().is_some_and(|found| found == "toml"));
    let names = studies.map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned());
    names.map(|name| (name.clone(), play(&name))).collect()
}

/// Completion times, and what it took.
fn table(report: &Value) -> String {
    let report = &report["report"];
    let mut text = "| flow | completion time, us | Gb/s |\n|---|---|---|\n".to_owned();
    for flow in report["flows"].as_array().expect("flows") {
        let (src, dst) = (flow["src"].as_str().expect("a host"), flow["dst"].as_str().expect("a host"));
        let _ = match flow["fct_ns"].as_f64() {
            Some(time) => {
                let bits = 8.0 * flow["bytes"].as_f64().expect("bytes");
                writeln!(text, "| {src} to {dst} | {:.1} | {:.2} |", time / 1e3, bits / time)
            }
            None => writeln!(text, "| {src} to {dst} | not ended | |"),
        };
    }
    let total = |key: &str| -> u64 {
        report["ports"].as_array().expect("ports").iter().map(|port| port[key].as_u64().unwrap_or(0)).sum()
    };
    let again = report["counters"]["retransmitted_pkts"].as_u64().unwrap_or(0);
    let _ = writeln!(
        text,
        "\nPauses: {}. Packets marked: {}, sent again: {again}.",
        total("pauses_received"),
        total("marked")
    );
    text
}

/// The page with what follows each marker made anew: a table and a line, up to the next line but these.
fn made_anew(page: &str, studies: &HashMap<String, Played>) -> (String, Vec<String>) {
    let (mut out, mut named, mut lines) = (String::new(), Vec::new(), page.lines().peekable());
    while let Some(line) = lines.next() {
        out += line;
        out += "\n";
        let Some(name) = line.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(".toml -->")) else {
            continue;
        };
        let is_ours = |line: &str| line.is_empty() || line.starts_with('|') || line.starts_with("Pauses: ");
        while lines.next_if(|line| is_ours(line)).is_some() {}
        let _ = writeln!(out, "\n{}", table(&studies[name].report));
        named.push(name.to_owned());
    }
    (out.trim_end().to_owned() + "\n", named)
}

#[test]
fn pages_have_what_their_studies_give() {
    let studies = all();
    let (mut shown, mut pictures) = (Vec::new(), 0);
    for entry in fs::read_dir(pages()).expect("the pages") {
        let path = entry.expect("a file").path();
        if path.extension().is_none_or(|found| found != "md") {
            continue;
        }
        let page = fs::read_to_string(&path).expect("a page");
        let (text, named) = made_anew(&page, &studies);
        if updating() {
            fs::write(&path, &text).expect("written");
        } else {
            assert_eq!(page, text, "{}: SOFTRNIC_UPDATE=1 writes what is right now", path.display());
        }
        for name in &named {
            for kind in ["goodput", "queues"] {
                let kept = format!("{name}-{kind}.svg");
                if !page.contains(&format!("({kept})")) {
                    continue;
                }
                let new = fs::read_to_string(studies[name].pictures.join(format!("{kind}.svg")))
                    .expect("a picture");
                let place = pages().join(&kept);
                if updating() {
                    fs::write(&place, &new).expect("written");
                } else {
                    let old = fs::read_to_string(&place).unwrap_or_default();
                    assert!(old == new, "{kept}: SOFTRNIC_UPDATE=1 keeps the new one");
                }
                pictures += 1;
            }
        }
        shown.extend(named);
    }
    shown.sort();
    let mut names: Vec<String> = studies.into_keys().collect();
    names.sort();
    assert_eq!(shown, names, "each study is on one page");
    let kept = fs::read_dir(pages()).expect("the pages").flatten();
    assert_eq!(
        kept.filter(|file| file.path().extension().is_some_and(|found| found == "svg")).count(),
        pictures
    );
}

/// Gb/s of a flow.
fn rate(played: &Played, src: &str) -> f64 {
    let flows = played.report["report"]["flows"].as_array().expect("flows");
    let flow = flows.iter().find(|flow| flow["src"] == src).expect("a flow");
    8.0 * flow["bytes"].as_f64().expect("bytes") / flow["fct_ns"].as_f64().expect("ended")
}

#[test]
fn pauses_share_ports_and_dcqcn_shares_flows() {
    let (alone, dcqcn) = (play("fairness-pfc"), play("fairness-dcqcn"));
    let ratio = |played: &Played| rate(played, "h5") / rate(played, "h0");
    assert!(
        ratio(&alone) > 1.8 && (0.8..1.25).contains(&ratio(&dcqcn)),
        "{} {}",
        ratio(&alone),
        ratio(&dcqcn)
    );
}

#[test]
fn a_victim_has_the_rate_of_the_others_until_dcqcn_frees_it() {
    let (alone, dcqcn) = (play("victim-pfc"), play("victim-dcqcn"));
    assert!(rate(&alone, "h3") < 1.1 * rate(&alone, "h0"));
    assert!(rate(&dcqcn, "h3") > 22.0);
}

#[test]
fn the_circle_of_a_deadlock_is_named() {
    let ports = play("deadlock").report["deadlock"].clone();
    assert_eq!(ports, serde_json::json!(["s5-s6", "s6-s7", "s7-s8", "s8-s9", "s9-s5"]));
}

#[test]
fn flows_that_meet_have_half_and_random_paths_cost_most_of_it() {
    let [ecmp, turns, random] =
        ["paths-ecmp", "paths-round-robin", "paths-random"].map(|name| rate(&play(name), "h0"));
    assert!((11.5..12.5).contains(&ecmp) && turns > 24.0 && random < 3.0, "{ecmp} {turns} {random}");
}
