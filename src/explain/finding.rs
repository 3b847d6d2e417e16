//! Findings: what is worth reporting, in a form for humans and one for programs.

use std::fmt;

use softrnic_wire::Psn;

/// Severity of a finding. A capture with nothing above `Info` shows no fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// Something went wrong and the protocol coped, or may have.
    Warning,
    /// Something failed, or one side broke the specification.
    Error,
}

impl Severity {
    /// One word.
    pub const fn name(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

macro_rules! kinds {
    ($($(#[doc = $doc:literal])* $kind:ident = $name:literal, $severity:ident;)*) => {
        /// Kinds of findings.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Kind { $($(#[doc = $doc])* $kind,)* }

        impl Kind {
            /// All of them.
            pub const ALL: &'static [Kind] = &[$(Kind::$kind),*];

            /// The name that programs use; it never changes.
            pub const fn name(self) -> &'static str {
                match self { $(Kind::$kind => $name,)* }
            }

            /// How bad it is.
            pub const fn severity(self) -> Severity {
                match self { $(Kind::$kind => Severity::$severity,)* }
            }
        }
    };
}

kinds! {
    /// A request never reached the responder, or never reached this capture.
    RequestLost = "request-lost", Warning;
    /// A request arrived damaged and was sent again.
    RequestCorrupted = "request-corrupted", Warning;
    /// A packet's ICRC is wrong.
    BadIcrc = "bad-icrc", Warning;
    /// The ICRCs of (nearly) all packets of a direction are wrong.
    IcrcDistrusted = "icrc-all-bad", Warning;
    /// The responder asked for a missing PSN.
    SequenceNak = "sequence-nak", Warning;
    /// A NAK did not make the requester resend; its timer did.
    NakLost = "nak-lost", Warning;
    /// The requester sent again after silence.
    Timeout = "timeout", Warning;
    /// An answer was seen here, but the requester sent again after silence.
    AckLost = "ack-lost", Warning;
    /// A request was repeated before the local ACK timeout, and nothing shows that anything was lost.
    EarlyResend = "early-resend", Info;
    /// An answer came after the requester had given up waiting for it.
    AckDelayed = "ack-delayed", Warning;
    /// A READ response or the answer to an atomic is missing.
    ResponseLost = "response-lost", Warning;
    /// A request was repeated, never answered, and then given up.
    RetryExhausted = "retry-exhausted", Error;
    /// The receiver had no work request for a message, for a while.
    RnrNak = "rnr-nak", Warning;
    /// The receiver had no work request for too long.
    RnrRetryExhausted = "rnr-retry-exhausted", Error;
    /// The requester did not wait as long as the RNR NAK told it to.
    RnrTooSoon = "rnr-too-soon", Error;
    /// A sequence NAK after an RNR NAK for the same PSN.
    NakAfterRnr = "nak-after-rnr", Info;
    /// More than one sequence NAK for one gap.
    NakRepeated = "nak-repeated", Warning;
    /// A request was repeated without NAK, silence or missing response.
    Unprovoked = "unprovoked-resend", Warning;
    /// The network delivered one packet twice.
    Duplicate = "duplicate-packet", Warning;
    /// A packet overtook another.
    Reordered = "reordered", Warning;
    /// The answer to an atomic was given again from memory.
    AtomicReplay = "atomic-replay", Info;
    /// A READ was asked again and answered again.
    ReadReplay = "read-replay", Info;
    /// The answer to a repeated atomic differs from the first.
    AtomicReexecuted = "atomic-reexecuted", Error;
    /// NAK invalid request.
    InvalidRequest = "nak-invalid-request", Error;
    /// NAK remote access error.
    RemoteAccess = "nak-remote-access", Error;
    /// NAK remote operational error.
    RemoteOperational = "nak-remote-operational", Error;
    /// A NAK with an undefined code, or a reserved syndrome.
    ReservedSyndrome = "reserved-syndrome", Error;
    /// Requests went on after a NAK that ends the connection.
    SentAfterError = "sent-after-error", Warning;
    /// PSNs were left out and never sent.
    PsnJump = "psn-jump", Error;
    /// Packets were acknowledged that are missing from this capture.
    CaptureGap = "capture-gap", Info;
    /// An answer for a PSN that was never sent.
    AnswerNeverSent = "answer-to-unsent-psn", Error;
    /// An answer of the wrong kind for its request.
    WrongAnswer = "wrong-answer", Error;
    /// Packets do not have the path MTU of the connection.
    MtuMismatch = "mtu-mismatch", Error;
    /// A payload length that the opcode does not allow.
    PayloadLength = "payload-length", Error;
    /// Payloads do not add up to the announced length.
    MessageLength = "message-length", Error;
    /// First, Middle, Last and Only in an order that makes no message.
    OpcodeSequence = "opcode-sequence", Error;
    /// A repeated request that differs from the original.
    ResendDiffers = "resend-differs", Error;
    /// An atomic at an address that is no multiple of eight.
    Misaligned = "misaligned-atomic", Error;
    /// The MSN does not count the messages.
    WrongMsn = "wrong-msn", Error;
    /// The first PSN is not the one agreed on.
    StartingPsn = "starting-psn", Error;
    /// A record that is not a valid packet.
    Malformed = "malformed", Error;
    /// A partition key that admits no peer.
    BadPkey = "bad-pkey", Error;
    /// Packets of an unreliable connection are missing.
    UnreliableLoss = "uc-loss", Warning;
    /// Congestion notifications.
    Cnp = "cnp", Info;
    /// Packets that a switch marked.
    CongestionMarks = "ecn-marks", Info;
    /// A path of a SoftRNIC lost packets, and went on from another UDP port.
    PathLeft = "path-left", Info;
    /// A connection was refused.
    ConnectionRefused = "cm-rejected", Error;
    /// A connection management message was sent again.
    CmRepeated = "cm-repeated", Warning;
    /// A connection management message got no answer.
    CmUnanswered = "cm-unanswered", Warning;
    /// A datagram service was not to be had.
    ServiceRefused = "sidr-refused", Error;
    /// SoftRNIC did something to packets on purpose.
    FaultInjected = "fault-injected", Info;
    /// A modelled network lost or marked packets.
    FabricTouched = "fabric", Info;
    /// Requests were still unanswered when the capture ended.
    Unanswered = "unanswered", Info;
    /// Only one direction of a connection is in the capture.
    OneSided = "one-sided", Info;
    /// Packets were captured twice.
    CapturedTwice = "captured-twice", Info;
    /// Packets of SRD, which are not followed.
    SrdNotFollowed = "srd", Info;
    /// Time stamps go backwards.
    ClockBackwards = "clock-backwards", Info;
    /// The capture ends in the middle of its file.
    Damaged = "capture-damaged", Warning;
    /// The capturing program lost packets.
    CaptureDropped = "capture-dropped", Info;
    /// The capture is larger than what is followed.
    NotFollowed = "not-followed", Warning;
}

impl Kind {
    /// Whether it is concluded from packets that are not in the capture. A capture that lacks packets cannot show it.
    pub(crate) const fn rests_on_absence(self) -> bool {
        use Kind::*;
        matches!(
            self,
            RequestLost
                | NakLost
                | Timeout
                | AckLost
                | AckDelayed
                | ResponseLost
                | RetryExhausted
                | RnrRetryExhausted
                | RnrTooSoon
                | NakRepeated
                | Unprovoked
                | Duplicate
                | Reordered
                | PsnJump
                | AnswerNeverSent
                | WrongMsn
                | StartingPsn
                | UnreliableLoss
                | CmUnanswered
                | Unanswered
        )
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A rule of the specification.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rule {
    /// What it demands, in a few words.
    pub name: &'static str,
    /// Where it is stated.
    pub cite: &'static str,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.cite)
    }
}

/// The rules that findings name.
pub mod rules {
    use super::Rule;

    macro_rules! rules {
        ($($rule:ident = $name:literal, $cite:literal;)*) => {
            $(
                #[doc = $name]
                pub const $rule: Rule = Rule { name: $name, cite: $cite };
            )*
        };
    }

    rules! {
        CONSECUTIVE_PSN = "every request packet takes the next PSN", "IBTA 9.7.2";
        OPCODE_ORDER = "First, Middle and Last follow each other within one message", "IBTA C9-82 to C9-87";
        PAYLOAD_LENGTH = "First and Middle carry exactly the path MTU, Last and Only no more", "IBTA C9-92";
        MESSAGE_LENGTH = "the packets of a WRITE add up to its DMA length", "IBTA C9-96";
        READ_LENGTH = "READ responses add up to the DMA length asked for", "IBTA 9.7.5.1.4";
        RESPONSE_ORDER = "READ and atomic responses come in the order of their requests", "IBTA C9-105";
        ANSWER_KIND = "a READ is answered by READ responses, an atomic by ATOMIC Acknowledge", "IBTA 9.7.5.1";
        ANSWER_SENT = "an answer carries the PSN of an outstanding request", "IBTA 9.7.5.2.1";
        REPLAY = "a repeated atomic is answered from memory, never executed again", "IBTA 9.7.5.1.3, C9-110";
        RNR_WAIT = "the requester waits at least the time in the RNR NAK", "IBTA 9.7.5.2.8";
        NAK_SILENCE = "after a NAK the responder is silent until the expected PSN arrives", "IBTA 9.7.5.2.8, C9-114";
        MSN = "the MSN counts the completed request messages", "IBTA 9.7.7.1, C9-148";
        SYNDROME = "reserved AETH syndromes are not sent", "IBTA 9.3.5";
        ALIGNMENT = "atomics address a multiple of eight bytes", "IBTA 9.4.5";
        RESEND = "a repeated request equals the first", "IBTA 9.7.6";
        ERROR_STATE = "after an error NAK the requester's QP sends nothing more", "IBTA 9.9.2, 10.3.1";
        NEGOTIATED_PSN = "the first PSN is the starting PSN of the other side's REQ or REP", "IBTA 12.7";
        HEADER = "headers are those of a defined opcode, and TVer is 0", "IBTA 9.2";
        PARTITION = "the P_Key names a partition other than 0", "IBTA 10.9.3";
        ICRC = "the ICRC covers the packet from its IP header to its padding", "IBTA 7.8.1, A17.3.3";
    }
}

/// Something worth reporting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// What it is.
    pub kind: Kind,
    /// The QP pair it concerns, as an index into the report's pairs.
    pub pair: Option<usize>,
    /// When it began, nanoseconds since 1970.
    pub time_ns: u64,
    /// PSNs it concerns, first and last.
    pub psns: Option<(Psn, Psn)>,
    /// The packets that show it.
    pub packets: Vec<u32>,
    /// The rule that was broken.
    pub rule: Option<Rule>,
    /// What happened, in a sentence.
    pub text: String,
}

impl Finding {
    /// Its severity.
    pub const fn severity(&self) -> Severity {
        self.kind.severity()
    }
}
