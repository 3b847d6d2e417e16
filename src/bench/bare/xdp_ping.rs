//! Frames to and fro over AF_XDP.

use std::net::Ipv4Addr;

use clap::Args;
use softrnic_wire::{
    EthHeader, FrameHeader, IPV4_LEN, IpFacts, IpHeader, MacAddr, ROCE_UDP_PORT, UDP_LEN, UdpFacts,
};

use super::frames::facts;
use super::ping_pong::{self, answer, ask};
use super::xsk::{self, Xsk};
use crate::options::{Places, Timing, size};
use crate::process::{Line, Result, pair};
use crate::stats::RoundTrips;

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
/// Before the BTH.
pub const BELOW: usize = ETH_LEN + IPV4_LEN + UDP_LEN;

pub fn run(args: &XdpPingArgs) -> Result<RoundTrips> {
    let Places { sender, receiver, .. } = args.places.places;
    let side = |here, line: &mut Line| -> Result<Side> {
        Ok(Side { station: Station::open(&args.places, here, line)?, size: args.size })
    };
    pair(
        &args.places.places,
        |mut line| answer(side(receiver, &mut line)?, line),
        |line| ask(side(sender, line)?, args.timing.duration(), line),
    )
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
}

struct Side {
    station: Station,
    size: usize,
}

impl ping_pong::Side for Side {
    fn send(&mut self) -> Result<()> {
        let Station { xsk, header, .. } = &mut self.station;
        let slot = xsk.slot(BELOW + self.size).ok_or("no slot is free")?;
        header.emit(slot, self.size);
        xsk.commit(BELOW + self.size);
        xsk.flush()
    }

    fn receive(&mut self) -> Result<bool> {
        Ok(self.station.xsk.receive(|_| Ok(()))? > 0)
    }
}
