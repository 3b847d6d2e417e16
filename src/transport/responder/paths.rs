//! The paths of responses (decision 42). Those to READs are spread over the paths that work, acknowledgements over many ports.

use softrnic_wire::{MAX_PATHS, Packet, Psn, Time};

use super::Responder;
use super::responses::Response;
use crate::context::Context;
use crate::counters::Counter;
use crate::host::Host;
use crate::path::Path;
use crate::paths::{Paths, Verdict, on_port};
use crate::tuning::BUSY_PACKETS;

/// What the peer has repeated.
#[derive(Clone, Copy, Debug)]
pub(super) enum Repeated {
    Nothing,
    /// A READ, or part of it: these responses may be lost.
    Read {
        first: Psn,
        packets: u32,
    },
}

/// The ports of acknowledgements. One that is lost does not matter, since the next says more. If all are lost, the peer repeats
/// itself, and they leave from other ports.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct AckPorts {
    /// In which bits the last one differed from that of the connection.
    bits: u16,
    /// Requests that the peer has repeated since there was a new one.
    repeats: u16,
    /// What was expected then.
    expected: Psn,
}

impl AckPorts {
    pub fn next(&mut self, cx: &Context) -> Path {
        let (block, number) = (self.bits / u16::from(MAX_PATHS), self.bits % u16::from(MAX_PATHS));
        let number = (number + 1) % u16::from(cx.config.paths);
        self.bits = block * u16::from(MAX_PATHS) + number;
        on_port(&cx.attr.path, self.bits)
    }

    /// A request has come, and `expected` is expected now.
    fn note(&mut self, cx: &Context, request: Psn, expected: Psn) {
        if self.expected != expected {
            (self.expected, self.repeats) = (expected, 0);
        } else if request.is_before(expected) {
            self.repeats += 1;
            if self.repeats.is_multiple_of(cx.config.paths.into()) {
                self.bits = self.bits.wrapping_add(MAX_PATHS.into());
            }
        }
    }
}

impl<D> Responder<D> {
    /// The path of a response, whose PSN is `psn`.
    #[cold]
    pub(super) fn path_of(
        &mut self,
        cx: &Context,
        now: Time,
        paths: Option<&mut Paths>,
        response: &Response,
        psn: Psn,
    ) -> Path {
        match (response, paths) {
            (Response::Read { .. }, Some(paths)) => {
                let number = paths.for_response(now, psn);
                paths.of(&cx.attr.path, number)
            }
            _ => self.ack_ports.next(cx),
        }
    }

    /// A request has come. The peer may not be able to ask whether it may spread, if this end's number is low: from time to time,
    /// one of many large packets has this end ask.
    #[cold]
    pub fn note_load<H: Host<Data = D>>(&mut self, cx: &Context, packet: &Packet<'_>, host: &mut H) {
        self.ack_ports.note(cx, packet.bth.psn, self.epsn);
        let is_large = packet.payload.len() as u32 == cx.config.mtu;
        if !cx.spreads && is_large && packet.bth.psn.get().is_multiple_of(BUSY_PACKETS) {
            host.ask_for_paths();
        }
    }

    /// Draws its conclusions from what the peer has repeated.
    pub fn note_repeats<H: Host<Data = D>>(&mut self, now: Time, paths: Option<&mut Paths>, host: &mut H) {
        match core::mem::replace(&mut self.repeated, Repeated::Nothing) {
            Repeated::Nothing => {}
            Repeated::Read { first, packets } => {
                let Some(paths) = paths else { return };
                for at in 0..packets {
                    if paths.note_repeated(now, first + at) == Verdict::Left {
                        host.count(Counter::PathLeft);
                    }
                }
            }
        }
    }
}
