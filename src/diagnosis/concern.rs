//! What is told before anything has failed.

use std::fmt::{self, Display, Formatter};

use softrnic_transport::{Concern, QpFacts, Unfit};
use softrnic_wire::Time;

use crate::words::{Request, Subject, span};

/// Something that will probably not go on by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Warning {
    /// What a QP told.
    Qp {
        /// That.
        concern: Concern,
        /// When.
        now: Time,
    },
    /// A completion queue took no more.
    CqOverrun {
        /// What it holds.
        entries: u32,
    },
}

impl Display for Warning {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Warning::Qp { concern: Concern::NoReceiveAtPeer { since, attempt, qp }, now } => {
                let waits = span(*since, *now);
                write!(f, "{}: {} has waited {waits} for a receive: ", Subject(qp), Request(attempt))?;
                f.write_str("the peer has posted none, or too few")?;
                let QpFacts { rnr_retries, .. } = qp;
                match rnr_retries {
                    7 => f.write_str("; with rnr_retry 7 it waits for ever"),
                    retries => write!(f, "; it fails after rnr_retry {retries}"),
                }
            }
            Warning::Qp { concern: Concern::UnfitDatagram { from, unfit, qp }, .. } => {
                let from = from.get();
                write!(f, "{}: a datagram from QP {from:#x} was dropped: ", Subject(qp))?;
                match unfit {
                    Unfit::Qkey { came, expected } => {
                        write!(f, "its Q_Key is {:#x}, that of the QP {:#x}", came.0, expected.0)
                    }
                    Unfit::Length { length, room } => {
                        write!(f, "with the network header it has {length} B, and the receive holds {room} B")
                    }
                }
            }
            Warning::CqOverrun { entries } => write!(
                f,
                "a completion queue of {entries} entries has overrun: completions come faster than they are polled, and \
                 its QPs fail"
            ),
        }
    }
}
