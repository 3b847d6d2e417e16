//! Configuration of a QP besides its verbs attributes.

/// Settings of the transport. The defaults interoperate best.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Path MTU in bytes; follows the attribute.
    pub(crate) mtu: u32,
    /// The largest UD payload in bytes: the port's active MTU.
    pub ud_mtu: u32,
    /// MigReq on the wire: hardware sends 1 (migrated).
    pub mig_req: bool,
    /// Resend after a few round trips without progress, before the local ACK timeout.
    pub early_retransmission: bool,
    /// Keep what comes out of order and send again only what is missing, where the peer does as well.
    pub selective_recovery: bool,
    /// UDP source ports that packets are spread over, where the peer takes them in any order; 1 does not spread.
    pub paths: u8,
    /// Longest READ request in bytes; a longer READ is split into several.
    pub read_chunk: u32,
    /// Whether packets are marked ECN-capable and CNPs slow the QP down (DCQCN).
    pub congestion_control: bool,
    /// Shortest time between two CNPs for one flow, in microseconds.
    pub cnp_interval_us: u32,
    /// What the QP does wrong.
    #[cfg(feature = "planted")]
    pub planted: Option<crate::Fault>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            mtu: 1024,
            ud_mtu: 4096,
            mig_req: true,
            early_retransmission: true,
            selective_recovery: true,
            paths: 1,
            read_chunk: 64 << 10,
            congestion_control: false,
            cnp_interval_us: 50,
            #[cfg(feature = "planted")]
            planted: None,
        }
    }
}

impl Config {
    pub(crate) fn read_chunk_packets(&self) -> u32 {
        (self.read_chunk / self.mtu).max(1)
    }
}
