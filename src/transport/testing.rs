//! A host for tests of one half of a queue pair: it does what the test says, and records what it was asked for.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use softrnic_wire::{Feth, Headers, IcrcForm, Op, Psn, Qpn, Rkey, Srqn, Time};

use crate::attr::{QpAccess, QpAttr, QpState, QpType};
use crate::completion::{Completion, QpEvent, Status};
use crate::config::Config;
use crate::context::Context;
use crate::counters::Counter;
use crate::failure::{Concern, Failure};
use crate::host::{
    AtomicOp, Domain, Host, LocalFault, LocalOpFault, NoRecv, Payload, PeerProcess, RemoteAccess,
    RemoteFault, Transmit, TransmitError,
};
use crate::path::Path;
use crate::peer::Peer;
use crate::window::WindowConfig;
use crate::wqe::{LocalOp, Receive, RecvWqe, SendOp, SendWqe};

/// Bytes of a packet in these tests.
pub const MTU: u32 = 256;

/// The time at which tests begin.
pub const START: Time = Time::from_nanos(1_000_000);

/// A short time.
pub const MOMENT: Duration = Duration::from_micros(1);

/// The host as one QP sees it. Local data is just a number.
pub struct World {
    pub sent: Vec<Headers>,
    /// How many of them the peer was shown before the rest followed.
    pub shown: usize,
    /// The ICRC form of each packet.
    pub forms: Vec<IcrcForm>,
    pub completed: Vec<(u64, Status)>,
    /// All that the last one said.
    pub last_completion: Option<Completion>,
    pub events: Vec<QpEvent>,
    /// What it was told about failures, and before them.
    pub failures: Vec<Failure>,
    pub concerns: Vec<Concern>,
    pub counted: Vec<Counter>,
    pub retired: u32,
    pub receives: VecDeque<RecvWqe<u32>>,
    /// Bytes written by a peer, or received for a receive or a READ.
    pub placed: Vec<u8>,
    pub peer: Peer,
    /// The ranges of its own memory that it has answered READs from.
    pub read: Vec<(u64, usize)>,
    /// The type of service of the last packet.
    pub tos: u8,
    pub has_srq: bool,
    /// What the next transmissions say instead of taking a packet.
    pub refuses: VecDeque<TransmitError>,
    /// The result of checks of remote keys.
    pub remote: Result<(), RemoteFault>,
    /// The result of local operations.
    pub local: Result<(), LocalOpFault>,
    /// Whether local data can be accessed.
    pub memory: Result<(), LocalFault>,
    pub word: u64,
    /// Whether packets cannot be lost.
    pub loses_nothing: bool,
    /// What is seen of the peer's process, and when it was last asked about.
    pub process: PeerProcess,
    pub asked_since: Time,
    /// Losses that it was told of, and bytes that it holds.
    pub losses: usize,
    pub held: usize,
    pub holds_at_most: usize,
    /// Buffers that it has lent.
    pub buffers_out: usize,
    /// UDP source ports of what was sent, and how often the peer was to be asked for paths.
    pub ports: Vec<u16>,
    pub asked_for_paths: usize,
    /// The payload of the last packet that was not local or remote memory.
    pub bytes: Vec<u8>,
}

impl World {
    pub fn new() -> World {
        World {
            sent: Vec::new(),
            shown: 0,
            forms: Vec::new(),
            completed: Vec::new(),
            last_completion: None,
            events: Vec::new(),
            failures: Vec::new(),
            concerns: Vec::new(),
            counted: Vec::new(),
            retired: 0,
            receives: VecDeque::new(),
            placed: Vec::new(),
            read: Vec::new(),
            tos: 0,
            has_srq: false,
            peer: Peer::new(WindowConfig::default()),
            refuses: VecDeque::new(),
            remote: Ok(()),
            local: Ok(()),
            memory: Ok(()),
            word: 0,
            loses_nothing: false,
            process: PeerProcess::NotStopped,
            asked_since: Time::ZERO,
            losses: 0,
            held: 0,
            buffers_out: 0,
            ports: Vec::new(),
            asked_for_paths: 0,
            holds_at_most: usize::MAX,
            bytes: Vec::new(),
        }
    }

    /// Takes what was sent.
    pub fn take_sent(&mut self) -> Vec<(u32, Op)> {
        use softrnic_wire::Body;
        let op = |headers: Headers| match headers.body {
            Body::Rc(op) => (headers.bth.psn.get(), op),
            Body::SelectiveAck(aeth) => (headers.bth.psn.get(), Op::Acknowledge(aeth)),
            body => panic!("no packet of RC: {body:?}"),
        };
        self.sent.drain(..).map(op).collect()
    }

    pub fn count_of(&self, counter: Counter) -> usize {
        self.counted.iter().filter(|&&counted| counted == counter).count()
    }

    pub fn post_receive(&mut self, wr_id: u64, length: u32) {
        self.receives.push_back(RecvWqe { wr_id, data: 0, length });
    }
}

/// A signaled work request of `length` bytes.
pub fn send_wqe(wr_id: u64, op: SendOp, length: u32) -> SendWqe<u32> {
    SendWqe { wr_id, op, data: 0, length, signaled: true, solicited: false, fence: false, srqn: None }
}

/// An RC QP in RTS, whose PSNs begin at 100 in both directions.
pub fn context() -> Context {
    let attr = QpAttr {
        dest_qpn: Qpn::new(7),
        sq_psn: Psn::new(100),
        rq_psn: Psn::new(100),
        max_rd_atomic: 2,
        max_dest_rd_atomic: 2,
        timeout: 8,
        retry_cnt: 2,
        rnr_retry: 2,
        access: QpAccess {
            remote_write: true,
            remote_read: true,
            remote_atomic: true,
            ..QpAccess::default()
        },
        ..QpAttr::default()
    };
    let config = Config { mtu: MTU, read_chunk: 4 * MTU, ..Config::default() };
    Context {
        qpn: Qpn::new(5),
        service: QpType::Rc,
        state: QpState::Rts,
        attr,
        config,
        selective: false,
        spreads: false,
    }
}

impl Host for World {
    type Data = u32;

    fn transmit(&mut self, packet: Transmit<'_, u32>) -> Result<(), TransmitError> {
        if let Some(error) = self.refuses.pop_front() {
            return Err(error);
        }
        self.sent.push(*packet.headers);
        self.forms.push(packet.icrc);
        self.tos = packet.path.tos;
        self.ports.push(packet.path.sport);
        if let Payload::Bytes(bytes) = packet.payload {
            self.bytes = bytes.to_vec();
        }
        if let Payload::Remote { va, len, .. } = packet.payload {
            self.read.push((va, len));
        }
        Ok(())
    }

    fn loses_nothing(&self) -> bool {
        self.loses_nothing
    }

    fn show(&mut self) {
        self.shown = self.sent.len();
    }

    fn check_local(&mut self, _: &u32, _: bool) -> Result<(), LocalFault> {
        self.memory
    }

    fn own_domain(&self) -> Domain {
        Domain(0)
    }

    fn srq_domain(&self, _: Srqn) -> Option<Domain> {
        None
    }

    fn scatter(&mut self, _: Domain, _: &u32, _: u64, bytes: &[u8]) -> Result<(), LocalFault> {
        self.memory?;
        self.placed.extend(bytes);
        Ok(())
    }

    fn execute(&mut self, _: LocalOp, _: &u32) -> Result<(), LocalOpFault> {
        self.local
    }

    fn next_recv_length(&mut self) -> Option<u32> {
        self.receives.front().map(|receive| receive.length)
    }

    fn take_recv(&mut self, _: Option<Srqn>) -> Result<Receive<u32>, NoRecv> {
        let wqe = self.receives.pop_front().ok_or(NoRecv::Empty)?;
        Ok(Receive { wqe, domain: Domain(0) })
    }

    fn has_srq(&self) -> bool {
        self.has_srq
    }

    fn check_remote(
        &mut self,
        _: Domain,
        _: Rkey,
        _: u64,
        _: u64,
        _: RemoteAccess,
    ) -> Result<(), RemoteFault> {
        self.remote
    }

    fn write_remote(&mut self, _: Domain, _: Rkey, _: u64, bytes: &[u8]) -> Result<(), RemoteFault> {
        self.remote?;
        self.placed.extend(bytes);
        Ok(())
    }

    fn atomic(&mut self, _: Domain, _: Rkey, _: u64, op: AtomicOp) -> Result<u64, RemoteFault> {
        self.remote?;
        let before = self.word;
        match op {
            AtomicOp::CompareSwap { compare, swap } if compare == before => self.word = swap,
            AtomicOp::CompareSwap { .. } => {}
            AtomicOp::FetchAdd { add } => self.word = before.wrapping_add(add),
        }
        Ok(before)
    }

    fn atomic_write(&mut self, _: Domain, _: Rkey, _: u64, bytes: [u8; 8]) -> Result<(), RemoteFault> {
        self.remote?;
        self.word = u64::from_ne_bytes(bytes);
        Ok(())
    }

    fn flush_remote(&mut self, _: Domain, _: Rkey, _: u64, _: u64, _: Feth) -> Result<(), RemoteFault> {
        self.remote
    }

    fn invalidate_remote(&mut self, _: Domain, _: Rkey) -> Result<(), RemoteFault> {
        self.remote
    }

    fn complete(&mut self, completion: Completion, _: Option<Srqn>) {
        self.completed.push((completion.wr_id, completion.status));
        self.last_completion = Some(completion);
    }

    fn failed(&mut self, failure: Failure) {
        self.failures.push(failure);
    }

    fn concern(&mut self, concern: Concern) {
        self.concerns.push(concern);
    }

    fn retire_sends(&mut self, count: u32) {
        self.retired += count;
    }

    fn event(&mut self, event: QpEvent) {
        self.events.push(event);
    }

    fn peer_process(&mut self, _: &Path, _: Qpn, since: Time) -> PeerProcess {
        self.asked_since = since;
        self.process
    }

    fn peer(&mut self) -> &mut Peer {
        &mut self.peer
    }

    fn note_loss(&mut self) {
        self.losses += 1;
    }

    fn ask_for_paths(&mut self) {
        self.asked_for_paths += 1;
    }

    fn reserve_held(&mut self, bytes: usize) -> bool {
        let fits = self.held + bytes <= self.holds_at_most;
        self.held += if fits { bytes } else { 0 };
        fits
    }

    fn release_held(&mut self, bytes: usize) {
        self.held -= bytes;
    }

    fn take_buffer(&mut self) -> Vec<u8> {
        self.buffers_out += 1;
        Vec::new()
    }

    fn return_buffer(&mut self, buffer: Vec<u8>) {
        self.buffers_out -= usize::from(buffer.capacity() > 0);
    }

    fn count(&mut self, counter: Counter) {
        self.counted.push(counter);
    }
}
