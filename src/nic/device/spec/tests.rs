use super::*;

fn problem(text: &str) -> String {
    text.parse::<DeviceSpec>().expect_err("no device").to_string()
}

#[test]
fn every_device_can_leave_loss_to_the_timer_and_react_to_congestion() {
    let transport = |text: &str| text.parse::<DeviceSpec>().expect("a device").transport;
    assert_eq!(transport("udp"), TransportConfig::default());
    for link in ["udp:10.0.0.1?rcvbuf=4096&", "name=udp?shm=off&"] {
        let config = transport(&format!("{link}early=off&ecn=on"));
        assert_eq!((config.early_retransmission, config.congestion_control), (false, true));
    }
}

#[test]
fn every_device_can_recover_selectively() {
    let selective = |text: &str| text.parse::<DeviceSpec>().expect("a device").transport.selective_recovery;
    assert!(selective("udp") && selective("udp?shm=off&recovery=selective"));
    assert!(!selective("udp?recovery=gbn"));
}

#[test]
fn every_device_can_spread_its_packets() {
    let paths = |text: &str| text.parse::<DeviceSpec>().expect("a device").transport.paths;
    assert_eq!([paths("udp"), paths("udp?paths=1&recovery=gbn"), paths("fabric:a/b?paths=16")], [1, 1, 16]);
}

#[test]
fn every_device_can_copy_safely() {
    let copies = |text: &str| text.parse::<DeviceSpec>().expect("a device").safe_copies;
    assert_eq!(copies("udp"), None);
    assert_eq!(copies("udp:10.0.0.1?copies=safe&rcvbuf=4096"), Some(true));
    assert_eq!(copies("udp?copies=plain"), Some(false));
}

#[test]
fn udp_can_share_memory() {
    let shares = |text: &str| text.parse::<DeviceSpec>().expect("a device").shared_memory;
    assert_eq!(shares("udp"), None);
    assert_eq!(shares("udp:10.0.0.1?shm=on&rcvbuf=4096"), Some(true));
    assert_eq!(shares("udp?shm=off"), Some(false));
}

#[test]
fn udp_can_keep_icrcs_in_memory() {
    let always = |text: &str| text.parse::<DeviceSpec>().expect("a device").icrc_always;
    assert!(!always("udp") && !always("udp?icrc=wire"));
    assert!(always("udp:10.0.0.1?icrc=always&rcvbuf=4096"));
}

#[test]
fn invalid_specifications_are_named() {
    for (text, says) in [
        ("udp?ecn=maybe", "ecn=maybe"),
        ("udp?recovery=maybe", "recovery=maybe: use selective or gbn"),
        ("udp?paths=17", "paths=17: use a number from 1 to 16"),
        ("udp?paths=0", "paths=0: use a number from 1 to 16"),
        ("udp?paths=256", "paths=256: not a number in range"),
        ("udp?paths=2&recovery=gbn", "paths of more than 1 need recovery=selective and early=on"),
        ("udp?paths=2&early=off", "paths of more than 1 need recovery=selective and early=on"),
        ("udp?shm=perhaps", "shm=perhaps: use on or off"),
        ("udp?icrc=never", "icrc=never: use wire or always"),
        ("fabric:a/b?icrc=always", "fabric has no option"),
        ("udp?copies=fast", "copies=fast: use safe or plain"),
        ("udp?fast=on", "every device has early, ecn, recovery, paths, copies, like, pci, numa and speed"),
        ("ib:eth0", "ib:eth0"),
        ("a b=udp", "a b"),
        ("udp:10.0.0.300", "10.0.0.300"),
        ("udp:fe80::xyz", "not an IPv4 or IPv6 address"),
        ("udp:aVeryLongInterface", "nor an interface"),
        ("udp:eth0/1", "nor an interface"),
    ] {
        assert!(problem(text).contains(says), "{text}: {}", problem(text));
    }
}

#[cfg(not(feature = "xdp"))]
#[test]
fn a_build_without_interfaces_says_so() {
    assert!(problem("xdp:eth0").contains("without the feature xdp"), "{}", problem("xdp:eth0"));
}

#[cfg(not(feature = "capture"))]
#[test]
fn a_build_without_captures_says_so() {
    let spec = DeviceSpec { pcap: Some("/tmp/x.pcapng".into()), ..DeviceSpec::default() };
    let refused = spec.open_link().err().expect("refused").to_string();
    assert!(refused.contains("without the feature capture"), "{refused}");
}

#[test]
fn every_device_can_say_where_it_is() {
    let specs = DeviceSpec::list("m[0-1]=udp:127.0.0.[1-2]?pci=0000:1[0,1]:00.0&numa=[0,1]&speed=200Gbit")
        .expect("devices");
    let [one, two] = &specs[..] else { panic!("{specs:?}") };
    assert_eq!((&*one.name, &*two.name), ("m0", "m1"));
    assert_eq!((one.hardware.numa_node, two.hardware.numa_node), (Some(0), Some(1)));
    assert_eq!(two.hardware.pci, "0000:11:00.0".parse().ok());
    assert_eq!(two.hardware.speed, Some(200_000_000_000));
    let both =
        DeviceSpec::list("a=udp?pci=0000:10:00.0,b=udp?pci=10:00.0").expect_err("one place").to_string();
    assert_eq!(both, "a and b are at the same place of PCI");
    assert!(
        problem("udp?pci=eth0").contains("pci=eth0: write DOMAIN:BUS:DEVICE.FUNCTION"),
        "{}",
        problem("udp?pci=eth0")
    );
    assert!(problem("udp?numa=-1").contains("numa=-1: not a number in range"));
    assert!(problem("udp?speed=fast").contains("`fast` is not a speed"));
}
