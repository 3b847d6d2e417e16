//! A host: a NIC, its port, and the application that uses it.

use std::net::{IpAddr, Ipv4Addr};

use softrnic_engine::{
    Budget, CqKey, Cqe, Engine, EngineConfig, LocalData, QpHandle, QpInit, ReceiveSource, RecvRequest,
    SendRequest,
};
use softrnic_fabric::{Fabric, Host, Observer, Picos, PortId, To};
use softrnic_memory::{Lkey, MemoryError, PdId, Sge};
use softrnic_sync::queue::CompletionRing;
use softrnic_transport::{AttrMask, Path, QpAttr, QpState, QpType, SendOp, SendTail};
use softrnic_wire::{Psn, Qpn, RnrTimer, Time};

use crate::nic::NicConfig;
use crate::packet::Packet;
use crate::port::StudyPort;
use crate::study::Error;

/// The longest message; a longer flow is several.
const MESSAGE: u64 = 1 << 30;
/// Entries of a completion queue. It is emptied after each event.
const CQ: usize = 1 << 12;

/// See the [module](self).
pub struct StudyHost {
    pub host: Host,
    pub engine: Engine,
    pub port: StudyPort,
    fabric_port: PortId,
    pd: PdId,
    cq: CqKey,
    completions: CompletionRing<Cqe>,
    /// A region of any length: what is sent are zeros, and what arrives is discarded.
    lkey: Lkey,
}

/// One end of a flow.
pub struct End {
    pub qp: QpHandle,
}

impl StudyHost {
    pub fn new(
        host: Host,
        fabric_port: PortId,
        rate: u64,
        nic: &NicConfig,
        seed: u64,
    ) -> Result<StudyHost, Error> {
        let mut config =
            EngineConfig::with_seed(seed ^ (u64::from(host.0) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        config.window = nic.window;
        config.transport.early_retransmission = nic.early_retransmission;
        config.transport.selective_recovery = nic.selective_recovery;
        config.transport.paths = nic.paths;
        config.transport.congestion_control = nic.dcqcn.is_some();
        config.transport.cnp_interval_us = nic.cnp_interval_us;
        if let Some(parameters) = nic.dcqcn {
            config.rate = parameters;
            config.rate.rpg_max_rate = rate / 8;
        }
        let mut engine = Engine::new(config);
        engine.gids().set(0, Some(address(host)));
        engine.set_active_mtu(nic.mtu);
        if nic.selective_recovery {
            // They agree by datagrams to QP 1.
            engine.serve_management(u64::from(host.0) + 1);
        }
        let pd = engine.memory().alloc_pd().map_err(no_memory)?;
        let lkey = engine.memory().alloc_null_mr(pd).map_err(no_memory)?.lkey;
        let (cq, completions, _) =
            engine.create_cq(CQ, None).map_err(|error| Error::Nic(error.to_string()))?;
        Ok(StudyHost { host, engine, port: StudyPort::new(9000), fabric_port, pd, cq, completions, lkey })
    }

    /// A queue pair of a flow, in RESET.
    pub fn create_end(&mut self, messages: usize) -> Result<End, Error> {
        let init = QpInit {
            service: QpType::Rc,
            pd: self.pd,
            send_cq: self.cq,
            recv_cq: self.cq,
            max_send_wr: messages,
            receive: ReceiveSource::Own(messages),
        };
        let qp = self.engine.create_qp(init).map_err(|error| Error::Nic(error.to_string()))?;
        Ok(End { qp })
    }

    /// Connects a queue pair.
    pub fn connect(
        &mut self,
        end: &End,
        peer: Host,
        peer_qpn: Qpn,
        dscp: u8,
        sport: u16,
        nic: &NicConfig,
    ) -> Result<(), Error> {
        let ecn = if nic.dcqcn.is_some() { 0b10 } else { 0 };
        let path = Path { src: address(self.host), dst: address(peer), sport, tos: dscp << 2 | ecn, ttl: 64 };
        let attr = QpAttr {
            path,
            mtu: nic.mtu,
            dest_qpn: peer_qpn,
            sq_psn: Psn::new(0),
            rq_psn: Psn::new(0),
            max_rd_atomic: 1,
            max_dest_rd_atomic: 1,
            min_rnr_timer: RnrTimer::new(1),
            timeout: nic.timeout,
            retry_cnt: nic.retry_cnt,
            rnr_retry: 7,
            ..QpAttr::default()
        };
        for (state, mask) in transitions() {
            let attr = QpAttr { state, ..attr };
            let modified = self.engine.modify_qp(Time::ZERO, end.qp.key, mask, &attr);
            modified.map_err(|error| Error::Nic(error.to_string()))?;
        }
        Ok(())
    }

    /// The receiver of a flow posts a receive for each message.
    pub fn receive(&mut self, end: &mut End, bytes: u64) -> Result<(), Error> {
        let receives = end.qp.receives.as_mut().ok_or_else(|| Error::Nic("no receive queue".into()))?;
        for length in messages(bytes) {
            let data = LocalData::Sges(sges(self.lkey, length));
            let pushed = receives.push(RecvRequest { wr_id: 0, data, length });
            pushed.map_err(|_| Error::Nic("the receive queue is full".into()))?;
        }
        Ok(())
    }

    /// The sender of a flow posts it. The completion of the last message has the flow's number.
    pub fn post(&mut self, now: Picos, end: &mut End, flow: usize, bytes: u64) -> Result<(), Error> {
        let mut lengths = messages(bytes).peekable();
        while let Some(length) = lengths.next() {
            let request = SendRequest {
                wr_id: flow as u64,
                op: SendOp::Send(SendTail::Plain),
                data: LocalData::Sges(sges(self.lkey, length)),
                length,
                signaled: lengths.peek().is_none(),
                solicited: false,
                fence: false,
                srqn: None,
            };
            end.qp.sends.push(request).map_err(|_| Error::Nic("the send queue is full".into()))?;
        }
        self.engine.on_doorbell(nanos(now), end.qp.key.index());
        Ok(())
    }

    /// Lets the NIC do what it can at this time, and hands its packets to the fabric. Completions go to `completed`.
    pub fn drive<O: Observer<Box<Packet>>>(
        &mut self,
        now: Picos,
        fabric: &mut Fabric<Box<Packet>>,
        overhead: u32,
        observer: &mut O,
        mut completed: impl FnMut(Cqe),
    ) {
        loop {
            self.port.is_full = false;
            let step = self.engine.step(nanos(now), &mut self.port, Budget::default());
            let taken = self.hand_over(now, fabric, overhead, observer);
            while let Some(completion) = self.completions.pop() {
                completed(completion);
            }
            // What the port refused can be tried again if the fabric has taken something.
            let again = (self.port.is_full && taken) || (step.more && !self.port.is_full);
            if !again {
                return;
            }
        }
    }

    /// Whether the fabric took a packet, and all that it was offered.
    fn hand_over<O: Observer<Box<Packet>>>(
        &mut self,
        now: Picos,
        fabric: &mut Fabric<Box<Packet>>,
        overhead: u32,
        observer: &mut O,
    ) -> bool {
        let mut taken = false;
        while let Some(packet) = self.port.take() {
            let bytes = packet.bytes.len() as u32 + overhead;
            if !fabric.has_room(self.fabric_port, packet.tos >> 2, bytes) {
                self.port.put_back(packet);
                return false;
            }
            let to = host_of(packet.dst);
            let frame = packet.into_frame(self.host, To::Host(to), overhead);
            taken |= fabric.send(now, self.fabric_port, frame, observer).is_ok();
        }
        taken
    }

    /// When the NIC wants to be driven next.
    pub fn deadline(&self) -> Picos {
        match self.engine.poll_timeout() {
            Some(at) if at != Time::NEVER => Picos::from_nanos(at.as_nanos()),
            _ => Picos::NEVER,
        }
    }
}

/// The messages of a flow.
pub fn messages(bytes: u64) -> impl Iterator<Item = u32> {
    let count = bytes.div_ceil(MESSAGE).max(1);
    (0..count).map(move |number| (bytes - number * MESSAGE).min(MESSAGE) as u32)
}

/// The address of a host, as the HPCC simulator numbers them.
pub fn address(host: Host) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from(0x0b00_0001 + (host.0 << 8)))
}

fn host_of(address: IpAddr) -> Host {
    match address {
        IpAddr::V4(address) => Host(u32::from(address).wrapping_sub(0x0b00_0001) >> 8),
        IpAddr::V6(_) => Host(u32::MAX),
    }
}

/// The engine's time: whole nanoseconds, never before the event.
fn nanos(now: Picos) -> Time {
    Time::from_nanos(now.as_nanos_ceil())
}

fn sges(lkey: Lkey, length: u32) -> softrnic_engine::SgeList {
    std::iter::once(Sge { addr: 0, length, lkey }).collect()
}

fn no_memory(error: MemoryError) -> Error {
    Error::Nic(error.to_string())
}

/// From RESET to RTS, with the attributes that each transition needs.
fn transitions() -> [(QpState, AttrMask); 3] {
    use AttrMask as M;
    let all = |masks: &[M]| masks.iter().fold(M::STATE, |all, &mask| all.union(mask));
    [
        (QpState::Init, all(&[M::PKEY_INDEX, M::PORT, M::ACCESS_FLAGS])),
        (
            QpState::Rtr,
            all(&[M::AV, M::PATH_MTU, M::DEST_QPN, M::RQ_PSN, M::MAX_DEST_RD_ATOMIC, M::MIN_RNR_TIMER]),
        ),
        (QpState::Rts, all(&[M::TIMEOUT, M::RETRY_CNT, M::RNR_RETRY, M::SQ_PSN, M::MAX_QP_RD_ATOMIC])),
    ]
}
