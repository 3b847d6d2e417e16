//! What the packets force of a ping-pong of SENDs between two processes that share memory: headers and one copy on each
//! side. ICRCs on request. No queue pairs, no completions, no acknowledgements.

use std::time::Instant;

use clap::Args;
use softrnic_wire::{Psn, UdpFacts};

use super::frames::{SEND_HEADERS, emit_send, read_send};
use super::ring::{Reader, Ring, Writer};
use super::shm::{LOOKS, Waiting, addresses};
use crate::options::{Places, Timing, size};
use crate::process::{Line, Result, pair};
use crate::stats::{RoundTrips, Samples};

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
    };
    let (near, far) = (side(there, back), side(back, there));
    pair(&args.places, |line| answer(args, far, line), |line| ask(args, near, line))
}

fn ask(args: &ShmPingArgs, mut side: Side, line: &mut Line) -> Result<RoundTrips> {
    let mut samples = Samples::new();
    line.hear::<1>()?;
    let (time, start) = (args.timing.duration(), Instant::now());
    let mut sent = start;
    while sent - start < time {
        side.send()?;
        while !side.receive()? {
            args.waiting.wait();
        }
        let now = Instant::now();
        samples.add(now - sent);
        sent = now;
    }
    line.stop()?;
    Ok(samples.summary()?)
}

fn answer(args: &ShmPingArgs, mut side: Side, mut line: Line) -> Result<()> {
    line.say(&[1])?;
    let mut empty = 0_u32;
    loop {
        if side.receive()? {
            side.send()?;
            empty = 0;
            continue;
        }
        args.waiting.wait();
        empty += 1;
        if empty.is_multiple_of(LOOKS) && line.stopped()? {
            return Ok(());
        }
    }
}

struct Side {
    writer: Writer,
    reader: Reader,
    memory: Vec<u8>,
    next: Psn,
    /// What ICRCs are computed for.
    addresses: Option<UdpFacts>,
}

impl Side {
    fn send(&mut self) -> Result<()> {
        let Side { writer, memory, next, addresses, .. } = self;
        let written = writer.write(SEND_HEADERS + memory.len(), |out| {
            emit_send(addresses.as_ref(), *next, memory, out);
        });
        *next += 1;
        if written { Ok(()) } else { Err("the ring is full".into()) }
    }

    /// Whether the other's SEND has come.
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
}
