//! Faults that tests plant in a QP, to see that they are found. Without the feature `planted`, which no release has, there
//! are none.

use crate::config::Config;

/// Something that a QP does wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A PSN gap is not answered by a NAK.
    SilentAtGaps,
    /// Repeated requests are not acknowledged.
    SilentAtDuplicates,
    /// A repeated atomic is executed again.
    RepeatsAtomics,
    /// The MSN counts packets instead of messages.
    CountsPackets,
    /// A remote access error is called an invalid request.
    WrongNak,
    /// Any payload length is taken.
    AnyLength,
    /// The access flags of the QP are not looked at.
    AnyAccess,
    /// Marks of congestion are not answered by a CNP.
    NoCnp,
    /// Retries after a timeout are not counted.
    EndlessRetries,
    /// The delay that an RNR NAK asks for is not kept.
    NoRnrDelay,
    /// Fenced requests do not wait.
    NoFence,
    /// READ responses of any length are taken.
    AnyResponse,
    /// What was sent again selectively and lost again is not sent a third time.
    NoSecondPass,
    /// Requests that come before their turn are reported, and not executed when it comes.
    ForgetsKept,
    /// A path on which everything is lost is not left.
    KeepsPaths,
}

impl Fault {
    /// All, by name. A script finds each.
    #[cfg(feature = "planted")]
    pub const ALL: [(&'static str, Fault); 15] = [
        ("silent-at-gaps", Fault::SilentAtGaps),
        ("silent-at-duplicates", Fault::SilentAtDuplicates),
        ("repeats-atomics", Fault::RepeatsAtomics),
        ("counts-packets", Fault::CountsPackets),
        ("wrong-nak", Fault::WrongNak),
        ("any-length", Fault::AnyLength),
        ("any-access", Fault::AnyAccess),
        ("no-cnp", Fault::NoCnp),
        ("endless-retries", Fault::EndlessRetries),
        ("no-rnr-delay", Fault::NoRnrDelay),
        ("no-fence", Fault::NoFence),
        ("any-response", Fault::AnyResponse),
        ("no-second-pass", Fault::NoSecondPass),
        ("forgets-kept", Fault::ForgetsKept),
        ("keeps-paths", Fault::KeepsPaths),
    ];

    /// The one with this name.
    #[cfg(feature = "planted")]
    pub fn named(name: &str) -> Option<Fault> {
        Fault::ALL.iter().find(|(known, _)| *known == name).map(|(_, fault)| *fault)
    }
}

impl Config {
    /// Whether the QP has this fault.
    #[cfg(feature = "planted")]
    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.planted == Some(fault)
    }

    #[cfg(not(feature = "planted"))]
    pub(crate) const fn has(&self, _fault: Fault) -> bool {
        false
    }
}
