//! A NIC with one connected queue pair and one memory region, with which demo and bench move bytes.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use softrnic_nic::verbs::{
    Access, AddressVector, Context, Counter, Cq, Cqe, DeviceSpec, Gid, Mr, Mtu, Psn, Qp, QpOptions, Qpn,
    Rkey, Status,
};

use crate::failure::{Doing, Failure, Result};
use crate::pair::Line;

/// How long completions may take: longer than a QP needs to give up by itself.
pub const COMPLETION_TIMEOUT: Duration = Duration::from_secs(40);

/// Inline bytes of a send.
pub const INLINE: usize = 64;

/// Scatter/gather elements of a work request.
pub const MAX_SGE: usize = 8;

/// What a peer must know to reach an endpoint.
#[derive(Clone, Serialize, Deserialize)]
pub struct Coordinates {
    pub address: IpAddr,
    pub qpn: u32,
    pub psn: u32,
    /// The address of the region, and its key.
    pub va: u64,
    pub rkey: u32,
    /// Largest path MTU, in bytes.
    pub mtu: u32,
}

/// See the [module](self).
pub struct Endpoint {
    pub context: Context,
    pub memory: Mr,
    pub send_cq: Arc<Cq>,
    pub recv_cq: Arc<Cq>,
    pub qp: Arc<Qp>,
    psn: Psn,
    mtu: Mtu,
    peer: Option<Coordinates>,
}

impl Endpoint {
    /// Opens the device and creates a QP with `depth` entries in each queue, and a region of `bytes`.
    pub fn open(spec: &DeviceSpec, bytes: usize, depth: usize) -> Result<Endpoint> {
        let context = Context::open(spec)?;
        let mtu = context.port()?.active_mtu;
        let pd = context.alloc_pd()?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let memory = pd.register(vec![0; bytes], access)?;
        let send_cq = context.create_cq(2 * depth, None)?;
        let recv_cq = context.create_cq(2 * depth, None)?;
        let options = QpOptions {
            max_send_wr: depth,
            max_recv_wr: depth,
            max_send_sge: MAX_SGE,
            max_recv_sge: MAX_SGE,
            max_inline: INLINE,
            ..QpOptions::default()
        };
        let qp = pd.create_rc_qp(&send_cq, &recv_cq, options)?;
        let psn = Psn::new(random()? as u32);
        Ok(Endpoint { context, memory, send_cq, recv_cq, qp, psn, mtu, peer: None })
    }

    pub fn coordinates(&self) -> Coordinates {
        Coordinates {
            address: self.context.address(),
            qpn: self.qp.qpn().get(),
            psn: self.psn.get(),
            va: self.memory.addr(),
            rkey: self.memory.rkey().0,
            mtu: self.mtu.bytes(),
        }
    }

    /// Connects to the peer, with the smaller of both MTUs.
    pub fn connect(&mut self, peer: &Coordinates) -> Result {
        let mtu = Mtu::from_bytes(peer.mtu).unwrap_or(self.mtu).min(self.mtu);
        let (qpn, psn) = (Qpn::new(peer.qpn), Psn::new(peer.psn));
        let address = AddressVector { sgid_index: self.own_gid()?, ..AddressVector::to(peer.address) };
        self.qp
            .connect(address, qpn, mtu, self.psn, psn)
            .doing(|| format!("cannot connect to {}", peer.address))?;
        self.mtu = mtu;
        self.peer = Some(peer.clone());
        Ok(())
    }

    /// The index of our address in the GID table: on a real interface, the first entry is another address.
    fn own_gid(&self) -> Result<usize> {
        let own = Gid::from(self.context.address());
        for index in 0..self.context.gids_used()? {
            if self.context.gid(index)? == own {
                return Ok(index);
            }
        }
        Err(Failure::new(format!("{} is not in the GID table", self.context.address())))
    }

    /// Path MTU in bytes.
    pub fn mtu(&self) -> usize {
        self.mtu.bytes() as usize
    }

    /// Address and key of the peer's region, `offset` bytes into it.
    pub fn remote(&self, offset: usize) -> Result<(u64, Rkey)> {
        let peer = self.peer.as_ref().ok_or_else(|| Failure::new("not connected yet"))?;
        Ok((peer.va + offset as u64, Rkey(peer.rkey)))
    }

    /// Retransmitted request packets.
    pub fn retransmitted(&self) -> Result<u64> {
        Ok(self.context.counter(Counter::RetransmittedPacket)?)
    }
}

/// Takes `count` completions, each of which must be successful, and passes them on.
pub fn await_completions(cq: &Cq, count: usize, line: &Line, mut take: impl FnMut(Cqe) -> Result) -> Result {
    let mut left = count;
    let mut outcome = Ok(());
    let mut idle = Idle::default();
    while left > 0 {
        let found = cq.poll_with(left.min(32), |cqe| {
            if outcome.is_ok() {
                outcome = success(&cqe).and_then(|()| take(cqe));
            }
        });
        std::mem::replace(&mut outcome, Ok(()))?;
        left -= found;
        idle.after(found, line, || format!("{left} of {count} completions are missing"))?;
    }
    Ok(())
}

/// A failed completion ends a run.
pub fn success(cqe: &Cqe) -> Result {
    match cqe.status {
        Status::Success => Ok(()),
        status => Err(Failure::new(format!(
            "work request {:#x} failed: {:?} ({:?})",
            cqe.wr_id, status, cqe.opcode
        ))),
    }
}

/// Counts polls that find nothing, and yields: the process that is waited for may need this processor.
#[derive(Default)]
pub struct Lull(u32);

impl Lull {
    /// Many more polls than it takes for an answer to come from another processor.
    const YIELD: u32 = 1 << 8;
    const LOOK: u32 = 1 << 10;

    /// Called after an empty poll; returns now and then that it is time to check other things.
    #[inline]
    pub fn empty(&mut self) -> bool {
        self.0 = self.0.wrapping_add(1);
        if self.0.is_multiple_of(Lull::YIELD) {
            std::thread::yield_now();
        }
        self.0.is_multiple_of(Lull::LOOK)
    }

    /// Something was found.
    #[inline]
    pub fn end(&mut self) {
        self.0 = 0;
    }
}

/// Watches a polling loop: ends it when the other process is gone, or when nothing has come for too long.
#[derive(Default)]
pub struct Idle {
    lull: Lull,
    since: Option<Instant>,
}

impl Idle {
    /// Called after each poll, with what it found.
    #[inline]
    pub fn after(&mut self, found: usize, line: &Line, missing: impl FnOnce() -> String) -> Result {
        if found > 0 {
            *self = Idle::default();
            return Ok(());
        }
        if !self.lull.empty() {
            return Ok(());
        }
        line.check()?;
        let since = *self.since.get_or_insert_with(Instant::now);
        if since.elapsed() < COMPLETION_TIMEOUT { Ok(()) } else { Err(Failure::new(missing())) }
    }
}

/// An unpredictable number.
pub fn random() -> Result<u64> {
    getrandom::u64().map_err(|error| Failure::new(format!("the system gives no random numbers: {error}")))
}
