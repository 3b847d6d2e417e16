use std::net::Ipv4Addr;

use super::*;

const PEER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);

/// What a NIC remembers, and what time it is there.
struct Receiver {
    ids: HiddenIds,
    now: Time,
    surprises: usize,
}

impl Receiver {
    fn new() -> Receiver {
        Receiver { ids: HiddenIds::new(), now: Time::from_nanos(1), surprises: 0 }
    }

    fn pass(&mut self, millis: u64) {
        self.now = Time::from_nanos(self.now.as_nanos() + millis * 1_000_000);
    }

    /// Whether a datagram passes that has this ID.
    fn takes(&mut self, sport: u16, place: u16, id: u16) -> bool {
        let surprises = &mut self.surprises;
        let recover = |guess: u16| {
            *surprises += usize::from(guess != id);
            Some(id)
        };
        self.ids.verify(self.now, (PEER, sport), place, recover) == Ok(id)
    }

    /// How many of the datagrams, each a place and an ID, pass.
    fn taken(&mut self, datagrams: impl IntoIterator<Item = (u16, u16)>) -> usize {
        datagrams.into_iter().filter(|&(place, id)| self.takes(5000, place, id)).count()
    }

    /// A datagram comes that no ID explains.
    fn damaged(&mut self, sport: u16) {
        let result = self.ids.verify(self.now, (PEER, sport), 0, |_| None);
        assert_eq!(result, Err(DropReason::Icrc));
    }

    /// How many of all 2^16 IDs would pass next.
    fn chances(&mut self, sport: u16) -> usize {
        let (senders, hosts) = (self.ids.senders.clone(), self.ids.hosts.clone());
        let mut count = 0;
        for id in 0..=u16::MAX {
            count += usize::from(self.takes(sport, 0, id));
            self.ids.senders.copy_from_slice(&senders);
            self.ids.hosts.copy_from_slice(&hosts);
        }
        count
    }
}

fn counting(from: u16, count: u16) -> impl Iterator<Item = (u16, u16)> {
    (0..count).map(move |n| (0, from.wrapping_add(n)))
}

#[test]
fn ids_numbered_from_zero_are_always_expected() {
    let mut receiver = Receiver::new();
    let datagrams = [(0, 0), (0, 0), (1, 1), (2, 2), (0, 0), (1, 1), (0, 0)];
    assert_eq!(receiver.taken(datagrams), datagrams.len());
    assert_eq!(receiver.surprises, 0);
}

#[test]
fn counting_ids_are_unexpected_once() {
    let mut receiver = Receiver::new();
    let datagrams = [
        (0, 65_534),
        (1, 65_535),
        (2, 0),
        (0, 65_535),
        (0, 0),
        (1, 1),
        (2, 2),
        (0, 1),
        (0, 2),
        (1, 3),
        (0, 3),
    ];
    assert_eq!(receiver.taken(datagrams), datagrams.len());
    assert_eq!(receiver.surprises, 1);
}

#[test]
fn sends_split_differently_when_read_pass() {
    let mut receiver = Receiver::new();
    // Sends of five from 0 on, read as three, four, three; then a counter, read as it comes.
    let zero = [(0, 0), (1, 1), (2, 2), (0, 3), (1, 4), (2, 0), (3, 1), (0, 2), (1, 3), (2, 4), (0, 0)];
    assert_eq!(receiver.taken(zero), zero.len());
    let mut receiver = Receiver::new();
    let counter = [(0, 70), (1, 71), (2, 72), (0, 73), (0, 74), (1, 75), (0, 76), (1, 77), (2, 78), (0, 79)];
    assert_eq!(receiver.taken(counter), counter.len());
}

#[test]
fn lost_and_late_datagrams_pass() {
    let mut receiver = Receiver::new();
    let datagrams = [7, 8, 9, 11, 12, 10, 13, 18, 19, 20, 16, 21, 22, 22, 23].map(|id| (0, id));
    assert_eq!(receiver.taken(datagrams), datagrams.len());
}

#[test]
fn after_many_lost_in_a_row_one_is_dropped() {
    let mut receiver = Receiver::new();
    assert_eq!(receiver.taken(counting(7, 10)), 10);
    assert_eq!(receiver.taken(counting(500, 10)), 9);
}

#[test]
fn steps_of_any_size_are_learned() {
    let mut receiver = Receiver::new();
    assert!(receiver.taken((0..50u16).map(|n| (0, (n * 256).wrapping_add(9)))) >= 47);
    receiver.surprises = 0;
    assert_eq!(receiver.taken((50..90u16).map(|n| (0, (n * 256).wrapping_add(9)))), 40);
    assert_eq!(receiver.surprises, 0);
    // An ID that never changes.
    let mut receiver = Receiver::new();
    assert_eq!(receiver.taken([(0, 77); 20]), 20);
    assert!(receiver.surprises <= 3, "{}", receiver.surprises);
}

#[test]
fn a_sender_that_starts_again_loses_one_datagram() {
    let mut receiver = Receiver::new();
    assert_eq!(receiver.taken(counting(7, 10)), 10);
    assert_eq!(receiver.taken(counting(40_000, 10)), 9);
    // With 0 it loses none, and after a minute of silence neither.
    assert_eq!(receiver.taken([(0, 0); 10]), 10);
    receiver.pass(70_000);
    assert_eq!(receiver.taken(counting(20_000, 10)), 10);
}

#[test]
fn several_senders_behind_one_port_are_told_apart() {
    let mut receiver = Receiver::new();
    let (one, two) = (counting(7, 100), counting(40_000, 100));
    let mixed = one.zip(two).flat_map(|(one, two)| [one, two]);
    assert_eq!(receiver.taken(mixed), 199);
}

#[test]
fn a_counter_that_ports_share_and_that_jumps_passes() {
    let mut receiver = Receiver::new();
    let mut id = 60_000_u16;
    let mut dropped = 0;
    for round in 0..400_u16 {
        // A pause, in which the counter jumps by up to a jiffy for each that passes; then some datagrams of each port.
        let pause = [0, 1, 10, 500, 3000][usize::from(round % 5)];
        receiver.pass(pause);
        id = id.wrapping_add((pause as u16).saturating_sub(u16::from(round % 2 == 0)));
        for sport in [5000, 5001, 5002 + round] {
            for _ in 0..=round % 7 {
                id = id.wrapping_add(1);
                dropped += usize::from(!receiver.takes(sport, 0, id));
            }
        }
    }
    assert_eq!(dropped, 0);
}

#[test]
fn a_counter_passes_whose_other_ids_go_to_other_processes() {
    // Kernel rxe numbers by address. It answers a ping-pong with each of three processes.
    let mut receivers = [5000, 5001, 5002].map(|sport| (sport, Receiver::new()));
    receivers.iter_mut().for_each(|(_, receiver)| receiver.ids.share());
    let mut id = 40_000_u16;
    let mut dropped = 0;
    for round in 0..2000_usize {
        // One waits for its processor while the others go on.
        let late = round / 16 % 3;
        let (turns, pause) = [(1, 0), (1, 1), (9, 2), (25, 1), (30, 0), (150, 12)][round % 6];
        for turn in 0..=turns {
            for (at, (sport, receiver)) in receivers.iter_mut().enumerate() {
                if turn == 0 {
                    receiver.pass(pause);
                }
                if at != late || turn == turns {
                    id = id.wrapping_add(1);
                    dropped += usize::from(!receiver.takes(*sport, 0, id));
                }
            }
        }
    }
    assert_eq!(dropped, 0);
}

#[test]
fn random_ipv4_ids_are_accepted_after_two_packets() {
    let mut receiver = Receiver::new();
    let random = (1..2000_u32).map(|n| (0, (n.wrapping_mul(2_654_435_761) >> 16) as u16));
    let taken = receiver.taken(random);
    assert!(taken >= 1990, "{taken}");
}

#[test]
fn damaged_datagrams_do_not_pass_and_move_nothing() {
    let mut receiver = Receiver::new();
    assert_eq!(receiver.taken(counting(100, 10)), 10);
    for n in 0..1000_u16 {
        // One in many has an ID that explains it, far from what is expected; now and then a sound one comes.
        receiver.damaged(5000);
        assert!(!receiver.takes(5000, 0, 1000 + n * 61), "{n}");
        receiver.damaged(5000);
        if n % 100 == 0 {
            assert!(receiver.takes(5000, 0, 110 + n / 100), "{n}");
        }
    }
}

#[test]
fn an_unknown_sender_is_accepted_when_two_packets_agree() {
    let mut receiver = Receiver::new();
    receiver.damaged(5000);
    assert!(!receiver.takes(5000, 0, 30_000));
    receiver.damaged(5000);
    assert!(!receiver.takes(5000, 0, 50_000));
    assert!(receiver.takes(5000, 0, 50_001));
}

#[test]
fn few_ids_are_accepted_from_a_known_sender() {
    let mut receiver = Receiver::new();
    receiver.taken([(0, 0); 100]);
    assert_eq!(receiver.chances(5000), 1, "0 alone");
    let mut receiver = Receiver::new();
    receiver.taken(counting(30_000, 100));
    assert_eq!(receiver.chances(5000), 10, "nine around the next, and 0");
    receiver.pass(1000);
    let after_a_second = receiver.chances(5000);
    assert!((1000..1100).contains(&after_a_second), "{after_a_second}");
    let mut receiver = Receiver::new();
    receiver.taken(counting(30_000, 2));
    assert_eq!(receiver.chances(5000), 10, "two are enough");
    assert_eq!(receiver.chances(5001), 1 << 16, "the first of a port");
}

#[test]
fn few_ids_are_accepted_where_other_processes_receive_too() {
    let mut receiver = Receiver::new();
    receiver.ids.share();
    receiver.taken([(0, 0); 100]);
    assert_eq!(receiver.chances(5000), 1, "0 alone");
    let mut receiver = Receiver::new();
    receiver.ids.share();
    receiver.taken(counting(30_000, 100));
    assert_eq!(receiver.chances(5000), 10 + 64, "and those of a tick");
    receiver.pass(100);
    let after_a_pause = receiver.chances(5000);
    assert!((6000..6500).contains(&after_a_pause), "{after_a_pause}");
    receiver.pass(60_000);
    assert_eq!(receiver.chances(5000), (1 << 15) + 5, "all that are ahead, and a few late ones");
}

#[test]
fn strangers_do_not_evict_known_senders() {
    let mut receiver = Receiver::new();
    receiver.taken(counting(30_000, 100));
    for n in 0..200_000_u32 {
        let stranger = (Ipv4Addr::from(0x0A00_0000 + n), 5000);
        for id in [1, 2] {
            let _ = receiver.ids.verify(receiver.now, stranger, 0, |_| Some(id));
        }
    }
    assert_eq!(receiver.chances(5000), 10);
    assert_eq!(receiver.taken(counting(30_100, 10)), 10);
}

#[test]
fn senders_are_not_confused_with_each_other() {
    let mut receiver = Receiver::new();
    assert!(receiver.takes(5000, 0, 100));
    let mut expected = |src, sport, place| {
        let mut guess = 0;
        let _ = receiver.ids.verify(receiver.now, (src, sport), place, |id| {
            guess = id;
            None
        });
        guess
    };
    assert_eq!(expected(PEER, 5000, 1), 101);
    assert_eq!(expected(PEER, 5001, 0), 0);
    assert_eq!(expected(Ipv4Addr::UNSPECIFIED, 5000, 0), 0);
}

#[test]
fn the_same_damage_twice_proves_nothing() {
    let mut receiver = Receiver::new();
    receiver.taken([(0, 0); 10]);
    for _ in 0..100 {
        receiver.damaged(5000);
        assert!(!receiver.takes(5000, 0, 30_000));
        assert!(receiver.takes(5000, 0, 0));
    }
}

#[test]
fn a_late_datagram_does_not_set_a_shared_counter_back() {
    let mut receiver = Receiver::new();
    for id in 0x88B6..=0x88BC {
        assert!(receiver.takes(51244, 0, id));
    }
    receiver.pass(12);
    for id in 0x88C5..=0x88CE {
        assert!(receiver.takes(57502, 0, id));
    }
    assert!(receiver.takes(51244, 0, 0x88BD));
    assert!(receiver.takes(51244, 0, 0x88CF));
}

#[test]
fn a_jump_passes_even_if_it_is_read_late() {
    let mut receiver = Receiver::new();
    for id in 0x70C4..=0x70C9 {
        assert!(receiver.takes(55112, 0, id));
    }
    receiver.pass(30);
    assert!(receiver.takes(55112, 0, 0x70CA));
    assert!(receiver.takes(55112, 0, 0x70D1));
}
