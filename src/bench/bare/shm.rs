//! What the packets force between two processes that share memory: those of RDMA WRITEs with headers, and one copy on
//! each side. ICRCs on request. No queue pairs, no keys, no acknowledgements, and a full ring instead of a window.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use clap::Args;
use softrnic_wire::{ICRC_LEN, UdpFacts, verify};

use super::frames::{Arrival, Cutter, Target, facts, with_id};
use super::ring::{Reader, Ring, Writer};
use crate::options::{Places, Timing, size};
use crate::process::{Line, Result, cpu_time, pair};
use crate::stats::Stream;

/// Packets of RDMA WRITEs through a ring in shared memory: headers, one copy on each side
#[derive(Args)]
pub struct ShmArgs {
    #[command(flatten)]
    timing: Timing,
    #[command(flatten)]
    places: Places,
    /// Bytes of a message
    #[arg(long, default_value = "65536", value_parser = size)]
    size: usize,
    /// Packets that the ring has room for
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    slots: u16,
    /// Compute and verify ICRCs, as on a wire
    #[arg(long)]
    icrc: bool,
    #[command(flatten)]
    waiting: Waiting,
}

/// How the two processes wait for each other.
#[derive(Args, Clone, Copy)]
pub struct Waiting {
    /// Yield the processor after each look in vain: for machines that have only one
    #[arg(long)]
    yields: bool,
}

impl Waiting {
    /// After a look in vain.
    pub fn wait(&self) {
        if self.yields { std::thread::yield_now() } else { std::hint::spin_loop() }
    }
}

/// Looks at a ring that were in vain, before one at the other process and the clock.
const LOOKS: u32 = 1 << 12;

pub fn run(args: &ShmArgs) -> Result<Stream> {
    let ring = Ring::map(args.slots)?;
    pair(&args.places, |line| receive(args, ring, line), |line| send(args, ring, line))
}

/// The packets' addresses, as those of a link would be.
pub fn addresses() -> UdpFacts {
    facts(Ipv4Addr::new(127, 0, 0, 1), 4791, Ipv4Addr::new(127, 0, 0, 2), 4791)
}

fn send(args: &ShmArgs, ring: Ring, line: &mut Line) -> Result<Stream> {
    let mut writer = Writer::new(ring);
    let mut cutter = Cutter::new(args.size);
    let memory: Vec<u8> = (0..args.size).map(|i| i as u8).collect();
    let addresses = addresses();
    let mut number = 0_usize;
    // Once the other one runs.
    line.hear::<1>()?;
    let (time, cpu, start) = (args.timing.duration(), cpu_time(), Instant::now());
    loop {
        let over = start.elapsed() >= time;
        if over && cutter.at_message_start() {
            break;
        }
        // A few between looks at the clock; then the last message is finished.
        for _ in 0..32 {
            let piece = cutter.peek();
            let facts = with_id(&addresses, number);
            let fill = |out: &mut [u8]| _ = piece.emit(args.icrc.then_some(&facts), &memory, false, out);
            if !writer.write(piece.transport_len(), fill) {
                args.waiting.wait();
                break;
            }
            number += 1;
            cutter.advance();
            if over && cutter.at_message_start() {
                break;
            }
        }
    }
    while !writer.is_drained() {
        args.waiting.wait();
    }
    let elapsed = start.elapsed();
    line.stop()?;
    let [messages, bytes, other_cpu] = line.hear()?;
    let cpu = cpu_time() - cpu + Duration::from_nanos(other_cpu);
    Ok(Stream::new(messages, bytes, elapsed, cpu))
}

fn receive(args: &ShmArgs, ring: Ring, mut line: Line) -> Result<()> {
    let mut reader = Reader::new(ring);
    let mut target = Target::new(args.size);
    let addresses = addresses();
    let (mut number, mut empty) = (0_usize, 0_u32);
    let cpu = cpu_time();
    line.say(&[1])?;
    loop {
        let arrived = reader.read(|packet| -> Result<()> {
            if args.icrc && !verify(&with_id(&addresses, number), packet) {
                return Err("a packet with a wrong ICRC came".into());
            }
            let arrival = Arrival::read(packet).ok_or("a packet that is no WRITE came")?;
            target.begin(&arrival)?;
            target.place(&packet[arrival.headers..packet.len() - ICRC_LEN - arrival.pad])?;
            target.end(&arrival);
            Ok(())
        });
        match arrived {
            Some(arrived) => arrived?,
            None => {
                args.waiting.wait();
                empty += 1;
                if empty.is_multiple_of(LOOKS) && line.stopped()? {
                    break;
                }
                continue;
            }
        }
        number += 1;
        empty = 0;
    }
    line.say(&[target.messages, target.bytes, (cpu_time() - cpu).as_nanos() as u64])
}
