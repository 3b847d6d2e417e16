//! The baseline: one TCP stream, and a UDP ping-pong, between the same two processes on the same machine.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use super::latency::{Percentiles, Samples};
use super::measure::Stream;
use super::target::{Request, STOPPING, stopped};
use crate::endpoint::{Idle, Lull};
use crate::failure::{Doing, Failure, Result};
use crate::pair::{Line, Peer};

/// Bytes of one write and one read of the stream, as in iperf3.
const CHUNK: usize = 128 << 10;
/// Bytes of a datagram: as many as an 8-byte SEND has above UDP.
const PING: usize = 24;

/// One TCP stream for about `time`, counted where it arrives.
pub fn tcp_stream(peer: &mut Peer, time: Duration) -> Result<Stream> {
    let port: u16 = peer.ask(&Request::TcpSink)?;
    let mut stream =
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).doing(|| "cannot connect by TCP".into())?;
    let chunk = vec![0; CHUNK];
    let start = Instant::now();
    while start.elapsed() < time {
        stream.write_all(&chunk).doing(|| "cannot write to the TCP stream".into())?;
    }
    drop(stream);
    let bytes: u64 = peer.line().receive(STOPPING)?;
    Ok(Stream { messages: bytes / CHUNK as u64, bytes, elapsed: start.elapsed(), retransmitted: 0 })
}

/// The other end of [`tcp_stream`].
pub fn tcp_sink(line: &mut Line) -> Result {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).doing(|| "cannot listen for TCP".into())?;
    line.send(&listener.local_addr()?.port())?;
    let (mut stream, _) = listener.accept().doing(|| "cannot accept by TCP".into())?;
    let mut chunk = vec![0; CHUNK];
    let mut bytes = 0u64;
    loop {
        match stream.read(&mut chunk).doing(|| "cannot read from the TCP stream".into())? {
            0 => return line.send(&bytes),
            read => bytes += read as u64,
        }
    }
}

/// A ping-pong of datagrams for about `time`, both processes spinning: half of a round trip.
pub fn udp_ping_pong(peer: &mut Peer, time: Duration) -> Result<Option<Percentiles>> {
    let port: u16 = peer.ask(&Request::UdpEcho)?;
    let socket = spinning_socket()?;
    socket.connect((Ipv4Addr::LOCALHOST, port)).doing(|| "cannot connect by UDP".into())?;
    let mut samples = Samples::new();
    let mut buffer = [0; PING];
    let line = peer.line();
    let mut idle = Idle::default();
    let start = Instant::now();
    let mut sent = start;
    while sent - start < time {
        socket.send(&buffer).doing(|| "cannot send by UDP".into())?;
        while !receive(socket.recv(&mut buffer))? {
            idle.after(0, line, || "a datagram does not come back".into())?;
        }
        idle = Idle::default();
        let now = Instant::now();
        samples.add(now - sent);
        sent = now;
    }
    peer.line().send(&Request::Stop)?;
    peer.line().receive::<()>(STOPPING)?;
    Ok(samples.percentiles(2.0))
}

/// The other end of [`udp_ping_pong`].
pub fn udp_echo(line: &mut Line) -> Result {
    let socket = spinning_socket()?;
    line.send(&socket.local_addr()?.port())?;
    let mut buffer = [0; PING];
    let mut peer: Option<SocketAddr> = None;
    let mut lull = Lull::default();
    loop {
        // It connects, like the other end, once the peer is known, so that both directions cost the same.
        let came = match peer {
            Some(_) => receive(socket.recv(&mut buffer))?,
            None => match socket.recv_from(&mut buffer) {
                Ok((_, from)) => {
                    socket.connect(from)?;
                    peer = Some(from);
                    true
                }
                Err(error) => receive(Err(error))?,
            },
        };
        if came {
            socket.send(&buffer).doing(|| "cannot send by UDP".into())?;
            lull.end();
            continue;
        }
        if lull.empty() && stopped(line)? {
            return line.send(&());
        }
    }
}

fn spinning_socket() -> Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).doing(|| "cannot open a UDP socket".into())?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Whether a datagram arrived.
fn receive(result: std::io::Result<usize>) -> Result<bool> {
    match result {
        Ok(PING) => Ok(true),
        Ok(other) => Err(Failure::new(format!("a datagram of {other} bytes came"))),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(Failure::new(format!("cannot receive by UDP: {error}"))),
    }
}
