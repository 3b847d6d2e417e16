//! What endpoints count.

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $variant:ident = $name:literal,)*) => {
        /// A counter of an endpoint.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(usize)]
        pub enum Counter { $($(#[doc = $doc])* $variant,)* }

        impl Counter {
            /// All counters, in the order of their numbers.
            pub const ALL: &'static [Counter] = &[$(Counter::$variant,)*];

            /// Its name in statistics.
            pub const fn name(self) -> &'static str {
                match self { $(Counter::$variant => $name,)* }
            }

            /// What it counts, in a sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(Counter::$variant => concat!($($doc),*).trim_ascii(),)* }
            }
        }
    };
}

counters! {
    /// SRD packets sent, those sent again included.
    Sent = "srd_tx_packets",
    /// SRD packets received.
    Received = "srd_rx_packets",
    /// SRD packets sent again.
    SentAgain = "srd_tx_retransmits",
    /// SRD packets that came more than once.
    Duplicates = "srd_rx_duplicates",
    /// SRD packets dropped because too many before them are missing.
    BeyondWindow = "drop_srd_window",
    /// SRD packets dropped because their tags are of no connection.
    UnknownTag = "drop_srd_tag",
    /// SRD packets dropped because there are too many connections.
    TooManyPeers = "drop_srd_peers",
    /// SRD packets dropped because what they say contradicts itself, or what came before.
    Malformed = "drop_srd_malformed",
    /// Messages refused: no receive, a wrong key, no such queue pair.
    Refusals = "srd_tx_refusals",
    /// Times that a peer had no receive.
    NotReady = "srd_rx_rnr",
    /// Connections given up because the peer did not answer.
    Silent = "srd_timeouts",
    /// Connections begun anew because the peer had forgotten them, or had begun anew itself.
    Restarts = "srd_restarts",
}
