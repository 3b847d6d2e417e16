use super::*;

fn description() -> GrantDescription {
    GrantDescription {
        ifindex: 7,
        interface: "eth0".into(),
        attach: AttachMode::Skb,
        zero_copy: false,
        multi_buffer: true,
        busy_poll: false,
        chunk_size: 4096,
        max_frame: 4522,
        queues: vec![
            QueueLayout { queue: 0, rx_chunks: 2048, tx_slots: 512 },
            QueueLayout { queue: 3, rx_chunks: 1024, tx_slots: 0 },
        ],
        refused: vec!["native XDP: the driver refuses it (os error 95)".into(), "two\nlines".into()],
    }
}

#[test]
fn a_description_survives_a_round_trip() {
    let text = write_description(&description());
    let mut back = read_description(text.strip_prefix("granted\n").expect("granted")).expect("a description");
    assert_eq!(back.refused.pop().as_deref(), Some("two lines"));
    back.refused.push("two\nlines".into());
    assert_eq!(back, description());
}

#[test]
fn an_impossible_description_is_refused() {
    let good = write_description(&description());
    let good = good.strip_prefix("granted\n").expect("granted");
    assert!(read_description(good).is_some());
    for (fact, instead) in [
        ("chunk 4096", "chunk 0"),
        ("chunk 4096", "chunk 4097"),
        ("frame 4522", "frame 0"),
        ("frame 4522", "frame 4294967295"),
        ("0:2048:512", "0:2047:512"),
        ("0:2048:512", "0:2147483648:512"),
        ("0:2048:512", "0:2048:0"),
        ("0:2048:512", "0:2048"),
        ("3:1024:0", "3:1024:64"),
        ("3:1024:0", "3:1024:0:0"),
        ("queues 0:2048:512 3:1024:0", "queues "),
        ("attach skb", "attach best"),
        ("refused native", "accepted native"),
        ("\n\n", "\n"),
    ] {
        let bad = good.replace(fact, instead);
        assert_ne!(bad, good);
        assert_eq!(read_description(&bad), None, "{instead}");
    }
}

#[test]
fn a_request_survives_a_round_trip_without_the_helpers_options() {
    let wanted = XdpOptions {
        copy: CopyChoice::Copy,
        chunk_size: 2048,
        rx_chunks: 256,
        tx_slots: 64,
        multi_buffer: false,
        need_wakeup: false,
        addresses: vec!["10.0.0.1".parse().expect("an address"), "fe80::1".parse().expect("an address")],
        ..XdpOptions::default()
    };
    let with_queues = XdpOptions { queues: vec![3], ..wanted.clone() };
    let request = read_request(&write_request("eth0", &with_queues));
    assert_eq!(request, Some(("eth0".to_owned(), wanted)));
}

#[test]
fn only_groups_can_be_wished_for() {
    let group = "239.1.2.3".parse().expect("a group");
    for wish in [Wish::Join(group), Wish::Leave(group)] {
        assert_eq!(wish.to_string().trim_end().parse(), Ok(wish));
    }
    for line in
        ["", "join", "join ", "join 10.0.0.1", "join ::ffff:10.0.0.1", "take 239.1.2.3", "join 239.1.2.3 "]
    {
        assert_eq!(line.parse::<Wish>(), Err(()), "{line}");
    }
}
