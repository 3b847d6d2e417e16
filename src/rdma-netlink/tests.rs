use softrnic_stats::{CqSnapshot, QpSnapshot, Resources, Snapshot};

use crate::number::{DONE, ERROR, NLDEV, attribute::*, command, flag};
use crate::reply::LONGEST;
use crate::request::{HEADER, Request, attributes};
use crate::{OwnDevice, Responder, System};

const PORT: u32 = 4711;

/// A machine of a test's own.
#[derive(Default)]
struct Machine {
    own: Vec<OwnDevice>,
    running: Vec<Snapshot>,
}

impl System for Machine {
    fn own(&self) -> Vec<OwnDevice> {
        self.own.clone()
    }

    fn running(&self) -> Vec<Snapshot> {
        self.running.clone()
    }

    fn device_flags(&self) -> u64 {
        0x10
    }

    fn port_flags(&self) -> u32 {
        1
    }

    fn connection_manager(&self) -> (u32, u32) {
        (10, 300)
    }
}

fn own(name: &str) -> OwnDevice {
    OwnDevice { name: name.into(), guid: Some(7), interface: (1, "lo".into()), is_active: true }
}

fn running(name: &str, pid: u32, guid: u64) -> Snapshot {
    let mut snapshot = Snapshot::of(name);
    snapshot.pid = pid;
    snapshot.port.state = "ACTIVE".into();
    let resources =
        Resources { node_guid: guid, interface_index: 2, interface: "eth0".into(), ..Resources::default() };
    snapshot.resources = Some(resources);
    snapshot
}

fn qp(qpn: u32) -> QpSnapshot {
    QpSnapshot {
        qpn,
        service: "RC".into(),
        state: "RTS".into(),
        peer: [127, 0, 0, 1].into(),
        peer_qpn: 1,
        send_psn: 2,
        una_psn: 2,
        expected_psn: 3,
        msn: 0,
        in_flight: 0,
        queued_sends: 0,
        retries_left: 7,
        rnr_wait: false,
        waits_ns: None,
        posted: None,
        peer_says: None,
        peer_stopped: false,
        paced_rate: None,
        packets_sent: 0,
        packets_received: 0,
        bytes_sent: 0,
        bytes_received: 0,
        retransmitted: 0,
        rnr_sent: 0,
        rnr_received: 0,
    }
}

/// A request with attributes that are numbers.
fn request(number: u16, flags: u16, numbers: &[(u16, u32)]) -> Vec<u8> {
    let mut content = Vec::new();
    for (kind, value) in numbers {
        content.extend([8u16.to_ne_bytes(), kind.to_ne_bytes()].concat());
        content.extend(value.to_ne_bytes());
    }
    let mut message = ((HEADER + content.len()) as u32).to_ne_bytes().to_vec();
    message.extend((NLDEV << 10 | number).to_ne_bytes());
    message.extend((flag::REQUEST | flags).to_ne_bytes());
    message.extend(99u32.to_ne_bytes());
    message.extend([0; 4]);
    message.extend(content);
    message
}

/// An answer: its type, and all that is behind its head.
fn parsed(datagram: &[u8]) -> (u16, &[u8]) {
    assert!(datagram.len() <= LONGEST, "{}", datagram.len());
    let (length, content) = (u32::from_ne_bytes(datagram[..4].try_into().expect("4")), &datagram[HEADER..]);
    assert_eq!(length as usize, datagram.len());
    assert_eq!(datagram[8..12], 99u32.to_ne_bytes());
    assert_eq!(datagram[12..16], PORT.to_ne_bytes());
    (u16::from_ne_bytes([datagram[4], datagram[5]]), content)
}

fn find(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(known, _)| *known == kind).map(|(_, value)| value)
}

fn number(bytes: &[u8], kind: u16) -> Option<u32> {
    Some(u32::from_ne_bytes(*find(bytes, kind)?.first_chunk()?))
}

fn text(bytes: &[u8], kind: u16) -> String {
    String::from_utf8_lossy(find(bytes, kind).expect("a text")).trim_end_matches('\0').to_owned()
}

fn errno(content: &[u8]) -> i32 {
    i32::from_ne_bytes(*content.first_chunk().expect("a number"))
}

/// The names and numbers of all devices.
fn devices(responder: &mut Responder, machine: &Machine) -> Vec<(u32, String)> {
    let answers = responder.answer(PORT, &request(command::GET, flag::DUMP, &[]), machine);
    let (last, devices) = answers.split_last().expect("an end");
    assert_eq!(parsed(last), (DONE, &[0; 4][..]));
    let shown = |answer: &Vec<u8>| {
        let (_, content) = parsed(answer);
        (number(content, DEV_INDEX).expect("a number"), text(content, DEV_NAME))
    };
    devices.iter().map(shown).collect()
}

#[test]
fn devices_keep_their_numbers_while_others_come_and_go() {
    let mut responder = Responder::default();
    let mut machine = Machine { own: vec![own("mine"), own("b")], ..Machine::default() };
    machine.running = vec![running("z", 1, 1), running("b", 2, 2)];
    let named =
        |names: &[(u32, &str)]| names.iter().map(|(n, name)| (*n, (*name).to_owned())).collect::<Vec<_>>();
    assert_eq!(devices(&mut responder, &machine), named(&[(0, "mine"), (1, "b"), (2, "z")]));
    machine.running.push(running("a", 3, 3));
    machine.running.remove(0);
    assert_eq!(devices(&mut responder, &machine), named(&[(0, "mine"), (1, "b"), (3, "a")]));
    machine.running.push(running("z", 4, 1));
    assert_eq!(devices(&mut responder, &machine), named(&[(0, "mine"), (1, "b"), (2, "z"), (3, "a")]));
}

#[test]
fn a_device_that_has_gone_since_it_was_listed_has_nothing() {
    let mut responder = Responder::default();
    let mut machine = Machine { own: vec![own("mine")], running: vec![running("z", 1, 1)] };
    devices(&mut responder, &machine);
    machine.running.clear();
    let mut answer = |number, flags, numbers: &[(u16, u32)]| {
        let answers = responder.answer(PORT, &request(number, flags, numbers), &machine);
        let [answer] = &answers[..] else { panic!("one answer and not {answers:?}") };
        let (kind, content) = parsed(answer);
        (kind, errno(content))
    };
    for number in [command::RES_QP_GET, command::RES_CM_ID_GET, command::PORT_GET, command::STAT_GET] {
        assert_eq!(answer(number, flag::DUMP, &[(DEV_INDEX, 1)]), (DONE, 0));
        assert_eq!(answer(number, flag::DUMP, &[(DEV_INDEX, 2)]), (DONE, -22), "nobody was told of it");
    }
    assert_eq!(answer(command::RES_QP_GET, flag::DUMP, &[(DEV_INDEX, 1), (PORT_INDEX, 2)]), (DONE, -22));
    assert_eq!(answer(command::GET, 0, &[(DEV_INDEX, 1)]), (ERROR, -22));
}

#[test]
fn a_table_that_is_longer_than_a_datagram_is_told_in_several() {
    let mut nic = running("a", 77, 1);
    nic.qps = (17..2017).map(qp).collect();
    let machine = Machine { running: vec![nic], ..Machine::default() };
    let mut responder = Responder::default();
    assert_eq!(devices(&mut responder, &machine).len(), 1);
    let asked = request(command::RES_QP_GET, flag::DUMP | flag::ACK, &[(DEV_INDEX, 0)]);
    let answers = responder.answer(PORT, &asked, &machine);
    let (last, tables) = answers.split_last().expect("an end");
    assert_eq!(parsed(last).0, DONE);
    assert!(tables.len() > 10);
    let mut seen = Vec::new();
    for table in tables {
        let (_, content) = parsed(table);
        for (kind, entry) in attributes(find(content, RES_QP).expect("a table")) {
            assert_eq!(kind, RES_QP_ENTRY);
            assert_eq!(number(entry, RES_PID), Some(77));
            assert_eq!((find(entry, RES_TYPE), find(entry, RES_STATE)), (Some(&[2][..]), Some(&[3][..])));
            seen.push(number(entry, RES_LQPN).expect("a number"));
        }
    }
    assert_eq!(seen, (17..2017).collect::<Vec<_>>());
}

#[test]
fn one_object_is_found_in_each_process_that_has_it() {
    let with_cq = |pid, cqn| {
        let mut nic = running("a", pid, 1);
        let cq = CqSnapshot { cqn, cqe: 5, users: 1, waiting: 0, armed: None };
        nic.resources.as_mut().expect("some").cqs.push(cq);
        nic
    };
    let machine =
        Machine { running: vec![with_cq(1, 8), with_cq(2, 9), with_cq(3, 8)], ..Machine::default() };
    let mut responder = Responder::default();
    devices(&mut responder, &machine);
    let ask = |responder: &mut Responder, cqn| {
        responder.answer(
            PORT,
            &request(command::RES_CQ_GET, flag::ACK, &[(DEV_INDEX, 0), (RES_CQN, cqn)]),
            &machine,
        )
    };
    let answers = ask(&mut responder, 8);
    let pids = answers.iter().map(|answer| number(parsed(answer).1, RES_PID));
    assert_eq!(pids.collect::<Vec<_>>(), [Some(1), Some(3), None]);
    assert_eq!(parsed(&answers[2]).0, ERROR);
    assert_eq!(errno(parsed(&answers[2]).1), 0);
    let missing = ask(&mut responder, 10);
    assert_eq!((missing.len(), errno(parsed(&missing[0]).1)), (1, -2));
}

#[test]
fn what_differs_between_processes_is_left_out_or_the_worst_is_shown() {
    let mut machine = Machine { running: vec![running("a", 1, 5), running("a", 2, 5)], ..Machine::default() };
    let mut responder = Responder::default();
    devices(&mut responder, &machine);
    let guid = |responder: &mut Responder, machine: &Machine| {
        let answers = responder.answer(PORT, &request(command::GET, flag::ACK, &[(DEV_INDEX, 0)]), machine);
        find(parsed(&answers[0]).1, NODE_GUID).map(<[u8]>::to_vec)
    };
    assert_eq!(guid(&mut responder, &machine), Some(5u64.to_ne_bytes().to_vec()));
    machine.running.push(running("a", 3, 6));
    assert_eq!(guid(&mut responder, &machine), None);

    let port = |responder: &mut Responder, machine: &Machine| {
        let asked = request(command::PORT_GET, flag::ACK, &[(DEV_INDEX, 0), (PORT_INDEX, 1)]);
        let answers = responder.answer(PORT, &asked, machine);
        let (_, content) = parsed(&answers[0]);
        assert_eq!(text(content, NDEV_NAME), "eth0");
        [PORT_STATE, PORT_PHYS_STATE].map(|kind| find(content, kind).expect("a state")[0])
    };
    assert_eq!(port(&mut responder, &machine), [4, 5]);
    machine.running[1].port.state = "DOWN".into();
    machine.running[1].port.phys_state = "Polling".into();
    assert_eq!(port(&mut responder, &machine), [1, 2]);
}

#[test]
fn a_device_that_nobody_has_opened_is_known_by_its_specification() {
    let machine = Machine { own: vec![own("mine")], ..Machine::default() };
    let asked = request(command::GET, 0, &[(DEV_INDEX, 0)]);
    let answers = Responder::default().answer(PORT, &asked, &machine);
    let [answer] = &answers[..] else { panic!("without ACK there is only the answer") };
    let (kind, content) = parsed(answer);
    assert_eq!(kind, NLDEV << 10 | command::GET);
    assert_eq!(find(content, NODE_GUID), Some(&7u64.to_ne_bytes()[..]));
    assert_eq!(number(content, PORT_INDEX), Some(1));
}

#[test]
fn the_node_of_the_connection_manager_has_the_kernels_numbers() {
    let mut asked = request(command::GET_CHARDEV, 0, &[]);
    asked.extend([12u16.to_ne_bytes(), CHARDEV_TYPE.to_ne_bytes()].concat());
    asked.extend(b"rdma_cm\0");
    asked[0] = asked.len() as u8;
    let machine = Machine::default();
    let answers = Responder::default().answer(PORT, &asked, &machine);
    let (_, content) = parsed(&answers[0]);
    assert_eq!(text(content, CHARDEV_NAME), "rdma_cm");
    // 300 is 0x12C: its low byte, the major number, and the rest.
    assert_eq!(find(content, CHARDEV), Some(&(0x10_0000u64 | 10 << 8 | 0x2C).to_ne_bytes()[..]));
}

#[test]
fn what_is_not_there_or_would_change_something_is_refused() {
    let machine = Machine { own: vec![own("mine")], ..Machine::default() };
    let mut responder = Responder::default();
    let mut refused = |number, numbers: &[(u16, u32)]| {
        let answers = responder.answer(PORT, &request(number, 0, numbers), &machine);
        let (kind, content) = parsed(answers.last().expect("an answer"));
        assert_eq!(kind, ERROR);
        errno(content)
    };
    let (set, new_link, statistic_set) = (2, 3, 16);
    for number in [set, new_link, statistic_set, 0, 0x3FF] {
        assert_eq!(refused(number, &[(DEV_INDEX, 0)]), -95);
    }
    assert_eq!(refused(command::GET, &[(DEV_INDEX, 1)]), -22);
    assert_eq!(refused(command::GET, &[]), -22);
    assert_eq!(refused(command::PORT_GET, &[(DEV_INDEX, 0), (PORT_INDEX, 2)]), -22);
    assert_eq!(refused(command::RES_QP_GET, &[(DEV_INDEX, 0)]), -22);
    let answers =
        responder.answer(PORT, &request(command::RES_QP_GET, flag::DUMP, &[(DEV_INDEX, 9)]), &machine);
    assert_eq!((answers.len(), parsed(&answers[0])), (1, (DONE, &(-22i32).to_ne_bytes()[..])));
}

#[test]
fn requests_that_make_no_sense_end_the_datagram() {
    let machine = Machine { own: vec![own("mine")], ..Machine::default() };
    let mut responder = Responder::default();
    let good = request(command::SYS_GET, 0, &[]);
    for (length, answers) in [(0u32, 1), (15, 1), (16, 2), (17, 1), (u32::MAX, 1)] {
        let mut second = good.clone();
        second[..4].copy_from_slice(&length.to_ne_bytes());
        assert_eq!(
            responder.answer(PORT, &[&good[..], &second].concat(), &machine).len(),
            answers,
            "{length}"
        );
    }
    // Attributes that are shorter than their head, or longer than the message.
    for length in [0u16, 3, 7, 9, u16::MAX] {
        let mut bad = request(command::GET, 0, &[(DEV_INDEX, 0)]);
        bad[HEADER..HEADER + 2].copy_from_slice(&length.to_ne_bytes());
        let answers = responder.answer(PORT, &bad, &machine);
        assert_eq!(errno(parsed(&answers[0]).1), -22, "{length}");
    }
    for cut in 0..good.len() {
        assert!(responder.answer(PORT, &good[..cut], &machine).is_empty());
    }
    assert_eq!(Request::all(&good).count(), 1);
}

#[test]
fn a_monitor_tells_what_comes_and_goes() {
    let mut machine = Machine { own: vec![own("mine")], running: vec![running("a", 1, 1)] };
    let mut responder = Responder::default();
    let mut monitor = responder.monitor(PORT, &machine);
    assert!(responder.watch(&mut monitor, &machine).is_empty());
    machine.running = vec![running("b", 2, 2), running("b", 3, 2)];
    let told = |events: Vec<Vec<u8>>| -> Vec<(u8, String, Option<u32>)> {
        let shown = |event: &Vec<u8>| {
            let content = &event[HEADER..];
            (
                find(content, EVENT_TYPE).expect("a type")[0],
                text(content, DEV_NAME),
                number(content, NDEV_INDEX),
            )
        };
        events.iter().map(shown).collect()
    };
    let events = told(responder.watch(&mut monitor, &machine));
    assert_eq!(events, [(1, "a".into(), None), (0, "b".into(), None), (2, "b".into(), Some(2))]);
    assert!(responder.watch(&mut monitor, &machine).is_empty());
    machine.running.clear();
    assert_eq!(told(responder.watch(&mut monitor, &machine)), [(1, "b".into(), None)]);
}
