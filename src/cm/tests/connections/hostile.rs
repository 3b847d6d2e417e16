//! Whatever a peer sends, nothing panics and the memory in use is bounded.

use softrnic_link::Rng;
use softrnic_wire::*;

use super::world::*;
use softrnic_cm::*;

fn route() -> Route {
    Route { local: address(1), remote: address(0) }
}

/// A REQ that a listener would accept, from any peer.
fn request(rng: &mut Rng) -> [u8; MAD_LEN] {
    let req = Req {
        local_id: rng.next() as u32,
        service: service(),
        ca_guid: rng.next(),
        qpn: Qpn::new(rng.next() as u32),
        mtu_code: Bits::new(3),
        primary: CmPath {
            local_gid: address(0).into(),
            remote_gid: address(1).into(),
            ack_timeout: Bits::new(31),
            ..CmPath::default()
        },
        ..Req::default()
    };
    let mut bytes = [0; MAD_LEN];
    CmMessage::new(CmBody::Req(req), &header(0, 1)).expect("short").emit_mad(rng.next(), 0, &mut bytes);
    bytes
}

#[test]
fn a_flood_of_requests_fills_the_backlog_and_nothing_else() {
    let mut w = World::new(2, 1);
    w.listen(1, 1 << 20);
    let mut rng = Rng::new(5);
    for _ in 0..100_000 {
        let bytes = request(&mut rng);
        w.ends[1].on_mad(w.now, route(), &bytes);
        while w.ends[1].poll_transmit().is_some() {}
    }
    let usage = w.ends[1].usage();
    assert_eq!((usage.connections, usage.pending, usage.events), (1024, 1024, 1024));
    assert_eq!(w.ends[1].counters().drop_backlog, 100_000 - 1024);
}

#[test]
fn questions_are_bounded_as_well() {
    let mut w = World::new(2, 1);
    w.listen(1, 10);
    for request_id in 0..1000 {
        let req = SidrReq { request_id, pkey: Pkey(0xFFFF), service: datagrams() };
        let mut bytes = [0; MAD_LEN];
        CmMessage::new(CmBody::SidrReq(req), &header(0, 1)).expect("short").emit_mad(1, 0, &mut bytes);
        w.ends[1].on_mad(w.now, route(), &bytes);
    }
    assert_eq!((w.ends[1].usage().connections, w.ends[1].usage().pending), (10, 10));
}

#[test]
fn any_bytes_are_taken_without_harm() {
    for seed in 0..200 {
        let mut w = World::new(2, seed);
        w.listen(1, 4);
        let (active, passive) = w.connected();
        let mut rng = Rng::new(seed);
        for _ in 0..300 {
            let mut bytes = [0; MAD_LEN];
            bytes.fill_with(|| rng.next() as u8);
            // Mostly messages, about connections that there are.
            if rng.chance(0.95) {
                bytes[..8].copy_from_slice(&[1, 7, 2, 3, 0, 0, 0, 0]);
                bytes[16] = 0;
                bytes[17] = 0x10 + rng.below(11) as u8;
            }
            if rng.chance(0.7) {
                bytes[28..32].copy_from_slice(&passive.get().to_be_bytes());
                bytes[24..28].copy_from_slice(&active.get().to_be_bytes());
            }
            if rng.chance(0.5) {
                bytes[32..40].copy_from_slice(&service().0.to_be_bytes());
            }
            let len = if rng.chance(0.05) { rng.below(MAD_LEN as u64) as usize } else { MAD_LEN };
            w.ends[1].on_mad(w.now, route(), &bytes[..len]);
            w.ends[1].on_timeout(w.now);
            let mut answers = 0;
            while w.ends[1].poll_transmit().is_some() {
                answers += 1;
            }
            assert!(answers <= 2, "one message drew {answers}");
            w.now = w.now.after_nanos(rng.below(50_000_000));
        }
        assert!(w.ends[1].usage().connections <= 16);
    }
}
