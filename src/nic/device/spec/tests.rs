use softrnic_link::xdp::{AttachChoice, CopyChoice};

use super::*;

fn xdp(text: &str) -> (String, XdpOptions, Option<String>) {
    match text.parse::<DeviceSpec>().expect("a device").link {
        LinkKind::Xdp { interface, options, grant } => (interface, options, grant),
        LinkKind::Udp(_) => panic!("{text} is no xdp device"),
    }
}

fn problem(text: &str) -> String {
    text.parse::<DeviceSpec>().expect_err("no device").to_string()
}

#[test]
fn an_interface_alone_takes_the_best_there_is() {
    assert_eq!(xdp("xdp:eth0"), ("eth0".into(), XdpOptions::default(), None));
    assert_eq!(xdp("rnic7=xdp:eth0.5").0, "eth0.5");
}

#[test]
fn every_option_of_an_interface_is_understood() {
    let (_, options, grant) = xdp(
        "xdp:eth0?attach=skb&copy=copy&chunk=2048&rx=512&tx=64&multibuffer=off&wakeup=no&busypoll=20&queues=0.2&\
         grant=/run/a=b",
    );
    let expected = XdpOptions {
        attach: AttachChoice::Skb,
        copy: CopyChoice::Copy,
        queues: vec![0, 2],
        chunk_size: 2048,
        rx_chunks: 512,
        tx_slots: 64,
        multi_buffer: false,
        need_wakeup: false,
        busy_poll: Some(BusyPoll { micros: 20, budget: BUSY_POLL_BUDGET }),
        addresses: Vec::new(),
    };
    assert_eq!(options, expected);
    assert_eq!(grant.as_deref(), Some("/run/a=b"));
}

#[test]
fn every_device_can_leave_loss_to_the_timer_and_react_to_congestion() {
    let transport = |text: &str| text.parse::<DeviceSpec>().expect("a device").transport;
    assert_eq!(transport("udp"), TransportConfig::default());
    for link in ["udp:10.0.0.1?rcvbuf=4096&", "xdp:eth0?rx=512&"] {
        let config = transport(&format!("{link}early=off&ecn=on"));
        assert_eq!((config.early_retransmission, config.congestion_control), (false, true));
    }
}

#[test]
fn every_device_can_copy_safely() {
    let copies = |text: &str| text.parse::<DeviceSpec>().expect("a device").safe_copies;
    assert_eq!(copies("udp"), None);
    assert_eq!(copies("udp:10.0.0.1?copies=safe&rcvbuf=4096"), Some(true));
    assert_eq!(copies("xdp:eth0?copies=plain"), Some(false));
}

#[test]
fn what_makes_no_sense_is_named() {
    for (text, says) in [
        ("xdp", "xdp:eth0"),
        ("xdp:eth0?attach=hardware", "attach=best|native|skb"),
        ("xdp:eth0?rx=many", "rx=many"),
        ("xdp:eth0?grant=", "grant"),
        ("xdp:eth0?queues=0,1", "queues"),
        ("xdp:eth0?fast", "fast"),
        ("udp?ecn=maybe", "ecn=maybe"),
        ("udp?copies=fast", "copies=fast: use safe or plain"),
        ("udp?fast=on", "every device has early, ecn and copies"),
        ("ib:eth0", "ib:eth0"),
        ("a b=udp", "a b"),
        ("udp:10.0.0.300", "10.0.0.300"),
    ] {
        assert!(problem(text).contains(says), "{text}: {}", problem(text));
    }
}
