//! Packets for the tests of all links: made with the ICRC of the slot they leave in, checked on arrival.

#![allow(missing_docs, reason = "the names say it")]

use std::net::IpAddr;
use std::time::{Duration, Instant};

use softrnic_wire::{
    Body, Bth, DF, Deth, Headers, ICRC_LEN, IpFacts, Op, Packet, Pad, Psn, Qkey, Qpn, ROCE_UDP_PORT,
    SendTail, Time, UdpFacts,
};

use crate::{Datagram, Flow, HeaderId, Link, Overrun, ProcessSlot, TxError, TxSlot, delegate_link};

/// A received datagram that outlives the call that delivered it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Received {
    pub src: IpAddr,
    pub dst: IpAddr,
    pub sport: u16,
    pub tos: u8,
    pub ttl: u8,
    pub id: HeaderId,
    pub ip_header: Option<Vec<u8>>,
    pub bytes: Vec<u8>,
    pub has_icrc: bool,
}

impl From<Datagram<'_>> for Received {
    fn from(datagram: Datagram<'_>) -> Received {
        Received {
            src: datagram.src,
            dst: datagram.dst,
            sport: datagram.sport,
            tos: datagram.tos,
            ttl: datagram.ttl,
            id: datagram.id,
            ip_header: datagram.ip_header.map(<[u8]>::to_vec),
            bytes: datagram.bytes.to_vec(),
            has_icrc: datagram.has_icrc,
        }
    }
}

impl Received {
    /// Everything that the ICRC covers, with the ID that the link saw or considers likeliest.
    pub fn facts(&self) -> UdpFacts {
        let ip = match (self.src, self.dst, self.id) {
            (IpAddr::V4(src), IpAddr::V4(dst), HeaderId::Seen { id, flags }) => {
                IpFacts::V4 { src, dst, id, flags_frag: flags }
            }
            (IpAddr::V4(src), IpAddr::V4(dst), HeaderId::Hidden { place }) => {
                IpFacts::V4 { src, dst, id: place, flags_frag: DF }
            }
            (IpAddr::V6(src), IpAddr::V6(dst), HeaderId::None) => IpFacts::V6 { src, dst },
            other => panic!("addresses and ID do not fit: {other:?}"),
        };
        UdpFacts { ip, src_port: self.sport, dst_port: ROCE_UDP_PORT }
    }

    /// Whether the ICRC, if there is one, matches the facts that the link reports.
    pub fn icrc_ok(&self) -> bool {
        !self.has_icrc || softrnic_wire::verify(&self.facts(), &self.bytes)
    }

    /// Whether the ICRC is right for the facts, with any ID where the link hides that.
    pub fn is_sound(&self) -> bool {
        match self.id {
            HeaderId::Hidden { .. } => self.recovered_id().is_some(),
            HeaderId::Seen { .. } | HeaderId::None => self.icrc_ok(),
        }
    }

    /// The ID that the ICRC says the sender used.
    pub fn recovered_id(&self) -> Option<u16> {
        softrnic_wire::verify_unknown_id(&self.facts(), &self.bytes)
    }

    pub fn psn(&self) -> u32 {
        Packet::parse(&self.bytes).expect("a whole packet").bth.psn.get()
    }
}

/// An ordinary flow.
pub fn flow(src: IpAddr, dst: IpAddr) -> Flow {
    Flow { src, dst, sport: ROCE_UDP_PORT, slot: Some(ProcessSlot::default()), tos: 0, ttl: 64 }
}

/// Length of a packet that carries `payload` bytes.
pub fn packet_len(payload: usize) -> usize {
    send_only(0, 0, payload).transport_len(payload)
}

fn send_only(qpn: u32, psn: u32, payload: usize) -> Headers {
    let mut bth = Bth::new(Qpn::new(qpn), Psn::new(psn));
    bth.pad = Pad::for_payload(payload);
    Headers { bth, body: Body::Rc(Op::SendOnly(SendTail::Plain)) }
}

/// Queues an RC SEND Only with `payload` bytes.
pub fn send(
    link: &mut (impl Link + ?Sized),
    now: Time,
    flow: &Flow,
    psn: u32,
    payload: usize,
) -> Result<(), TxError> {
    let headers = send_only(0x11, psn, payload);
    let mut slot = link.reserve(now, flow, headers.transport_len(payload))?;
    let at = headers.emit(slot.bytes);
    let end = slot.bytes.len() - ICRC_LEN;
    for (i, byte) in slot.bytes[at..at + payload].iter_mut().enumerate() {
        *byte = (psn as usize + i) as u8;
    }
    slot.bytes[at + payload..end].fill(0);
    slot.seal();
    link.commit(now);
    Ok(())
}

/// Queues an RC SEND Only without payload to a queue pair.
pub fn send_to_qp(link: &mut (impl Link + ?Sized), now: Time, flow: &Flow, qpn: u32, psn: u32) {
    put(link, now, flow, &send_only(qpn, psn, 0), &[]);
}

/// Queues a management datagram from QP 1 to QP 1.
pub fn send_mad(link: &mut (impl Link + ?Sized), now: Time, flow: &Flow, mad: &[u8]) {
    let deth = Deth { qkey: Qkey(0x8001_0000), src_qpn: Qpn::GSI };
    let headers = Headers { bth: Bth::new(Qpn::GSI, Psn::new(0)), body: Body::Ud { deth, imm: None } };
    put(link, now, flow, &headers, mad);
}

fn put(link: &mut (impl Link + ?Sized), now: Time, flow: &Flow, headers: &Headers, payload: &[u8]) {
    let mut slot = link.reserve(now, flow, headers.transport_len(payload.len())).expect("a slot");
    let at = headers.emit(slot.bytes);
    slot.bytes[at..at + payload.len()].copy_from_slice(payload);
    slot.seal();
    link.commit(now);
}

/// A link whose datagrams have no ICRC, unless somebody looks at those that it sends.
pub struct Unsealed<L> {
    pub inner: L,
    pub keeps_icrcs: bool,
}

impl<L: Link> Unsealed<L> {
    pub fn new(inner: L) -> Unsealed<L> {
        Unsealed { inner, keeps_icrcs: false }
    }
}

impl<L: Link> Link for Unsealed<L> {
    fn reserve(&mut self, now: Time, flow: &Flow, len: usize) -> Result<TxSlot<'_>, TxError> {
        let slot = self.inner.reserve(now, flow, len)?;
        Ok(TxSlot { wants_icrc: self.keeps_icrcs, ..slot })
    }

    fn receive(&mut self, now: Time, budget: usize, sink: &mut dyn FnMut(Datagram<'_>)) -> Overrun {
        self.inner.receive(now, budget, &mut |datagram| {
            let mut bytes = datagram.bytes.to_vec();
            if let Some(place) = bytes.last_chunk_mut::<ICRC_LEN>() {
                *place = [0; ICRC_LEN];
            }
            sink(Datagram { bytes: &bytes, has_icrc: false, ..datagram });
        })
    }

    fn keep_icrcs(&mut self) {
        self.keeps_icrcs = true;
    }

    delegate_link!(self => self.inner;
        capabilities reserved commit show flush is_blocked descriptor join leave counters stop_segmenting
        show_headers
    );
}

/// Reads everything that has arrived.
pub fn drain(link: &mut (impl Link + ?Sized), now: Time) -> Vec<Received> {
    let mut got = Vec::new();
    while link.receive(now, 64, &mut |datagram| got.push(datagram.into())) != Overrun::Drained {}
    got
}

/// Waits on the link's descriptor until `count` datagrams have arrived, for at most two seconds.
pub fn receive(link: &mut (impl Link + ?Sized), count: usize) -> Vec<Received> {
    let deadline = Instant::now() + Duration::from_secs(2);
    let mut got = Vec::new();
    loop {
        got.extend(drain(link, Time::ZERO));
        let left = deadline.saturating_duration_since(Instant::now());
        if got.len() >= count || left.is_zero() {
            return got;
        }
        wait(link, libc::POLLIN, left);
    }
}

/// Waits until the link's descriptor has one of `events`; returns which.
pub fn wait(link: &(impl Link + ?Sized), events: i16, timeout: Duration) -> i16 {
    let fd = link.descriptor().expect("a link with a descriptor");
    let mut entry = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: one valid entry.
    unsafe { libc::poll(&mut entry, 1, timeout.as_millis() as i32 + 1) };
    entry.revents
}

/// Runs `action` in a thread of a user without rights, number 65534, and returns what it returns; nothing where that takes
/// root.
pub fn as_another_user<T: Send>(action: impl FnOnce() -> T + Send) -> Option<T> {
    const NOBODY: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: to be another user takes root");
        return None;
    }
    let become_nobody = || {
        // SAFETY: takes numbers alone. Not by the C library, which would change the user of all threads.
        let done = unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
        assert_eq!(done, 0, "root may");
        action()
    };
    std::thread::scope(|scope| scope.spawn(become_nobody).join().ok())
}
