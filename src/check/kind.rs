//! The kinds of mistakes, each with its name, the rule that it breaks and its usual cause.

use std::fmt::{self, Display, Formatter};

use softrnic_diagnosis::Code;

macro_rules! kinds {
    ($($kind:ident $name:literal: $means:literal, $rule:literal, $cause:literal;)*) => {
        /// A kind of mistake.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[allow(missing_docs)]
        pub enum Kind {
            $($kind,)*
        }

        impl Kind {
            /// All of them, in the order of `docs/check.md`.
            pub const ALL: &[Kind] = &[$(Kind::$kind,)*];

            /// Its name in reports and suppressions, which stays.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Kind::$kind => $name,)*
                }
            }

            /// What it is.
            pub const fn means(self) -> &'static str {
                match self {
                    $(Kind::$kind => $means,)*
                }
            }

            /// The rule that is broken, and where it stands.
            pub const fn rule(self) -> &'static str {
                match self {
                    $(Kind::$kind => $rule,)*
                }
            }

            /// What usually causes it.
            pub const fn cause(self) -> &'static str {
                match self {
                    $(Kind::$kind => $cause,)*
                }
            }
        }
    };
}

kinds! {
    UnknownKey "unknown-key": "no region or window has the key",
        "A request names memory by the lkey of its own side and the rkey of the other (ibv_post_send(3); IBTA 10.6.3).",
        "A key that was not exchanged, was cut or overwritten on its way, or is of another process or device.";
    SwappedKey "swapped-key": "the key has its bytes in the wrong order",
        "Keys are numbers in host order; verbs does not convert them (ibv_reg_mr(3)).",
        "htonl() on one side without ntohl() on the other.";
    DestroyedKey "destroyed-key": "the key was deregistered or deallocated",
        "A region stays registered until every request that uses it has completed, on both sides (ibv_dereg_mr(3); IBTA 10.6.5).",
        "The owner deregisters before the other side has said that it is done, or the other side keeps a key too long.";
    OldKey "old-key": "the key is an old one of its window or region",
        "Each bind of a window and each fast registration gives it a new key (ibv_bind_mw(3); IBTA 10.6.7).",
        "The new key was not sent to the peer.";
    WindowKey "window-key": "the key of a window is used as an lkey",
        "A local request needs the lkey of a region; windows are for peers (ibv_alloc_mw(3)).",
        "The rkey of the window was put into ibv_sge.lkey.";
    WrongDomain "wrong-domain": "the region and the QP are of different protection domains",
        "A QP uses regions of its own protection domain only (ibv_alloc_pd(3); IBTA 10.2.3).",
        "A domain for each connection, and one region for all.";
    MissingAccess "missing-access": "the region or window lacks an access flag",
        "A peer may do what the access flags of the region allow, and the NIC writes only where IBV_ACCESS_LOCAL_WRITE is set (ibv_reg_mr(3); IBTA 11.2.8).",
        "IBV_ACCESS_REMOTE_READ, _WRITE or _ATOMIC was forgotten; remote writes need IBV_ACCESS_LOCAL_WRITE as well.";
    BeforeStart "before-start": "the bytes begin before the region or window",
        "All bytes of a request are inside the region or window (ibv_reg_mr(3); IBTA 9.7.4.1.5).",
        "An offset that is negative, or counted from another base.";
    PastEnd "past-end": "the bytes end past the region or window",
        "All bytes of a request are inside the region or window (ibv_reg_mr(3); IBTA 9.7.4.1.5).",
        "A length in elements instead of bytes, or an offset that was not subtracted.";
    SwappedAddress "swapped-address": "the address has its bytes in the wrong order",
        "Addresses are numbers in host order; verbs does not convert them (ibv_post_send(3)).",
        "htonll() or htobe64() on one side without its counterpart on the other.";
    CutAddress "cut-address": "the address was cut to 32 bits",
        "An address has 64 bits (ibv_post_send(3)).",
        "A variable of type int or uint32_t, or a pointer that went through one.";
    UnboundWindow "unbound-window": "the window is not bound",
        "A window gives access from the completion of its bind on (ibv_bind_mw(3); IBTA 10.6.7).",
        "The peer was told the key before the bind completed, or after it was invalidated.";
    WindowElsewhere "window-elsewhere": "the window is bound to another QP",
        "A window of type 2 is used through the QP that bound it (ibv_alloc_mw(3); IBTA 10.6.7.2).",
        "One window for several connections.";
    MisalignedAtomic "misaligned-atomic": "the address of an atomic is not a multiple of 8",
        "The operand of an atomic is aligned to 8 bytes (ibv_post_send(3); IBTA 9.4.5).",
        "A packed structure, or an offset in bytes where words were meant.";
    UnmappedMemory "unmapped-memory": "registered memory is no longer mapped",
        "Registered memory stays mapped until it is deregistered (ibv_reg_mr(3)).",
        "free(), munmap() or realloc() before ibv_dereg_mr().";
    WrongOperation "wrong-operation": "the service has no such operation",
        "UD has SEND only, UC no READ and no atomics (ibv_post_send(3); IBTA 9.4).",
        "The QP type was changed, and its requests were not.";
    NoReadsAllowed "no-reads-allowed": "a READ or an atomic with max_rd_atomic 0",
        "max_rd_atomic and max_dest_rd_atomic bound READs and atomics in flight; with 0 there are none (ibv_modify_qp(3); IBTA 11.2.4.2).",
        "ibv_qp_attr was cleared, and the field never set.";
    TooManyReads "too-many-reads": "more READs and atomics at once than the peer accepts",
        "max_rd_atomic of one side is at most max_dest_rd_atomic of the other (ibv_modify_qp(3); IBTA C9-90).",
        "Constants that differ between client and server.";
    DatagramTooLong "datagram-too-long": "a datagram is longer than the MTU",
        "A datagram is one packet (ibv_create_qp(3); IBTA 9.8.3).",
        "A message size that was meant for a connection.";
    FailedBind "failed-bind": "a window was not bound, a key not invalidated or a region not registered",
        "The region allows binding (IBV_ACCESS_MW_BIND), and the range and the rights of the window are inside its own (ibv_bind_mw(3); IBTA 10.6.7).",
        "IBV_ACCESS_MW_BIND was forgotten, or the key is not the present one.";
    QpAccess "qp-access": "the access flags of the QP do not allow the request",
        "The QP and the region must both allow the operation (ibv_modify_qp(3), qp_access_flags; IBTA C9-90).",
        "qp_access_flags 0 in the transition to INIT.";
    RefusedByPeer "refused-by-peer": "the peer refused the request",
        "The peer's NIC checks key, range and access flags, and answers with a NAK (IBTA 9.7.5.2).",
        "The report of the peer says why: run it under softrnic check as well.";
    NoAnswer "no-answer": "the peer did not answer",
        "A connected QP needs the peer's number, address and PSN, and the peer has to be in RTR before the first request (ibv_modify_qp(3); IBTA 9.7.6).",
        "Numbers that were exchanged wrongly, a peer that has ended, or one that was not yet in RTR.";
    LostPackets "lost-packets": "the peer reported lost packets too often",
        "A request of which the peer misses packets is sent again as often as retry_cnt says (ibv_modify_qp(3); IBTA 9.7.5.2).",
        "A retry_cnt of 0, or a network that loses much.";
    NoReceive "no-receive": "a message found no receive at the peer",
        "A receive is posted before the message that it is for arrives (ibv_post_recv(3); IBTA 9.7.5.2.8).",
        "The peer posts its receives after it has told that it is ready, or posts too few.";
    ShortReceive "short-receive": "the message is longer than the receive",
        "A receive is as long as the longest message that may take it (ibv_post_recv(3); IBTA 9.7.4.1.6).",
        "The two sides disagree on the size of a message; on UD the 40 bytes of the header were forgotten.";
    ShortDatagramReceive "short-datagram-receive": "a receive of a datagram QP has no room for the header",
        "The first 40 bytes of a receive on a UD QP are for the network header (ibv_post_recv(3); IBTA 11.4.1.2).",
        "The buffer is as long as the payload.";
    BrokenAnswer "broken-answer": "the peer's answer breaks the protocol",
        "A response fits its request (IBTA 9.7.5.2).",
        "A fault of the peer's NIC, or of something between: a capture and softrnic explain show the packets.";
    BrokenRequest "broken-request": "the peer's request breaks the protocol",
        "Packets of a message follow each other, and each but the last has the path MTU (IBTA C9-82 to C9-96).",
        "Path MTUs that differ between the two ends, or a QP number that another QP had before.";
    CqOverrun "cq-overrun": "more completions came than the completion queue holds",
        "A completion queue holds the completions of all requests that may be outstanding (ibv_create_cq(3); IBTA 9.9.3).",
        "One CQ for many QPs, or a program that posts more than it polls.";
    SendQueueFull "send-queue-full": "the send queue is full",
        "A request leaves its queue when its completion, or that of a later one, has been polled (ibv_post_send(3); IBTA 10.8.5.1).",
        "None of the requests was signaled, or completions are not polled before more is posted.";
    RefusedRequest "refused-request": "a work request is not valid",
        "ibv_post_send(3) and ibv_post_recv(3) say what a request must be.",
        "The text says which field it is.";
    RefusedVerb "refused-verb": "a verb was refused",
        "The manual page of the verb says what it needs.",
        "The text says which argument it is.";
    StillUsed "still-used": "an object was to be destroyed while others use it",
        "What uses an object is destroyed before it (ibv_destroy_qp(3), ibv_dealloc_pd(3)).",
        "An object that was forgotten, or that is destroyed later.";
    UnackedEvents "unacked-events": "an object with events that were not acknowledged is destroyed",
        "Every event of ibv_get_cq_event() is acknowledged before the CQ is destroyed; the call waits for that (ibv_get_cq_event(3)).",
        "ibv_ack_cq_events() is missing, or is not reached on one way out.";
    ChangedBuffer "changed-buffer": "bytes of a request were changed before it was complete",
        "The buffer of a request belongs to the NIC until the program has polled its completion (ibv_post_send(3); IBTA 10.8.3).",
        "A buffer that is used again, or freed, without waiting for the completion.";
    WrittenBuffer "written-buffer": "the program wrote to the buffer of a receive or READ that was not complete",
        "The buffer of a receive, a READ or an atomic belongs to the NIC until the program has polled its completion (ibv_post_recv(3), ibv_post_send(3); IBTA 10.8.3).",
        "A buffer that is posted before the program is done with it, or prepared after it was posted; or memory is looked at instead of the completion.";
    ChangedAtomic "changed-atomic": "a word was changed while a peer's atomic on it was in flight",
        "Atomics are atomic among those of one NIC, unless the device reports IBV_ATOMIC_GLOB: what the processor does may come between their read and their write (ibv_query_device(3), atomic_cap; IBTA 9.4.5).",
        "A counter or a lock that its owner changes with the processor: it uses atomics through the NIC as well, on a QP that is connected to itself, or waits until those of its peers are complete.";
    OverlappingRequests "overlapping-requests": "two requests in flight touch the same bytes in an order that nobody promises",
        "A request may read or write its bytes at any time until it is complete; a READ or atomic is waited for with IBV_SEND_FENCE or by polling it, another QP by polling it (ibv_post_send(3); IBTA 10.8.3.3).",
        "A SEND of what a READ has not brought yet, a WRITE over what a READ has not fetched yet, or one buffer for several QPs.";
    MissedEvent "missed-event": "an event is awaited of a completion queue that holds completions",
        "Completions that were there before ibv_req_notify_cq() raise no event: the queue is polled once more after it is armed (ibv_get_cq_event(3)).",
        "The queue is polled, then armed, and a completion came between; or only one completion is polled for each event.";
    UnpolledQueue "unpolled-queue": "a completion queue was armed, and never polled",
        "An event says that there are completions; only ibv_poll_cq() takes them (ibv_get_cq_event(3)).",
        "The event is taken for the completion.";
    LateReceive "late-receive": "the first receive is posted after messages had come for it",
        "Receives are posted before the peer can send: before the QP is in RTR, or before rdma_accept() (ibv_post_recv(3), rdma_accept(3)).",
        "The connection is accepted first. With an rnr_retry of the peer below 7, or another timing, it fails.";
    WrongQkey "wrong-qkey": "a datagram has another Q_Key than its QP",
        "A datagram is dropped if its Q_Key is not that of the QP that it is for (ibv_modify_qp(3), qkey; IBTA 10.2.5).",
        "remote_qkey was not set or not exchanged, or has its highest bit set: then the Q_Key of the sending QP counts.";
    EndlessTimeout "endless-timeout": "a QP never repeats what is lost",
        "With timeout 0 the NIC waits for an answer for ever (ibv_modify_qp(3); IBTA 11.2.5.2).",
        "ibv_qp_attr was cleared, and the field never set.";
    ForkWithoutSupport "fork-without-support": "the program forks while memory is registered, without ibv_fork_init()",
        "Linux 5.12 and later copy registered pages at a fork, so no harm is done there. Before that, they move away from the NIC when parent or child writes to them, unless ibv_fork_init() was called first (ibv_fork_init(3)); ibv_is_fork_initialized() says whether that is needed.",
        "fork(), popen() or a library that calls it; vfork() and posix_spawn() do no harm.";
    UnservedListener "unserved-listener": "connections were asked for, and nobody has taken the requests",
        "A listener's requests are events of its channel: rdma_get_cm_event() takes them, or rdma_get_request() (rdma_listen(3)).",
        "Whoever serves the channel has ended, waits for something else, or was never started.";
    FullBacklog "full-backlog": "requests for connections found the backlog full",
        "Requests beyond the backlog are dropped; their senders repeat them after seconds, or give up (rdma_listen(3)).",
        "A backlog for one client, and several of them; or a listener that does something else between events.";
    UnackedCmEvents "unacked-cm-events": "rdma_destroy_id() waits for an event that was not acknowledged",
        "Every event of rdma_get_cm_event() is acknowledged before its identifier is destroyed; the call waits for that (rdma_ack_cm_event(3)).",
        "rdma_ack_cm_event() is missing, or called after rdma_destroy_id().";
    LeakedObject "leaked-object": "an object was not destroyed",
        "Objects are destroyed in the reverse order of their making (ibv_close_device(3)).",
        "A way out of the program that skips its cleanup.";
}

impl Kind {
    /// The kind of a failure that the NIC has diagnosed.
    pub fn of(code: Code) -> Kind {
        match code.get() {
            // No verb makes a region that waits for its registration (0x10d).
            0x101 | 0x201 | 0x10d | 0x20d => Kind::UnknownKey,
            0x102 | 0x202 => Kind::SwappedKey,
            0x103 | 0x203 => Kind::DestroyedKey,
            0x104 | 0x204 => Kind::OldKey,
            0x105 => Kind::WindowKey,
            0x106 | 0x206 => Kind::WrongDomain,
            0x107 | 0x207 => Kind::MissingAccess,
            0x108 | 0x208 => Kind::BeforeStart,
            0x109 | 0x209 => Kind::PastEnd,
            0x10a | 0x20a => Kind::SwappedAddress,
            0x10b | 0x20b => Kind::CutAddress,
            0x20c => Kind::UnboundWindow,
            0x20e => Kind::WindowElsewhere,
            0x20f => Kind::MisalignedAtomic,
            0x110 | 0x210 => Kind::UnmappedMemory,
            0x301 | 0x303 => Kind::WrongOperation,
            0x302 => Kind::NoReadsAllowed,
            0x304 | 0x305 => Kind::DatagramTooLong,
            0x306 | 0x709 => Kind::FailedBind,
            // Verbs lets nobody post a list that is shorter than its message (0x111).
            0x307 | 0x111 | 0x3ff => Kind::RefusedRequest,
            0x70a => Kind::WrongQkey,
            0x501 => Kind::NoAnswer,
            0x502 => Kind::LostPackets,
            0x503 => Kind::NoReceive,
            0x601..=0x6ff => Kind::BrokenAnswer,
            0x704 => Kind::QpAccess,
            0x705 => Kind::TooManyReads,
            0x701..=0x7ff => Kind::BrokenRequest,
            0x801 => Kind::ShortReceive,
            _ => Kind::RefusedByPeer,
        }
    }

    /// The kind with a name.
    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.iter().copied().find(|kind| kind.name() == name)
    }
}

impl Display for Kind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
