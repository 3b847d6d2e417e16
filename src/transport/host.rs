//! What a queue pair needs from the NIC around it.

use alloc::vec::Vec;

use softrnic_wire::{Feth, Headers, IcrcForm, Qpn, Rkey, Srqn, Time};

use crate::completion::{Completion, QpEvent};
use crate::counters::Counter;
use crate::failure::{Concern, Failure};
use crate::path::Path;
use crate::peer::Peer;
use crate::wqe::{LocalOp, Receive};

/// Local bytes could not be reached: wrong lkey, range or domain, or memory that has been unmapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalFault;

/// Why a remote key does not allow what a peer asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RemoteFault {
    /// Unknown key, wrong domain, missing right, out of bounds: NAK 0x62.
    Access,
    /// Memory that has been unmapped under a valid key: NAK 0x62 as well, but counted separately.
    Unmapped,
}

/// A protection domain, by a number that only the host interprets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Domain(pub u32);

/// The right that a request needs on a remote key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RemoteAccess {
    /// RDMA READ.
    Read,
    /// RDMA WRITE and ATOMIC WRITE.
    Write,
    /// Compare-and-swap and fetch-and-add.
    Atomic,
    /// FLUSH with the given placement.
    Flush(Feth),
}

/// An atomic operation on a 64-bit word in native byte order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomicOp {
    /// Store `swap` if the word equals `compare`.
    CompareSwap {
        /// Expected value.
        compare: u64,
        /// New value.
        swap: u64,
    },
    /// Add, wrapping.
    FetchAdd {
        /// What is added.
        add: u64,
    },
}

/// Why there was no receive WQE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoRecv {
    /// The queue is empty.
    Empty,
    /// There is no such shared receive queue for this QP (XRC).
    NoQueue,
}

/// A local operation of the send queue failed: a window that could not be bound, a key that could not be invalidated or
/// registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalOpFault;

/// One packet to send: headers, and where its payload comes from.
pub struct Transmit<'a, D> {
    /// The path to the peer.
    pub path: &'a Path,
    /// BTH and extended headers, the pad count included.
    pub headers: &'a Headers,
    /// The bytes that follow them.
    pub payload: Payload<'a, D>,
    /// How its ICRC is computed.
    pub icrc: IcrcForm,
}

/// The bytes that follow the headers of an outgoing packet.
pub enum Payload<'a, D> {
    /// Nothing.
    None,
    /// `len` bytes of a work request's local data from `offset` on.
    Local {
        /// The work request's data.
        data: &'a D,
        /// Offset in bytes into it.
        offset: u64,
        /// Bytes.
        len: usize,
    },
    /// `len` bytes that a peer READs.
    Remote {
        /// The domain of the request that is answered.
        domain: Domain,
        /// The peer's key, checked again when copying.
        rkey: Rkey,
        /// Address.
        va: u64,
        /// Bytes.
        len: usize,
    },
    /// Zeros: the reserved bytes of a CNP.
    Zeros(usize),
    /// These.
    Bytes(&'a [u8]),
}

impl<D> Payload<'_, D> {
    /// Bytes of payload, padding not included.
    pub fn length(&self) -> usize {
        match self {
            Payload::None => 0,
            Payload::Zeros(len) => *len,
            Payload::Bytes(bytes) => bytes.len(),
            Payload::Local { len, .. } | Payload::Remote { len, .. } => *len,
        }
    }
}

/// Why a packet was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransmitError {
    /// The link accepts nothing now; try again later. Nothing has changed.
    Full,
    /// The work request's own data could not be read.
    Local(LocalFault),
    /// The bytes that a peer READs could not be read.
    Remote(RemoteFault),
    /// The packet can never leave (too long for the link).
    TooLong,
}

/// What is known of the process that a peer's QP belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerProcess {
    /// A signal or a debugger has stopped it, or it waits for a processor or a disk.
    Stopped,
    /// It runs or has ended, or nothing can be known of it, as behind a network.
    NotStopped,
    /// The host is finding out: ask again in a moment.
    Awaited,
}

/// The NIC as one QP sees it while it is being driven. Every call is about that QP, its queues and its peer;
/// where no [`Domain`] is given, about its own protection domain.
pub trait Host {
    /// Describes local bytes: a scatter/gather list or inline data.
    type Data;

    /// Sends a packet: copies the payload behind the headers and adds the ICRC. A packet lost below (no route, no
    /// neighbour) counts as sent.
    fn transmit(&mut self, packet: Transmit<'_, Self::Data>) -> Result<(), TransmitError>;

    /// Whether packets reach the peer in memory, where none is lost. Silence then means that the peer waits for a processor, and
    /// not that packets should be sent again.
    fn loses_nothing(&self) -> bool {
        false
    }

    /// Lets the peer begin with what was transmitted, where that costs next to nothing.
    fn show(&mut self);

    /// Checks the local keys of a request before it starts; `sink` if bytes will be written there.
    fn check_local(&mut self, data: &Self::Data, sink: bool) -> Result<(), LocalFault>;

    /// The QP's own domain.
    fn own_domain(&self) -> Domain;

    /// The domain of an XRC SRQ; `None` if there is no such SRQ in the QP's XRC domain.
    fn srq_domain(&self, srqn: Srqn) -> Option<Domain>;

    /// Copies received bytes to local data of `domain` at `offset`.
    fn scatter(
        &mut self,
        domain: Domain,
        data: &Self::Data,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), LocalFault>;

    /// Executes a local operation of the send queue.
    fn execute(&mut self, op: LocalOp, data: &Self::Data) -> Result<(), LocalOpFault>;

    /// How many bytes the next receive WQE of the QP's own queue or its SRQ can hold. The WQE stays in the queue.
    fn next_recv_length(&mut self) -> Option<u32>;

    /// Whether something else than a receive WQE is missing for a request that needs one (IBTA 9.7.5.2.8).
    fn lacks_resources(&mut self) -> bool {
        false
    }

    /// Takes the next receive WQE from the QP's own queue, its SRQ, or the XRC SRQ `srqn`.
    fn take_recv(&mut self, srqn: Option<Srqn>) -> Result<Receive<Self::Data>, NoRecv>;

    /// Whether receive WQEs come from a shared queue.
    fn has_srq(&self) -> bool;

    /// Checks a remote key for `len` bytes at `va`.
    fn check_remote(
        &mut self,
        domain: Domain,
        rkey: Rkey,
        va: u64,
        len: u64,
        need: RemoteAccess,
    ) -> Result<(), RemoteFault>;

    /// RDMA WRITE to a range that was checked when the message began, and is checked again here.
    fn write_remote(&mut self, domain: Domain, rkey: Rkey, va: u64, bytes: &[u8]) -> Result<(), RemoteFault>;

    /// Executes an atomic operation and returns the word's former value.
    fn atomic(&mut self, domain: Domain, rkey: Rkey, va: u64, op: AtomicOp) -> Result<u64, RemoteFault>;

    /// Stores eight bytes at once, after all earlier writes.
    fn atomic_write(
        &mut self,
        domain: Domain,
        rkey: Rkey,
        va: u64,
        bytes: [u8; 8],
    ) -> Result<(), RemoteFault>;

    /// Makes a range visible or persistent.
    fn flush_remote(
        &mut self,
        domain: Domain,
        rkey: Rkey,
        va: u64,
        len: u64,
        feth: Feth,
    ) -> Result<(), RemoteFault>;

    /// Invalidates a key at the peer's request.
    fn invalidate_remote(&mut self, domain: Domain, rkey: Rkey) -> Result<(), RemoteFault>;

    /// Reports a completion. It becomes visible after all packets sent so far have left. If the receive came from an
    /// XRC SRQ that has since been destroyed, the completion is dropped, as the receive was.
    fn complete(&mut self, completion: Completion, srqn: Option<Srqn>);

    /// Something has failed for good. Told before the completion that says so, and once for each failure: what is flushed
    /// after it has no reason of its own.
    fn failed(&mut self, failure: Failure);

    /// Something that will probably not go on by itself.
    fn concern(&mut self, concern: Concern);

    /// Returns `count` send queue slots to the application.
    fn retire_sends(&mut self, count: u32);

    /// Raises an asynchronous event.
    fn event(&mut self, event: QpEvent);

    /// What was seen of the peer's process at `since` or later. If it was not looked at since then, it is now, which may
    /// take a moment.
    fn peer_process(&mut self, path: &Path, qpn: Qpn, since: Time) -> PeerProcess;

    /// The state shared by all QPs that talk to this peer.
    fn peer(&mut self) -> &mut Peer;

    /// Something was lost, and what the QP knows of its peer makes it send again more than that.
    fn note_loss(&mut self) {}

    /// The QP sends so much that it could use many paths: the peer may be asked whether it takes them.
    fn ask_for_paths(&mut self) {}

    /// Whether the NIC has room for that many bytes of requests that come before their turn.
    fn reserve_held(&mut self, bytes: usize) -> bool;

    /// Appends a payload of the packet that is received, which may have to be fetched.
    fn read_received(&self, payload: &[u8], to: &mut Vec<u8>) {
        to.extend_from_slice(payload);
    }

    /// Gives such bytes back.
    fn release_held(&mut self, bytes: usize);

    /// An empty buffer for such a request, one that was used before if there is one: the allocator may give memory back to the
    /// system between two losses, and fetch it again page by page.
    fn take_buffer(&mut self) -> Vec<u8> {
        Vec::new()
    }

    /// Takes such a buffer back.
    fn return_buffer(&mut self, _buffer: Vec<u8>) {}

    /// Increments a counter.
    fn count(&mut self, counter: Counter);
}
