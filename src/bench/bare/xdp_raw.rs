//! Frames of one size over AF_XDP, one way, and nothing else: what the interface and the kernel allow.

use std::time::{Duration, Instant};

use clap::Args;
use softrnic_wire::{BTH_LEN, ICRC_LEN, IPV4_LEN, UDP_LEN};

use super::xdp_ping::{ETH_LEN, Station, XdpPlaces};
use crate::options::{Timing, size};
use crate::process::{Line, Result, cpu_time, pair};
use crate::stats::Stream;

/// Frames over AF_XDP without contents, acknowledgements or care for what is lost; what arrives counts
#[derive(Args)]
pub struct XdpRawArgs {
    #[command(flatten)]
    timing: Timing,
    #[command(flatten)]
    places: XdpPlaces,
    /// Payload bytes; the frames are as long as those of an RDMA WRITE's middle packets
    #[arg(long, default_value = "4096", value_parser = size)]
    size: usize,
    /// Frames that are prepared before the kernel is told
    #[arg(long, default_value_t = 32)]
    batch: usize,
}

pub fn run(args: &XdpRawArgs) -> Result<Stream> {
    pair(&args.places.places, |line| receive(args, line), |line| send(args, line))
}

/// Behind the UDP header, besides the payload.
const AROUND: usize = BTH_LEN + ICRC_LEN;

fn send(args: &XdpRawArgs, line: &mut Line) -> Result<Stream> {
    let mut station = Station::open(&args.places, args.places.places.sender, line)?;
    let len = AROUND + args.size;
    let (time, cpu, start) = (args.timing.duration(), cpu_time(), Instant::now());
    while start.elapsed() < time {
        for _ in 0..args.batch {
            let frame = ETH_LEN + IPV4_LEN + UDP_LEN + len;
            let Some(slot) = station.xsk.slot(frame) else { break };
            station.header.emit(slot, len);
            station.xsk.commit(frame);
        }
        station.xsk.flush()?;
    }
    let elapsed = start.elapsed();
    line.stop()?;
    let [frames, other_cpu] = line.hear()?;
    let cpu = cpu_time() - cpu + Duration::from_nanos(other_cpu);
    Ok(Stream::new(frames, frames * args.size as u64, elapsed, cpu))
}

fn receive(args: &XdpRawArgs, mut line: Line) -> Result<()> {
    let mut station = Station::open(&args.places, args.places.places.receiver, &mut line)?;
    let cpu = cpu_time();
    let (mut arrived, mut empty) = (0, 0_u32);
    loop {
        match station.xsk.receive(|_| Ok(()))? {
            0 => {
                empty += 1;
                if empty.is_multiple_of(1 << 14) && line.stopped()? {
                    break;
                }
            }
            frames => {
                arrived += frames as u64;
                empty = 0;
            }
        }
    }
    line.say(&[arrived, (cpu_time() - cpu).as_nanos() as u64])
}
