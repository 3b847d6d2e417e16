//! Applications that serve while they wait for an event.

use super::*;

const IN_A_ROW: usize = 300;

/// How a thread takes its next event. Those that block serve first; those that poll leave it to the manager's thread, now and
/// then for so long that it does not tick any longer.
fn take(channel: &EventChannel, number: usize) -> Event {
    let polls = number.is_multiple_of(3) || (number / 50).is_multiple_of(2);
    if polls { next(channel, TIMEOUT).expect("an event") } else { channel.event().expect("an event") }
}

fn serve(end: &End, first: usize) {
    let mut qps = std::collections::HashMap::new();
    let mut ended = 0;
    for number in first.. {
        let Event { kind, id, .. } = take(&end.channel, number);
        match kind {
            EventKind::ConnectRequest => {
                let qp = end.qp();
                qp.follow(&id, &ALL);
                id.accept(2, &qp.params(&[])).expect("accepts");
                qps.insert(id.number(), qp);
            }
            EventKind::Disconnected => {
                id.disconnect().expect("agrees");
                qps.remove(&id.number());
                id.destroy().expect("there");
                ended += 1;
                if ended == IN_A_ROW {
                    return;
                }
            }
            _ => {}
        }
    }
}

/// Makes a connection and ends it, taking each event with `take`.
fn make_and_end(near: &End, address: &Address, take: &mut dyn FnMut() -> Event) {
    let mut expect = |kind| {
        loop {
            let event = take();
            if event.kind == kind {
                return;
            }
            assert_eq!(event.kind, EventKind::TimewaitExit, "{event:?}");
        }
    };
    let id = near.id(IdKind::CONNECTED);
    id.resolve_addr(None, address, TIMEOUT).expect("resolves");
    expect(EventKind::AddressResolved);
    id.resolve_route(TIMEOUT).expect("resolves");
    expect(EventKind::RouteResolved);
    let qp = near.qp();
    qp.follow(&id, &[QpState::Init]);
    id.connect(&qp.params(&[])).expect("asks");
    expect(EventKind::ConnectResponse);
    qp.follow(&id, &[QpState::Rtr, QpState::Rts]);
    id.establish().expect("confirms");
    id.disconnect().expect("disconnects");
    expect(EventKind::Disconnected);
    drop(qp);
    id.destroy().expect("there");
}

/// Threads change between serving and leaving it to the manager's thread at every event, at both ends and out of step. A wake-up
/// that is lost at such a change stops everything.
#[test]
fn nothing_is_left_behind_when_threads_begin_and_cease_to_serve() {
    let (near, far) = (End::new(), End::new());
    let (_listener, address) = far.listen(IdKind::CONNECTED, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| serve(&far, 1));
        let mut number = 0;
        let mut take_next = || {
            number += 1;
            take(&near.channel, number)
        };
        for _ in 0..IN_A_ROW {
            make_and_end(&near, &address, &mut take_next);
        }
    });
}

/// One thread waits in vain while another makes connections: both serve, and neither takes what the other waits for.
#[test]
fn threads_that_wait_on_different_channels_serve_for_each_other() {
    let (near, far) = (End::new(), End::new());
    let (_listener, address) = far.listen(IdKind::CONNECTED, 0);
    let other = EventChannel::new(&near.manager).expect("a channel");
    let id = other.create_id(IdKind::CONNECTED, 1).expect("an identifier");
    std::thread::scope(|scope| {
        scope.spawn(|| serve(&far, 0));
        let waits = scope.spawn(|| other.event().expect("an event").kind);
        for _ in 0..IN_A_ROW {
            make_and_end(&near, &address, &mut || near.channel.event().expect("an event"));
        }
        id.write_event(EventKind::User, 0, 1).expect("queued");
        assert_eq!(waits.join().expect("ends"), EventKind::User);
    });
    other.close();
}
