use std::net::IpAddr;
use std::time::Duration;

use softrnic_wire::Time;

use super::*;
use crate::sim::{Fabric, Path, SimLink, SimOptions};
use crate::testing::{Received, Unsealed, drain, flow, send};

const NOW: Time = Time::ZERO;
const LATER: Time = Time::from_nanos(1_000_000_000);

fn spec(text: &str) -> FaultSpec {
    text.parse().unwrap_or_else(|e| panic!("{e}"))
}

fn ip(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

/// Two ends of a network without delay.
fn ends() -> (SimLink, SimLink) {
    let fabric = Fabric::new(0);
    fabric.set_default_path(Path { delay: Duration::ZERO, ..Path::default() });
    let options = SimOptions { receive_buffer: usize::MAX, sees_ip_header: true, ..SimOptions::default() };
    (fabric.attach(ip(1), options).unwrap(), fabric.attach(ip(2), options).unwrap())
}

/// A sender with faults and a receiver without.
fn faulty_sender(faults: &str) -> (FaultLink<SimLink>, SimLink) {
    let (a, b) = ends();
    (FaultLink::new(a, &spec(faults)), b)
}

fn send_all(a: &mut impl Link, psns: std::ops::Range<u32>) {
    for psn in psns {
        send(a, NOW, &flow(ip(1), ip(2)), psn, 64).unwrap();
    }
    a.flush(NOW);
}

fn psns(got: &[Received]) -> Vec<u32> {
    got.iter().map(Received::psn).collect()
}

#[test]
fn displayed_specs_parse_back() {
    for text in [
        "seed=0",
        "seed=7,drop=1%",
        "seed=7,drop=1%,reorder=0.5%,delay=200us:5%",
        "seed=0,drop:op=rc_send_only:psn=5:nth=1",
        "seed=0,duplicate=0.1%:dir=rx:op=rc_rdma_read_response*",
        "seed=0,corrupt:op=0x81:qpn=0x11:psn=16777215-3:nth=2-9",
        "seed=0,delay=1500ns:nth=1",
        "seed=18446744073709551615,reorder=12.5%:depth=7",
        "seed=0,drop=0.0001%",
        "seed=0,drop:op=cm_req:nth=1",
        "seed=0,drop=1%:dir=both:peer=10.0.0.2:after=2s:for=500ms:device=b",
        "seed=0,drop:peer=[fd00::2]:nth=1",
        "seed=0,down:after=2s:for=5s:device=b,speed=1Gbit,fatal:after=1s",
    ] {
        let parsed = spec(text);
        assert_eq!(parsed.to_string(), text);
        assert_eq!(spec(&parsed.to_string()), parsed);
    }
}

#[test]
fn other_spellings_mean_the_same() {
    for (text, same) in [
        ("", "seed=0"),
        (" seed = 7 ", "seed=7"),
        ("seed=0x10, drop = 0.01 ", "seed=16,drop=1%"),
        ("delay:by=0.2ms:rate=5%", "seed=0,delay=200us:5%"),
        ("delay=1s:100%", "seed=0,delay=1s:100%"),
        ("drop:op=ACK", "seed=0,drop:op=rc_acknowledge"),
        ("drop:rate=3%:dir=tx", "seed=0,drop=3%"),
        ("drop:op=cm", "seed=0,drop:op=cm_*"),
    ] {
        assert_eq!(spec(text).to_string(), same, "{text}");
    }
}

#[test]
fn errors_say_which_item_and_what_to_write() {
    for (text, item, hint) in [
        (
            "seed=7,lose=1%",
            "lose=1%",
            "the faults are drop, duplicate, corrupt, reorder, delay, down, speed, addr-change and fatal",
        ),
        ("seed=x", "seed=x", "not a whole number"),
        ("drop", "drop", "drop=1%"),
        ("drop=200%", "drop=200%", "between 0 and 100%"),
        ("drop=-1", "drop=-1", "between 0 and 100%"),
        ("drop=NaN", "drop=NaN", "between 0 and 100%"),
        ("drop=many", "drop=many", "write 1% or 0.01"),
        ("delay=5%", "delay=5%", "write 500ns, 200us"),
        ("delay=200us", "delay=200us", "delay=200us:5%"),
        ("delay:op=ack", "delay:op=ack", "how long"),
        ("delay=2000s:1%", "delay=2000s:1%", "60s"),
        ("drop:op=rc_sned_only", "drop:op=rc_sned_only", "no opcode is called"),
        ("drop:op=0x100", "drop:op=0x100", "less than 256"),
        ("drop:psn=16777216", "drop:psn=16777216", "2^24"),
        ("drop:qpn=abc", "drop:qpn=abc", "2^24"),
        ("drop:nth=0", "drop:nth=0", "nth=1 for the first"),
        ("drop:nth=3-2", "drop:nth=3-2", "nth=2-4"),
        ("drop:dir=up", "drop:dir=up", "write tx (sent), rx (received) or both"),
        ("drop:peer=b", "drop:peer=b", "is not an address; write 10.0.0.2 or [fe80::1]"),
        ("drop:after=2d", "drop:after=2d", "is not a time"),
        ("down:op=ack", "down:op=ack", "its conditions are after, for and device"),
        ("fatal:for=1s", "fatal:for=1s", "its conditions are after and device"),
        ("down=1%", "down=1%", "takes no value"),
        ("speed", "speed", "as in speed=1Gbit"),
        ("speed=fast", "speed=fast", "is not a speed"),
        ("drop:depth=3", "drop:depth=3", "not a condition of drop"),
        ("reorder=1%:depth=0", "reorder=1%:depth=0", "from 1 to 1000"),
        ("drop=1%:rate=2%", "drop=1%:rate=2%", "given twice"),
        ("drop:psn=1:psn=2", "drop:psn=1:psn=2", "given twice"),
    ] {
        let error = text.parse::<FaultSpec>().expect_err(text).to_string();
        assert!(error.contains(&format!("`{item}`")) && error.contains(hint), "{text}: {error}");
    }
}

#[test]
fn opcode_patterns_select_their_opcodes() {
    let selected = |pattern: &str| -> Vec<u8> {
        let spec = spec(&format!("drop:op={pattern}"));
        let opcodes = spec.rules[0].opcodes.clone().unwrap();
        (0..=255).filter(|byte| opcodes.contains(*byte)).collect()
    };
    assert_eq!(selected("rc_send_only"), [0x04]);
    assert_eq!(selected("ack"), [0x11]);
    assert_eq!(selected("0xC0"), [0xC0]);
    assert_eq!(selected("rc_rdma_write_only*"), [0x0A, 0x0B]);
    assert_eq!(selected("rc_write_only*"), [0x0A, 0x0B]);
    assert_eq!(selected("*read_response_first"), [0x0D, 0xAD]);
    assert_eq!(selected("ud*"), [0x64, 0x65]);
    assert_eq!(selected("*").len(), softrnic_wire::OPCODES.len());
}

/// A connection management message of this kind, as it is sent from QP 1 to QP 1.
fn management(attribute_id: u16) -> Vec<u8> {
    let mut bytes = vec![0x64, 0, 0xFF, 0xFF, 0, 0, 0, 1, 0, 0, 0, 0, 0x80, 1, 0, 0, 0, 0, 0, 1];
    bytes.extend([1, 7, 2, 3]);
    bytes.resize(20 + softrnic_wire::MAD_LEN + 4, 0);
    bytes[36..38].copy_from_slice(&attribute_id.to_be_bytes());
    bytes
}

#[test]
fn connection_management_messages_are_named() {
    let dropped = |faults: &str| -> Vec<u16> {
        let mut rules = Rules::new(&spec(faults));
        let all = softrnic_wire::CmMessage::ATTRIBUTE_IDS;
        all.filter(|id| rules.decide(Duration::ZERO, Direction::Tx, ip(2), &management(*id)).is_some())
            .collect()
    };
    assert_eq!(dropped("drop:op=cm_req"), [0x10]);
    assert_eq!(dropped("drop:op=CM_SIDR_REP"), [0x18]);
    assert_eq!(dropped("drop:op=cm_d*"), [0x15, 0x16]);
    assert_eq!(dropped("drop:op=cm").len(), 11);
    assert_eq!(dropped("drop:op=cm:nth=2"), [0x11]);
    assert_eq!(dropped("drop:op=ud_send_only").len(), 11);
    assert_eq!(dropped("drop:op=rc*"), []);

    let mut rules = Rules::new(&spec("drop:op=cm_req"));
    let whole = management(0x10);
    for len in 0..44 {
        assert_eq!(rules.decide(Duration::ZERO, Direction::Tx, ip(2), &whole[..len]), None, "of {len} bytes");
    }
    for (at, why) in [(0, "another opcode"), (7, "another QP"), (21, "another class"), (23, "another method")]
    {
        let mut other = whole.clone();
        other[at] += 1;
        assert_eq!(rules.decide(Duration::ZERO, Direction::Tx, ip(2), &other), None, "{why}");
    }
}

#[test]
fn a_pattern_of_many_stars_is_judged_at_once() {
    // It took time that doubles with each star when every way to match was tried.
    let stars = "*".repeat(40);
    let error = format!("drop:op={stars}x").parse::<FaultSpec>().expect_err("no such opcode").to_string();
    assert!(error.contains("no opcode is called"), "{error}");
    let all = spec(&format!("drop:op={}", "*".repeat(1000)));
    assert!((0..=255).filter(|byte| all.rules[0].opcodes.as_ref().unwrap().contains(*byte)).count() > 10);
    let both = spec("drop:op=rc_*_*st").rules[0].opcodes.clone().unwrap();
    assert!(
        both.contains(0x00) && both.contains(0x02) && !both.contains(0x04),
        "rc_send_first, _last, not _only"
    );
    assert!("drop:op=ud_send_only*only".parse::<FaultSpec>().is_err(), "no byte counts twice");
}

#[test]
fn without_rules_everything_passes() {
    let (mut a, mut b) = faulty_sender("seed=3");
    send_all(&mut a, 0..50);
    assert_eq!(psns(&drain(&mut b, NOW)), (0..50).collect::<Vec<_>>());
    assert_eq!(a.counters().faults_injected, 0);
    assert_eq!(a.capabilities().segments, 1);
    assert_eq!(a.capabilities().mode, "sim 10.0.0.1");
    assert_eq!(a.poll_timeout(), None);
}

#[test]
fn rules_pick_their_datagrams() {
    for (faults, missing) in [
        ("drop:psn=5", vec![5]),
        ("drop:psn=5-7", vec![5, 6, 7]),
        ("drop:psn=16777210-1", vec![0, 1]),
        ("drop:nth=1", vec![0]),
        ("drop:nth=3-4", vec![2, 3]),
        ("drop:psn=4-9:nth=2", vec![5]),
        ("drop:op=rc_send_only:psn=5:nth=1", vec![5]),
        ("drop:op=rc_send_first", vec![]),
        ("drop:qpn=0x11:nth=2", vec![1]),
        ("drop:qpn=0x12", vec![]),
        ("drop:dir=rx", vec![]),
        ("drop:nth=2,drop:nth=2-3", vec![1, 2]),
    ] {
        let (mut a, mut b) = faulty_sender(faults);
        send_all(&mut a, 0..12);
        let expected: Vec<u32> = (0..12).filter(|psn| !missing.contains(psn)).collect();
        assert_eq!(psns(&drain(&mut b, NOW)), expected, "{faults}");
        assert_eq!(a.counters().faults_injected, missing.len() as u64, "{faults}");
    }
}

#[test]
fn duplicates_come_twice_and_corrupted_ones_with_a_bad_icrc() {
    let (mut a, mut b) = faulty_sender("duplicate:psn=1,corrupt:psn=2");
    send_all(&mut a, 0..4);
    let got = drain(&mut b, NOW);
    assert_eq!(got.len(), 5);
    assert_eq!(psns(&got[..3]), [0, 1, 1]);
    let good: Vec<bool> = got.iter().map(Received::icrc_ok).collect();
    assert_eq!(good, [true, true, true, false, true]);
    assert_eq!(a.counters().faults_injected, 2);
}

/// Two links of one memory, which would leave ICRCs out.
#[test]
fn damage_shows_where_datagrams_have_no_icrc_otherwise() {
    let (a, mut b) = ends();
    let mut a = FaultLink::new(Unsealed::new(a), &spec("corrupt:psn=1"));
    assert!(a.inner().keeps_icrcs);
    send_all(&mut a, 0..2);
    let good: Vec<bool> = drain(&mut b, NOW).iter().map(Received::icrc_ok).collect();
    assert_eq!(good, [true, false]);

    let (mut a, b) = ends();
    let mut b = FaultLink::new(Unsealed::new(b), &spec("corrupt:dir=rx:psn=1,delay=1ms:dir=rx:psn=2"));
    send_all(&mut a, 0..3);
    let mut got = drain(&mut b, NOW);
    got.extend(drain(&mut b, Time::from_nanos(1_000_000)));
    let found: Vec<_> = got.iter().map(|one| (one.psn(), one.has_icrc, one.icrc_ok())).collect();
    assert_eq!(found, [(0, false, true), (1, true, false), (2, false, true)]);
}

/// Without rules nothing is looked at, until there are some.
#[test]
fn rules_that_are_given_later_keep_icrcs_from_then_on() {
    let (a, _b) = ends();
    let mut a = FaultLink::new(Unsealed::new(a), &FaultSpec::default());
    assert!(!a.inner().keeps_icrcs);
    a.inject(NOW, &spec("drop=1%"));
    assert!(a.inner().keeps_icrcs);
}

#[test]
fn reordered_datagrams_are_overtaken_by_depth_others() {
    let (mut a, mut b) = faulty_sender("reorder:psn=1,reorder:psn=4:depth=3");
    send_all(&mut a, 0..9);
    assert_eq!(psns(&drain(&mut b, NOW)), [0, 2, 3, 1, 5, 6, 7, 4, 8]);
}

#[test]
fn a_reordered_datagram_without_followers_leaves_after_a_while() {
    let (mut a, mut b) = faulty_sender("reorder:nth=1");
    send_all(&mut a, 0..1);
    assert!(drain(&mut b, NOW).is_empty());
    let due = a.poll_timeout().unwrap();
    assert_eq!(due, Time::from_nanos(1_000_000));
    a.flush(due);
    assert_eq!(psns(&drain(&mut b, due)), [0]);
    assert_eq!(a.poll_timeout(), None);
}

#[test]
fn delayed_datagrams_leave_when_their_time_has_come() {
    let (mut a, mut b) = faulty_sender("delay=200us:psn=1,delay=100us:psn=2");
    send_all(&mut a, 0..4);
    assert_eq!(psns(&drain(&mut b, NOW)), [0, 3]);
    assert_eq!(a.poll_timeout(), Some(Time::from_nanos(100_000)));
    a.flush(Time::from_nanos(99_999));
    assert!(drain(&mut b, Time::from_nanos(99_999)).is_empty());
    // Receiving is enough to be driven.
    assert!(drain(&mut a, Time::from_nanos(100_000)).is_empty());
    assert_eq!(psns(&drain(&mut b, Time::from_nanos(100_000))), [2]);
    assert_eq!(a.poll_timeout(), Some(Time::from_nanos(200_000)));
    a.flush(LATER);
    assert_eq!(psns(&drain(&mut b, LATER)), [1]);
}

#[test]
fn rules_with_dir_rx_apply_to_received_datagrams() {
    let fabric = Fabric::new(0);
    fabric.set_default_path(Path { delay: Duration::ZERO, ..Path::default() });
    let options = SimOptions { sees_ip_header: true, ..SimOptions::default() };
    let mut a = fabric.attach(ip(1), options).unwrap();
    let faults = "drop:dir=rx:psn=0,duplicate:dir=rx:psn=1,corrupt:dir=rx:psn=2,reorder:dir=rx:psn=3,\
                  delay=50us:dir=rx:psn=4,drop:psn=9";
    let mut b = FaultLink::new(fabric.attach(ip(2), options).unwrap(), &spec(faults));
    send_all(&mut a, 0..10);
    let got = drain(&mut b, NOW);
    let good: Vec<Received> = got.iter().filter(|r| r.icrc_ok()).cloned().collect();
    assert_eq!(psns(&good), [1, 1, 5, 6, 3, 7, 8, 9]);
    assert_eq!(got.len(), good.len() + 1);
    assert!(got.iter().all(|r| r.ip_header.as_ref().is_some_and(|header| header.len() == 20)));
    assert_eq!(b.poll_timeout(), Some(Time::from_nanos(50_000)));
    assert_eq!(psns(&drain(&mut b, Time::from_nanos(50_000))), [4]);
    assert_eq!(b.counters().faults_injected, 5);
}

#[test]
fn the_same_seed_repeats_the_same_faults() {
    let run = |seed: u64| {
        let faults = format!("seed={seed},drop=5%,duplicate=5%,corrupt=5%,reorder=5%,delay=20us:5%");
        let (mut a, mut b) = faulty_sender(&faults);
        send_all(&mut a, 0..500);
        let mut got = drain(&mut b, NOW);
        a.flush(LATER);
        got.extend(drain(&mut b, LATER));
        (got, a.counters().faults_injected)
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7).0, run(8).0);
}

#[test]
fn rates_are_met_approximately_and_are_independent() {
    let dropped = |faults: &str| {
        let (mut a, mut b) = faulty_sender(faults);
        send_all(&mut a, 0..4000);
        let mut missing: Vec<u32> = (0..4000).collect();
        a.flush(LATER);
        let got = psns(&drain(&mut b, LATER));
        missing.retain(|psn| !got.contains(psn));
        missing
    };
    let alone = dropped("seed=1,drop=5%");
    assert!((150..250).contains(&alone.len()), "{}", alone.len());
    assert_eq!(alone, dropped("seed=1,drop=5%,duplicate=10%,delay=1us:10%"));
}

#[test]
fn datagrams_that_leave_with_another_id_get_another_icrc() {
    let fabric = Fabric::new(0);
    let options = SimOptions { sees_ip_header: true, counts_ids: true, ..SimOptions::default() };
    let faults = spec("duplicate:psn=1,reorder:psn=2,delay=1us:psn=3,corrupt:psn=4");
    let mut a = FaultLink::new(fabric.attach(ip(1), options).unwrap(), &faults);
    let mut b = fabric.attach(ip(2), options).unwrap();
    send_all(&mut a, 0..8);
    a.flush(LATER);
    let got = drain(&mut b, LATER + Duration::from_secs(1));
    assert_eq!(got.len(), 9);
    let bad = got.iter().filter(|r| !r.icrc_ok()).count();
    assert_eq!(bad, 1);
    let ids: std::collections::BTreeSet<_> = got.iter().map(|r| format!("{:?}", r.id)).collect();
    assert_eq!(ids.len(), 9);
}

#[test]
fn a_held_datagram_waits_while_the_link_below_is_full() {
    let fabric = Fabric::new(0);
    fabric.set_default_path(Path { delay: Duration::ZERO, ..Path::default() });
    let options = SimOptions { bandwidth: Some(8_000_000), transmit_buffer: 400, ..SimOptions::default() };
    let mut a = FaultLink::new(fabric.attach(ip(1), options).unwrap(), &spec("delay=1us:nth=1"));
    let mut b = fabric.attach(ip(2), SimOptions::default()).unwrap();
    let to_b = flow(ip(1), ip(2));
    send(&mut a, NOW, &to_b, 0, 64).unwrap();
    a.flush(NOW);
    let mut psn = 1;
    while send(&mut a, NOW, &to_b, psn, 64).is_ok() {
        a.flush(NOW);
        psn += 1;
    }
    let mut got = Vec::new();
    let mut now = NOW;
    while got.len() < psn as usize {
        now = [a.poll_timeout(), fabric.next_delivery()].into_iter().flatten().min().unwrap().max(now);
        a.flush(now);
        got.extend(drain(&mut b, now));
        assert!(now < LATER, "{} of {psn} arrived", got.len());
    }
    let mut order = psns(&got);
    order.sort();
    assert_eq!(order, (0..psn).collect::<Vec<_>>());
}

#[test]
fn each_rule_tells_how_often_it_matched() {
    let (mut a, _b) = faulty_sender("seed=3,drop:nth=2-3,corrupt:psn=1-9,drop:op=ack,drop:dir=rx:nth=1");
    let tally = a.tally();
    send_all(&mut a, 0..20);
    drop(a);
    let lines: Vec<_> = tally.lines().map(|line| line.to_string()).collect();
    assert_eq!(
        lines,
        [
            "rule 1, drop:nth=2-3: matched 2 of 20 packets",
            "rule 2, corrupt:psn=1-9: matched 9 of 20 packets",
            "rule 3, drop:op=rc_acknowledge: matched 0 of 20 packets",
            "rule 4, drop:dir=rx:nth=1: matched 0 of 0 packets",
        ]
    );
}

#[test]
fn nothing_passes_a_port_that_is_down_in_either_direction() {
    let (mut a, mut b) = faulty_sender("");
    let command = |a: &mut FaultLink<SimLink>, now, text: &str| {
        text.parse::<LinkCommand>().expect("a command").apply(now, a);
    };
    command(&mut a, NOW, "down");
    send_all(&mut a, 0..3);
    send(&mut b, NOW, &flow(ip(2), ip(1)), 7, 64).unwrap();
    b.flush(NOW);
    assert!(drain(&mut b, NOW).is_empty() && drain(&mut a, NOW).is_empty());
    let counters = a.counters();
    assert_eq!((counters.port_tx_dropped, counters.port_rx_dropped, counters.tx_datagrams), (3, 1, 0));
    command(&mut a, NOW, "up");
    send_all(&mut a, 3..5);
    assert_eq!(psns(&drain(&mut b, NOW)), [3, 4]);
    assert!(drain(&mut b, NOW).iter().all(Received::icrc_ok));
    assert_eq!(
        [a.port(NOW).take_change(), a.port(NOW).take_change(), a.port(NOW).take_change()],
        [Some(PortChange::Down), Some(PortChange::Up { deaf: Duration::ZERO }), None]
    );
}

#[test]
fn new_rules_replace_what_those_before_do_to_the_port() {
    let ms = |ms: u64| Time::ZERO + Duration::from_millis(ms);
    let (mut a, _b) = faulty_sender("down:after=10ms,speed=1Gbit,down:after=60ms:for=5ms");
    a.port(ms(0)).advance(ms(20));
    assert_eq!((a.port(ms(20)).down_since(), a.port(ms(20)).speed()), (Some(ms(10)), Some(1_000_000_000)));
    let obey = |link: &mut FaultLink<_>, text: &str| {
        text.parse::<LinkCommand>().expect("a command").of_device("a").apply(ms(30), link);
    };
    obey(&mut a, "faults down:after=5ms:device=a,fatal:device=b");
    let port = a.port(ms(30));
    assert_eq!((port.down_since(), port.speed(), port.next_change()), (None, None, Some(ms(35))));
    // What a command says stays.
    obey(&mut a, "down");
    obey(&mut a, "rate 2Gbit");
    obey(&mut a, "faults off");
    let port = a.port(ms(30));
    assert_eq!(
        (port.down_since(), port.speed(), port.next_change()),
        (Some(ms(30)), Some(2_000_000_000), None)
    );
}

#[test]
fn a_port_changes_at_the_times_that_were_commanded() {
    let ms = |ms: u64| Time::ZERO + Duration::from_millis(ms);
    let (mut a, _b) = faulty_sender("");
    let mut obey = |now, text: &str| text.parse::<LinkCommand>().expect("a command").apply(now, &mut a);
    obey(ms(0), "flap 2 down=10ms up=30ms");
    let port = a.port(ms(0));
    let mut was_down = Vec::new();
    let mut now = ms(0);
    while let Some(next) = port.next_change() {
        was_down.push((now, port.down_since().is_some()));
        now = next;
        port.advance(now);
    }
    was_down.push((now, port.down_since().is_some()));
    assert_eq!(was_down, [(ms(0), true), (ms(10), false), (ms(40), true), (ms(50), false)]);
    // Late, every change is made all the same.
    let changes = std::iter::from_fn(|| port.take_change()).count();
    assert_eq!(changes, 4);
    // What is said twice is no change, and a new command forgets what was to come.
    let mut obey = |now, text: &str| text.parse::<LinkCommand>().expect("a command").apply(now, &mut a);
    obey(now, "down for=5ms");
    obey(now, "down");
    let port = a.port(now);
    assert_eq!(
        (port.next_change(), port.take_change(), port.take_change()),
        (None, Some(PortChange::Down), None)
    );
    "up deaf=5ms".parse::<LinkCommand>().expect("a command").apply(now, &mut a);
    let port = a.port(now);
    assert_eq!(port.down_since(), None);
    assert!(port.is_shut(ms(54)).is_some() && port.is_shut(ms(55)).is_none());
}

#[test]
fn a_slow_port_sends_no_faster_than_it_may() {
    let (mut a, mut b) = faulty_sender("");
    // 8000 bits a millisecond: a datagram of 100 bytes takes a tenth of that.
    a.port(NOW).command(NOW, PortChange::Speed(Some(8_000_000)));
    let (mut now, mut psn, mut got) = (NOW, 0, 0);
    while now < LATER {
        while send(&mut a, now, &flow(ip(1), ip(2)), psn, 100 - 16).is_ok() {
            psn += 1;
        }
        a.flush(now);
        got += drain(&mut b, now).iter().map(|received| received.bytes.len()).sum::<usize>();
        now = a.poll_timeout().expect("it waits").max(now);
    }
    assert!((995_000..1_010_000).contains(&got), "{got} bytes in a second");
}

#[test]
fn rules_hold_for_a_time_and_a_peer() {
    let (mut a, mut b) =
        faulty_sender("drop:after=10ms:for=20ms,drop:peer=10.0.0.9,drop:dir=rx:peer=10.0.0.2:after=50ms");
    let mut passes = |at: u64, from_b: bool| {
        let now = NOW + Duration::from_millis(at);
        let (from, to, src, dst): (&mut dyn Link, &mut dyn Link, _, _) =
            if from_b { (&mut b, &mut a, 2, 1) } else { (&mut a, &mut b, 1, 2) };
        send(from, now, &flow(ip(src), ip(dst)), 0, 64).unwrap();
        from.flush(now);
        drain(to, now).len() == 1
    };
    assert!(passes(0, false) && passes(9, false), "not yet");
    assert!(!passes(10, false) && !passes(29, false));
    assert!(passes(30, false) && passes(31, true), "no longer");
    assert!(!passes(50, true), "from this peer");
}

#[test]
fn blackholes_swallow_one_direction_or_one_peer() {
    let (mut a, mut b) = faulty_sender("");
    let mut passes = |command: &str| {
        command.parse::<LinkCommand>().expect("a command").apply(NOW, &mut a);
        send_all(&mut a, 0..1);
        send(&mut b, NOW, &flow(ip(2), ip(1)), 0, 64).unwrap();
        b.flush(NOW);
        (drain(&mut b, NOW).len(), drain(&mut a, NOW).len())
    };
    assert_eq!(passes("blackhole out"), (0, 1));
    assert_eq!(passes("blackhole off"), (1, 1));
    assert_eq!(passes("blackhole in peer=10.0.0.2"), (1, 0));
    assert_eq!(passes("blackhole off"), (1, 1));
    assert_eq!(passes("blackhole peer=10.0.0.3"), (1, 1));
    assert_eq!(passes("blackhole"), (0, 0));
    assert_eq!(a.port(NOW).take_change(), None, "the port is up");
}

#[test]
fn ports_change_as_a_specification_says() {
    let ms = |ms: u64| NOW + Duration::from_millis(ms);
    let (mut a, mut b) = faulty_sender("down:after=10ms:for=20ms:device=a");
    let mut seen = Vec::new();
    for at in [0, 9, 10, 29, 30] {
        send(&mut a, ms(at), &flow(ip(1), ip(2)), at as u32, 64).unwrap();
        a.flush(ms(at));
        seen.extend(psns(&drain(&mut b, ms(at))));
    }
    assert_eq!(seen, [0, 9, 30]);
    assert_eq!(a.poll_timeout(), None);
    assert!(spec("down:device=a").of_device("b").is_empty());
    // Others can be injected at any time; their times count from then on.
    a.inject(ms(40), &spec("drop:after=5ms"));
    for at in [44, 45] {
        send(&mut a, ms(at), &flow(ip(1), ip(2)), at as u32, 64).unwrap();
        a.flush(ms(at));
    }
    assert_eq!(psns(&drain(&mut b, ms(45))), [44]);
}
