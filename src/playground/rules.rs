//! Which rule of the specification is behind what a NIC counts. Each is in docs/conformance.md.

use softrnic_nic::engine::{DropReason, GsiCounter};
use softrnic_transport::Counter;

/// What it means that a queue pair has counted this, and the rule that acted, where one rule did. `None` for what other
/// events tell better.
pub fn of_counter(counter: Counter) -> Option<(&'static str, Option<&'static str>)> {
    Some(match counter {
        Counter::RdmaSends | Counter::RdmaRecvs | Counter::RetransmittedPacket => return None,
        Counter::DuplicateRequest => ("a duplicate: its PSN is behind the expected one", Some("C9-105")),
        Counter::DropDuplicateWaiting | Counter::DropDuplicateUnmatched => {
            (counter.meaning(), Some("C9-105"))
        }
        Counter::OutOfSeqRequest => ("a gap: its PSN is ahead of the expected one", Some("C9-114")),
        Counter::SendSeqErr => ("NAK: PSN sequence error", Some("C9-114")),
        Counter::DropAfterNak => ("dropped without a word: the NAK has been sent", Some("C9-114")),
        Counter::RcvdSeqErr => ("the NAK names the PSN to go back to", Some("IBTA 9.7.5.2")),
        Counter::RcvdNak => ("the NAK ends the request with an error", Some("IBTA 9.7.5.2")),
        Counter::SendNak => ("NAK: the request cannot be carried out", Some("IBTA 9.9.3")),
        Counter::SendRnrErr => ("RNR NAK: no receive is posted", Some("IBTA 9.7.5.2.8")),
        Counter::RcvdRnrErr => ("waits for as long as the RNR NAK asks", Some("IBTA 9.7.5.2.8")),
        Counter::Timeout => ("the local ACK timeout has passed without an answer", Some("C9-141")),
        Counter::RetryExceededErr | Counter::RetryRnrExceededErr => {
            ("the retries are used up", Some("C9-141"))
        }
        Counter::CompleterRetryErr => ("goes back and sends again", None),
        Counter::EarlyRetransmit => {
            ("sends again early: several round trips have passed without an answer", None)
        }
        Counter::ImpliedNakSeqErr => ("a response is missing", None),
        Counter::DropGhostResponse => ("an answer to nothing that is outstanding", Some("IBTA 9.7.5.2.1")),
        Counter::DropUcSequence => ("dropped: a gap, or the wrong order", Some("IBTA 9.8.2")),
        Counter::DropUcRequest => ("dropped: not what rights or lengths allow", Some("IBTA 9.8.2")),
        Counter::EcnMarked => ("the packet is marked: congestion experienced", Some("Annex A17.9")),
        Counter::CnpSent => ("a congestion notification (CNP) is due", Some("Annex A17.9")),
        Counter::CnpHandled => ("slows down", Some("Annex A17.9")),
        Counter::CnpIgnored => ("congestion control is off: ignored", Some("Annex A17.9")),
        _ => (counter.meaning(), None),
    })
}

/// The rule by which a datagram was dropped before it reached a queue pair.
pub fn of_drop(reason: DropReason) -> Option<&'static str> {
    match reason {
        DropReason::Icrc | DropReason::UnexpectedId => Some("Annex A17.3.3"),
        DropReason::Pkey => Some("IBTA 10.9.3"),
        _ => None,
    }
}

/// What it means that QP 1 has counted this.
pub fn of_management(counter: GsiCounter) -> Option<(&'static str, Option<&'static str>)> {
    Some(match counter {
        GsiCounter::Received | GsiCounter::Sent => return None,
        GsiCounter::Repeated => ("no answer has come: the connection manager sends its message again", None),
        GsiCounter::Duplicates => ("the connection manager knows this message already", Some("IBTA 12.9.6")),
        _ => (counter.meaning(), Some("IBTA 12.9.6")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_on_the_conformance_page() {
        let page = include_str!("../../docs/conformance.md");
        let rules = Counter::ALL.iter().filter_map(|&counter| of_counter(counter)?.1);
        let drops = DropReason::ALL.iter().filter_map(|&reason| of_drop(reason));
        let management = GsiCounter::ALL.iter().filter_map(|&counter| of_management(counter)?.1);
        for rule in rules.chain(drops).chain(management) {
            assert!(page.contains(&format!("| {rule} |")), "{rule}");
        }
    }
}
