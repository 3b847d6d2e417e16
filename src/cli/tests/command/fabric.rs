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
        // Those of slow motion have one flow at a time.
        let is_crowded = !path.to_string_lossy().contains("/slow-");
        assert_eq!(text.contains("Ports that marked, lost or were paused"), is_crowded, "{text}");
        run += 1;
    }
    assert_eq!(run, 6);
}

/// Live, perftest prints the same (`tests/verbs/test_fabric.py`).
#[test]
fn what_slow_motion_shows_is_what_the_description_says() {
    for (name, gigabits, micros) in [("slow-400g", 400.0, 2.0), ("slow-25g", 25.0, 20.0)] {
        let json = softrnic(&["fabric", "study", &example(name), "--json"]).expect(0).stdout;
        let json: Value = serde_json::from_str(&json).expect("JSON");
        let flow = |number: usize, key: &str| {
            json["report"]["flows"][number][key].as_f64().unwrap_or_else(|| panic!("{key} in {json}"))
        };
        let goodput = flow(0, "bytes") * 8.0 / (flow(0, "fct_ns") - 2e3 * micros);
        // A packet of 4096 bytes has 82 of headers and gaps.
        let payload = gigabits * 4096.0 / (4096.0 + 82.0);
        assert!((goodput / payload - 1.0).abs() < 0.05, "{name}: {goodput} instead of {payload} Gb/s");
        let latency = flow(1, "fct_ns") / 2e3;
        assert!((latency / micros - 1.0).abs() < 0.05, "{name}: {latency} instead of {micros} us");
    }
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
    assert!(ports.lines().all(|line| line.matches(',').count() == 10));
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

/// Each packet is there once for each port that it left by, and `explain` says which were marked and lost where.
#[test]
fn a_capture_shows_every_port_and_explain_says_where_packets_were_lost() {
    let folder = directory("fabric-capture");
    let (file, pcap) = (folder.join("two.toml"), folder.join("two.pcapng"));
    let text = "[network]\ngenerator = \"star\"\nhosts = 3\nedge = { rate = \"10Gbps\" }\n\
                [switch]\nbuffer = \"16KiB\"\necn = { kmin = \"4KB\", kmax = \"8KB\", pmax = 0.1 }\n\
                [nic]\ndcqcn = true\n[[workload]]\nkind = \"incast\"\nto = \"h0\"\nbytes = \"100kB\"\n\
                [[fault]]\nlink = \"h2-s0\"\nrules = \"drop:psn=7:nth=1\"\n";
    fs::write(&file, text).expect("a file");
    let [name, capture] = [&file, &pcap].map(|path| path.to_str().expect("a name"));
    let json = softrnic(&["fabric", "study", name, "--json", "--pcap", capture]).expect(0).stdout;
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let port = |name: &str| {
        let ports = json["report"]["ports"].as_array().expect("ports");
        ports.iter().find(|port| port["port"] == name).unwrap_or_else(|| panic!("no {name}")).clone()
    };
    let [marked, dropped] = ["marked", "dropped"].map(|key| port("s0-h0")[key].as_u64().expect("a count"));
    assert!(marked > 1 && dropped > 1, "{json}");
    assert_eq!((&port("h2-s0")["faults"], &port("h1-s0")["faults"]), (&1.into(), &0.into()));
    let told = softrnic(&["explain", capture]).expect(3).stdout;
    for part in [
        format!("{marked} packets were marked at s0-h0; the first is packet "),
        format!("{dropped} packets were dropped at s0-h0: the switch has no room; the first is packet "),
        "was dropped on purpose, by your rule 1, drop:psn=7:nth=1".into(),
    ] {
        assert!(told.contains(&part), "no `{part}` in:\n{told}");
    }
    // The same study gives the same file.
    let first = fs::read(&pcap).expect("a capture");
    softrnic(&["fabric", "study", name, "--json", "--pcap", capture]).expect(0);
    assert!(first == fs::read(&pcap).expect("a capture"));
}

#[test]
fn several_seeds_are_those_of_single_runs() {
    let file = example("bit-errors");
    let all = softrnic(&["fabric", "study", &file, "--seed", "7", "--seeds", "3", "--json"]).expect(0).stdout;
    let all: Value = serde_json::from_str(&all).expect("JSON");
    let seeds: Vec<u64> =
        all.as_array().expect("runs").iter().map(|run| run["seed"].as_u64().expect("a seed")).collect();
    assert_eq!(seeds, [7, 8, 9]);
    let one = softrnic(&["fabric", "study", &file, "--seed", "8", "--json"]).expect(0).stdout;
    let one: Value = serde_json::from_str(&one).expect("JSON");
    assert_eq!(all[1]["report"], one["report"]);
    let table = softrnic(&["fabric", "study", &file, "--seeds", "2"]).expect(0).stdout;
    assert_eq!(table.lines().filter(|line| line.trim_start().starts_with(['1', '2'])).count(), 2, "{table}");
}
