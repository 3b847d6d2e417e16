//! The interface between a NIC and whatever carries its datagrams.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::ops::Add;

use softrnic_mapping::SharedBytes;
use softrnic_wire::{DF, ICRC_LEN, IpFacts, Time, UdpFacts};

use crate::audit::FrameAudit;
use crate::process_slot::ProcessSlot;
use crate::{Faults, RawFd, Sharing, delegate_link};

/// The addressing of outgoing datagrams; equal flows may share one segmented send.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Flow {
    /// One of the link's own addresses.
    pub src: IpAddr,
    /// The peer, or a multicast group; of the same family as `src`.
    pub dst: IpAddr,
    /// The preferred UDP source port; the link may have to use another, and says so in the slot.
    pub sport: u16,
    /// The slot of the destination that it is for, as its queue pair number says. `None` if that says nothing: to QP 1,
    /// and to groups.
    pub slot: Option<ProcessSlot>,
    /// IPv4 TOS or IPv6 traffic class, ECN bits included.
    pub tos: u8,
    /// IPv4 TTL or IPv6 hop limit.
    pub ttl: u8,
}

/// The memory of one outgoing datagram, and what its ICRC must be computed over.
#[derive(Debug)]
pub struct TxSlot<'a> {
    /// Exactly the reserved bytes, BTH first; the last four are for the ICRC. The contents are stale.
    pub bytes: &'a mut [u8],
    /// What will be on the wire of the IP and UDP headers: addresses, IPv4 ID and flags, and ports.
    pub facts: UdpFacts,
    /// Whether somebody may look at the ICRC. If not, its place is filled with anything.
    pub wants_icrc: bool,
}

impl TxSlot<'_> {
    /// Writes the ICRC, or zeros where nobody looks at it.
    #[inline(always)]
    pub fn seal(&mut self) {
        if self.wants_icrc {
            softrnic_wire::seal(&self.facts, self.bytes);
        } else if let Some(place) = self.bytes.last_chunk_mut::<ICRC_LEN>() {
            *place = [0; ICRC_LEN];
        }
    }
}

/// Why there was no slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TxError {
    /// Every slot is in use until the link can send again: flush, and try later.
    Full,
    /// The datagram is larger than [`Capabilities::max_datagram`].
    TooLong,
    /// No route, one whose MTU is currently too small, or a neighbour whose address is not (yet) known: the datagram
    /// counts as lost.
    Unreachable,
}

impl fmt::Display for TxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TxError::Full => "all transmit slots are in use",
            TxError::TooLong => "the datagram is longer than the link can carry",
            TxError::Unreachable => "the destination has no route that fits, or no known neighbour address",
        })
    }
}

impl std::error::Error for TxError {}

/// What a received datagram reveals of the IPv4 identification and flags, which the ICRC covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeaderId {
    /// The header was seen: the identification and the flags with fragment offset.
    Seen {
        /// IPv4 identification.
        id: u16,
        /// IPv4 flags and fragment offset, as in the header.
        flags: u16,
    },
    /// The header is hidden; it has DF set.
    Hidden {
        /// Position of the datagram in the send that it was part of, as far as is known: its identification if the
        /// sender's start at 0, and otherwise its distance from the first.
        place: u16,
    },
    /// IPv6 has no identification.
    None,
}

/// One received datagram, borrowed from the link's buffers for the duration of the call.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// The sender.
    pub src: IpAddr,
    /// The destination: an address of the link or a joined group.
    pub dst: IpAddr,
    /// UDP source port; any value is acceptable.
    pub sport: u16,
    /// IPv4 TOS or IPv6 traffic class; its low two bits are ECN. See [`Link::show_headers`].
    pub tos: u8,
    /// IPv4 TTL or IPv6 hop limit. See [`Link::show_headers`].
    pub ttl: u8,
    /// IPv4 identification and flags, as far as they are known.
    pub id: HeaderId,
    /// The IP header as received (20 or 40 bytes), if the link sees it.
    pub ip_header: Option<&'a [u8]>,
    /// BTH to ICRC inclusive. Not verified.
    pub bytes: &'a [u8],
    /// Whether the ICRC was computed: a peer in the same memory need not.
    pub has_icrc: bool,
    /// All of the datagram where the peer wrote it, if `bytes` has only its first [`COPIED_HEADERS`]: what follows is to be copied
    /// from here, once. Only for who [asks for it](Link::leave_payloads).
    pub record: Option<SharedBytes<'a>>,
}

/// Bytes of a datagram that are there in any case: more than headers take.
pub const COPIED_HEADERS: usize = 128;

impl Datagram<'_> {
    /// What the ICRC covers outside the datagram, with the likely ID where the header is hidden; `None` if the addresses are
    /// of two families.
    pub fn facts(&self) -> Option<UdpFacts> {
        let (id, flags_frag) = match self.id {
            HeaderId::Seen { id, flags } => (id, flags),
            HeaderId::Hidden { place } => (place, DF),
            HeaderId::None => (0, DF),
        };
        let ip = match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => IpFacts::V4 { src, dst, id, flags_frag },
            (IpAddr::V6(src), IpAddr::V6(dst)) => IpFacts::V6 { src, dst },
            _ => return None,
        };
        Some(UdpFacts::roce(ip, self.sport))
    }
}

/// What a link can do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// The kind of link and the mode obtained, for humans: `udp (GSO 128, GRO)`, `xdp native copy`.
    pub mode: String,
    /// The largest datagram (BTH to ICRC), in bytes.
    pub max_datagram: usize,
    /// The IP MTU below, in bytes; `active_mtu` follows from it.
    pub ip_mtu: usize,
    /// Whether received datagrams come with their IP header, so that the ICRC is checked in full.
    pub sees_ip_header: bool,
    /// The most datagrams of equal size that one send can carry; 1 means no segmentation.
    pub segments: usize,
    /// The most bytes (headers included) that the receive side is certain to hold while we do not read. Each datagram
    /// counts as at least 640 bytes, whatever its length.
    pub receive_buffer: usize,
    /// Whether frames reach our memory without being copied by the kernel.
    pub zero_copy: bool,
    /// Whether peers of the same user on this machine are reached through shared memory.
    pub shared_memory: bool,
    /// The slot of its address that is this process's; `None` if all of it is.
    pub slot: Option<ProcessSlot>,
}

impl Capabilities {
    /// Those of a link that carries nothing.
    pub fn none(mode: &str) -> Capabilities {
        Capabilities {
            mode: mode.into(),
            max_datagram: 0,
            ip_mtu: 0,
            sees_ip_header: false,
            segments: 1,
            receive_buffer: 0,
            zero_copy: false,
            shared_memory: false,
            slot: None,
        }
    }
}

/// Datagrams that the link carried, and those that it or the kernel below lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkCounters {
    /// Datagrams handed to the network.
    pub tx_datagrams: u64,
    /// Their bytes, BTH to ICRC.
    pub tx_bytes: u64,
    /// Sends (system calls or doorbells) used for them.
    pub tx_calls: u64,
    /// Datagrams that the kernel refused to send, and ICMP reports of those that a peer refused.
    pub tx_errors: u64,
    /// Datagrams received.
    pub rx_datagrams: u64,
    /// Their bytes, BTH to ICRC.
    pub rx_bytes: u64,
    /// Receive calls used for them.
    pub rx_calls: u64,
    /// Datagrams that the kernel dropped because we were slow (full buffers and rings).
    pub rx_overruns: u64,
    /// Datagrams that were malformed below the transport (truncated, too long for a buffer).
    pub rx_malformed: u64,
    /// Of the datagrams handed to the network, those that went through shared memory.
    pub shm_tx_datagrams: u64,
    /// Of the datagrams received, those that came through shared memory.
    pub shm_rx_datagrams: u64,
    /// Times that a peer fell back from shared memory to sockets.
    pub shm_fallbacks: u64,
    /// Times that a ring had no room until the peer read.
    pub shm_full: u64,
    /// Rings given up because the peer violated the ring protocol.
    pub shm_corrupt: u64,
    /// Invalid messages about shared memory.
    pub shm_bad_hello: u64,
    /// Captured datagrams that could not be written to the capture file.
    pub capture_lost: u64,
    /// Datagrams dropped, duplicated, delayed, reordered or corrupted on purpose.
    pub faults_injected: u64,
    /// Datagrams that were to be sent while the port was down on command.
    pub port_tx_dropped: u64,
    /// Datagrams received while the port was down on command.
    pub port_rx_dropped: u64,
}

impl Add for LinkCounters {
    type Output = LinkCounters;

    fn add(self, other: LinkCounters) -> LinkCounters {
        LinkCounters {
            tx_datagrams: self.tx_datagrams + other.tx_datagrams,
            tx_bytes: self.tx_bytes + other.tx_bytes,
            tx_calls: self.tx_calls + other.tx_calls,
            tx_errors: self.tx_errors + other.tx_errors,
            rx_datagrams: self.rx_datagrams + other.rx_datagrams,
            rx_bytes: self.rx_bytes + other.rx_bytes,
            rx_calls: self.rx_calls + other.rx_calls,
            rx_overruns: self.rx_overruns + other.rx_overruns,
            rx_malformed: self.rx_malformed + other.rx_malformed,
            shm_tx_datagrams: self.shm_tx_datagrams + other.shm_tx_datagrams,
            shm_rx_datagrams: self.shm_rx_datagrams + other.shm_rx_datagrams,
            shm_fallbacks: self.shm_fallbacks + other.shm_fallbacks,
            shm_full: self.shm_full + other.shm_full,
            shm_corrupt: self.shm_corrupt + other.shm_corrupt,
            shm_bad_hello: self.shm_bad_hello + other.shm_bad_hello,
            capture_lost: self.capture_lost + other.capture_lost,
            faults_injected: self.faults_injected + other.faults_injected,
            port_tx_dropped: self.port_tx_dropped + other.port_tx_dropped,
            port_rx_dropped: self.port_rx_dropped + other.port_rx_dropped,
        }
    }
}

/// How a link that has several ways reaches a peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reach {
    /// The peer's address.
    pub peer: IpAddr,
    /// The slot of it that is the peer's, unless it has all of it.
    pub slot: Option<ProcessSlot>,
    /// Why it is not reached through shared memory; `None` if it is.
    pub fallback_reason: Option<String>,
    /// Datagrams sent through shared memory, since the rings were made.
    pub tx_datagrams: u64,
    /// Datagrams received through shared memory, likewise.
    pub rx_datagrams: u64,
}

/// The state of a cable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Carrier {
    /// Whether datagrams can pass.
    pub is_up: bool,
    /// Becomes readable when that has changed since it was last asked.
    pub descriptor: RawFd,
}

/// What stopped [`Link::receive`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Overrun {
    /// Nothing is left to read.
    Drained,
    /// The budget was used up; there may be more.
    Budget,
    /// There may be more, but probably not, and checking would have taken a system call. The next call will check.
    Unknown,
    /// Nothing passes for now, in either direction, because somebody who is to see it cannot keep up.
    /// [`Link::poll_timeout`] says when to try again. What comes meanwhile waits below.
    Paused,
}

/// Which thread sleeps until datagrams arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sleeper {
    /// None: whoever drives the link looks by itself.
    Nobody,
    /// The one that waits on [`Link::descriptor`].
    Thread,
    /// A caller that blocks on [`Link::caller_wake_fd`]. Datagrams that do not arrive in memory still wake whoever waits on
    /// the descriptor.
    Caller,
}

/// Something that carries datagrams. It has one caller at a time, and no call blocks.
pub trait Link: Send {
    /// What this link can do, as probed when it was opened; changes only with a re-opened link.
    fn capabilities(&self) -> &Capabilities;

    /// Reserves room for one datagram of `len` bytes (BTH to ICRC) to `flow`.
    ///
    /// The caller fills the slot and then calls [`Link::commit`]; a second `reserve` without it
    /// abandons the first.
    fn reserve(&mut self, now: Time, flow: &Flow, len: usize) -> Result<TxSlot<'_>, TxError>;

    /// The bytes of the slot reserved last, for layers that inspect what the caller wrote.
    fn reserved(&self) -> &[u8];

    /// Queues the slot reserved last. It leaves at once or with the next [`Link::flush`].
    fn commit(&mut self, now: Time);

    /// Lets receivers begin with what is queued, where that takes no system call. A [`Link::flush`] follows.
    fn show(&mut self) {}

    /// Sends everything that is queued, as far as the network below accepts it.
    fn flush(&mut self, now: Time);

    /// Whether datagrams are still queued after a [`Link::flush`] because the network is full.
    fn is_blocked(&self) -> bool;

    /// Passes at most about `budget` received datagrams to `sink`, in order of arrival.
    fn receive(&mut self, now: Time, budget: usize, sink: &mut dyn FnMut(Datagram<'_>)) -> Overrun;

    /// Whether a [`Link::receive`] most likely takes no system call.
    fn receives_in_memory(&self, _now: Time) -> bool {
        false
    }

    /// Whether the receiver of `flow` finds what was shown to it although this process ends before the next
    /// [`Link::flush`].
    fn sends_in_memory(&mut self, _now: Time, _flow: &Flow) -> bool {
        false
    }

    /// Whether a [`Link::receive`] and a [`Link::flush`] would find nothing to do, if that can be told at once.
    fn is_quiet(&mut self, _now: Time) -> bool {
        false
    }

    /// Whether the receiver of `flow` will have room for `len` more bytes, if a link can know. Asked before sending
    /// datagrams that are never resent and that can wait. [`Link::poll_timeout`] says how long.
    fn has_room(&mut self, _now: Time, _flow: &Flow, _len: usize) -> bool {
        true
    }

    /// When the link itself wants to be driven again (a delayed datagram, a receiver without room), if ever.
    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    /// The descriptor that becomes readable when datagrams have arrived; `None` in simulation.
    /// It becomes writable (or readable, where it stands for several) when a blocked link can send again, unless
    /// [`Link::poll_timeout`] says when to try.
    /// It is always the same one.
    fn descriptor(&self) -> Option<RawFd>;

    /// A thread is about to sleep until datagrams arrive, or no longer does. Returns whether there is something to do
    /// already: then it must not sleep.
    fn watch(&mut self, _sleeper: Sleeper) -> bool {
        false
    }

    /// The eventfd on which a [caller](Sleeper::Caller) may block: a peer rings for what arrives in memory. It never has
    /// `O_NONBLOCK`, and it is always the same one. `None` if a caller cannot sleep here.
    fn caller_wake_fd(&self) -> Option<RawFd> {
        None
    }

    /// Starts receiving a multicast group's datagrams.
    fn join(&mut self, group: IpAddr) -> io::Result<()>;

    /// Stops receiving a multicast group's datagrams.
    fn leave(&mut self, group: IpAddr) -> io::Result<()>;

    /// What has been moved and lost so far.
    fn counters(&self) -> LinkCounters;

    /// How each peer is reached, as far as that is not the same for all.
    fn reaches(&self) -> Vec<Reach> {
        Vec::new()
    }

    /// This process among those that share the link's addresses, if others may.
    fn sharing(&mut self) -> Option<&mut dyn Sharing> {
        None
    }

    /// The state of the cable, if the link knows it and no interface does.
    fn carrier(&mut self) -> Option<Carrier> {
        None
    }

    /// What is done to datagrams on purpose, if this link does that.
    fn faults(&mut self) -> Option<&mut dyn Faults> {
        None
    }

    /// The addresses of the interface are these from now on. Links that follow them by themselves, or have just one, can
    /// ignore this.
    fn readdress(&mut self, _addresses: &[IpAddr]) {}

    /// Where all packet memory is, for links that share memory with the kernel and account for it.
    fn packet_memory(&self) -> Option<FrameAudit> {
        None
    }

    /// Says that datagrams committed one after the other may be dropped, delayed or reordered on their way down, so
    /// none may get an identification that depends on its neighbours. From now on the link sends each on its own, and
    /// [`Capabilities::segments`] is 1. Links that never segment can ignore this.
    fn stop_segmenting(&mut self) {}

    /// Says that somebody looks at packets on their way or changes them: from now on every slot
    /// [wants its ICRC](TxSlot::wants_icrc). Links whose slots always do can ignore this.
    fn keep_icrcs(&mut self) {}

    /// Says that the caller copies the payloads of received datagrams, and looks at nothing but headers: they may stay
    /// where the peer has written them ([`Datagram::record`]), unless somebody [looks at them](Link::keep_icrcs).
    fn leave_payloads(&mut self) {}

    /// Says that the TOS and TTL of received datagrams are wanted. Until then, a link that has to ask for them may
    /// leave both at their defaults, except that it always reports congestion marks.
    fn show_headers(&mut self) {}
}

/// A boxed link is a link, so that the layers can wrap one whose kind is chosen at run time.
impl<L: Link + ?Sized> Link for Box<L> {
    delegate_link!(self => (**self);
        capabilities reserve reserved commit show flush is_blocked receive receives_in_memory
        sends_in_memory is_quiet has_room poll_timeout descriptor watch caller_wake_fd join leave counters
        reaches sharing carrier faults readdress packet_memory stop_segmenting keep_icrcs leave_payloads show_headers
    );
}
