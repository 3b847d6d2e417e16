//! The scripts that ship with the crate.

use crate::Script;

macro_rules! scripts {
    ($($name:literal)*) => { [$(($name, include_str!(concat!("suite/", $name, ".txt")))),*] };
}

/// Every script, in order of their names.
pub fn suite() -> Vec<Script> {
    SUITE.iter().map(|(name, text)| Script::new(*name, *text)).collect()
}

#[rustfmt::skip]
const SUITE: [(&str, &str); 131] = scripts![
    "12-1-responder"
    "12-1-send-then-write"
    "12-2-read"
    "12-2-responder"
    "12-3-responder"
    "12-3-sequence-nak"
    "12-4-lost-read-response"
    "12-4-responder"
    "12-5-lost-ack"
    "12-5-responder"
    "12-6-atomic-retry"
    "12-6-requester"
    "12-7-responder"
    "12-7-rnr"
    "12-8-access-error"
    "12-8-atomic-access"
    "12-8-read-access"
    "12-8-write-access"
    "12-9-zero-length"
    "12-9-zero-length-requester"
    "access-flags"
    "ack-over-read"
    "ack-request"
    "bad-responses"
    "bad-responses-to-others"
    "cm-changed-mind"
    "cm-connection"
    "cm-datagram-service"
    "cm-duplicate-request"
    "cm-early-use"
    "cm-end"
    "cm-end-of-another-qp"
    "cm-foreign-datagrams"
    "cm-lost-confirmation"
    "cm-no-datagram-service"
    "cm-refusals"
    "cm-stale-connection"
    "cm-stray-messages"
    "cm-two-connections"
    "cm-unknown-ids"
    "cm-withdrawn-request"
    "cm-wrong-ids"
    "cnp"
    "cnp-ignored"
    "communication-established"
    "cq-overrun"
    "credits-ignored"
    "destroyed-with-work"
    "drain"
    "drain-unasked"
    "duplicates"
    "early-retransmission"
    "ecn"
    "ecn-interval"
    "failed-local-operation"
    "fast-registration"
    "fence"
    "flush-access"
    "flush-icrc"
    "foreign-packets"
    "ignored-bits"
    "immediate-needs-receive"
    "immediate-with-bad-key"
    "implied-ack"
    "initiator-depth"
    "invalidate-failed"
    "lengths"
    "lengths-of-later-packets"
    "local-invalidate"
    "local-protection"
    "local-write-needed"
    "lost-nak"
    "memory-gone-under-read"
    "memory-gone-under-send"
    "memory-gone-under-write"
    "memory-unmapped"
    "memory-unmapped-locally"
    "migration-bit"
    "nak-inside-read"
    "naks"
    "no-responder-resources"
    "opcodes-in-states"
    "psn-wrap"
    "read-chunks"
    "readonly-source"
    "recycled-resources"
    "reserved-syndromes"
    "resume-in-the-middle"
    "retry-exhaustion"
    "retry-zero"
    "rnr-exhaustion"
    "rnr-retries-come-back"
    "rnr-wait-goes-on"
    "sequence-nak-after-rnr"
    "sequences-at-start"
    "sequences-inside-send"
    "sequences-inside-write"
    "server-congestion"
    "server-ignores"
    "server-refuses"
    "server-requests"
    "solicited"
    "srq"
    "srq-domain"
    "srq-domain-refused"
    "srq-domain-uc"
    "srq-domain-ud"
    "srq-open-message"
    "states"
    "timeout-zero"
    "too-long-send"
    "too-many-reads"
    "uc-lost-last"
    "uc-messages"
    "uc-requester"
    "uc-write"
    "ud-receive"
    "ud-send"
    "unreliable-send-error"
    "unsignaled"
    "window-bind-errors"
    "window-bound-twice"
    "window-bounds"
    "window-of-another-qp"
    "window-type-2"
    "xrc-domains"
    "xrc-initiator"
    "xrc-message-of-two-srqs"
    "xrc-srq-destroyed"
    "xrc-target"
    "xrc-unknown-srq"
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_of_the_folder_ships_and_can_be_read() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/suite");
        let files = std::fs::read_dir(folder).expect("the folder").flatten().count();
        assert_eq!(suite().len(), files);
        assert!(SUITE.is_sorted_by_key(|(name, _)| name));
        for script in suite() {
            assert!(!script.title.is_empty() && !script.rules.is_empty(), "{}", script.name);
            script.cases().unwrap_or_else(|error| panic!("{error}"));
        }
    }
}
