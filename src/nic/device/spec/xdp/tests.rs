use super::super::DeviceSpec;
use super::*;

fn xdp(text: &str) -> (String, XdpOptions, Option<String>) {
    match text.parse::<DeviceSpec>().expect("a device").link {
        LinkKind::Xdp { interface, options, grant } => (interface, options, grant),
        _ => panic!("{text} is not an xdp device"),
    }
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
fn every_device_has_its_options_on_an_interface_too() {
    let spec: DeviceSpec = "xdp:eth0?rx=512&early=off&ecn=on&copies=plain".parse().expect("a device");
    assert_eq!((spec.transport.early_retransmission, spec.transport.congestion_control), (false, true));
    assert_eq!(spec.safe_copies, Some(false));
}

#[test]
fn invalid_options_of_an_interface_are_named() {
    for (text, says) in [
        ("xdp", "xdp:eth0"),
        ("xdp:eth0?attach=hardware", "attach=best|native|skb"),
        ("xdp:eth0?rx=many", "rx=many"),
        ("xdp:eth0?grant=", "grant"),
        ("xdp:eth0?queues=0,1", "queues"),
        ("xdp:eth0?fast", "fast"),
    ] {
        let problem = text.parse::<DeviceSpec>().expect_err("no device").to_string();
        assert!(problem.contains(says), "{text}: {problem}");
    }
}
