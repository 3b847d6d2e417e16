//! Counts of events: those reported, and the one in the descriptor.

use super::*;

#[test]
fn the_descriptor_is_readable_exactly_while_events_wait() {
    let end = End::new();
    let id = end.id(IdKind::CONNECTED);
    assert!(!is_readable(&end.channel, Duration::ZERO));
    for argument in 0..3 {
        id.write_event(EventKind::User, 0, argument).expect("queued");
    }
    for argument in 0..3 {
        let event = end.expect(EventKind::User);
        assert_eq!(event.data, EventData::Own(argument), "in order");
    }
    assert!(!is_readable(&end.channel, Duration::ZERO));
    assert_eq!(id.destroy(), Ok(3));
}

/// A reader has taken the count of an event that goes away. It must not have another event for it, whose own count
/// would stay behind.
#[test]
fn a_reader_whose_event_went_away_waits_again() {
    let end = End::new();
    let (gone, stays) = (end.id(IdKind::CONNECTED), end.id(IdKind::CONNECTED));
    gone.write_event(EventKind::User, 0, 1).expect("queued");
    end.channel.wait().expect("a count");
    assert_eq!(gone.destroy(), Ok(0), "it was not reported");
    stays.write_event(EventKind::User, 0, 2).expect("queued");
    assert!(end.channel.take().is_none(), "its event is gone");
    assert_eq!(end.expect(EventKind::User).id, stays);
    assert!(!is_readable(&end.channel, Duration::ZERO));
}

#[test]
fn events_move_with_their_identifier() {
    let end = End::new();
    let other = EventChannel::new(&end.manager).expect("a channel");
    let (moves, stays) = (end.id(IdKind::CONNECTED), end.id(IdKind::CONNECTED));
    moves.write_event(EventKind::User, 0, 1).expect("queued");
    end.expect(EventKind::User);
    moves.write_event(EventKind::User, 0, 2).expect("queued");
    stays.write_event(EventKind::User, 0, 3).expect("queued");
    assert_eq!(moves.migrate(&other), Ok(1));
    assert_eq!(end.channel.id(moves.number()).err(), Some(Error::Invalid), "another channel's");
    assert_eq!(next(&other, TIMEOUT).expect("moved").data, EventData::Own(2));
    assert_eq!(end.expect(EventKind::User).data, EventData::Own(3));
    assert!(!is_readable(&end.channel, Duration::ZERO) && !is_readable(&other, Duration::ZERO));
    assert_eq!(moves.destroy(), Ok(2));
    other.close();
}

#[test]
fn numbers_are_small_and_come_again() {
    let end = End::new();
    let first = end.id(IdKind::CONNECTED);
    let number = first.number();
    first.destroy().expect("destroyed");
    let second = end.id(IdKind::CONNECTED);
    assert_eq!(second.number(), number);
    assert_ne!(first, second);
    assert_eq!(first.state(), Err(Error::UnknownId), "the first name names nothing any more");
}

#[test]
fn a_group_counts_its_events_for_itself_and_its_identifier() {
    let end = End::new();
    let id = end.id(IdKind::DATAGRAM);
    id.bind(&at("127.0.0.1:0")).expect("binds");
    assert_eq!(id.join_multicast(5, &at("10.0.0.1:0"), false), Err(Error::Invalid), "no group");
    let group = id.join_multicast(5, &at("239.1.2.3:0"), false).expect("joins");
    let joined = end.expect(EventKind::MulticastJoin);
    assert_eq!((joined.context, joined.number, &joined.id), (5, group, &id));
    let EventData::Ud(params) = joined.data else { panic!("no address") };
    assert_eq!(params.qpn.get(), 0xFF_FFFF);
    assert_eq!(params.address.expect("one").dgid.to_ip().to_string(), "239.1.2.3");
    let second = id.join_multicast(6, &at("239.1.2.4:0"), true).expect("joins");
    assert_eq!(end.channel.leave_multicast(second), Ok(0));
    assert!(!is_readable(&end.channel, Duration::ZERO), "its event went with it");
    assert_eq!(end.channel.leave_multicast(group), Ok(1));
    assert_eq!(end.channel.leave_multicast(group), Err(Error::UnknownId));
    assert_eq!(id.destroy(), Ok(1));
}
