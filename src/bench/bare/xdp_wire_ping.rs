//! What the wire forces of a ping-pong of SENDs over AF_XDP: as [`super::wire_ping`], with whole frames. SEND and
//! acknowledgement are a frame each, sent by the same system call.

use std::net::Ipv4Addr;

use clap::Args;
use softrnic_wire::{BTH_LEN, Psn};

use super::frames::{ACK_LEN, SEND_HEADERS, emit_ack, emit_send, read_ack, read_send, verify_pieces};
use super::ping_pong::{self, answer, ask};
use super::xdp_ping::{BELOW, ETH_LEN, Station, XdpPlaces};
use crate::options::{Places, Timing, size};
use crate::process::{Line, Result, pair};
use crate::stats::RoundTrips;

/// Round trips of SENDs and their ACKs over AF_XDP, both processes spinning: headers, ICRC, one copy
#[derive(Args)]
pub struct XdpWirePingArgs {
    #[command(flatten)]
    timing: Timing,
    #[command(flatten)]
    places: XdpPlaces,
    /// Bytes of a SEND's packet, a multiple of four; an 8-byte SEND has 24
    #[arg(long, default_value = "24", value_parser = size)]
    size: usize,
}

pub fn run(args: &XdpWirePingArgs) -> Result<RoundTrips> {
    if !args.size.is_multiple_of(4) || !(SEND_HEADERS + 4..=SEND_HEADERS + 4096).contains(&args.size) {
        return Err("the size must be a multiple of four from 20 to 4112: one packet without padding".into());
    }
    let XdpPlaces { places: Places { sender, receiver, .. }, .. } = args.places;
    pair(
        &args.places.places,
        |mut line| answer(Side::open(args, receiver, &mut line)?, line),
        |line| ask(Side::open(args, sender, line)?, args.timing.duration(), line),
    )
}

struct Side {
    station: Station,
    memory: Vec<u8>,
    next: Psn,
    /// What came and is not yet acknowledged.
    came: Option<Psn>,
}

impl Side {
    fn open(args: &XdpWirePingArgs, here: Ipv4Addr, line: &mut Line) -> Result<Side> {
        let station = Station::open(&args.places, here, line)?;
        Ok(Side { station, memory: vec![7; args.size - SEND_HEADERS], next: Psn::ZERO, came: None })
    }
}

impl ping_pong::Side for Side {
    /// The acknowledgement of what came goes first, so that the peer has both when it has the SEND.
    fn send(&mut self) -> Result<()> {
        let Station { xsk, header, .. } = &mut self.station;
        let facts = header.facts();
        if let Some(psn) = self.came.take() {
            let frame = xsk.slot(BELOW + ACK_LEN).ok_or("no room for an acknowledgement")?;
            header.emit(frame, ACK_LEN);
            emit_ack(&facts, psn, (&mut frame[BELOW..]).try_into()?);
            xsk.commit(BELOW + ACK_LEN);
        }
        let len = SEND_HEADERS + self.memory.len();
        let frame = xsk.slot(BELOW + len).ok_or("no slot is free")?;
        header.emit(frame, len);
        emit_send(Some(&facts), self.next, &self.memory, &mut frame[BELOW..]);
        xsk.commit(BELOW + len);
        self.next += 1;
        xsk.flush()
    }

    fn receive(&mut self) -> Result<bool> {
        let Side { station, memory, came, .. } = self;
        let back = station.back;
        station.xsk.receive(|pieces| {
            let transport = pieces[0].get(BELOW..).ok_or("a short frame came")?;
            if transport.get(..ACK_LEN).is_some_and(|ack| read_ack(&back, ack).is_some()) {
                return Ok(());
            }
            let psn = match pieces {
                [_] => {
                    let transport =
                        transport.get(..SEND_HEADERS + memory.len()).ok_or("a short frame came")?;
                    let (psn, payload) =
                        read_send(Some(&back), transport).ok_or("a packet that is no SEND came")?;
                    memory.copy_from_slice(payload);
                    psn
                }
                _ => read_in_pieces(pieces, memory)?,
            };
            *came = Some(psn);
            Ok(())
        })?;
        Ok(self.came.is_some())
    }
}

/// Takes the payload of a SEND whose frame lies in two pieces.
fn read_in_pieces(pieces: &[&[u8]], memory: &mut [u8]) -> Result<Psn> {
    let [first, second] = pieces else { return Err("a frame of more than two pieces came".into()) };
    if !verify_pieces(&[&first[ETH_LEN..], second]) {
        return Err("a frame with a wrong ICRC came".into());
    }
    let bth = &first[BELOW..BELOW + BTH_LEN];
    let begin = &first[BELOW + BTH_LEN..];
    let (here, there) = memory.split_at_mut(begin.len().min(memory.len()));
    here.copy_from_slice(&begin[..here.len()]);
    there.copy_from_slice(second.get(..there.len()).ok_or("a short frame came")?);
    Ok(Psn::new(u32::from_be_bytes([0, bth[9], bth[10], bth[11]])))
}
