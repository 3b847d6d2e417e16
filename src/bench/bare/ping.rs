//! UDP datagrams to and fro.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::Instant;

use clap::Args;

use crate::options::{Places, Timing, size};
use crate::process::{Line, Result, pair};
use crate::stats::{RoundTrips, Samples};

/// Round trips of UDP datagrams, both processes spinning or both blocking
#[derive(Args)]
pub struct PingArgs {
    #[command(flatten)]
    timing: Timing,
    #[command(flatten)]
    places: Places,
    /// Bytes of a datagram; an 8-byte SEND has 24
    #[arg(long, default_value = "24", value_parser = size)]
    size: usize,
    /// Wait in the kernel instead of asking again and again
    #[arg(long)]
    block: bool,
}

pub fn run(args: &PingArgs) -> Result<RoundTrips> {
    pair(&args.places, |line| echo(args, line), |line| ask(args, line))
}

fn ask(args: &PingArgs, line: &mut Line) -> Result<RoundTrips> {
    let socket = UdpSocket::bind((args.places.sender, 0))?;
    line.say(&[socket.local_addr()?.port().into()])?;
    let [port] = line.hear()?;
    socket.connect((args.places.receiver, port as u16))?;
    socket.set_nonblocking(!args.block)?;
    let mut buffer = vec![0; args.size];
    let mut samples = Samples::new();
    let (time, start) = (args.timing.duration(), Instant::now());
    let mut sent = start;
    while sent - start < time {
        socket.send(&buffer)?;
        while !receive(&socket, &mut buffer)? {}
        let now = Instant::now();
        samples.add(now - sent);
        sent = now;
    }
    line.stop()?;
    // For one that blocks.
    socket.send(&[])?;
    Ok(samples.summary()?)
}

fn echo(args: &PingArgs, mut line: Line) -> Result<()> {
    let socket = UdpSocket::bind((args.places.receiver, 0))?;
    let [port] = line.hear()?;
    socket.connect((args.places.sender, port as u16))?;
    socket.set_nonblocking(!args.block)?;
    line.say(&[socket.local_addr()?.port().into()])?;
    let mut buffer = vec![0; args.size];
    loop {
        match socket.recv(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(len) => {
                socket.send(&buffer[..len])?;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> Result<bool> {
    match socket.recv(buffer) {
        Ok(len) if len == buffer.len() => Ok(true),
        Ok(len) => Err(format!("a datagram of {len} bytes came").into()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error.into()),
    }
}
