//! The receive side: batches of messages into large buffers; coalesced ones are split again.

use std::io;
use std::net::IpAddr;

use softrnic_link::{Datagram, HeaderId, LinkCounters, Overrun};

use super::message::{Control, RxFacts, SockAddr};
use super::sys::{self, BATCH, Incoming, IncomingMeta, Socket};
use super::tx::DEFAULT_TTL;

/// The most bytes of one (coalesced) message.
const BUFFER: usize = 1 << 16;
/// A distance that puts the buffers' first bytes in different cache sets.
const STRIDE: usize = BUFFER + 5 * 64;
/// Messages per call at first; grows to [`BATCH`] as calls come back full. One suits a ping-pong, where asking for more
/// would only cost time.
const MIN_BATCH: usize = 1;

/// A socket that is read, and what is known about it.
pub(super) struct RxSocket {
    pub(super) socket: Socket,
    /// The address it is bound to, which is the destination of everything received on it.
    pub(super) address: IpAddr,
}

/// The buffers of a link, shared by its sockets.
pub(super) struct RxBuffers {
    memory: Box<[u8]>,
    metas: Box<[IncomingMeta]>,
    batch: usize,
}

impl RxBuffers {
    pub(super) fn new() -> RxBuffers {
        RxBuffers {
            memory: vec![0; STRIDE * BATCH].into_boxed_slice(),
            metas: vec![IncomingMeta::new(); BATCH].into_boxed_slice(),
            batch: MIN_BATCH,
        }
    }

    /// Delivers what `rx` has, until it is empty or `budget` datagrams have been delivered.
    pub(super) fn receive(
        &mut self,
        rx: &RxSocket,
        budget: &mut usize,
        counters: &mut LinkCounters,
        sink: &mut dyn FnMut(Datagram<'_>),
    ) -> Overrun {
        let mut errors = 0;
        while *budget > 0 {
            let room = self.batch.min(*budget);
            let got = match self.fill(&rx.socket, room) {
                Ok(got) => got,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.batch = (self.batch / 2).max(MIN_BATCH);
                    return Overrun::Drained;
                }
                Err(e) => {
                    // An ICMP error for something sent earlier; reading it has cleared it.
                    counters.tx_errors += u64::from(e.kind() != io::ErrorKind::Interrupted);
                    errors += 1;
                    if errors > 8 {
                        return Overrun::Drained;
                    }
                    continue;
                }
            };
            counters.rx_calls += 1;
            for (bytes, meta) in self.memory.chunks_exact(STRIDE).zip(&self.metas).take(got) {
                let given = deliver(&bytes[..meta.len.min(BUFFER)], meta, rx.address, counters, sink);
                *budget = budget.saturating_sub(given);
            }
            if got < room {
                self.batch = (self.batch / 2).max(MIN_BATCH).max(got);
                return Overrun::Drained;
            }
            self.batch = (self.batch * 2).min(BATCH);
            if room == 1 && *budget > 0 {
                // Most likely the only one, and a thread that waits for it should not wait for the proof.
                return Overrun::Unknown;
            }
        }
        Overrun::Budget
    }

    fn fill(&mut self, socket: &Socket, room: usize) -> io::Result<usize> {
        if room == 1 {
            let incoming = Incoming { buffer: &mut self.memory[..BUFFER], meta: &mut self.metas[0] };
            return sys::receive_one(socket, incoming).map(|()| 1);
        }
        let buffers = self.memory.chunks_exact_mut(STRIDE).map(|chunk| &mut chunk[..BUFFER]);
        let room = buffers.zip(&mut self.metas).take(room);
        sys::receive_many(socket, room.map(|(buffer, meta)| Incoming { buffer, meta }))
    }
}

/// Splits one message into its datagrams; returns how many there were.
fn deliver(
    bytes: &[u8],
    meta: &IncomingMeta,
    to: IpAddr,
    counters: &mut LinkCounters,
    sink: &mut dyn FnMut(Datagram<'_>),
) -> usize {
    let facts = RxFacts::parse(&meta.control.bytes()[..meta.control_len.min(meta.control.bytes().len())]);
    let from = meta.from.to_std(meta.from_len);
    let Some(from) = from.filter(|_| meta.flags & libc::MSG_TRUNC == 0 && !bytes.is_empty()) else {
        counters.rx_malformed += 1;
        return 1;
    };
    let mut given = 0;
    for (index, datagram) in bytes.chunks(facts.segment.unwrap_or(bytes.len())).enumerate() {
        let id = match to {
            IpAddr::V4(_) => HeaderId::Hidden { place: index as u16 },
            IpAddr::V6(_) => HeaderId::None,
        };
        counters.rx_datagrams += 1;
        counters.rx_bytes += datagram.len() as u64;
        given += 1;
        sink(Datagram {
            src: from.ip(),
            dst: to,
            sport: from.port(),
            tos: facts.tos,
            ttl: facts.ttl.unwrap_or(DEFAULT_TTL),
            id,
            ip_header: None,
            bytes: datagram,
            has_icrc: true,
            record: None,
        });
    }
    given
}

/// What a receive call returned about a message, in the kernel's own form.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct RawMessage<'a> {
    pub payload: &'a [u8],
    /// A socket address, and its length according to the kernel.
    pub from: (&'a [u8], u32),
    /// Control messages, and their length according to the kernel.
    pub control: (&'a [u8], usize),
    pub flags: i32,
    /// The address that the socket is bound to.
    pub to: IpAddr,
}

/// Delivers the datagrams of a message as if it had been received, for fuzzing. Returns what that adds to the counters,
/// and to the budget used.
#[doc(hidden)]
pub fn replay(message: &RawMessage<'_>, sink: &mut dyn FnMut(Datagram<'_>)) -> (LinkCounters, usize) {
    let meta = IncomingMeta {
        from: SockAddr::of_bytes(message.from.0),
        from_len: message.from.1,
        control: Control::of_bytes(message.control.0),
        control_len: message.control.1,
        len: message.payload.len(),
        flags: message.flags,
    };
    let mut counters = LinkCounters::default();
    let given = deliver(message.payload, &meta, message.to, &mut counters, sink);
    (counters, given)
}
