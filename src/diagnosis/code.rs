//! The numbers of `ibv_wc.vendor_err`. They are stable: one that was given out keeps its meaning.

use softrnic_memory::Denial;
use softrnic_transport::Reason;

use crate::denied::Denied;

/// Why a completion failed, as `ibv_wc.vendor_err` says it. The high byte says where, the low one what.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Code(u16);

/// A key or range of this side was refused.
const LOCAL: u16 = 0x100;
/// A key or range that a peer named was refused.
const REMOTE: u16 = 0x200;

/// Every code with its meaning, by number: the table in `docs/troubleshooting.md`.
const MEANINGS: &[(u16, &str)] = &[
    (0x101, "no region has this lkey"),
    (0x102, "the lkey has its bytes in the wrong order"),
    (0x103, "the lkey was destroyed"),
    (0x104, "the lkey is an old one of its region"),
    (0x105, "the key is that of a window; a local request needs the lkey of a region"),
    (0x106, "the lkey is of another protection domain"),
    (0x107, "the region lacks an access flag"),
    (0x108, "the local bytes begin before the region"),
    (0x109, "the local bytes end past the region"),
    (0x10a, "the local address has its bytes in the wrong order"),
    (0x10b, "the local address was cut to 32 bits"),
    (0x10d, "the region waits for its registration"),
    (0x110, "the memory of a region is not mapped"),
    (0x111, "the scatter/gather list holds fewer bytes than the message"),
    (0x201, "no region or window has this rkey"),
    (0x202, "the rkey has its bytes in the wrong order"),
    (0x203, "the rkey was destroyed"),
    (0x204, "the rkey is an old one of its window or region"),
    (0x206, "the rkey is of another protection domain than the QP"),
    (0x207, "the region or window lacks an access flag"),
    (0x208, "the request begins before the region or window"),
    (0x209, "the request ends past the region or window"),
    (0x20a, "the remote address has its bytes in the wrong order"),
    (0x20b, "the remote address was cut to 32 bits"),
    (0x20c, "the window is not bound"),
    (0x20d, "the region waits for its registration"),
    (0x20e, "the window is bound to another QP"),
    (0x20f, "the address of an atomic is not a multiple of 8"),
    (0x210, "the memory of a region is not mapped"),
    (0x301, "the service has no such operation"),
    (0x302, "a READ or an atomic with max_rd_atomic 0"),
    (0x303, "the request has no form on the wire"),
    (0x304, "a datagram longer than the MTU"),
    (0x305, "a packet longer than the link takes"),
    (0x306, "a window was not bound, a key not invalidated, or a region not registered"),
    (0x307, "there is no such address handle in the protection domain of the queue pair"),
    (0x3ff, "an error of SoftRNIC's own"),
    (0x461, "refused by the peer: NAK, invalid request"),
    (0x462, "refused by the peer: NAK, remote access error"),
    (0x463, "refused by the peer: NAK, remote operational error"),
    (0x464, "refused by the peer: no queue pair has this number and Q_Key"),
    (0x501, "the peer did not answer"),
    (0x502, "the peer reported lost packets too often"),
    (0x503, "the peer had no receive too often"),
    (0x601, "the answer does not fit the request"),
    (0x602, "the answer to a READ ended early or went on too long"),
    (0x603, "a packet of the answer to a READ has a wrong length"),
    (0x701, "the peer's packet does not continue the message before it"),
    (0x702, "the peer's request has an opcode that no request has"),
    (0x703, "there is no such receive queue"),
    (0x704, "the access flags of the QP do not allow the peer's request"),
    (0x705, "more READs and atomics at once than max_dest_rd_atomic"),
    (0x706, "the payload of the peer's packet does not fit its opcode and the path MTU"),
    (0x707, "the peer's message is longer than 2^31 bytes"),
    (0x708, "the packets of a WRITE do not add up to the length that it announced"),
    (0x709, "the peer named a key to invalidate, and that failed"),
    (0x70a, "the peer's message has another Q_Key than the queue pair"),
    (0x801, "the message is longer than the receive"),
];

impl Code {
    /// The code of a failure.
    pub fn of(reason: Reason, denied: Option<&Denied>) -> Code {
        let memory = |base| match denied {
            Some(Denied::Key(denied)) => base + of_denial(&denied.denial),
            _ => base + 0x11,
        };
        Code(match reason {
            Reason::LocalMemory | Reason::ReceiveMemory => memory(LOCAL),
            Reason::RemoteMemory => match denied {
                Some(Denied::Key(denied)) => REMOTE + of_denial(&denied.denial),
                _ => 0x462,
            },
            Reason::Misaligned => 0x20f,
            Reason::WrongService => 0x301,
            Reason::NoReadsAllowed => 0x302,
            Reason::NoForm => 0x303,
            Reason::DatagramTooLong => 0x304,
            Reason::PacketTooLong => 0x305,
            Reason::LocalOperation => 0x306,
            Reason::Internal => 0x3ff,
            Reason::NakInvalidRequest => 0x461,
            Reason::NakRemoteAccess => 0x462,
            Reason::NakRemoteOperation => 0x463,
            Reason::NoAnswer => 0x501,
            Reason::SequenceNaks => 0x502,
            Reason::ReceiverNotReady => 0x503,
            Reason::AnswerKind => 0x601,
            Reason::AnswerEnd => 0x602,
            Reason::AnswerLength => 0x603,
            Reason::OpcodeSequence => 0x701,
            Reason::Opcode => 0x702,
            Reason::NoReceiveQueue => 0x703,
            Reason::QpAccess => 0x704,
            Reason::TooManyReads => 0x705,
            Reason::PayloadLength => 0x706,
            Reason::MessageTooLong => 0x707,
            Reason::WriteLength => 0x708,
            Reason::RemoteInvalidate => 0x709,
            Reason::NakDestination => 0x464,
            Reason::Qkey => 0x70a,
            Reason::AddressHandle => 0x307,
            Reason::ReceiveTooShort => 0x801,
        })
    }

    /// That of a message of SRD, in EFA's numbers: a byte.
    pub const fn of_srd(code: u8) -> Code {
        Code(code as u16)
    }

    /// The number.
    pub const fn get(self) -> u16 {
        self.0
    }

    /// What it means.
    pub fn meaning(self) -> &'static str {
        let found = MEANINGS.binary_search_by_key(&self.0, |(code, _)| *code);
        found.map_or("", |at| MEANINGS[at].1)
    }

    /// All of them, by number.
    pub fn all() -> impl Iterator<Item = Code> {
        MEANINGS.iter().map(|(code, _)| Code(*code))
    }
}

const fn of_denial(denial: &Denial) -> u16 {
    match denial {
        Denial::UnknownKey => 0x01,
        Denial::SwappedKey => 0x02,
        Denial::Destroyed(_) => 0x03,
        Denial::OldTag { .. } => 0x04,
        Denial::WindowKey => 0x05,
        Denial::WrongPd => 0x06,
        Denial::Access { .. } => 0x07,
        Denial::BeforeStart { .. } => 0x08,
        Denial::PastEnd { .. } => 0x09,
        Denial::SwappedAddress { .. } => 0x0a,
        Denial::CutAddress { .. } => 0x0b,
        Denial::NotBound => 0x0c,
        Denial::NotValid => 0x0d,
        Denial::BoundElsewhere { .. } => 0x0e,
        Denial::Misaligned => 0x0f,
        Denial::Unmapped => 0x10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order() {
        assert!(MEANINGS.is_sorted_by(|(a, _), (b, _)| a < b));
    }

    #[test]
    fn what_has_a_code_has_a_meaning() {
        use Reason::*;
        for reason in [
            LocalMemory,
            LocalOperation,
            WrongService,
            NoReadsAllowed,
            NoForm,
            DatagramTooLong,
            PacketTooLong,
            Internal,
            NakInvalidRequest,
            NakRemoteAccess,
            NakRemoteOperation,
            NoAnswer,
            SequenceNaks,
            ReceiverNotReady,
            AnswerKind,
            AnswerEnd,
            AnswerLength,
            OpcodeSequence,
            Opcode,
            NoReceiveQueue,
            QpAccess,
            TooManyReads,
            PayloadLength,
            MessageTooLong,
            WriteLength,
            Misaligned,
            ReceiveTooShort,
            ReceiveMemory,
            RemoteMemory,
            RemoteInvalidate,
            NakDestination,
            Qkey,
            AddressHandle,
        ] {
            assert!(!Code::of(reason, None).meaning().is_empty(), "{reason:?}");
        }
    }
}
