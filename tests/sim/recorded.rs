//! Two NICs with one connection, whose packets are captured at the first one.
//!
//! The capture and the fault layer are those of every device; only the network below and the time are simulated. So a
//! capture is determined, byte for byte, by what is done here.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

use softrnic_engine::{
    CqKey, Cqe, EngineConfig, LocalData, QpHandle, QpInit, ReceiveSource, RecvRequest, SendRequest,
};
use softrnic_link::Link;
use softrnic_link::capture::{Capture, CaptureOptions, WhenFull};
use softrnic_link::fault::{FaultLink, FaultSpec};
use softrnic_link::sim::{Path, SimOptions};
use softrnic_transport::{QpState, QpType, RemoteBuffer, SendOp, SendTail};
use softrnic_wire::{Imm, Mtu, Psn, Rkey, Time};

use crate::arena::Span;
use crate::world::{Agreement, Node, World, empty_send};

/// Midnight of 2026-01-01: when the captures begin.
const EPOCH: Duration = Duration::from_secs(1_767_225_600);

/// How long the writer of a capture may take.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(20);

/// The first NIC, where the capture is made.
pub const A: usize = 0;
/// The second.
pub const B: usize = 1;

/// Options of a recording.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The connection.
    pub agreement: Agreement,
    /// First PSNs of A's and of B's requests.
    pub psns: [u32; 2],
    /// Faults at either NIC, as in `SOFTRNIC_FAULT`; empty for none.
    pub faults: [&'static str; 2],
    /// The network between them.
    pub path: Path,
    /// Bits per second of either link, if sending takes time.
    pub bandwidth: Option<u64>,
    /// Whether losses are repaired before the timer of the attributes.
    pub early_retransmission: bool,
    /// Whether congestion marks are honoured.
    pub congestion_control: bool,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            agreement: Agreement {
                mtu: Mtu::B1024,
                timeout: 14,
                retry_cnt: 7,
                rnr_retry: 7,
                rnr_timer: 12,
                rd_atomic: 4,
                tos: 0,
            },
            psns: [100, 9000],
            faults: ["", ""],
            path: Path::default(),
            bandwidth: None,
            early_retransmission: true,
            congestion_control: false,
        }
    }
}

/// See the [module](self).
pub struct Recording {
    /// NICs, network and time.
    pub world: World,
    qps: [QpHandle; 2],
    cqs: [CqKey; 2],
    buffers: [Span; 2],
    capture: Capture,
    path: PathBuf,
}

/// Bytes that either side has registered.
const MEMORY: usize = 1 << 20;

/// The region of [`Node::regions`] that both use: its addresses do not change from run to run.
const REGION: usize = 1;

impl Recording {
    /// Makes the NICs, connects a QP of each, and begins to record into a new file at `path`.
    pub fn new(path: &FilePath, setup: &Setup) -> Recording {
        let options = CaptureOptions {
            epoch: Some(EPOCH),
            repeatable: true,
            when_full: WhenFull::Wait,
            ..CaptureOptions::default()
        };
        let capture = Capture::create(path, options).expect("a file");
        let mut world = World::new(1, setup.path);
        let link_options = SimOptions { bandwidth: setup.bandwidth, ..SimOptions::default() };
        for (side, faults) in setup.faults.into_iter().enumerate() {
            let address = IpAddr::from(Ipv4Addr::new(10, 0, 0, side as u8 + 1));
            let mut link: Box<dyn Link> = Box::new(world.fabric.attach(address, link_options).expect("free"));
            if side == A {
                link = Box::new(capture.wrap(link, "a"));
            }
            if !faults.is_empty() {
                let spec: FaultSpec = faults.parse().expect("faults");
                link = Box::new(FaultLink::new(link, &spec));
            }
            let mut config = EngineConfig::with_seed(side as u64 + 1);
            config.transport.early_retransmission = setup.early_retransmission;
            config.transport.congestion_control = setup.congestion_control;
            world.nodes.push(Node::on(link, address, config, MEMORY));
        }
        let cqs = [A, B].map(|side| world.nodes[side].create_cq(256));
        let qps = [A, B].map(|side| {
            let node = &mut world.nodes[side];
            let (cq, receive) = (cqs[side], ReceiveSource::Own(64));
            let init = QpInit {
                service: QpType::Rc,
                pd: node.pd,
                send_cq: cq,
                recv_cq: cq,
                max_send_wr: 64,
                receive,
            };
            node.engine.create_qp(init).expect("a QP")
        });
        for (side, peer) in [(A, B), (B, A)] {
            let psns = (Psn::new(setup.psns[side]), Psn::new(setup.psns[peer]));
            let attr = world.attributes(side, peer, qps[peer].qpn, &setup.agreement, psns);
            world.bring_up(side, qps[side].key, QpType::Rc, &attr);
        }
        let buffers = [A, B].map(|side| {
            let arena = &mut world.nodes[side].arena;
            let span = arena.take(MEMORY / 2, 4096).expect("memory");
            arena.write(span, &(0..span.len).map(|i| i as u8).collect::<Vec<_>>());
            arena.expose(span);
            span
        });
        Recording { world, qps, cqs, buffers, capture, path: path.to_owned() }
    }

    /// Posts a receive of `len` bytes.
    pub fn recv(&mut self, side: usize, len: usize) {
        let data = self.local(side, len);
        let request = RecvRequest { wr_id: 0, data, length: len as u32 };
        assert!(self.qps[side].receives.as_mut().is_some_and(|ring| ring.push(request).is_ok()));
    }

    /// Posts a SEND of `len` bytes.
    pub fn send(&mut self, side: usize, len: usize) {
        self.post(side, SendOp::Send(SendTail::Plain), len);
    }

    /// Posts a WRITE of `len` bytes.
    pub fn write(&mut self, side: usize, len: usize) {
        let remote = self.remote(side);
        self.post(side, SendOp::Write { remote, imm: None }, len);
    }

    /// Posts a WRITE with immediate data.
    pub fn write_imm(&mut self, side: usize, len: usize, imm: u32) {
        let remote = self.remote(side);
        self.post(side, SendOp::Write { remote, imm: Some(Imm(imm.to_be_bytes())) }, len);
    }

    /// Posts a WRITE with a key that the peer has never issued.
    pub fn write_with_wrong_key(&mut self, side: usize, len: usize) {
        let mut remote = self.remote(side);
        remote.rkey = Rkey(remote.rkey.0 ^ 0x0100_0000);
        self.post(side, SendOp::Write { remote, imm: None }, len);
    }

    /// Posts a WRITE that begins `before_end` bytes before the end of the peer's region.
    pub fn write_past_the_end(&mut self, side: usize, before_end: u64, len: usize) {
        let mut remote = self.remote(side);
        let region = self.world.nodes[1 - side].regions[REGION];
        remote.va = region.base + MEMORY as u64 - before_end;
        self.post(side, SendOp::Write { remote, imm: None }, len);
    }

    /// Posts a READ of `len` bytes.
    pub fn read(&mut self, side: usize, len: usize) {
        let remote = self.remote(side);
        self.post(side, SendOp::Read { remote }, len);
    }

    /// Posts a fetch-and-add.
    pub fn fetch_add(&mut self, side: usize, add: u64) {
        let remote = self.remote(side);
        self.post(side, SendOp::FetchAdd { remote, add }, 8);
    }

    /// Posts a compare-and-swap.
    pub fn compare_swap(&mut self, side: usize, compare: u64, swap: u64) {
        let remote = self.remote(side);
        self.post(side, SendOp::CompareSwap { remote, compare, swap }, 8);
    }

    /// Posts an atomic on a word that is not aligned.
    pub fn fetch_add_unaligned(&mut self, side: usize) {
        let mut remote = self.remote(side);
        remote.va += 4;
        self.post(side, SendOp::FetchAdd { remote, add: 1 }, 8);
    }

    /// Stores a word at the target of the peer's requests.
    pub fn set_word(&mut self, side: usize, value: u64) {
        let span = Span { offset: self.buffers[side].offset, len: 8 };
        let arena = &mut self.world.nodes[side].arena;
        arena.poke(span, &value.to_le_bytes());
    }

    /// Lets the NICs work until nothing more happens.
    pub fn run(&mut self) {
        self.world.settle();
        while self.world.advance(Time::NEVER) {}
    }

    /// Lets time pass, and what happens in it.
    pub fn run_for(&mut self, span: Duration) {
        let end = self.world.now + span;
        self.world.settle();
        while self.world.advance(end) {}
        self.world.now = self.world.now.max(end);
    }

    /// What has been completed at a side.
    pub fn completions(&mut self, side: usize) -> Vec<Cqe> {
        let cq = self.cqs[side];
        let ring = self.world.nodes[side].cqs.get_mut(&cq).expect("a CQ");
        std::iter::from_fn(|| ring.pop()).collect()
    }

    /// The state of a side's QP.
    pub fn state(&self, side: usize) -> QpState {
        self.world.nodes[side].state(self.qps[side].key)
    }

    /// Ends the file and returns its bytes.
    pub fn finish(self) -> Vec<u8> {
        let Recording { world, qps, capture, path, .. } = self;
        assert!(capture.flush(FLUSH_TIMEOUT), "the capture is written: {:?}", capture.error());
        drop((qps, world, capture));
        std::fs::read(path).expect("the capture")
    }

    fn post(&mut self, side: usize, op: SendOp, len: usize) {
        let data = self.local(side, len);
        let request = SendRequest { op, data, length: len as u32, ..empty_send(0) };
        assert!(self.qps[side].sends.push(request).is_ok());
        let (now, index) = (self.world.now, self.qps[side].key.index());
        self.world.nodes[side].engine.on_doorbell(now, index);
    }

    fn local(&self, side: usize, len: usize) -> LocalData {
        let span = Span { offset: self.buffers[side].offset, len };
        LocalData::Sges([self.world.nodes[side].sge(span, REGION)].into_iter().collect())
    }

    /// The buffer of a side's peer.
    fn remote(&self, side: usize) -> RemoteBuffer {
        self.world.nodes[1 - side].remote(self.buffers[1 - side], REGION)
    }
}
