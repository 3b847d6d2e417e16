//! Which rule of the specification is behind what a NIC counts. Each is in docs/conformance.md.

use softrnic_engine::{DropReason, GsiCounter};
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
        GsiCounter::Received | GsiCounter::Sent | GsiCounter::PeerReceived | GsiCounter::PeerSent => {
            return None;
        }
        GsiCounter::PeerUnrelated => (counter.meaning(), None),
        GsiCounter::Repeated => ("no answer has come: the connection manager sends its message again", None),
        GsiCounter::Duplicates => ("the connection manager knows this message already", Some("IBTA 12.9.6")),
        _ => (counter.meaning(), Some("IBTA 12.9.6")),
    })
}

/// What a rule says, in our own words.
pub fn says(rule: &str) -> &'static str {
    match rule {
        "C9-105" => {
            "A request whose PSN is behind the expected one is a duplicate. The responder executes nothing a second time: \
             it acknowledges a SEND or WRITE again, answers a READ again, and an atomic from the result that it has kept."
        }
        "C9-114" => {
            "A request whose PSN is ahead of the expected one shows that a packet is missing. The responder sends one NAK \
             with the PSN that it expects, and drops what follows without a word until that PSN arrives."
        }
        "C9-141" => {
            "What is not answered within the local ACK timeout is sent again, from the oldest unanswered PSN on. After as \
             many attempts in vain as the retry counter allows, the request fails, and its queue pair with it."
        }
        "IBTA 9.7.5.2" => {
            "An ACK acknowledges everything up to its PSN. A NAK for a sequence error acknowledges what is before its PSN, \
             and has the requester go back to it. Any other NAK ends the request that it names with an error."
        }
        "IBTA 9.7.5.2.1" => {
            "A response must have the PSN of a request that is outstanding. Any other is a ghost of an earlier one, and is \
             dropped."
        }
        "IBTA 9.7.5.2.8" => {
            "A responder that finds no posted receive answers with an RNR NAK. The requester sends again after the time \
             that the NAK states, as often as its RNR retry counter allows; 7 stands for without end."
        }
        "IBTA 9.8.2" => {
            "An unreliable connection repeats nothing. If a packet is missing, the responder drops the rest of its message, \
             and goes on with the next message that begins."
        }
        "IBTA 9.9.3" => {
            "A responder that cannot carry out a request says why in a NAK: a key or its rights, a length or an opcode, or \
             a fault of its own."
        }
        "IBTA 10.9.3" => {
            "A packet is accepted only if its P_Key names a partition that the port is a member of."
        }
        "IBTA 12.9.6" => {
            "A connection has states on both sides. They say which message of the connection manager may come next, when one \
             is sent again because no answer has come, and what a message is worth that has come before."
        }
        "Annex A17.3.3" => {
            "The ICRC covers everything of a packet that does not change on its way, parts of the IP and UDP headers \
             included. A packet whose ICRC is wrong is dropped without a word."
        }
        "Annex A17.9" => {
            "A switch with long queues marks packets instead of dropping them. Whoever receives a marked packet sends a \
             congestion notification (CNP) to its sender, which then sends more slowly."
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_on_the_conformance_page_and_says_something() {
        let page = include_str!("../../docs/conformance.md");
        let rules = Counter::ALL.iter().filter_map(|&counter| of_counter(counter)?.1);
        let drops = DropReason::ALL.iter().filter_map(|&reason| of_drop(reason));
        let management = GsiCounter::ALL.iter().filter_map(|&counter| of_management(counter)?.1);
        for rule in rules.chain(drops).chain(management) {
            assert!(page.contains(&format!("| {rule} |")), "{rule}");
            assert!(says(rule).len() > rule.len(), "{rule}");
        }
    }
}
