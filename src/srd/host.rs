//! What an endpoint needs from the NIC around it.

use softrnic_transport::{LocalFault, RecvWqe, RemoteFault, SendWqe, TransmitError};
use softrnic_wire::{Imm, Qkey, Qpn, Rkey, SrdHeaders};

use crate::code::Code;
use crate::counters::Counter;
use crate::endpoint::Peer;

/// The bytes that follow the headers of a packet.
pub enum Payload<'a, Q, D> {
    /// Nothing.
    None,
    /// `len` bytes of a request of `qp`.
    Local {
        /// The queue pair that it was posted to.
        qp: Q,
        /// The request's data.
        data: &'a D,
        /// Offset in bytes into it.
        offset: u64,
        /// Bytes.
        len: usize,
    },
    /// `len` bytes that a peer READs through `qp`.
    Remote {
        /// The queue pair that it asked.
        qp: Q,
        /// The peer's key, checked again when copying.
        rkey: Rkey,
        /// Address.
        va: u64,
        /// Bytes.
        len: usize,
    },
}

impl<Q, D> Payload<'_, Q, D> {
    /// Bytes of payload, padding not included.
    pub fn length(&self) -> usize {
        match self {
            Payload::None => 0,
            Payload::Local { len, .. } | Payload::Remote { len, .. } => *len,
        }
    }
}

/// A message to send.
pub struct Post<Q, D> {
    /// The queue pair that it was posted to, and its number.
    pub qp: Q,
    /// Its number.
    pub qpn: Qpn,
    /// The queue pair of the peer.
    pub dest_qpn: Qpn,
    /// Its key.
    pub qkey: Qkey,
    /// How often it is sent again because the peer had no receive; 7 means for ever.
    pub rnr_retry: u8,
    /// The request, whose operation is one of SRD.
    pub wqe: SendWqe<D>,
}

/// A message that has come.
pub struct Arrival<D> {
    /// The receive that it took; `None` for a WRITE whose queue pair takes none for it.
    pub wqe: Option<RecvWqe<D>>,
    /// Whether it is a WRITE with immediate data; otherwise a SEND.
    pub is_write: bool,
    /// Who sent it.
    pub src_qpn: Qpn,
    /// Its length.
    pub length: u32,
    /// Its immediate data.
    pub imm: Option<Imm>,
    /// The outcome.
    pub code: Code,
}

/// That a queue pair has no receive for a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused;

/// The NIC around an endpoint.
pub trait Host {
    /// Names a queue pair.
    type Qp: Copy + Eq;
    /// Describes local bytes.
    type Data;

    /// Sends a packet.
    ///
    /// # Errors
    /// It was not sent.
    fn transmit(
        &mut self,
        to: &Peer,
        headers: &SrdHeaders,
        payload: Payload<'_, Self::Qp, Self::Data>,
    ) -> Result<(), TransmitError>;

    /// The queue pair that a peer means, if it receives and has this key.
    fn target(&mut self, qpn: Qpn, qkey: Qkey) -> Option<Self::Qp>;

    /// Takes a receive of a queue pair.
    fn take_receive(&mut self, qp: Self::Qp) -> Option<RecvWqe<Self::Data>>;

    /// Whether WRITEs with immediate data take no receive of a queue pair.
    fn is_unsolicited(&mut self, qp: Self::Qp) -> bool;

    /// Gives back a receive whose message will not come: the next one takes it.
    fn return_receive(&mut self, qp: Self::Qp, wqe: RecvWqe<Self::Data>);

    /// Whether the memory of a request may be used.
    ///
    /// # Errors
    /// It may not.
    fn check_local(&mut self, qp: Self::Qp, data: &Self::Data, sink: bool) -> Result<(), LocalFault>;

    /// Writes to the memory of a request or a receive.
    ///
    /// # Errors
    /// It may not be written.
    fn scatter(
        &mut self,
        qp: Self::Qp,
        data: &Self::Data,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), LocalFault>;

    /// Whether a peer may READ.
    ///
    /// # Errors
    /// It may not.
    fn check_read(&mut self, qp: Self::Qp, rkey: Rkey, va: u64, len: u64) -> Result<(), RemoteFault>;

    /// Writes for a peer.
    ///
    /// # Errors
    /// It may not write there.
    fn write(&mut self, qp: Self::Qp, rkey: Rkey, va: u64, bytes: &[u8]) -> Result<(), RemoteFault>;

    /// A request is complete.
    fn complete_send(&mut self, qp: Self::Qp, wqe: SendWqe<Self::Data>, code: Code);

    /// A message has come.
    fn complete_receive(&mut self, qp: Self::Qp, from: &Peer, arrival: Arrival<Self::Data>);

    /// A number that peers cannot predict.
    fn random(&mut self) -> u32;

    /// Counts.
    fn count(&mut self, counter: Counter);
}
