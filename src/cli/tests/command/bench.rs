//! `softrnic bench`: its figures are well-formed. These tests do not judge speed.

use std::net::UdpSocket;

use serde_json::Value;

use crate::support::{directory, softrnic};

#[test]
fn every_point_of_a_sweep_has_figures_in_json_and_in_a_picture() {
    let directory = directory("bench");
    let svg = directory.join("bench.svg");
    let file = svg.to_str().expect("text");
    let sizes = "0,8,4K,64K";
    let shown =
        softrnic(&["bench", "--seconds", "0.02", "--sizes", sizes, "--json", "--svg", file]).expect(0);
    let report: Value = serde_json::from_str(&shown.stdout).expect("JSON");
    assert_eq!(report["mtu"], 4096);
    let points = report["points"].as_array().expect("points");
    assert_eq!(points.len(), 3 * 4);
    for point in points {
        assert!(point["messages_per_second"].as_f64().expect("a rate") > 0.0, "{point}");
        let empty_write = point["operation"] == "write" && point["size"] == 0;
        let latency = &point["latency_us"];
        assert_eq!(latency.is_null(), empty_write, "{point}");
        if !empty_write {
            let of = |name: &str| latency[name].as_f64().expect("a number");
            assert!(0.0 < of("min") && of("min") <= of("p50") && of("p50") <= of("p99"), "{point}");
            assert!(of("p99") <= of("p99_9") && of("p99_9") <= of("max"), "{point}");
        }
    }

    let picture = std::fs::read_to_string(&svg).expect("the picture");
    assert!(picture.starts_with("<svg") && picture.contains("prefers-color-scheme: dark"), "{picture}");
    assert_eq!(picture.matches("class=\"line\"").count(), 6, "a line for each operation in each panel");
    assert!(!picture.contains("NaN") && !picture.contains("inf"), "{picture}");
    std::fs::remove_dir_all(directory).expect("removed");
}

#[test]
fn a_table_is_for_people() {
    let arguments =
        ["bench", "--seconds", "0.02", "--sizes", "8", "--operations", "write", "--measure", "latency"];
    let shown = softrnic(&arguments).expect(0);
    assert!(shown.stdout.contains("RDMA WRITE   8 B          –"), "{}", shown.stdout);
    assert_eq!(shown.stderr, "", "no progress where there is no terminal");
}

#[test]
fn a_comparison_says_whether_its_requirements_are_met() {
    let compare = ["bench", "--compare", "--rounds", "5", "--seconds", "0.02", "--json"];
    let low = ["--require-bandwidth", "0.000001", "--require-latency", "1000000"];
    let shown = softrnic(&[&compare[..], &low].concat()).expect(0);
    let report: Value = serde_json::from_str(&shown.stdout).expect("JSON");
    assert_eq!(report["rounds"].as_array().expect("rounds").len(), 5);
    assert_eq!(report["reached"], true);
    assert!(report["bandwidth_ratio"].as_f64().expect("a ratio") > 0.0);
    assert!(report["latency_ratio"].as_f64().expect("a ratio") > 0.0);
    let mode = report["modes"][0].as_str().expect("a mode");
    assert!(mode.contains("receive buffer 208 KiB"), "the common limit: {mode}");
    assert!(!mode.contains("shared memory"), "sockets: {mode}");
    let shared = &report["shared_memory"];
    assert_eq!(shared["rounds"].as_array().expect("rounds").len(), 5);
    assert!(shared["bandwidth_ratio"].as_f64().expect("a ratio") > 0.0);
    for mode in shared["modes"].as_array().expect("modes") {
        assert!(mode.as_str().expect("a mode").contains("shared memory"), "{mode}");
    }

    let out_of_reach = [&compare[..], &["--require-bandwidth", "1000000"]].concat();
    let shown = softrnic(&out_of_reach).expect(1);
    shown.says("the bandwidth does not reach its bar");
    let report: Value = serde_json::from_str(&shown.stdout).expect("JSON all the same");
    assert_eq!(report["reached"], false);

    let out_of_reach = [&compare[..], &["--require-latency", "0.000001"]].concat();
    softrnic(&out_of_reach).expect(1).says("the latency does not reach its bar");
}

#[test]
fn only_the_given_devices_are_compared() {
    let compare = ["bench", "--compare", "--rounds", "5", "--seconds", "0.02", "--json", "--device", "udp"];
    let report: Value = serde_json::from_str(&softrnic(&compare).expect(0).stdout).expect("JSON");
    assert!(report["latency_ratio"].as_f64().expect("a ratio") > 0.0);
    assert!(report.get("shared_memory").is_none());
}

#[test]
fn an_address_in_use_is_named() {
    let _holder = UdpSocket::bind("127.77.3.1:4791").expect("the address is free");
    softrnic(&["bench", "--peer-device", "udp:127.77.3.1"]).expect(1).says("4791 of 127.77.3.1 is in use");
}
