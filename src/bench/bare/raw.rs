//! Sockets without anything: the same datagrams, whose bytes nobody reads.

use std::time::{Duration, Instant};

use clap::Args;

use super::socket::{MAX_RUN, MAX_SEGMENTS, Run, Socket};
use crate::options::{Places, Timing, size};
use crate::process::{Line, Result, cpu_time, pair};
use crate::stats::Stream;

/// Datagrams of one size over UDP sockets with segmentation, and nothing else
#[derive(Args)]
pub struct RawArgs {
    #[command(flatten)]
    timing: Timing,
    #[command(flatten)]
    places: Places,
    /// Bytes of a datagram
    #[arg(long, default_value = "4112", value_parser = size)]
    size: usize,
    /// Receive buffer of the sockets, in bytes
    #[arg(long, default_value_t = 212_992)]
    rcvbuf: usize,
    /// Bytes that may be on their way
    #[arg(long, default_value_t = 140_000)]
    window: usize,
}

pub fn run(args: &RawArgs) -> Result<Stream> {
    pair(&args.places, |line| receive(args, line), |line| send(args, line))
}

fn send(args: &RawArgs, line: &mut Line) -> Result<Stream> {
    let socket = Socket::bind(args.places.sender, args.rcvbuf)?;
    let [port] = line.hear()?;
    socket.connect(args.places.receiver, port as u16)?;
    line.say(&[socket.port()?.into()])?;
    let segments = (MAX_RUN / args.size).clamp(1, MAX_SEGMENTS);
    let run = Run { start: 0, len: segments * args.size, segment: args.size };
    let payload = vec![0; run.len];
    let mut credit = [0; 8];
    let (time, cpu, start) = (args.timing.duration(), cpu_time(), Instant::now());
    let mut in_flight = 0_usize;
    while start.elapsed() < time || in_flight > 0 {
        if start.elapsed() < time && (in_flight == 0 || in_flight + run.len <= args.window) {
            socket.send(&payload, &[run])?;
            in_flight += run.len;
        }
        // What was read comes back as a number, so that nothing is lost and every byte sent counts.
        while let Some(received) = socket.receive(&mut credit)? {
            let bytes = u64::from_ne_bytes(credit) as usize;
            if received.len != 8 || bytes > in_flight {
                return Err("a credit makes no sense".into());
            }
            in_flight -= bytes;
        }
    }
    let elapsed = start.elapsed();
    line.stop()?;
    let [datagrams, bytes, other_cpu] = line.hear()?;
    Ok(Stream::new(datagrams, bytes, elapsed, cpu_time() - cpu + Duration::from_nanos(other_cpu)))
}

fn receive(args: &RawArgs, mut line: Line) -> Result<()> {
    let socket = Socket::bind(args.places.receiver, args.rcvbuf)?;
    line.say(&[socket.port()?.into()])?;
    let [port] = line.hear()?;
    socket.connect(args.places.sender, port as u16)?;
    let mut buffer = vec![0; 1 << 16];
    let (mut datagrams, mut bytes) = (0_u64, 0_u64);
    let cpu = cpu_time();
    let mut empty = 0_u32;
    loop {
        match socket.receive(&mut buffer)? {
            Some(received) => {
                datagrams += received.len.div_ceil(received.segment) as u64;
                bytes += received.len as u64;
                empty = 0;
                let credit = (received.len as u64).to_ne_bytes();
                socket.send(&credit, &[Run { start: 0, len: 8, segment: 8 }])?;
            }
            None => {
                empty += 1;
                if empty.is_multiple_of(1 << 12) && line.stopped()? {
                    break;
                }
            }
        }
    }
    line.say(&[datagrams, bytes, (cpu_time() - cpu).as_nanos() as u64])
}
