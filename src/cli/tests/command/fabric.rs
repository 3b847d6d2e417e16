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
fn a_page_has_plots_of_what_happened() {
    let folder = directory("fabric-page");
    let file = folder.join("incast.html");
    let text = softrnic(&["fabric", "study", &example("incast"), "--html", file.to_str().expect("a name")]);
    text.expect(0);
    let page = fs::read_to_string(file).expect("a page");
    for part in [
        "<h1>incast</h1>",
        "<h2>Completion times</h2>",
        "<h2>Goodput</h2>",
        "<h2>Queues</h2>",
        "<h2>Ports</h2>",
    ] {
        assert!(page.contains(part), "no {part}");
    }
    // One line over time for each of up to eight queues, with as many points as there are samples.
    let queues =
        page.split("<h2>Queues</h2>").nth(1).and_then(|rest| rest.split("<h2>").next()).expect("queues");
    let points = queues.split("points=\"").skip(1).map(|line| line.split('"').next().unwrap_or_default());
    let counts: Vec<usize> = points.map(|points| points.split(' ').count()).collect();
    assert!(!counts.is_empty() && counts.iter().all(|count| (300..=600).contains(count)), "{counts:?}");
    assert!(!page.contains("NaN"));
}

#[test]
fn samples_are_taken_when_the_description_says() {
    let folder = directory("fabric-samples");
    let file = folder.join("two.toml");
    let text = "until = \"1ms\"\nsample = \"10us\"\n[network]\ngenerator = \"star\"\nhosts = 2\n\
                edge = { rate = \"10Gbps\" }\n[[flow]]\nfrom = \"h0\"\nto = \"h1\"\nbytes = \"100kB\"\n";
    fs::write(&file, text).expect("a file");
    let name = file.to_str().expect("a name");
    let json =
        softrnic(&["fabric", "study", name, "--json", "--csv", folder.to_str().expect("a name")]).expect(0);
    let json: Value = serde_json::from_str(&json.stdout).expect("JSON");
    let samples = json["report"]["samples"].as_array().expect("samples");
    let times: Vec<f64> = samples.iter().map(|sample| sample["time_ns"].as_f64().expect("a time")).collect();
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] == 10_000.0), "{times:?}");
    let delivered: Vec<u64> =
        samples.iter().map(|sample| sample["delivered"][0].as_u64().expect("bytes")).collect();
    assert!(delivered.windows(2).all(|pair| pair[0] <= pair[1]) && delivered[3] > 0, "{delivered:?}");
    assert_eq!(json["report"]["flows"][0]["delivered"], 100_000);
    let series = fs::read_to_string(folder.join("flow_series.csv")).expect("flow_series.csv");
    assert_eq!(series.lines().count(), 1 + samples.len());
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
