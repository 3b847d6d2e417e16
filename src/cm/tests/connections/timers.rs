//! Lost messages are repeated in time, and a message that is never answered ends the attempt.

use std::time::Duration;

use softrnic_wire::*;

use super::world::*;
use softrnic_cm::*;

/// Connects and disconnects while a censor drops messages; returns how long each took.
fn lifetime(censor: fn(&CmBody<'_>, usize) -> bool) -> (Duration, Duration) {
    let mut w = World::new(2, 1);
    w.listen(1, 8);
    w.censor = Some(censor);
    let start = w.now;
    let (active, passive) = w.connected();
    let connected = w.now;
    w.ends[0].disconnect(w.now, active, &[]).expect("disconnect");
    let Some(Event::Disconnected { .. }) = w.event(1) else { panic!() };
    w.ends[1].disconnect(w.now, passive, &[]).expect("agree");
    let Some(Event::Disconnected { timed_out: false, .. }) = w.event(0) else { panic!() };
    (connected - start, w.now - connected)
}

#[test]
fn each_message_may_be_lost_once_and_twice() {
    for nth in 1..=2 {
        let limit = Duration::from_millis(if nth == 1 { 52 } else { 152 });
        let cases: [fn(&CmBody<'_>, usize) -> bool; 5] = if nth == 1 {
            [
                |body, nth| matches!(body, CmBody::Req(_)) && nth <= 1,
                |body, nth| matches!(body, CmBody::Rep(_)) && nth <= 1,
                |body, nth| matches!(body, CmBody::Rtu(_)) && nth <= 1,
                |body, nth| matches!(body, CmBody::Dreq(_)) && nth <= 1,
                |body, nth| matches!(body, CmBody::Drep(_)) && nth <= 1,
            ]
        } else {
            [
                |body, nth| matches!(body, CmBody::Req(_)) && nth <= 2,
                |body, nth| matches!(body, CmBody::Rep(_)) && nth <= 2,
                |body, nth| matches!(body, CmBody::Rtu(_)) && nth <= 2,
                |body, nth| matches!(body, CmBody::Dreq(_)) && nth <= 2,
                |body, nth| matches!(body, CmBody::Drep(_)) && nth <= 2,
            ]
        };
        for (which, censor) in cases.into_iter().enumerate() {
            let (connecting, ending) = lifetime(censor);
            assert!(connecting <= limit && ending <= limit, "message {which}: {connecting:?}, {ending:?}");
        }
    }
}

#[test]
fn an_absent_peer_is_unreachable_after_the_standard_time() {
    let mut w = World::new(1, 1);
    let id = w.ends[0].connect(w.now, &connect_params(0, 1, 0x11)).expect("connect");
    assert_eq!(w.event(0), Some(Event::Unreachable(id)));
    // Sixteen intervals of 4.608 s, as a kernel waits.
    assert_eq!(w.now.since(Time::ZERO), Duration::from_millis(16 * 4608));
    let repeats = w.log.iter().filter(|&&name| name == "REQ").count();
    assert_eq!(repeats, 1 + 15 + 6, "the first, 15 at the interval, and 50, 150, 350, 750, 1550, 3150 ms");
    assert_eq!(w.log.last(), Some(&"REJ"), "whoever saw the REQ is told that nobody waits");
}

#[test]
fn an_unconfirmed_reply_makes_the_peer_unreachable() {
    let mut w = World::new(2, 1);
    w.listen(1, 8);
    w.ends[0].connect(w.now, &connect_params(0, 1, 0x11)).expect("connect");
    let Some(Event::Request(request)) = w.event(1) else { panic!() };
    w.ends.swap_remove(0);
    w.ends.insert(0, World::new(1, 2).ends.remove(0));
    w.censor = Some(|_, _| true);
    w.ends[1].accept(w.now, request.id, &accept_params(0x22)).expect("accept");
    let start = w.now;
    assert_eq!(w.event(1), Some(Event::Unreachable(request.id)));
    assert_eq!(w.now - start, Duration::from_millis(16 * 4096));
}

#[test]
fn a_peer_that_never_agrees_is_left() {
    let mut w = World::new(2, 1);
    w.listen(1, 8);
    let (active, _) = w.connected();
    w.censor = Some(|_, _| true);
    w.ends[0].disconnect(w.now, active, &[]).expect("disconnect");
    let start = w.now;
    assert!(matches!(w.event(0), Some(Event::Disconnected { timed_out: true, .. })));
    assert_eq!(w.now - start, Duration::from_millis(16 * 4608));
    assert_eq!(w.event(0), Some(Event::TimewaitExit(active)));
}

#[test]
fn an_application_that_thinks_keeps_the_peer_waiting_without_a_storm() {
    let mut w = World::new(2, 1);
    w.listen(1, 8);
    w.ends[0].connect(w.now, &connect_params(0, 1, 0x11)).expect("connect");
    let Some(Event::Request(request)) = w.event(1) else { panic!() };
    w.run(Duration::from_secs(60));
    let requests = w.log.iter().filter(|&&name| name == "REQ").count();
    // The first repeat is answered by an MRA, which ends the early ones.
    assert_eq!(requests, 1 + 1 + 13, "{:?}", w.log);
    w.ends[1].accept(w.now, request.id, &accept_params(0x22)).expect("accept");
    assert!(matches!(w.event(0), Some(Event::Reply(_))));
}

#[test]
fn patience_outlasts_the_repeats() {
    let mut w = World::new(2, 1);
    w.listen(1, 8);
    w.ends[0].connect(w.now, &connect_params(0, 1, 0x11)).expect("connect");
    let Some(Event::Request(request)) = w.event(1) else { panic!() };
    // Longer than 16 intervals; the last MRA asks for another 66 s.
    w.run(Duration::from_secs(120));
    w.ends[1].accept(w.now, request.id, &accept_params(0x22)).expect("accept");
    assert!(matches!(w.event(0), Some(Event::Reply(_))));
}

#[test]
fn a_destroyed_connection_tells_its_peer_for_one_interval() {
    let mut w = World::new(2, 1);
    w.listen(1, 8);
    let (active, passive) = w.connected();
    // One lost DREQ does not keep the peer from learning of the end.
    w.censor = Some(|body, nth| matches!(body, CmBody::Dreq(_)) && nth <= 3);
    w.ends[0].destroy(w.now, active);
    assert!(matches!(w.event(1), Some(Event::Disconnected { id, .. }) if id == passive));
    w.censor = Some(|_, _| true);
    w.run(Duration::from_secs(6));
    assert_eq!(w.ends[0].usage().connections, 0, "nor is an answer waited for longer");
}

#[test]
fn whatever_is_destroyed_says_no_more() {
    let mut w = World::new(2, 1);
    w.listen(1, 8);
    let (active, passive) = w.connected();
    w.ends[0].destroy(w.now, active);
    w.ends[1].destroy(w.now, passive);
    w.run(Duration::from_secs(200));
    assert_eq!((w.ends[0].poll_event(), w.ends[1].poll_event()), (None, None));
    assert_eq!(w.ends[0].usage().connections + w.ends[1].usage().connections, 0);
}
