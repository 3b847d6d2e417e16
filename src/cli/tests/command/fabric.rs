//! `softrnic fabric study`.

use std::fs;

use serde_json::Value;

use crate::support::{directory, softrnic};

fn example(name: &str) -> String {
    format!("{}/../../examples/fabric/{name}.toml", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn every_example_runs_and_reports() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/fabric");
    let mut run = 0;
    for entry in fs::read_dir(examples).expect("the examples") {
        let path = entry.expect("an example").path();
        let text = softrnic(&["fabric", "study", path.to_str().expect("a name")]).expect(0).stdout;
        assert!(text.starts_with("Flow completion times, in microseconds\n"), "{text}");
        assert!(text.contains("Ports that marked, lost or were paused"), "{text}");
        run += 1;
    }
    assert_eq!(run, 3);
}

#[test]
fn a_dead_spine_costs_packets_and_no_flow() {
    let folder = directory("fabric");
    let results = folder.to_str().expect("a name");
    let file = example("dead-spine");
    let json = softrnic(&["fabric", "study", &file, "--json", "--csv", results]).expect(0).stdout;
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let flows = json["report"]["flows"].as_array().expect("flows");
    assert_eq!(flows.len(), 8);
    assert!(flows.iter().all(|flow| flow["fct_ns"].is_number()));
    let lost = |port: &Value| port["lost_down"].as_u64().expect("a count");
    assert!(json["report"]["ports"].as_array().expect("ports").iter().map(lost).sum::<u64>() > 0);
    assert!(json["report"]["counters"]["retransmitted_pkts"].as_u64() > Some(0));
    assert_eq!(json["deadlock"], Value::Null);
    let csv = fs::read_to_string(folder.join("flows.csv")).expect("flows.csv");
    assert_eq!(csv.lines().count(), 1 + 8);
    let ports = fs::read_to_string(folder.join("ports.csv")).expect("ports.csv");
    // Eight hosts and eight links between switches, both ends.
    assert_eq!(ports.lines().count(), 1 + 2 * 16);
    assert!(ports.lines().all(|line| line.matches(',').count() == 9));
}

#[test]
fn the_seed_decides() {
    let with = |seed| {
        softrnic(&["fabric", "study", &example("bit-errors"), "--seed", seed, "--json"]).expect(0).stdout
    };
    assert_eq!(with("3"), with("3"));
    assert_ne!(with("3"), with("4"));
}

#[test]
fn a_mistake_is_reported_with_file_and_line() {
    let folder = directory("fabric-mistake");
    let file = folder.join("wrong.toml");
    fs::write(&file, "[network]\ngenerator = \"star\"\nhosts = 2\nedge = { rate = \"fast\" }\n")
        .expect("a file");
    let outcome = softrnic(&["fabric", "study", file.to_str().expect("a name")]).expect(1);
    outcome.says("wrong.toml: line 4: `fast` is not a rate: write it as 100Gbps");
    let outcome = softrnic(&["fabric", "study", "/nonexistent.toml"]).expect(1);
    outcome.says("cannot read /nonexistent.toml: No such file");
}

#[test]
fn flows_that_do_not_end_are_a_failure() {
    let folder = directory("fabric-unfinished");
    let file = folder.join("short.toml");
    let text = fs::read_to_string(example("bit-errors")).expect("the example");
    fs::write(&file, text.replace("until = \"1s\"", "until = \"10us\"")).expect("a file");
    let outcome = softrnic(&["fabric", "study", file.to_str().expect("a name")]).expect(1);
    outcome.says("1 of 1 flows failed");
}
