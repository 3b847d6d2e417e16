//! What the packets force of a ping-pong of SENDs between two processes that share memory: headers and one copy on each
//! side. ICRCs on request. No queue pairs, no completions, no acknowledgements.

use clap::Args;
use softrnic_wire::{Psn, UdpFacts};

use super::frames::{SEND_HEADERS, emit_send, read_send};
use super::ping_pong::{self, answer, ask};
use super::ring::{Reader, Ring, Writer};
use super::shm::{Waiting, addresses};
use crate::options::{Places, Timing, size};
use crate::process::{Result, pair};
use crate::stats::RoundTrips;

/// Round trips of SENDs through rings in shared memory, both processes spinning: headers, one copy
#[derive(Args)]
pub struct ShmPingArgs {
    #[command(flatten)]
    timing: Timing,
    #[command(flatten)]
    places: Places,
    /// Bytes of a SEND's packet, a multiple of four; an 8-byte SEND has 24
    #[arg(long, default_value = "24", value_parser = size)]
    size: usize,
    /// Compute and verify ICRCs, as on a wire
    #[arg(long)]
    icrc: bool,
    #[command(flatten)]
    waiting: Waiting,
}

pub fn run(args: &ShmPingArgs) -> Result<RoundTrips> {
    if !args.size.is_multiple_of(4) || !(SEND_HEADERS + 4..=SEND_HEADERS + 4096).contains(&args.size) {
        return Err("the size must be a multiple of four from 20 to 4112: one packet without padding".into());
    }
    let (there, back) = (Ring::map(64)?, Ring::map(64)?);
    let side = |out, inward| Side {
        writer: Writer::new(out),
        reader: Reader::new(inward),
        memory: vec![7; args.size - SEND_HEADERS],
        next: Psn::ZERO,
        addresses: args.icrc.then(addresses),
        waiting: args.waiting,
    };
    let (near, far) = (side(there, back), side(back, there));
    pair(
        &args.places,
        |mut line| {
            line.say(&[1])?;
            answer(far, line)
        },
        |line| {
            line.hear::<1>()?;
            ask(near, args.timing.duration(), line)
        },
    )
}

struct Side {
    writer: Writer,
    reader: Reader,
    memory: Vec<u8>,
    next: Psn,
    /// What ICRCs are computed for.
    addresses: Option<UdpFacts>,
    waiting: Waiting,
}

impl ping_pong::Side for Side {
    fn send(&mut self) -> Result<()> {
        let Side { writer, memory, next, addresses, .. } = self;
        let written = writer.write(SEND_HEADERS + memory.len(), |out| {
            emit_send(addresses.as_ref(), *next, memory, out);
        });
        *next += 1;
        if written { Ok(()) } else { Err("the ring is full".into()) }
    }

    fn receive(&mut self) -> Result<bool> {
        let Side { memory, addresses, .. } = self;
        let arrived = self.reader.read(|packet| -> Result<()> {
            let (_, payload) =
                read_send(addresses.as_ref(), packet).ok_or("a packet that is no SEND came")?;
            memory.copy_from_slice(payload);
            Ok(())
        });
        arrived.transpose().map(|arrived| arrived.is_some())
    }
    fn wait(&self) {
        self.waiting.wait();
    }
}
