//! Frames to and fro over AF_XDP.

use std::net::Ipv4Addr;
use std::time::Instant;

use clap::Args;
use softrnic_wire::{
    EthHeader, FrameHeader, IPV4_LEN, IpFacts, IpHeader, MacAddr, ROCE_UDP_PORT, UDP_LEN, UdpFacts,
};

use super::frames::facts;
use super::xsk::{self, Xsk};
use crate::options::{Places, Timing, size};
use crate::process::{Line, Result, pair};
use crate::stats::{RoundTrips, Samples};

/// Round trips of frames over AF_XDP, both processes spinning
#[derive(Args)]
pub struct XdpPingArgs {
    #[command(flatten)]
    timing: Timing,
    #[command(flatten)]
    places: XdpPlaces,
    /// Bytes behind the UDP header; an 8-byte SEND has 24
    #[arg(long, default_value = "24", value_parser = size)]
    size: usize,
}

/// Where the two processes are, and their interfaces.
#[derive(Args)]
pub struct XdpPlaces {
    #[command(flatten)]
    pub places: Places,
    /// The interface, of the same name on both sides
    #[arg(long, value_name = "NAME", default_value = "eth0")]
    pub interface: String,
}

/// Before the IP header.
pub const ETH_LEN: usize = 14;

pub fn run(args: &XdpPingArgs) -> Result<RoundTrips> {
    pair(&args.places.places, |line| echo(args, line), |line| ask(args, line))
}

/// One side's socket, and the headers of what it sends.
pub struct Station {
    pub xsk: Xsk,
    pub header: FrameHeader,
    /// What the ICRC covers of the headers of what comes.
    pub back: UdpFacts,
}

impl Station {
    /// Opens the interface of the side whose address is `here`.
    pub fn open(places: &XdpPlaces, here: Ipv4Addr, line: &mut Line) -> Result<Station> {
        let Places { sender, receiver, .. } = places.places;
        let there = if here == sender { receiver } else { sender };
        let src = xsk::mac(&places.interface)?;
        let xsk = Xsk::open(&places.interface, here)?;
        let [a, b, c, d, e, f] = src.0;
        line.say(&[u64::from_be_bytes([0, 0, a, b, c, d, e, f])])?;
        let [theirs] = line.hear()?;
        let [_, _, dst @ ..] = theirs.to_be_bytes();
        let header = FrameHeader {
            eth: EthHeader { dst: MacAddr(dst), src, ..EthHeader::default() },
            ip: IpHeader { facts: IpFacts::v4(here, there), tos: 0, ttl: 64, flow_label: 0 },
            src_port: ROCE_UDP_PORT,
            dst_port: ROCE_UDP_PORT,
        };
        Ok(Station { xsk, header, back: facts(there, ROCE_UDP_PORT, here, ROCE_UDP_PORT) })
    }

    fn send(&mut self, args: &XdpPingArgs) -> Result<()> {
        let frame = ETH_LEN + IPV4_LEN + UDP_LEN + args.size;
        let slot = self.xsk.slot(frame).ok_or("no slot is free")?;
        self.header.emit(slot, args.size);
        self.xsk.commit(frame);
        self.xsk.flush()
    }
}

fn ask(args: &XdpPingArgs, line: &mut Line) -> Result<RoundTrips> {
    let mut station = Station::open(&args.places, args.places.places.sender, line)?;
    let mut samples = Samples::new();
    let (time, start) = (args.timing.duration(), Instant::now());
    let mut sent = start;
    while sent - start < time {
        station.send(args)?;
        while station.xsk.receive(|_| Ok(()))? == 0 {}
        let now = Instant::now();
        samples.add(now - sent);
        sent = now;
    }
    line.stop()?;
    Ok(samples.summary()?)
}

fn echo(args: &XdpPingArgs, mut line: Line) -> Result<()> {
    let mut station = Station::open(&args.places, args.places.places.receiver, &mut line)?;
    let mut empty = 0_u32;
    loop {
        if station.xsk.receive(|_| Ok(()))? > 0 {
            station.send(args)?;
            empty = 0;
            continue;
        }
        empty += 1;
        if empty.is_multiple_of(1 << 14) && line.stopped()? {
            return Ok(());
        }
    }
}
