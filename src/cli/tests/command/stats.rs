//! `softrnic stats`.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::looking::{own_pid, pair, pair_on, send};
use crate::support::{command, softrnic};

#[test]
fn json_has_every_counter_and_qp_of_every_device() {
    let ends = pair("json");
    send(&ends, 5);
    let shown = softrnic(&["stats", "--json", "--pid", &own_pid()]).expect(0).stdout;
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    let devices = shown["devices"].as_array().expect("devices");
    let named = |name: &str| devices.iter().find(|d| d["device"] == name).expect("the device is shown");
    for (name, counter) in [("json_a", "rdma_sends"), ("json_b", "rdma_recvs")] {
        let device = named(name);
        assert_eq!(device["pid"], std::process::id());
        assert_eq!(device["counters"][counter], 5, "{device}");
    }
    for (name, value) in ends[0].context.statistics().expect("counters") {
        let shown = named("json_a")["counters"][name].as_u64().expect("a number");
        assert!(shown <= value, "{name}: {shown}, now {value}");
    }
    let qp = &named("json_a")["qps"][0];
    assert_eq!(qp["qpn"], ends[0].qp.qpn().get());
    assert_eq!(
        (qp["state"].as_str(), qp["send_psn"].as_u64(), qp["una_psn"].as_u64()),
        (Some("RTS"), Some(15), Some(15))
    );
    assert_eq!(qp["peer"], ends[1].context.address().to_string());
}

#[test]
fn the_table_names_what_was_counted() {
    let ends = pair("table");
    send(&ends, 3);
    let shown = softrnic(&["stats", "--pid", &own_pid(), "--device", "table_b"]).expect(0).stdout;
    assert!(shown.starts_with("table_b of command"), "{shown}");
    assert!(!shown.contains("table_a of"), "{shown}");
    let row =
        |begin: &str| shown.lines().find(|line| line.starts_with(begin)).unwrap_or_else(|| panic!("{shown}"));
    let recvs: Vec<&str> = row("rdma_recvs").split_whitespace().take(2).collect();
    assert_eq!(recvs, ["rdma_recvs", "3"]);
    assert!(row(&format!("{:#x}", ends[1].qp.qpn().get())).contains("RTS"));
    assert!(!shown.contains("drop_icrc"), "what is 0 is not shown:\n{shown}");
    let all = softrnic(&["stats", "--all", "--device", "table_b"]).expect(0).stdout;
    assert!(all.contains("drop_icrc"), "{all}");
    assert!(!shown.contains('\x1b'), "no colours where there is no terminal");
}

#[test]
fn a_process_without_a_device_shows_no_other_processes() {
    let _ends = pair("others");
    for command in [&["stats"][..], &["top", "--once", "-d", "0.1"]] {
        let shown = softrnic(&[command, &["--pid", "1"]].concat()).expect(0).stdout;
        assert!(shown.contains("Process 1 has no SoftRNIC device, or is not this user's."), "{shown}");
        let shown = softrnic(&[command, &["--device", "unheard_of"]].concat()).expect(0).stdout;
        assert!(shown.contains("No process of this user has a SoftRNIC device named unheard_of."), "{shown}");
    }
}

#[test]
fn peers_in_shared_memory_are_shown_and_their_packets_counted() {
    let ends = pair_on("shared", "udp?shm=on");
    send(&ends, 20);
    let to = ends[1].context.address().to_string();
    let arguments = ["stats", "--pid", &own_pid(), "--device", "shared_a"];
    let shown = softrnic(&[&arguments[..], &["--json"]].concat()).expect(0).stdout;
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    let device = &shown["devices"][0];
    let reach = &device["reach"][0];
    assert_eq!(
        (&reach["peer"], &reach["through"]),
        (&Value::from(to.as_str()), &Value::from("shm")),
        "{reach}"
    );
    assert_eq!(reach["why"], Value::Null);
    let count = |name: &str| device["counters"][name].as_u64().expect("a counter");
    // The first ones leave by the socket, while the peer is asked.
    assert_eq!(reach["shm_sent_pkts"], device["counters"]["sent_shm_pkts"], "{device}");
    assert!((10..=count("sent_pkts")).contains(&count("sent_shm_pkts")), "{device}");
    assert!((10..=count("rcvd_pkts")).contains(&count("rcvd_shm_pkts")), "{device}");

    let table = softrnic(&arguments).expect(0).stdout;
    assert!(table.contains("\nshared memory with 1 peer: "), "{table}");
    let qp = format!("{:#x}", ends[0].qp.qpn().get());
    let row = table.lines().find(|line| line.starts_with(&qp)).unwrap_or_else(|| panic!("{table}"));
    assert!(row.contains(&format!("{to}  shm ")), "{row}");
    let top = softrnic(&[&["top", "--once", "-d", "0.1"], &arguments[1..]].concat()).expect(0).stdout;
    assert!(top.contains("\n  shared memory with 1 peer: "), "{top}");
    assert!(top.lines().any(|line| line.trim_start().starts_with(&qp) && line.contains("  shm ")), "{top}");

    let endpoint = Endpoint::start(&arguments[1..]);
    let (_, body) = endpoint.ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    let samples = parse(&body);
    let info = samples.keys().find(|series| series.starts_with("softrnic_peer_info{")).expect("there");
    assert!(info.contains(&format!("peer=\"{to}\",slot=\"\",through=\"shm\",why=\"\"")), "{info}");
    let sent = samples.iter().find(|(series, _)| series.starts_with("softrnic_peer_shm_sent_packets_total{"));
    assert!(*sent.expect("there").1 >= 10.0, "{body}");

    // When it goes, that is counted.
    let [near, far] = ends;
    drop(near);
    let begun = Instant::now();
    loop {
        // A snapshot of the statistics serves for 100 ms.
        std::thread::sleep(Duration::from_millis(110));
        let shown = softrnic(&["stats", "--pid", &own_pid(), "--device", "shared_b"]).expect(0).stdout;
        if !shown.contains("shared memory with 1 peer") {
            assert!(shown.contains("shm_fallbacks"), "{shown}");
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{shown}");
    }
    drop(far);
}

#[test]
fn without_shared_memory_peers_are_reached_through_the_link() {
    let ends = pair_on("apart", "udp?shm=off");
    send(&ends, 2);
    let shown = softrnic(&["stats", "--pid", &own_pid(), "--device", "apart_a"]).expect(0).stdout;
    let qp = format!("{:#x}", ends[0].qp.qpn().get());
    let row = shown.lines().find(|line| line.starts_with(&qp)).unwrap_or_else(|| panic!("{shown}"));
    assert!(row.contains(&format!("{}  udp ", ends[1].context.address())), "{row}");
    assert!(!shown.contains("shared memory"), "{shown}");
}

#[test]
fn no_devices_is_not_a_failure() {
    let shown = softrnic(&["stats", "--device", "no-such-device"]).expect(0).stdout;
    assert_eq!(shown, "No process of this user has a SoftRNIC device named no-such-device.\n");
    softrnic(&["stats", "--metrics", "nowhere"]).expect(2).says("--metrics");
    softrnic(&["stats", "--metrics", "192.0.2.1:9"]).expect(1).says("cannot listen on 192.0.2.1:9");
}

/// An endpoint that ends with the test.
struct Endpoint {
    process: Child,
    address: String,
}

impl Endpoint {
    fn start(arguments: &[&str]) -> Endpoint {
        let mut process = command(&[&["stats", "--metrics", "127.0.0.1:0"], arguments].concat())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the command starts");
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("a line");
        let address =
            line.trim().strip_prefix("metrics at http://").and_then(|rest| rest.strip_suffix("/metrics"));
        let address = address.unwrap_or_else(|| panic!("{line}")).to_owned();
        assert!(address.starts_with("127.0.0.1:"), "{address}");
        Endpoint { process, address }
    }

    /// Status line, headers and body of the answer.
    fn ask(&self, request: &str) -> (String, String) {
        let mut stream = TcpStream::connect(&self.address).expect("connected");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
        stream.write_all(request.as_bytes()).expect("written");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
        (head.to_owned(), body.to_owned())
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // `timeout` passes it on to the command.
        crate::support::kill("-TERM", self.process.id().to_string());
        let _ = self.process.wait();
    }
}

/// Reads the exposition format strictly: values by name and labels.
fn parse(text: &str) -> HashMap<String, f64> {
    let mut samples = HashMap::new();
    let (mut described, mut current) = (HashSet::new(), String::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a name and a text");
            assert!(described.insert(name.to_owned()), "{name} is described twice");
            assert!(!help.is_empty());
            current = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a name and a type");
            assert_eq!(name, current);
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert!(["counter", "gauge"].contains(&kind), "{line}");
        } else {
            let (series, value) = line.rsplit_once(' ').expect("a value");
            assert_eq!(
                series.split('{').next(),
                Some(current.as_str()),
                "a sample of another metric: {line}"
            );
            let value: f64 = value.parse().expect("a number");
            assert!(samples.insert(series.to_owned(), value).is_none(), "{series} is there twice");
        }
    }
    samples
}

#[test]
fn prometheus_gets_the_same_numbers() {
    let ends = pair("metrics");
    send(&ends, 7);
    let endpoint = Endpoint::start(&["--pid", &own_pid()]);
    let (head, body) = endpoint.ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{head}");
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
    let samples = parse(&body);
    let value = |metric: &str, device: &str| {
        let found: Vec<f64> = samples
            .iter()
            .filter(|(series, _)| series.starts_with(&format!("{metric}{{")))
            .filter(|(series, _)| series.contains(&format!("device=\"{device}\"")))
            .map(|(_, value)| *value)
            .collect();
        assert_eq!(found.len(), 1, "{metric} of {device} in\n{body}");
        found[0]
    };
    assert_eq!(value("softrnic_rdma_sends_total", "metrics_a"), 7.0);
    assert_eq!(value("softrnic_rdma_recvs_total", "metrics_b"), 7.0);
    assert_eq!(value("softrnic_qp_info", "metrics_a"), 1.0);
    assert!(value("softrnic_qp_sent_packets_total", "metrics_a") >= 7.0);
    assert!(value("softrnic_peer_window_bytes", "metrics_a") > 0.0);
    for (name, now) in ends[0].context.statistics().expect("counters") {
        assert!(value(&format!("softrnic_{name}_total"), "metrics_a") <= now as f64);
    }
    let info =
        samples.keys().find(|s| s.starts_with("softrnic_qp_info") && s.contains("metrics_a")).expect("there");
    assert!(info.contains("state=\"RTS\"") && info.contains(&format!("pid=\"{}\"", own_pid())), "{info}");
}

#[test]
fn the_endpoint_listens_nowhere_else_and_survives_hostile_clients() {
    let endpoint = Endpoint::start(&["--pid", "1"]);
    let port = endpoint.address.rsplit(':').next().expect("a port");
    assert!(TcpStream::connect(format!("127.0.0.2:{port}")).is_err(), "another address is served");
    // Clients that never send a request do not keep others from being served.
    let _silent: Vec<TcpStream> =
        (0..8).map(|_| TcpStream::connect(&endpoint.address).expect("connected")).collect();
    for (request, status) in [
        ("GET / HTTP/1.0\r\n\r\n", "200"),
        ("GET /metrics?x=1 HTTP/1.1\r\n\r\n", "200"),
        ("GET /etc/passwd HTTP/1.1\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
        ("\0\0\0\r\n\r\n", "400"),
        ("GET /metrics\r\n\r\n", "400"),
    ] {
        let (head, _) = endpoint.ask(request);
        assert_eq!(head.split(' ').nth(1), Some(status), "{request:?}: {head}");
    }
    let (head, body) = endpoint.ask("HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.contains("Content-Length: ") && body.is_empty(), "{head}\n{body}");
    // A request without an end is neither kept nor waited for.
    let mut endless = TcpStream::connect(&endpoint.address).expect("connected");
    let begun = Instant::now();
    while endless.write_all(&[b'x'; 4096]).is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(20), "an endless request is read for ever");
    }
    assert_eq!(endpoint.ask("GET /metrics HTTP/1.1\r\n\r\n").0.split(' ').nth(1), Some("200"));
}
