//! Builds work requests.

use softrnic_memory::Sge;
use softrnic_transport::{RemoteBuffer, SendOp, SendTail};
use softrnic_wire::{Imm, Qkey, Qpn, Rkey};

use super::address::AddressVector;
use softrnic_engine::{InlineBytes, LocalData, RecvRequest, SendRequest, SgeList};

/// A send work request under construction: `WorkRequest::write(va, rkey).from(mr.sge(0, 8)).id(7)`.
#[derive(Clone, Debug)]
pub struct WorkRequest {
    pub(crate) request: SendRequest,
    pub(crate) address: Option<AddressVector>,
}

impl WorkRequest {
    fn new(op: SendOp) -> WorkRequest {
        WorkRequest { request: SendRequest::new(op, LocalData::empty()), address: None }
    }

    /// SEND.
    pub fn send() -> WorkRequest {
        WorkRequest::new(SendOp::Send(SendTail::Plain))
    }

    /// SEND with immediate data.
    pub fn send_imm(imm: u32) -> WorkRequest {
        WorkRequest::new(SendOp::Send(SendTail::Imm(Imm(imm.to_be_bytes()))))
    }

    /// SEND with Invalidate of a key of the peer.
    pub fn send_invalidate(rkey: Rkey) -> WorkRequest {
        WorkRequest::new(SendOp::Send(SendTail::Inv(rkey)))
    }

    /// RDMA WRITE to the peer's memory.
    pub fn write(va: u64, rkey: Rkey) -> WorkRequest {
        WorkRequest::new(SendOp::Write { remote: RemoteBuffer { va, rkey }, imm: None })
    }

    /// RDMA WRITE with immediate data, which consumes a receive of the peer.
    pub fn write_imm(va: u64, rkey: Rkey, imm: u32) -> WorkRequest {
        WorkRequest::new(SendOp::Write {
            remote: RemoteBuffer { va, rkey },
            imm: Some(Imm(imm.to_be_bytes())),
        })
    }

    /// RDMA READ from the peer's memory.
    pub fn read(va: u64, rkey: Rkey) -> WorkRequest {
        WorkRequest::new(SendOp::Read { remote: RemoteBuffer { va, rkey } })
    }

    /// Compare-and-swap of a 64-bit word of the peer.
    pub fn compare_swap(va: u64, rkey: Rkey, compare: u64, swap: u64) -> WorkRequest {
        WorkRequest::new(SendOp::CompareSwap { remote: RemoteBuffer { va, rkey }, compare, swap })
    }

    /// Fetch-and-add to a 64-bit word of the peer.
    pub fn fetch_add(va: u64, rkey: Rkey, add: u64) -> WorkRequest {
        WorkRequest::new(SendOp::FetchAdd { remote: RemoteBuffer { va, rkey }, add })
    }

    /// A datagram to a QP (UD).
    pub fn datagram(to: AddressVector, dest_qpn: Qpn, qkey: Qkey, imm: Option<u32>) -> WorkRequest {
        let nowhere = softrnic_transport::QpAttr::default().path;
        let imm = imm.map(|imm| Imm(imm.to_be_bytes()));
        let mut request = WorkRequest::new(SendOp::Datagram { path: nowhere, dest_qpn, qkey, imm });
        request.address = Some(to);
        request
    }

    /// Adds local memory: the source, or for READ and atomics the destination.
    #[must_use]
    pub fn sge(mut self, sge: Sge) -> WorkRequest {
        match &mut self.request.data {
            LocalData::Sges(sges) => sges.push(sge),
            other => *other = LocalData::Sges(SgeList::from_slice(&[sge])),
        }
        self.request.length = self.request.length.saturating_add(sge.length);
        self
    }

    /// Sends these bytes, which are copied now and need no registration.
    #[must_use]
    pub fn inline(mut self, bytes: &[u8]) -> WorkRequest {
        self.request.data = LocalData::Inline(InlineBytes::from_slice(bytes));
        self.request.length = bytes.len() as u32;
        self
    }

    /// The number of its completion.
    #[must_use]
    pub fn id(mut self, wr_id: u64) -> WorkRequest {
        self.request.wr_id = wr_id;
        self
    }

    /// Completes only if it fails.
    #[must_use]
    pub fn unsignaled(mut self) -> WorkRequest {
        self.request.signaled = false;
        self
    }

    /// Its completion at the peer wakes a CQ armed for solicited completions.
    #[must_use]
    pub fn solicited(mut self) -> WorkRequest {
        self.request.solicited = true;
        self
    }

    /// Waits for all earlier READs and atomics.
    #[must_use]
    pub fn fence(mut self) -> WorkRequest {
        self.request.fence = true;
        self
    }
}

/// A receive work request into the given memory.
pub fn receive(wr_id: u64, sges: &[Sge]) -> RecvRequest {
    let length = sges.iter().fold(0u32, |sum, sge| sum.saturating_add(sge.length));
    RecvRequest { wr_id, data: LocalData::Sges(SgeList::from_slice(sges)), length }
}
