//! What the wire forces, over AF_XDP: as [`super::wire`], with whole frames.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use clap::Args;
use softrnic_wire::{ICRC_LEN, IPV4_LEN, Psn, UDP_LEN};

use super::frames::{ACK_LEN, Arrival, Cutter, Target, emit_ack, read_ack, verify_pieces};
use super::xdp_ping::{BELOW, ETH_LEN, Station, XdpPlaces};
use crate::options::{Timing, size};
use crate::process::{Line, Result, cpu_time, pair};
use crate::stats::Stream;

/// Packets of RDMA WRITEs over AF_XDP: headers, ICRC, one copy on each side, ACKs
#[derive(Args)]
pub struct XdpArgs {
    #[command(flatten)]
    timing: Timing,
    #[command(flatten)]
    places: XdpPlaces,
    /// Bytes of a message
    #[arg(long, default_value = "65536", value_parser = size)]
    size: usize,
    /// Bytes that may be on their way
    #[arg(long, default_value_t = 1 << 20)]
    window: usize,
    /// Frames that are prepared before the kernel is told
    #[arg(long, default_value_t = 32)]
    batch: usize,
}

pub fn run(args: &XdpArgs) -> Result<Stream> {
    pair(&args.places.places, |line| receive(args, line), |line| send(args, line))
}

fn send(args: &XdpArgs, line: &mut Line) -> Result<Stream> {
    let mut station = Station::open(&args.places, args.places.places.sender, line)?;
    let mut cutter = Cutter::new(args.size);
    let memory: Vec<u8> = (0..args.size).map(|i| i as u8).collect();
    let mut unacknowledged: VecDeque<(Psn, usize)> = VecDeque::with_capacity(1 << 16);
    let (mut in_flight, mut asked) = (0, 0);
    let (time, cpu, start) = (args.timing.duration(), cpu_time(), Instant::now());
    loop {
        // Batches and messages need never end together: then the next end of a message is the last.
        let ending = start.elapsed() >= time;
        let mut over = ending && cutter.at_message_start();
        if over && in_flight == 0 {
            break;
        }
        for place in 0..args.batch {
            let piece = cutter.peek();
            let len = piece.transport_len();
            if over || in_flight + len > args.window {
                break;
            }
            let facts = station.header.facts();
            let Some(frame) = station.xsk.slot(BELOW + len) else { break };
            cutter.advance();
            let next = cutter.peek().transport_len();
            over = ending && piece.is_last();
            let ends_burst = over || place + 1 == args.batch || in_flight + len + next > args.window;
            station.header.emit(frame, len);
            let ack = piece.emit(Some(&facts), &memory, ends_burst, &mut frame[BELOW..]);
            station.xsk.commit(BELOW + len);
            in_flight += len;
            asked += len;
            if ack {
                unacknowledged.push_back((piece.psn(), std::mem::take(&mut asked)));
            }
        }
        station.xsk.flush()?;
        let back = station.back;
        station.xsk.receive(|pieces| {
            let ack = pieces[0].get(BELOW..).and_then(|ack| ack.get(..ACK_LEN));
            let psn = ack.and_then(|ack| read_ack(&back, ack)).ok_or("a bad acknowledgement came")?;
            while let Some(&(asked, bytes)) = unacknowledged.front()
                && asked.at_or_before(psn)
            {
                in_flight -= bytes;
                unacknowledged.pop_front();
            }
            Ok(())
        })?;
    }
    let elapsed = start.elapsed();
    line.stop()?;
    let [messages, bytes, other_cpu] = line.hear()?;
    Ok(Stream::new(messages, bytes, elapsed, cpu_time() - cpu + Duration::from_nanos(other_cpu)))
}

fn receive(args: &XdpArgs, mut line: Line) -> Result<()> {
    let mut station = Station::open(&args.places, args.places.places.receiver, &mut line)?;
    let mut target = Target::new(args.size);
    let mut acks = Vec::with_capacity(args.batch);
    let cpu = cpu_time();
    let mut empty = 0_u32;
    loop {
        let frames = station.xsk.receive(|pieces| take(&mut target, pieces, &mut acks))?;
        if frames == 0 {
            empty += 1;
            if empty.is_multiple_of(1 << 14) && line.stopped()? {
                break;
            }
            continue;
        }
        empty = 0;
        let facts = station.header.facts();
        for psn in acks.drain(..) {
            let frame = station.xsk.slot(BELOW + ACK_LEN).ok_or("no room for an acknowledgement")?;
            station.header.emit(frame, ACK_LEN);
            emit_ack(&facts, psn, (&mut frame[BELOW..]).try_into()?);
            station.xsk.commit(BELOW + ACK_LEN);
        }
        station.xsk.flush()?;
    }
    line.say(&[target.messages, target.bytes, (cpu_time() - cpu).as_nanos() as u64])
}

fn take(target: &mut Target, pieces: &[&[u8]], acks: &mut Vec<Psn>) -> Result<()> {
    let (first, rest) = pieces.split_first().ok_or("an empty frame")?;
    let first = first.get(ETH_LEN..).ok_or("a short frame came")?;
    let right = match rest {
        [] => verify_pieces(&[first]),
        [second, ..] => verify_pieces(&[first, second]),
    };
    if !right {
        return Err("a frame with a wrong ICRC came".into());
    }
    let transport = &first[IPV4_LEN + UDP_LEN..];
    let arrival = Arrival::read(transport).ok_or("a packet that is no WRITE came")?;
    target.begin(&arrival)?;
    let mut trailer = ICRC_LEN + arrival.pad;
    let tail = rest.first().copied().unwrap_or_default();
    let in_tail = trailer.min(tail.len());
    trailer -= in_tail;
    target.place(&transport[arrival.headers..transport.len() - trailer])?;
    target.place(&tail[..tail.len() - in_tail])?;
    target.end(&arrival);
    if arrival.ack_req {
        acks.push(arrival.psn);
    }
    Ok(())
}
