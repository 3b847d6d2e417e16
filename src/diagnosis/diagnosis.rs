//! A failure with all that is known about it.

use std::fmt::{self, Display, Formatter};

use softrnic_transport::{Attempt, Failure, QpType, Reason};
use softrnic_wire::Time;

use crate::code::Code;
use crate::denied::Denied;
use crate::words::{Request, Subject, span};

/// Why a QP has failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnosis {
    /// What the transport knows.
    pub failure: Failure,
    /// What the memory knows, where it refused.
    pub denied: Option<Denied>,
    /// What the peer says, where it could be asked.
    pub peer: Option<Box<Diagnosis>>,
    /// Packets that had come for the QP by then.
    pub heard: u64,
    /// When.
    pub now: Time,
}

impl Diagnosis {
    /// The number for `ibv_wc.vendor_err`.
    pub fn code(&self) -> Code {
        match &self.peer {
            Some(peer) => peer.code(),
            None => Code::of(self.failure.reason, self.denied.as_ref()),
        }
    }

    /// Whether it is a request of the peer that was refused.
    pub fn is_refusal(&self) -> bool {
        use Reason::*;
        matches!(
            self.failure.reason,
            OpcodeSequence
                | Opcode
                | NoReceiveQueue
                | QpAccess
                | TooManyReads
                | PayloadLength
                | MessageTooLong
                | WriteLength
                | Misaligned
                | ReceiveTooShort
                | ReceiveMemory
                | RemoteMemory
                | RemoteInvalidate
                | Qkey
        )
    }

    fn write_reason(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Failure { reason, attempt, qp, since } = &self.failure;
        let how_long = since.map_or_else(String::new, |since| format!(" for {}", span(since, self.now)));
        match reason {
            Reason::NakInvalidRequest
            | Reason::NakRemoteAccess
            | Reason::NakRemoteOperation
            | Reason::NakDestination => {
                f.write_str("refused by the peer: ")?;
                match (&self.peer, reason) {
                    (Some(peer), _) => peer.write_reason(f),
                    (None, Reason::NakInvalidRequest) => f.write_str("invalid request"),
                    (None, Reason::NakDestination) => {
                        f.write_str("no queue pair there has this number and Q_Key")
                    }
                    (None, Reason::NakRemoteAccess) => f.write_str("its key does not allow this access"),
                    (None, _) => f.write_str("the receive posted there is at fault"),
                }
            }
            Reason::NoAnswer => {
                write!(f, "no answer from the peer{how_long}")?;
                if qp.service != QpType::Srd {
                    write!(f, ", after {} retries at timeout {}", qp.retries, qp.timeout)?;
                }
                match self.heard {
                    0 => f.write_str("; nothing has ever come from it"),
                    heard => write!(f, "; {heard} packets came from it before"),
                }
            }
            Reason::SequenceNaks => {
                write!(f, "the peer reported lost packets more than {} times in a row", qp.retries)
            }
            Reason::ReceiverNotReady => {
                write!(f, "the peer had no receive{how_long}, and rnr_retry is {}", qp.rnr_retries)
            }
            Reason::ReceiveTooShort => {
                let Some(Attempt { length, room: Some(room), .. }) = attempt else {
                    return f.write_str(self.code().meaning());
                };
                let missing = length.saturating_sub((*room).into());
                write!(f, "the receive holds {room} B, and at least {missing} B more have come")
            }
            _ => match &self.denied {
                Some(denied) => denied.write(self.now, f),
                None => f.write_str(self.code().meaning()),
            },
        }
    }
}

impl Display for Diagnosis {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", Subject(&self.failure.qp))?;
        if let Some(attempt) = &self.failure.attempt {
            match self.failure.reason {
                _ if self.is_refusal() => write!(f, "refuses the peer's {}: ", Request(attempt))?,
                Reason::NakInvalidRequest
                | Reason::NakRemoteAccess
                | Reason::NakRemoteOperation
                | Reason::NakDestination => {
                    write!(f, "{} ", Request(attempt))?;
                }
                _ => write!(f, "{}: ", Request(attempt))?,
            }
        }
        self.write_reason(f)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use softrnic_memory::{Access, Denial, Tombstone, ValidRange};
    use softrnic_transport::{QpFacts, QpState, RemoteBuffer, WcOpcode};
    use softrnic_wire::{Qpn, Rkey};

    use super::*;
    use crate::denied::KeyDenied;

    const NOW: Time = Time::from_nanos(5_000_000_000);
    const VALID: ValidRange = ValidRange { start: 0x7000, length: 0x1000 };

    fn diagnosis(reason: Reason) -> Diagnosis {
        let qp = QpFacts {
            qpn: Qpn::new(0x2d64d),
            service: QpType::Rc,
            state: QpState::Rts,
            own: IpAddr::from([10, 0, 0, 4]),
            peer: (IpAddr::from([10, 0, 0, 5]), Qpn::new(0x1b)),
            retries: 7,
            rnr_retries: 2,
            timeout: 14,
        };
        let remote = Some(RemoteBuffer { va: 0x7f00, rkey: Rkey(0x8c99) });
        let attempt =
            Attempt { opcode: WcOpcode::RdmaWrite, wr_id: Some(1), length: 1024, remote, room: None };
        let failure = Failure { reason, attempt: Some(attempt), qp, since: None };
        Diagnosis { failure, denied: None, peer: None, heard: 0, now: NOW }
    }

    fn key(remote: bool, denial: Denial) -> Option<Denied> {
        Some(Denied::Key(KeyDenied { key: 0x8c99, remote, addr: 0x7f00, length: 1024, denial }))
    }

    const QP: &str = "QP 0x2d64d (RTS, peer 10.0.0.5 QP 0x1b): ";
    const WRITE: &str = "WRITE of 1024 B to 0x7f00 with rkey 0x8c99";

    fn says(diagnosis: &Diagnosis) -> String {
        let sentence = diagnosis.to_string();
        let rest = sentence.strip_prefix(QP).unwrap_or_else(|| panic!("{sentence}"));
        let rest = rest.strip_prefix("refuses the peer's ").unwrap_or(rest);
        rest.strip_prefix(WRITE).unwrap_or_else(|| panic!("{sentence}")).to_owned()
    }

    #[test]
    fn a_refusal_of_the_peer_says_what_the_peer_says_where_that_is_known() {
        let mut it = diagnosis(Reason::NakRemoteAccess);
        assert_eq!(says(&it), " refused by the peer: its key does not allow this access");
        assert_eq!(it.code().get(), 0x462);
        let at = Some(Time::from_nanos(3_500_000_000));
        let mut peer = diagnosis(Reason::RemoteMemory);
        peer.denied =
            key(true, Denial::Destroyed(Tombstone { key: 0x8c99, window: false, valid: VALID, at }));
        it.peer = Some(Box::new(peer));
        assert_eq!(says(&it), " refused by the peer: rkey 0x8c99 was deregistered 1.5 s ago");
        assert_eq!(it.code().get(), 0x203);
    }

    #[test]
    fn every_denial_has_its_words_and_its_code() {
        for (denial, words, code) in [
            (Denial::UnknownKey, "no region or window has rkey 0x8c99", 0x201),
            (Denial::SwappedKey, "rkey 0x8c99 is 0x998c0000 with its bytes in the wrong order", 0x202),
            (Denial::WrongPd, "rkey 0x8c99 belongs to another protection domain than the queue", 0x206),
            (
                Denial::Access { missing: Access::REMOTE_WRITE },
                "rkey 0x8c99 was registered without IBV_ACCESS_REMOTE_WRITE",
                0x207,
            ),
            (
                Denial::BeforeStart { by: 3, valid: VALID },
                "0x7f00 is 3 B before the start of rkey 0x8c99 (4096 B from 0x7000)",
                0x208,
            ),
            (
                Denial::PastEnd { by: 768, valid: VALID },
                "1024 B at 0x7f00 end 768 B past the end of rkey 0x8c99 (4096 B from 0x7000)",
                0x209,
            ),
            (Denial::NotBound, "the window with rkey 0x8c99 is not bound", 0x20c),
            (
                Denial::BoundElsewhere { qpn: Qpn::new(9) },
                "the window with rkey 0x8c99 is bound to QP 0x9",
                0x20e,
            ),
        ] {
            let mut it = diagnosis(Reason::RemoteMemory);
            it.denied = key(true, denial);
            assert_eq!(says(&it), format!(": {words}"));
            assert_eq!(it.code().get(), code);
        }
    }

    #[test]
    fn who_refuses_is_the_subject() {
        let mut it = diagnosis(Reason::RemoteMemory);
        it.denied = key(true, Denial::UnknownKey);
        assert_eq!(
            it.to_string(),
            format!("{QP}refuses the peer's {WRITE}: no region or window has rkey 0x8c99")
        );
    }

    #[test]
    fn a_local_key_is_an_lkey() {
        let mut it = diagnosis(Reason::LocalMemory);
        it.denied = key(false, Denial::UnknownKey);
        assert_eq!(says(&it), ": no region has lkey 0x8c99");
        assert_eq!(it.code().get(), 0x101);
    }

    #[test]
    fn a_peer_that_is_silent_is_described_by_what_was_heard() {
        let mut it = diagnosis(Reason::NoAnswer);
        it.failure.since = Some(Time::from_nanos(1_000_000_000));
        let silent = ": no answer from the peer for 4.0 s, after 7 retries at timeout 14";
        assert_eq!(says(&it), format!("{silent}; nothing has ever come from it"));
        it.heard = 12;
        assert_eq!(says(&it), format!("{silent}; 12 packets came from it before"));
        it.failure.reason = Reason::ReceiverNotReady;
        assert_eq!(says(&it), ": the peer had no receive for 4.0 s, and rnr_retry is 2");
    }

    #[test]
    fn a_short_receive_is_told_in_bytes() {
        let mut it = diagnosis(Reason::ReceiveTooShort);
        it.failure.attempt = it.failure.attempt.map(|attempt| Attempt { room: Some(100), ..attempt });
        assert_eq!(says(&it), ": the receive holds 100 B, and at least 924 B more have come");
        assert_eq!(it.code().get(), 0x801);
    }
}
