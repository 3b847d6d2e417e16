//! One system call for each datagram.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use clap::Args;

use crate::options::{Places, Timing, size};
use crate::process::{Line, Result, cpu_time, pair};
use crate::stats::Stream;

/// Datagrams sent by one `sendto` each, and received by one `recvfrom` each; those that arrive count
#[derive(Args)]
pub struct RateArgs {
    #[command(flatten)]
    timing: Timing,
    #[command(flatten)]
    places: Places,
    /// Bytes of a datagram
    #[arg(long, default_value = "64", value_parser = size)]
    size: usize,
}

pub fn run(args: &RateArgs) -> Result<Stream> {
    pair(&args.places, |line| count(args, line), |line| send(args, line))
}

fn send(args: &RateArgs, line: &mut Line) -> Result<Stream> {
    let [port] = line.hear()?;
    let socket = UdpSocket::bind((args.places.sender, 0))?;
    let to = (args.places.receiver, port as u16).into();
    let to: std::net::SocketAddr = to;
    let payload = vec![0; args.size];
    let (time, cpu, start) = (args.timing.duration(), cpu_time(), Instant::now());
    while start.elapsed() < time {
        // A few between looks at the clock.
        for _ in 0..16 {
            socket.send_to(&payload, to)?;
        }
    }
    let elapsed = start.elapsed();
    line.stop()?;
    let [datagrams, other_cpu] = line.hear()?;
    let cpu = cpu_time() - cpu + Duration::from_nanos(other_cpu);
    Ok(Stream::new(datagrams, datagrams * args.size as u64, elapsed, cpu))
}

fn count(args: &RateArgs, mut line: Line) -> Result<()> {
    let socket = UdpSocket::bind((args.places.receiver, 0))?;
    socket.set_nonblocking(true)?;
    line.say(&[socket.local_addr()?.port().into()])?;
    let mut buffer = vec![0; args.size];
    let (mut datagrams, mut empty) = (0_u64, 0_u32);
    let cpu = cpu_time();
    loop {
        match socket.recv_from(&mut buffer) {
            Ok(_) => datagrams += 1,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                empty += 1;
                if empty.is_multiple_of(1 << 10) && line.stopped()? {
                    break;
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    line.say(&[datagrams, (cpu_time() - cpu).as_nanos() as u64])
}
