//! How the NICs of a study behave.

use softrnic_transport::{RateParameters, WindowConfig};
use softrnic_wire::Mtu;

/// Settings of all NICs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NicConfig {
    /// Path MTU of the queue pairs.
    pub mtu: Mtu,
    /// What Ethernet, IP and UDP add to a packet on the wire, in bytes: headers, FCS, preamble and gap.
    pub overhead: u32,
    /// Packets are ECN-capable, and CNPs slow a queue pair down (DCQCN). `rpg_max_rate` is the rate of the host's link.
    pub dcqcn: Option<RateParameters>,
    /// The shortest time between two CNPs for one flow, in microseconds.
    pub cnp_interval_us: u32,
    /// The limit on bytes in flight to one peer.
    pub window: WindowConfig,
    /// Resend after a few round trips without progress, before the local ACK timeout.
    pub early_retransmission: bool,
    /// Queue pairs agree, after the first loss, to send again only what was lost.
    pub selective_recovery: bool,
    /// UDP source ports that a queue pair spreads its packets over, once it has agreed on that. Needs selective recovery.
    pub paths: u8,
    /// The local ACK timeout: 4.096 µs times 2 to this power.
    pub timeout: u8,
    /// Retries before a queue pair gives up, 0 to 7.
    pub retry_cnt: u8,
}

impl Default for NicConfig {
    /// As hardware: no window but the PSNs', timeouts of 67 ms.
    fn default() -> NicConfig {
        let unlimited = 1 << 40;
        NicConfig {
            mtu: Mtu::B1024,
            // 14 + 20 + 8, FCS 4, preamble 8, gap 12.
            overhead: 66,
            dcqcn: None,
            cnp_interval_us: 50,
            window: WindowConfig { initial: unlimited, min: unlimited, max: unlimited },
            early_retransmission: false,
            selective_recovery: false,
            paths: 1,
            timeout: 14,
            retry_cnt: 7,
        }
    }
}
