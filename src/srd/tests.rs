//! Two or more endpoints on a network that loses, repeats and reorders, in virtual time.

use std::collections::BTreeMap;
use std::vec;
use std::vec::Vec;

use core::time::Duration;

use crate::testing::{Done, KEY, Link, MEMORY, World, pattern};
use crate::{Code, Counter};

const LOSSY: Link = Link { loss: 50, repeat: 20, jitter: Duration::from_micros(40), ..Link::GOOD };

#[test]
fn a_send_arrives_and_completes() {
    let mut world = World::new(1, 2, Link::GOOD);
    world.receive(1, 0, 9, 100);
    world.send(0, (0, 1, 0), 7, &pattern(7, 100));
    world.run();
    assert_eq!(world.done(0), [Done::Sent { wr_id: 7, code: Code::Ok }]);
    assert_eq!(world.done(1), [Done::Received { wr_id: 9, bytes: pattern(7, 100), code: Code::Ok }]);
    assert_eq!(
        (world.counter(0, Counter::Sent), world.counter(1, Counter::Sent)),
        (1, 1),
        "one packet, one ACK"
    );
}

#[test]
fn a_message_of_no_bytes_is_a_message() {
    let mut world = World::new(1, 2, LOSSY);
    world.receive(1, 0, 1, 0);
    world.send(0, (0, 1, 0), 2, &[]);
    world.run();
    assert_eq!(world.done(1), [Done::Received { wr_id: 1, bytes: vec![], code: Code::Ok }]);
    assert_eq!(world.done(0), [Done::Sent { wr_id: 2, code: Code::Ok }]);
}

/// SENDs, WRITEs and READs of all lengths over a bad network: all complete, all bytes are where they belong, and no message
/// comes twice.
#[test]
fn everything_arrives_once_whatever_the_network_does() {
    for seed in 0..100 {
        let bad = Link {
            loss: seed % 200,
            repeat: seed % 90,
            jitter: Duration::from_micros(seed % 300),
            ..Link::GOOD
        };
        let mut world = World::new(seed, 2, bad);
        let mut expected = BTreeMap::new();
        for number in 0..60_u64 {
            let length = (world.random() % 9000) as usize;
            let bytes = pattern(number, length);
            world.receive(1, (number % 3) as usize, 1000 + number, 8928 + 100);
            match number % 4 {
                0 => world.write(0, (0, 1, (number % 3) as usize), number, (number as usize) << 14, &bytes),
                1 => world.read(0, (1, 1, (number % 3) as usize), number, (number as usize) << 14, length),
                _ => {
                    let bytes = pattern(number, length.min(8928));
                    world.send(0, (2, 1, (number % 3) as usize), number, &bytes);
                    *expected.entry(bytes).or_insert(0) += 1;
                }
            }
        }
        world.run();
        let sent = world.done(0);
        assert_eq!(sent.len(), 60, "seed {seed}");
        for done in sent {
            assert!(matches!(done, Done::Sent { code: Code::Ok, .. }), "seed {seed}: {done:?}");
        }
        for done in world.done(1) {
            let Done::Received { bytes, code: Code::Ok, .. } = done else { panic!("seed {seed}: {done:?}") };
            let left = expected
                .get_mut(&bytes)
                .unwrap_or_else(|| panic!("seed {seed}: nobody sent {} B", bytes.len()));
            *left -= 1;
        }
        assert!(expected.values().all(|left| *left == 0), "seed {seed}: something was lost, or came twice");
        world.check_memory(seed);
    }
}

#[test]
fn one_queue_pair_without_a_receive_keeps_no_other_waiting() {
    let mut world = World::new(3, 2, Link::GOOD);
    for number in 0..600 {
        world.send(0, (0, 1, 0), number, &pattern(number, 64));
    }
    for number in 0..600 {
        world.receive(1, 1, number, 64);
        world.send(0, (1, 1, 1), 1000 + number, &pattern(number, 64));
    }
    world.run_for(Duration::from_millis(100));
    let done = world.done(0);
    assert_eq!(done.len(), 600, "those of the other queue pair");
    assert!(done.iter().all(|done| matches!(done, Done::Sent { wr_id: 1000.., code: Code::Ok })));
    (0..600).for_each(|number| world.receive(1, 0, number, 64));
    world.run();
    assert_eq!(world.done(0).len(), 600, "and then these");
}

#[test]
fn a_message_is_refused_for_want_of_a_receive_as_often_as_was_said() {
    let mut world = World::new(4, 2, Link::GOOD);
    world.rnr_retry = 2;
    world.send(0, (0, 1, 0), 1, &pattern(1, 10));
    world.run();
    assert_eq!(world.done(0), [Done::Sent { wr_id: 1, code: Code::ReceiverNotReady }]);
    assert_eq!(world.counter(0, Counter::NotReady), 3);
    world.receive(1, 0, 2, 10);
    world.send(0, (0, 1, 0), 3, &pattern(3, 10));
    world.run();
    assert_eq!(world.done(0), [Done::Sent { wr_id: 3, code: Code::Ok }], "the queue pair goes on");
}

#[test]
fn what_a_peer_refuses_fails_with_its_reason_and_nothing_else_does() {
    for seed in 0..50 {
        let mut world = World::new(seed, 2, LOSSY);
        world.receive(1, 0, 1, 5);
        world.receive(1, 0, 2, 5);
        world.send(0, (0, 1, 0), 10, &pattern(1, 6));
        world.write(0, (0, 1, 0), 11, MEMORY - 10, &pattern(2, 9000));
        world.read(0, (0, 1, 0), 12, MEMORY - 10, 9000);
        world.send(0, (0, 1, 9), 13, &pattern(3, 6));
        world.qkey = KEY + 1;
        world.send(0, (0, 1, 0), 14, &pattern(4, 6));
        world.qkey = KEY;
        world.send(0, (0, 1, 0), 15, &pattern(5, 9000));
        world.send(0, (0, 1, 0), 16, &pattern(6, 5));
        world.run();
        let mut codes: Vec<(u64, Code)> = world
            .done(0)
            .into_iter()
            .map(|done| match done {
                Done::Sent { wr_id, code } => (wr_id, code),
                Done::Received { .. } => panic!("{done:?}"),
            })
            .collect();
        codes.sort_by_key(|(wr_id, _)| *wr_id);
        let expected = [
            (10, Code::ReceiveTooShort),
            (11, Code::BadAddress),
            (12, Code::BadAddress),
            (13, Code::BadDestination),
            (14, Code::BadDestination),
            (15, Code::BadLength),
            (16, Code::Ok),
        ];
        assert_eq!(codes, expected, "seed {seed}");
        assert_eq!(world.done(1).len(), 1, "the receive was kept for the message that fits");
    }
}

#[test]
fn messages_of_a_queue_pair_that_ends_end_with_it_and_the_peer_keeps_nothing() {
    for seed in 0..200 {
        let mut world = World::new(seed, 2, LOSSY);
        for number in 0..40 {
            world.receive(1, 0, number, 8928);
            world.send(0, (0, 1, 0), number, &pattern(number, 8000));
            world.read(0, (0, 1, 0), 500 + number, 0, 100_000);
        }
        world.run_for(Duration::from_micros(10 + seed * 3));
        world.flush(0, 0);
        let done = world.done(0);
        assert_eq!(done.len(), 80, "seed {seed}: each has completed, or was flushed");
        world.run();
        assert!(world.done(0).is_empty());
        // Whatever was not delivered has left its receive for others.
        assert_eq!(world.kept(), 0, "seed {seed}");
        let delivered = world.done(1).len();
        for number in 0..40 - delivered as u64 {
            world.send(0, (1, 1, 0), number, &pattern(number, 8000));
        }
        world.run();
        assert_eq!(world.done(1).len() + delivered, 40, "seed {seed}");
        assert!(world.done(0).iter().all(|done| matches!(done, Done::Sent { code: Code::Ok, .. })));
        assert_eq!(world.kept(), 0, "seed {seed}");
    }
}

/// The queue pair goes through ERR while a part of the message is under way, and receives again at once.
#[test]
fn a_message_whose_queue_pair_begins_anew_fails_or_arrives_whole() {
    let mut outcomes = [0; 2];
    for seed in 0..200 {
        for is_write in [false, true] {
            let mut world = World::new(seed, 2, LOSSY);
            world.receive(1, 0, 1, 8928);
            let (to, bytes) = ((0, 1, 0), pattern(1, 8000));
            match is_write {
                false => world.send(0, to, 1, &bytes),
                true => world.write_with_imm(0, to, 1, 0, &bytes),
            }
            world.run_for(Duration::from_micros(10 + seed));
            world.flush(1, 0);
            world.receive(1, 0, 2, 8928);
            world.run();
            let sent = world.done(0);
            let [Done::Sent { code, .. }] = sent[..] else { panic!("seed {seed}: {sent:?}") };
            let whole = |done: &Done| matches!(done, Done::Received { code: Code::Ok, .. });
            let arrived = world.done(1).iter().filter(|done| whole(done)).count();
            assert_eq!(arrived, usize::from(code == Code::Ok), "seed {seed}, WRITE: {is_write}, {code:?}");
            assert_eq!(world.kept(), 0, "seed {seed}");
            outcomes[arrived] += 1;
        }
    }
    assert!(!outcomes.contains(&0), "{outcomes:?}");
}

#[test]
fn a_peer_that_is_not_there_is_given_up_and_so_is_one_that_goes() {
    let mut world = World::new(6, 2, Link::GOOD);
    world.cut(1, true);
    world.send(0, (0, 1, 0), 1, &pattern(1, 10));
    world.run();
    assert_eq!(world.done(0), [Done::Sent { wr_id: 1, code: Code::Unreachable }]);
    world.cut(1, false);
    world.receive(1, 0, 1, 10);
    world.send(0, (0, 1, 0), 2, &pattern(1, 10));
    world.run();
    assert_eq!(world.done(0), [Done::Sent { wr_id: 2, code: Code::Ok }]);
    world.cut(1, true);
    world.send(0, (0, 1, 0), 3, &pattern(1, 10));
    world.run();
    assert_eq!(world.done(0), [Done::Sent { wr_id: 3, code: Code::Unresponsive }]);
}

/// A READ has nothing in flight while the peer prepares the answer.
#[test]
fn a_read_ends_when_the_peer_goes_after_it_took_the_request() {
    let mut world = World::new(6, 2, Link::GOOD);
    world.read(0, (0, 1, 0), 1, 0, 1_000_000);
    world.run_for(Duration::from_micros(50));
    world.cut(1, true);
    world.run();
    assert_eq!(world.done(0), [Done::Sent { wr_id: 1, code: Code::Unresponsive }]);
}

#[test]
fn a_peer_that_begins_anew_is_noticed_and_both_go_on() {
    for seed in 0..100 {
        let mut world = World::new(seed, 2, LOSSY);
        for number in 0..20 {
            world.receive(1, 0, number, 64);
            world.receive(0, 0, number, 64);
            world.send(0, (0, 1, 0), number, &pattern(number, 64));
            world.send(1, (0, 0, 0), number, &pattern(number, 64));
        }
        world.run();
        assert_eq!((world.done(0).len(), world.done(1).len()), (40, 40), "seed {seed}");
        world.restart(1);
        match seed % 3 {
            // Who stayed speaks first, or who is new, or both.
            0 => world.send(0, (0, 1, 0), 100, &pattern(1, 64)),
            1 => world.send(1, (0, 0, 0), 101, &pattern(2, 64)),
            _ => {
                world.send(0, (0, 1, 0), 100, &pattern(1, 64));
                world.send(1, (0, 0, 0), 101, &pattern(2, 64));
            }
        }
        world.receive(0, 0, 900, 64);
        world.receive(1, 0, 901, 64);
        world.run();
        for done in world.done(0) {
            let as_expected = match done {
                Done::Sent { code, .. } => code == Code::Ok || code == Code::Aborted,
                Done::Received { code, .. } => code == Code::Ok,
            };
            assert!(as_expected, "seed {seed}: {done:?}");
        }
        world.done(1);
        world.receive(1, 0, 902, 64);
        world.receive(0, 0, 902, 64);
        world.send(0, (0, 1, 0), 102, &pattern(3, 64));
        world.send(1, (0, 0, 0), 103, &pattern(3, 64));
        world.run();
        for nic in [0, 1] {
            let sent = world.done(nic).into_iter().find(|done| matches!(done, Done::Sent { .. }));
            assert!(matches!(sent, Some(Done::Sent { code: Code::Ok, .. })), "seed {seed}: {sent:?}");
        }
    }
}

/// Packets with an address that somebody else has, without knowing the tags.
#[test]
fn who_does_not_get_what_is_sent_to_an_address_cannot_speak_for_it() {
    let mut world = World::new(8, 2, Link::GOOD);
    for number in 0..10 {
        world.receive(1, 0, number, 64);
    }
    world.send(0, (0, 1, 0), 1, &pattern(1, 64));
    world.run();
    assert_eq!(world.done(1).len(), 1);
    world.forge(1, (0, 0), 300);
    world.run();
    assert!(world.done(1).is_empty(), "nothing of it was taken");
    world.send(0, (0, 1, 0), 2, &pattern(2, 64));
    world.run();
    assert_eq!(world.done(1).len(), 1, "and the connection has not suffered");
    assert_eq!(world.counter(0, Counter::Restarts) + world.counter(1, Counter::Restarts), 0);
}

/// Bytes that no sender of ours would send, with the tags of a connection.
#[test]
fn hostile_packets_change_nothing_and_nothing_panics() {
    for seed in 0..100 {
        let mut world = World::new(seed, 2, LOSSY);
        world.receive(1, 0, 0, 8928);
        world.send(0, (0, 1, 0), 1, &pattern(1, 5000));
        world.run();
        world.done(0);
        world.forge_with_tags(1, 0, 200);
        world.forge_with_tags(0, 1, 200);
        world.run();
    }
}

#[test]
fn ten_thousand_queue_pairs_to_a_hundred_hosts_keep_a_hundred_connections() {
    let mut world = World::new(9, 101, Link::GOOD);
    world.queue_pairs(0, 10_000);
    for qp in 0..10_000 {
        let host = 1 + qp % 100;
        world.receive(host, 0, qp as u64, 64);
        world.send(0, (qp, host, 0), qp as u64, &pattern(qp as u64, 64));
    }
    world.run();
    let done = world.done(0);
    assert_eq!(done.len(), 10_000);
    assert!(done.iter().all(|done| matches!(done, Done::Sent { code: Code::Ok, .. })));
    assert_eq!(world.connections(0), 100);
    assert_eq!(world.connections(7), 1);
}

#[test]
fn connections_are_bounded_and_the_idle_ones_make_room() {
    let mut world = World::new(10, 12, Link::GOOD);
    world.limit_peers(0, 10);
    for host in 1..=10 {
        world.receive(host, 0, 1, 64);
        world.send(0, (0, host, 0), host as u64, &pattern(1, 64));
    }
    world.run();
    assert_eq!(world.done(0).len(), 10);
    world.receive(11, 0, 1, 64);
    world.send(0, (0, 11, 0), 11, &pattern(1, 64));
    assert_eq!(
        world.done(0),
        [Done::Sent { wr_id: 11, code: Code::QpInternal }],
        "none has been idle for long"
    );
    world.advance(Duration::from_secs(61));
    world.send(0, (0, 11, 0), 12, &pattern(1, 64));
    world.run();
    assert_eq!(world.done(0), [Done::Sent { wr_id: 12, code: Code::Ok }]);
    // Who was forgotten is greeted as a stranger, and does not mind.
    world.advance(Duration::from_secs(61));
    for host in 1..=11 {
        world.receive(0, 0, 1, 64);
        world.send(host, (0, 0, 0), 1, &pattern(1, 64));
        world.run();
        assert!(world.done(host).contains(&Done::Sent { wr_id: 1, code: Code::Ok }), "host {host}");
        world.advance(Duration::from_secs(61));
    }
}

/// What a sender with one loss in a hundred loses of its speed.
#[test]
fn a_loss_costs_the_packet_that_was_lost() {
    let time = |loss| -> Duration {
        let one = |seed| {
            let link = Link { loss, rate: Some(Duration::from_nanos(400)), ..Link::GOOD };
            let mut world = World::new(seed, 2, link);
            (0..8).for_each(|number| world.write(0, (0, 1, 0), number, 0, &pattern(1, 1_000_000)));
            let took = world.run();
            assert!(world.done(0).iter().all(|done| matches!(done, Done::Sent { code: Code::Ok, .. })));
            took
        };
        (0..8).map(one).sum()
    };
    let (without, with) = (time(0), time(10));
    assert!(with < without * 3 / 2, "{with:?} instead of {without:?}");
}
