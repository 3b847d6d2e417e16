//! What the wire forces of a ping-pong of SENDs: each side sends its SEND and the acknowledgement of the other's
//! together, with headers and ICRC, and copies the payload. No queue pairs, no keys, no completions.

use clap::Args;
use softrnic_wire::{Psn, UdpFacts};

use super::frames::{ACK_LEN, SEND_HEADERS, emit_ack, emit_send, facts, read_ack, read_send, with_id};
use super::ping_pong::{self, answer, ask};
use super::socket::{Run, Socket};
use crate::options::{Places, Timing, size};
use crate::process::{Line, Result, pair};
use crate::stats::RoundTrips;

/// Round trips of SENDs and their ACKs over UDP sockets, both processes spinning: headers, ICRC, one copy
#[derive(Args)]
pub struct WirePingArgs {
    #[command(flatten)]
    timing: Timing,
    #[command(flatten)]
    places: Places,
    /// Bytes of a SEND's packet, a multiple of four; an 8-byte SEND has 24
    #[arg(long, default_value = "24", value_parser = size)]
    size: usize,
    /// Receive buffer of the sockets, in bytes
    #[arg(long, default_value_t = 212_992)]
    rcvbuf: usize,
    /// Receive on a socket that is open to all senders, ask for each one's address and TOS, and have a second thread
    /// in each process, as a NIC does
    #[arg(long)]
    like_a_nic: bool,
}

pub fn run(args: &WirePingArgs) -> Result<RoundTrips> {
    if !args.size.is_multiple_of(4) || !(SEND_HEADERS + 4..=SEND_HEADERS + 4096).contains(&args.size) {
        return Err("the size must be a multiple of four from 20 to 4112: one packet without padding".into());
    }
    let Places { sender, receiver, .. } = args.places;
    pair(
        &args.places,
        move |mut line| answer(Side::open(args, receiver, sender, &mut line)?, line),
        move |line| ask(Side::open(args, sender, receiver, line)?, args.timing.duration(), line),
    )
}

struct Side {
    rx: Socket,
    /// What sends, if `rx` is open to all senders.
    tx: Option<Socket>,
    out: UdpFacts,
    back: UdpFacts,
    memory: Vec<u8>,
    outbox: Vec<u8>,
    inbox: Vec<u8>,
    next: Psn,
    /// What came and is not yet acknowledged.
    came: Option<Psn>,
}

impl Side {
    fn open(
        args: &WirePingArgs,
        here: std::net::Ipv4Addr,
        there: std::net::Ipv4Addr,
        line: &mut Line,
    ) -> Result<Side> {
        let mut rx = Socket::bind(here, args.rcvbuf)?;
        let mut tx = None;
        if args.like_a_nic {
            rx.ask_for_origin()?;
            tx = Some(Socket::bind(here, args.rcvbuf)?);
            // In a process of several threads, the kernel counts references to a socket in each call.
            std::thread::spawn(|| {
                loop {
                    std::thread::park()
                }
            });
        }
        let own = rx.port()?;
        let from = tx.as_ref().map_or(Ok(own), Socket::port)?;
        line.say(&[own.into(), from.into()])?;
        let [theirs, their_from] = line.hear()?;
        tx.as_ref().unwrap_or(&rx).connect(there, theirs as u16)?;
        Ok(Side {
            rx,
            tx,
            out: facts(here, from, there, theirs as u16),
            back: facts(there, their_from as u16, here, own),
            memory: vec![7; args.size - SEND_HEADERS],
            outbox: vec![0; args.size + ACK_LEN],
            inbox: vec![0; 1 << 16],
            next: Psn::new(0),
            came: None,
        })
    }
}

impl ping_pong::Side for Side {
    fn send(&mut self) -> Result<()> {
        let segment = SEND_HEADERS + self.memory.len();
        let (send, ack) = self.outbox.split_at_mut(segment);
        emit_send(Some(&self.out), self.next, &self.memory, send);
        self.next += 1;
        let mut len = segment;
        if let Some(psn) = self.came.take() {
            let ack = ack.first_chunk_mut().ok_or("no room for an acknowledgement")?;
            emit_ack(&with_id(&self.out, 1), psn, ack);
            len += ACK_LEN;
        }
        let tx = self.tx.as_ref().unwrap_or(&self.rx);
        Ok(tx.send(&self.outbox, &[Run { start: 0, len, segment }])?)
    }

    fn receive(&mut self) -> Result<bool> {
        let Some(received) = self.rx.receive(&mut self.inbox)? else { return Ok(false) };
        for (place, packet) in self.inbox[..received.len].chunks(received.segment).enumerate() {
            let facts = with_id(&self.back, place);
            if packet.len() == ACK_LEN && place > 0 {
                read_ack(&facts, packet).ok_or("a bad acknowledgement came")?;
                continue;
            }
            let (psn, payload) = read_send(Some(&facts), packet).ok_or("a packet that is no SEND came")?;
            self.memory.copy_from_slice(payload);
            self.came = Some(psn);
        }
        Ok(self.came.is_some())
    }
}
