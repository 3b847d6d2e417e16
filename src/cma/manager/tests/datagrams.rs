//! Datagram services.

use super::*;

fn params(qpn: u32, private: &[u8]) -> ConnParams {
    ConnParams { qpn: verbs::Qpn::new(qpn), private: private.to_vec(), ..ConnParams::default() }
}

#[test]
fn a_datagram_service_says_its_qp() {
    let (near, far) = (End::new(), End::new());
    let (_listener, address) = far.listen(IdKind::DATAGRAM, 0);
    let client = near.resolved(IdKind::DATAGRAM, &address);
    client.connect(&params(5, b"who")).expect("asks");
    let request = far.expect(EventKind::ConnectRequest);
    let EventData::Ud(asked) = &request.data else { panic!("{request:?}") };
    assert_eq!((&asked.private[..3], asked.private.len()), (&b"who"[..], 180));
    request.id.accept(2, &params(77, b"me")).expect("accepts");
    let event = near.expect(EventKind::Established);
    let EventData::Ud(answer) = event.data else { panic!("no answer") };
    assert_eq!((answer.qpn.get(), answer.qkey.0), (77, 0x0123_4567));
    assert_eq!((&answer.private[..2], answer.private.len()), (&b"me"[..], 136));
    let way = answer.address.expect("the way");
    assert_eq!(way.dgid.to_ip(), far.context.address());
    assert_eq!(client.disconnect(), Ok(()), "which does nothing");
    assert_eq!(request.id.destroy(), Ok(0), "the service is told nothing more");
}

#[test]
fn a_datagram_service_may_refuse_or_not_be_there() {
    let (near, far) = (End::new(), End::new());
    let (listener, address) = far.listen(IdKind::DATAGRAM, 0);
    let client = near.resolved(IdKind::DATAGRAM, &address);
    client.connect(&params(5, &[])).expect("asks");
    far.expect(EventKind::ConnectRequest).id.reject(0, b"no").expect("rejects");
    let event = near.expect(EventKind::Unreachable);
    assert_eq!(event.status, EventStatus::Refused(2));

    listener.destroy().expect("destroyed");
    let client = near.resolved(IdKind::DATAGRAM, &address);
    client.connect(&params(5, &[])).expect("asks");
    assert_eq!(near.expect(EventKind::Unreachable).status, EventStatus::Refused(1));
}
