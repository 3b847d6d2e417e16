//! One end of a connection: a QP with its queues, and one region.
//!
//! The region has, for messages of at most S bytes and K of them at a time: K sources, K targets of the peer's
//! writes, K places to read into, 2 K places to receive into, and K words for atomics.

use std::sync::{Arc, OnceLock};

use softrnic_nic::verbs::{
    Access, AddressVector, AttrMask, CompletionChannel, Context, Cq, Mr, Mtu, Psn, Qp, QpAttributes,
    QpOptions, QpState, Qpn, Rkey, RnrTimer,
};

use crate::Problem;
use crate::message::{Coordinates, Path, Shape};

/// The way of a QP to RTS, and the attributes that each step takes.
const TO_RTS: &[(QpState, &[AttrMask])] = &[
    (QpState::Init, &[AttrMask::PKEY_INDEX, AttrMask::PORT, AttrMask::ACCESS_FLAGS]),
    (
        QpState::Rtr,
        &[
            AttrMask::AV,
            AttrMask::PATH_MTU,
            AttrMask::DEST_QPN,
            AttrMask::RQ_PSN,
            AttrMask::MAX_DEST_RD_ATOMIC,
            AttrMask::MIN_RNR_TIMER,
        ],
    ),
    (
        QpState::Rts,
        &[
            AttrMask::SQ_PSN,
            AttrMask::TIMEOUT,
            AttrMask::RETRY_CNT,
            AttrMask::RNR_RETRY,
            AttrMask::MAX_QP_RD_ATOMIC,
        ],
    ),
];

pub struct End {
    pub qp: Arc<Qp>,
    pub send_cq: Arc<Cq>,
    pub recv_cq: Arc<Cq>,
    pub channel: Arc<CompletionChannel>,
    pub memory: Mr,
    pub layout: Layout,
    psn: Psn,
    port_mtu: Mtu,
    peer: OnceLock<(Coordinates, u32)>,
}

/// Where things are in a region, in bytes.
#[derive(Clone, Copy)]
pub struct Layout {
    pub slots: usize,
    pub size: usize,
}

impl Layout {
    /// Bytes between the starts of neighbours: what is behind a message must stay as it was.
    const GUARD: usize = 64;

    pub fn stride(&self) -> usize {
        self.size.next_multiple_of(8) + Layout::GUARD
    }

    pub fn source(&self, slot: usize) -> usize {
        slot * self.stride()
    }

    pub fn target(&self, slot: usize) -> usize {
        (self.slots + slot) * self.stride()
    }

    pub fn read_back(&self, slot: usize) -> usize {
        (2 * self.slots + slot) * self.stride()
    }

    pub fn receives(&self) -> usize {
        2 * self.slots
    }

    pub fn receive(&self, place: usize) -> usize {
        (3 * self.slots + place) * self.stride()
    }

    pub fn word(&self, slot: usize) -> usize {
        (3 * self.slots + self.receives()) * self.stride() + 8 * slot
    }

    fn bytes(&self) -> usize {
        self.word(self.slots)
    }
}

impl End {
    pub fn make(context: &Context, shape: &Shape) -> Result<End, Problem> {
        let layout = Layout { slots: shape.slots, size: shape.size };
        let pd = context.alloc_pd()?;
        let channel = context.create_channel()?;
        let depth = 8 * shape.slots;
        let send_cq = context.create_cq(depth, Some(&channel))?;
        let recv_cq = context.create_cq(depth, Some(&channel))?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let memory = pd.register(vec![0; layout.bytes()], access)?;
        let options = QpOptions {
            max_send_wr: 4 * shape.slots,
            max_recv_wr: layout.receives(),
            ..QpOptions::default()
        };
        let qp = pd.create_rc_qp(&send_cq, &recv_cq, options)?;
        let psn = Psn::new(getrandom::u32().map_err(|error| error.to_string())?);
        let port_mtu = context.port()?.active_mtu;
        Ok(End { qp, send_cq, recv_cq, channel, memory, layout, psn, port_mtu, peer: OnceLock::new() })
    }

    pub fn coordinates(&self, context: &Context, gid_index: usize) -> Result<Coordinates, Problem> {
        Ok(Coordinates {
            gid: context.gid(gid_index)?.to_ip(),
            qpn: self.qp.qpn().get(),
            psn: self.psn.get(),
            va: self.memory.addr(),
            rkey: self.memory.rkey().0,
            slots: self.layout.slots,
            size: self.layout.size,
        })
    }

    pub fn connect(&self, peer: &Coordinates, path: &Path) -> Result<(), Problem> {
        let mtu = match path.mtu {
            0 => self.port_mtu,
            bytes => Mtu::from_bytes(bytes).ok_or("no such MTU")?,
        };
        let mut attributes = QpAttributes {
            address: Some(AddressVector { sgid_index: path.gid_index, ..AddressVector::to(peer.gid) }),
            ..QpAttributes::default()
        };
        let wanted = &mut attributes.transport;
        wanted.access.remote_write = true;
        wanted.access.remote_read = true;
        wanted.access.remote_atomic = true;
        (wanted.mtu, wanted.dest_qpn) = (mtu, Qpn::new(peer.qpn));
        (wanted.rq_psn, wanted.sq_psn) = (Psn::new(peer.psn), self.psn);
        (wanted.max_rd_atomic, wanted.max_dest_rd_atomic) = (16, 16);
        (wanted.timeout, wanted.retry_cnt) = (path.timeout, path.retry_cnt);
        (wanted.rnr_retry, wanted.min_rnr_timer) = (7, RnrTimer::new(12));
        for (state, mask) in TO_RTS {
            attributes.transport.state = *state;
            let mask = mask.iter().fold(AttrMask::STATE, |sum, bit| sum.union(*bit));
            self.qp.modify(mask, &attributes)?;
        }
        self.peer.set((peer.clone(), mtu.bytes())).map_err(|_| "connected already")?;
        Ok(())
    }

    /// Path MTU, in bytes.
    pub fn mtu(&self) -> usize {
        self.peer.get().map_or(1024, |(_, mtu)| *mtu as usize)
    }

    /// A place in the peer's region, and its key.
    pub fn remote(&self, offset: usize) -> Result<(u64, Rkey), Problem> {
        let (peer, _) = self.peer.get().ok_or("not connected")?;
        if (peer.slots, peer.size) != (self.layout.slots, self.layout.size) {
            return Err("the ends are not of the same shape".into());
        }
        Ok((peer.va + offset as u64, Rkey(peer.rkey)))
    }

    pub fn post_receive(&self, place: usize) -> Result<(), Problem> {
        let sge = self.memory.sge(self.layout.receive(place), self.layout.size);
        Ok(self.qp.post_recv(place as u64, &[sge])?)
    }
}
