//! What the wire forces, over sockets: the packets of RDMA WRITEs with headers and ICRC, one copy on each side,
//! acknowledgements, and a window. No queue pairs, no keys, no timers, no loss.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::time::Instant;

use clap::Args;
use softrnic_wire::{ICRC_LEN, Psn, UdpFacts, verify};

use super::frames::{ACK_LEN, Arrival, Cutter, Target, emit_ack, facts, read_ack, with_id};
use super::socket::{MAX_RUN, MAX_SEGMENTS, Run, Socket};
use crate::options::{Places, Timing, size};
use crate::process::{Line, Result, cpu_time, pair};
use crate::stats::Stream;

/// Packets of RDMA WRITEs over UDP sockets with segmentation: headers, ICRC, one copy on each side, ACKs
#[derive(Args)]
pub struct WireArgs {
    #[command(flatten)]
    timing: Timing,
    #[command(flatten)]
    places: Places,
    /// Bytes of a message
    #[arg(long, default_value = "65536", value_parser = size)]
    size: usize,
    /// Receive buffer of the sockets, in bytes
    #[arg(long, default_value_t = 212_992)]
    rcvbuf: usize,
    /// Bytes that may be on their way
    #[arg(long, default_value_t = 140_000)]
    window: usize,
}

pub fn run(args: &WireArgs) -> Result<Stream> {
    pair(&args.places, |line| receive(args, line), |line| send(args, line))
}

/// Bytes that are prepared before they are sent.
const BURST: usize = 128 << 10;

fn send(args: &WireArgs, line: &mut Line) -> Result<Stream> {
    let Places { sender, receiver, .. } = args.places;
    let socket = open(args, sender, receiver, line)?;
    let mut state = Sender {
        out: facts(sender, socket.0.port()?, receiver, socket.1),
        back: facts(receiver, socket.1, sender, socket.0.port()?),
        socket: socket.0,
        cutter: Cutter::new(args.size),
        memory: (0..args.size).map(|i| i as u8).collect(),
        outbox: vec![0; BURST + MAX_RUN],
        runs: Vec::with_capacity(BURST),
        unacknowledged: VecDeque::with_capacity(1 << 16),
        in_flight: 0,
        asked: 0,
        ending: false,
        window: args.window,
    };
    let (time, cpu, start) = (args.timing.duration(), cpu_time(), Instant::now());
    while start.elapsed() < time || !state.cutter.at_message_start() {
        state.ending = start.elapsed() >= time;
        state.burst()?;
        state.acknowledgements()?;
    }
    while state.in_flight > 0 {
        state.acknowledgements()?;
    }
    let elapsed = start.elapsed();
    line.stop()?;
    let [messages, bytes, other_cpu] = line.hear()?;
    let cpu = cpu_time() - cpu + std::time::Duration::from_nanos(other_cpu);
    Ok(Stream::new(messages, bytes, elapsed, cpu))
}

/// Opens this side's socket, and tells the other process its port; returns the other's.
fn open(args: &WireArgs, here: Ipv4Addr, there: Ipv4Addr, line: &mut Line) -> Result<(Socket, u16)> {
    let socket = Socket::bind(here, args.rcvbuf)?;
    line.say(&[socket.port()?.into()])?;
    let [port] = line.hear()?;
    socket.connect(there, port as u16)?;
    Ok((socket, port as u16))
}

struct Sender {
    out: UdpFacts,
    back: UdpFacts,
    socket: Socket,
    cutter: Cutter,
    memory: Vec<u8>,
    outbox: Vec<u8>,
    runs: Vec<Run>,
    /// The PSNs whose acknowledgements are to come, and the bytes that each is of.
    unacknowledged: VecDeque<(Psn, usize)>,
    in_flight: usize,
    /// Bytes since a packet asked for an acknowledgement.
    asked: usize,
    /// The time is over: the next end of a message is the last.
    ending: bool,
    window: usize,
}

impl Sender {
    /// Prepares what fits, and sends it.
    fn burst(&mut self) -> Result<()> {
        let mut end = 0;
        self.runs.clear();
        loop {
            let piece = self.cutter.peek();
            let len = piece.transport_len();
            if self.in_flight + len > self.window || end + len > BURST {
                break;
            }
            self.cutter.advance();
            let next = self.cutter.peek().transport_len();
            // Bursts and messages need never end together otherwise.
            let ends = self.ending && piece.is_last();
            let ends_burst = ends || self.in_flight + len + next > self.window || end + len + next > BURST;
            let place = self.place(end, len);
            let facts = with_id(&self.out, place);
            let ack = piece.emit(Some(&facts), &self.memory, ends_burst, &mut self.outbox[end..end + len]);
            end += len;
            self.in_flight += len;
            self.asked += len;
            if ack {
                self.unacknowledged.push_back((piece.psn(), std::mem::take(&mut self.asked)));
            }
            if ends {
                break;
            }
        }
        Ok(self.socket.send(&self.outbox, &self.runs)?)
    }

    /// Adds a datagram to the last run or begins one; returns its place in it.
    fn place(&mut self, start: usize, len: usize) -> usize {
        if let Some(run) = self.runs.last_mut() {
            let whole = run.len.is_multiple_of(run.segment);
            let place = run.len / run.segment;
            if whole && len <= run.segment && place < MAX_SEGMENTS && run.len + len <= MAX_RUN {
                run.len += len;
                return place;
            }
        }
        self.runs.push(Run { start, len, segment: len });
        0
    }

    fn acknowledgements(&mut self) -> Result<()> {
        let mut buffer = [0; 64 * ACK_LEN];
        while let Some(received) = self.socket.receive(&mut buffer)? {
            for (place, ack) in buffer[..received.len].chunks(received.segment).enumerate() {
                let psn = read_ack(&with_id(&self.back, place), ack).ok_or("a bad acknowledgement came")?;
                while let Some(&(asked, bytes)) = self.unacknowledged.front()
                    && asked.at_or_before(psn)
                {
                    self.in_flight -= bytes;
                    self.unacknowledged.pop_front();
                }
            }
        }
        Ok(())
    }
}

fn receive(args: &WireArgs, mut line: Line) -> Result<()> {
    let Places { sender, receiver, .. } = args.places;
    let (socket, port) = open(args, receiver, sender, &mut line)?;
    let out = facts(receiver, socket.port()?, sender, port);
    let back = facts(sender, port, receiver, socket.port()?);
    let mut target = Target::new(args.size);
    let mut buffer = vec![0; 1 << 16];
    let mut ack = [0; ACK_LEN];
    let cpu = cpu_time();
    let mut empty = 0_u32;
    loop {
        let Some(received) = socket.receive(&mut buffer)? else {
            empty += 1;
            if empty.is_multiple_of(1 << 12) && line.stopped()? {
                break;
            }
            continue;
        };
        empty = 0;
        for (place, packet) in buffer[..received.len].chunks(received.segment).enumerate() {
            if !verify(&with_id(&back, place), packet) {
                return Err("a packet with a wrong ICRC came".into());
            }
            let arrival = Arrival::read(packet).ok_or("a packet that is no WRITE came")?;
            target.begin(&arrival)?;
            target.place(&packet[arrival.headers..packet.len() - ICRC_LEN - arrival.pad])?;
            target.end(&arrival);
            if arrival.ack_req {
                emit_ack(&out, arrival.psn, &mut ack);
                socket.send(&ack, &[Run { start: 0, len: ACK_LEN, segment: ACK_LEN }])?;
            }
        }
    }
    line.say(&[target.messages, target.bytes, (cpu_time() - cpu).as_nanos() as u64])
}
