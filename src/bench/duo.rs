//! Two engines, connected by one RC queue pair each.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use softrnic_engine::{
    Budget, Caller, Cqe, Engine, EngineConfig, InlineBytes, LocalData, QpHandle, QpInit, ReceiveSource,
    RecvRequest, SendRequest, SgeList,
};
use softrnic_link::Link;
use softrnic_memory::{Access, AppRange, Lkey, MrSpec, Sge};
use softrnic_sync::queue::CompletionRing;
use softrnic_transport::{
    AttrMask, Path, QpAccess, QpAttr, QpState, QpType, RemoteBuffer, SendOp, SendTail, Status,
};
use softrnic_wire::{Mtu, Psn, Rkey, RnrTimer, Time};

use crate::cable::Cable;

/// A message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// RDMA WRITE of so many bytes.
    Write(usize),
    /// SEND of so many bytes, inline up to 64 of them.
    Send(usize),
    /// RDMA READ of so many bytes.
    Read(usize),
}

/// Bytes of a SEND that are copied when it is posted, as applications do it with short ones.
pub const INLINE: usize = 64;

/// Registered bytes of each side: the longest message.
const MEMORY: usize = 1 << 20;
/// Work requests of a queue.
const DEPTH: usize = 128;
/// Bytes posted at a time.
const POSTED: usize = 256 << 10;

/// A pair of engines in virtual time, and the traffic between them.
pub struct Duo {
    now: Time,
    ends: [End; 2],
}

struct End {
    engine: Engine,
    link: Cable,
    address: IpAddr,
    /// Owned here, and reached by copies only.
    memory: *mut [u8],
    lkey: Lkey,
    rkey: Rkey,
    completions: CompletionRing<Cqe>,
    qp: QpHandle,
}

impl Default for Duo {
    fn default() -> Self {
        Duo::new()
    }
}

impl Duo {
    /// Both NICs, connected with path MTU 4096. Everything that is random in them is always the same.
    pub fn new() -> Duo {
        let addresses = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
        let [a, b] = Cable::between(addresses[0], addresses[1]);
        let mut ends = [End::new(1, addresses[0], a), End::new(2, addresses[1], b)];
        let now = Time::from_nanos(1_000);
        let names = [0, 1].map(|end: usize| (ends[end].address, ends[end].qp.qpn));
        ends[0].connect(now, names[1]);
        ends[1].connect(now, names[0]);
        Duo { now, ends }
    }

    /// Moves `count` messages, as many at a time as an application with deep queues would have.
    ///
    /// # Panics
    /// When one fails: nothing here can lose anything.
    pub fn transfer(&mut self, work: Work, count: usize) {
        let at_once = (POSTED / work.len().max(1)).clamp(1, DEPTH);
        let mut left = count;
        while left > 0 {
            let batch = at_once.min(left);
            left -= batch;
            self.post(work, batch);
            self.run();
        }
    }

    /// Passes a SEND of `len` bytes to and fro `count` times. As with an application that polls, each leaves when the
    /// one before has been taken, with the ACK of that one right behind it.
    ///
    /// # Panics
    /// When one fails.
    pub fn ping(&mut self, len: usize, count: usize) {
        for turn in 0..count {
            let (from, to) = (turn % 2, (turn + 1) % 2);
            self.ends[to].post_receive();
            let remote = RemoteBuffer { va: 0, rkey: Rkey(0) };
            self.ends[from].post(Work::Send(len), remote);
            self.ends[from].ring(self.now);
            self.step_with(from, Budget { receive: 0, caller: Caller::Post, ..Budget::default() });
            self.step_with(to, Budget { caller: Caller::Poll, ..Budget::default() });
        }
        self.run();
    }

    /// Posts messages of the first NIC, and receives of the second where they need some, and rings the bells.
    pub fn post(&mut self, work: Work, count: usize) {
        let (va, rkey) = (self.ends[1].base(), self.ends[1].rkey);
        if matches!(work, Work::Send(_)) {
            for _ in 0..count {
                self.ends[1].post_receive();
            }
            self.ends[1].ring(self.now);
        }
        for _ in 0..count {
            self.ends[0].post(work, RemoteBuffer { va, rkey });
        }
        self.ends[0].ring(self.now);
    }

    /// Lets one of them, 0 or 1, do what it has to do.
    pub fn step(&mut self, end: usize) {
        self.step_end(end);
    }

    /// Lets both work until neither has anything to do, and takes all completions.
    pub fn run(&mut self) {
        while self.step_end(0) | self.step_end(1) {}
    }

    fn step_end(&mut self, end: usize) -> bool {
        self.step_with(end, Budget::default())
    }

    /// Whether anything was done.
    fn step_with(&mut self, end: usize, budget: Budget) -> bool {
        // A few microseconds, so that no timer ever runs out.
        self.now += Duration::from_micros(2);
        let end = &mut self.ends[end];
        let step = end.engine.step(self.now, &mut end.link, budget);
        end.take();
        step.received + step.sent > 0 || step.more
    }

    /// Datagrams that both have sent so far, acknowledgements included.
    pub fn packets(&self) -> u64 {
        self.ends.iter().map(|end| end.link.counters().tx_datagrams).sum()
    }
}

impl Work {
    fn len(self) -> usize {
        match self {
            Work::Write(len) | Work::Send(len) | Work::Read(len) => len,
        }
    }
}

impl End {
    fn new(seed: u64, address: Ipv4Addr, link: Cable) -> End {
        let mut engine = Engine::new(EngineConfig::with_seed(seed));
        let address = IpAddr::V4(address);
        engine.gids().set(0, Some(address));
        let memory = Box::into_raw(vec![seed as u8; MEMORY].into_boxed_slice());
        let base = memory.cast::<u8>().expose_provenance();
        // SAFETY: the memory lives until this value is dropped, its engine before it; nobody makes references
        // into it.
        let range = unsafe { AppRange::new(base, MEMORY as u64) };
        let pd = engine.memory().alloc_pd().unwrap_or_else(|error| panic!("a PD: {error}"));
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let spec = MrSpec { range, iova: base as u64, access };
        let keys = engine.memory().reg_mr(pd, spec).unwrap_or_else(|error| panic!("a region: {error}"));
        let (cq, completions, _) = engine.create_cq(2 * DEPTH, None).expect("a CQ");
        let init = QpInit {
            service: QpType::Rc,
            pd,
            send_cq: cq,
            recv_cq: cq,
            max_send_wr: DEPTH,
            receive: ReceiveSource::Own(DEPTH),
        };
        let qp = engine.create_qp(init).unwrap_or_else(|error| panic!("a QP: {error}"));
        End { engine, link, address, memory, lkey: keys.lkey, rkey: keys.rkey, completions, qp }
    }

    fn base(&self) -> u64 {
        self.memory.cast::<u8>().addr() as u64
    }

    fn connect(&mut self, now: Time, (peer, dest_qpn): (IpAddr, softrnic_wire::Qpn)) {
        use AttrMask as M;
        let attr = QpAttr {
            access: QpAccess {
                remote_write: true,
                remote_read: true,
                remote_atomic: false,
                flush_global: false,
                flush_persistent: false,
            },
            path: Path { src: self.address, dst: peer, sport: 0xC000, tos: 0, ttl: 64 },
            mtu: Mtu::B4096,
            dest_qpn,
            sq_psn: Psn::new(0x1000),
            rq_psn: Psn::new(0x1000),
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            min_rnr_timer: RnrTimer::new(12),
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            ..QpAttr::default()
        };
        let masks = [
            (QpState::Init, vec![M::PKEY_INDEX, M::PORT, M::ACCESS_FLAGS]),
            (
                QpState::Rtr,
                vec![M::AV, M::PATH_MTU, M::DEST_QPN, M::RQ_PSN, M::MAX_DEST_RD_ATOMIC, M::MIN_RNR_TIMER],
            ),
            (QpState::Rts, vec![M::TIMEOUT, M::RETRY_CNT, M::RNR_RETRY, M::SQ_PSN, M::MAX_QP_RD_ATOMIC]),
        ];
        for (state, masks) in masks {
            let mask = masks.into_iter().fold(M::STATE, AttrMask::union);
            let changed = self.engine.modify_qp(now, self.qp.key, mask, &QpAttr { state, ..attr });
            changed.unwrap_or_else(|error| panic!("{state:?}: {error}"));
        }
    }

    fn sges(&self, len: usize) -> LocalData {
        let sge = Sge { addr: self.base(), length: len as u32, lkey: self.lkey };
        LocalData::Sges(SgeList::from_slice(&[sge]))
    }

    fn post(&mut self, work: Work, remote: RemoteBuffer) {
        let data = match work {
            Work::Send(len) if len <= INLINE => {
                LocalData::Inline(InlineBytes::from_slice(&[0x5A; INLINE][..len]))
            }
            _ => self.sges(work.len()),
        };
        let op = match work {
            Work::Write(_) => SendOp::Write { remote, imm: None },
            Work::Send(_) => SendOp::Send(SendTail::Plain),
            Work::Read(_) => SendOp::Read { remote },
        };
        let request = SendRequest {
            wr_id: 1,
            op,
            data,
            length: work.len() as u32,
            signaled: true,
            solicited: false,
            fence: false,
            srqn: None,
        };
        assert!(self.qp.sends.push(request).is_ok(), "the send queue is full");
    }

    fn post_receive(&mut self) {
        let request = RecvRequest { wr_id: 2, data: self.sges(MEMORY), length: MEMORY as u32 };
        let posted = self.qp.receives.as_mut().is_some_and(|ring| ring.push(request).is_ok());
        assert!(posted, "the receive queue is full");
    }

    fn ring(&mut self, now: Time) {
        self.engine.on_doorbell(now, self.qp.key.index());
    }

    fn take(&mut self) {
        while let Some(cqe) = self.completions.pop() {
            assert_eq!(cqe.status, Status::Success);
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw` in `new`, and freed once; the engine is not driven any more.
        drop(unsafe { Box::from_raw(self.memory) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_moves_and_nothing_is_sent_twice() {
        for (work, data_packets) in [(Work::Write(65_536), 16), (Work::Send(64), 1), (Work::Read(65_536), 16)]
        {
            let mut duo = Duo::new();
            duo.transfer(work, 300);
            let packets = duo.packets();
            assert!(packets > 300 * data_packets, "{work:?}: {packets}");
            // READs have a request each, the others at most one acknowledgement each.
            assert!(packets <= 300 * (data_packets + 1), "{work:?}: {packets}");
        }
    }

    #[test]
    fn a_ping_pong_takes_a_send_and_an_ack_each_turn() {
        let mut duo = Duo::new();
        duo.ping(8, 100);
        assert_eq!(duo.packets(), 200);
    }

    #[test]
    fn bytes_arrive() {
        let mut duo = Duo::new();
        duo.transfer(Work::Write(10_000), 1);
        let mut bytes = [0; 10_001];
        // SAFETY: inside the memory, which nobody has a reference to.
        unsafe { softrnic_memory::copy_from_app(duo.ends[1].base() as usize, &mut bytes) };
        assert!(bytes[..10_000].iter().all(|&byte| byte == 1) && bytes[10_000] == 2);
    }
}
