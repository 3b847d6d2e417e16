//! `softrnic devices`.

use std::net::UdpSocket;

use serde_json::Value;

use crate::support::{command, directory, outcome, softrnic};

fn json(arguments: &[&str], status: i32) -> Vec<Value> {
    let outcome = softrnic(&[&["devices", "--json"], arguments].concat()).expect(status);
    serde_json::from_str(&outcome.stdout).expect("a JSON array")
}

#[test]
fn with_nothing_configured_there_is_one_device_on_loopback() {
    let devices = json(&[], 0);
    let [device] = devices.as_slice() else { panic!("{devices:?}") };
    assert_eq!(device["name"], "softrnic0");
    assert_eq!(device["active"], true);
    assert_eq!(device["active_mtu"], 4096);
    let address = device["address"].as_str().expect("an address");
    assert!(address.starts_with("127."), "{address}");
    assert!(device["mode"].as_str().expect("a mode").contains(address));
    assert!(device["receive_buffer"].as_u64().expect("a number") > 0);
    let parts: Vec<u8> = address.split('.').map(|part| part.parse().expect("a byte")).collect();
    let gid = format!("{:02x}{:02x}:{:02x}{:02x}", parts[0], parts[1], parts[2], parts[3]);
    assert!(device["gids"][0].as_str().expect("a GID").ends_with(&gid), "{device}");
}

#[test]
fn it_shows_whether_a_device_uses_shared_memory() {
    let given = ["--device", "with=udp?shm=on", "--device", "without=udp?shm=off"];
    let devices = json(&given, 0);
    assert_eq!([&devices[0]["shared_memory"], &devices[1]["shared_memory"]], [true, false]);
    let shown = softrnic(&[&["devices"], &given[..]].concat()).expect(0).stdout;
    let lines: Vec<&str> =
        shown.lines().filter(|line| line.trim_start().starts_with("local peers")).collect();
    let [with, without] = lines.as_slice() else { panic!("{shown}") };
    assert!(with.contains("through shared memory") && with.contains("--pcap"), "{with}");
    assert!(without.contains("without shared memory"), "{without}");
}

#[test]
fn devices_are_closed_again() {
    let arguments = ["devices", "--device", "udp:127.77.2.1"];
    for _ in 0..2 {
        softrnic(&arguments).expect(0);
    }
    UdpSocket::bind("127.77.2.1:4791").expect("free again");
}

#[test]
fn each_device_that_cannot_be_opened_says_why_and_the_others_are_shown() {
    let _holder = UdpSocket::bind("127.77.2.2:4791").expect("the address is free");
    let given = ["--device", "udp:127.77.2.2", "--device", "good=udp", "--device", "udp?segmentation=off"];
    let devices = json(&given, 1);
    assert_eq!(devices[0]["name"], "softrnic0");
    assert!(devices[0]["error"].as_str().expect("a reason").contains("in use"));
    assert_eq!(devices[1]["name"], "good");
    assert_eq!(devices[1]["error"], Value::Null);
    assert_eq!(devices[2]["name"], "softrnic2");
    assert_eq!(devices[2]["segments"], 1);
    assert!(devices[2]["mode"].as_str().expect("a mode").contains("segmentation off"));
}

#[test]
fn the_environment_is_used_and_no_capture_is_left_behind() {
    let pcap = directory("devices").join("devices.pcapng");
    let mut devices = command(&["devices"]);
    devices.env("SOFTRNIC_DEVICES", "mine=udp:127.77.2.3").env("SOFTRNIC_PCAP", &pcap);
    let shown = outcome(devices.output().expect("the command starts")).expect(0).stdout;
    assert!(shown.starts_with("mine\n") && shown.contains("127.77.2.3"), "{shown}");
    assert!(!pcap.exists());

    let mut devices = command(&["devices"]);
    devices.env("SOFTRNIC_DEVICES", "mine=carrier-pigeon");
    outcome(devices.output().expect("the command starts")).expect(2).says("carrier-pigeon");
}
