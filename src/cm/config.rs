//! What a connection manager says about its device, and how long it waits.

use core::time::Duration;

/// Settings of a [`Cm`](crate::Cm). The times are exponents, as messages carry them: 4.096 µs × 2^n, and Linux reads
/// them as 2^(n − 8) ms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// GUID of the device. Peers identify connections by it, so it must be unique.
    pub ca_guid: u64,
    /// Exponent: how long the device takes to acknowledge.
    pub ack_delay: u8,
    /// Exponent: how long a packet lives on the path.
    pub packet_life: u8,
    /// Exponent: how long each side may take to answer a message.
    pub response_timeout: u8,
    /// Times that an unanswered message is repeated at its standard interval.
    pub max_retries: u8,
    /// Requests that no application has answered yet, over all listeners; more are dropped.
    pub max_pending: usize,
}

impl Config {
    /// The settings of Linux's rdma_cm on rxe.
    pub fn new(ca_guid: u64) -> Config {
        Config {
            ca_guid,
            ack_delay: 15,
            packet_life: 16,
            response_timeout: 20,
            max_retries: 15,
            max_pending: 1024,
        }
    }

    /// The exponent of a QP's timeout on a path to a peer that takes `ack_delay` (kernel: `cm_ack_timeout`).
    pub(crate) fn ack_timeout(packet_life: u8, ack_delay: u8) -> u8 {
        let life = packet_life.min(31) + 1;
        let timeout = if life >= ack_delay {
            life + u8::from(ack_delay >= life - 1)
        } else {
            ack_delay + u8::from(life >= ack_delay - 1)
        };
        timeout.min(31)
    }

    /// How long a request waits for its answer: the way there, the peer's time, and the way back.
    pub(crate) fn request_interval(&self, peer_response: u8) -> Duration {
        exponent(self.packet_life) * 2 + exponent(peer_response)
    }
}

/// The time that an exponent stands for, in whole milliseconds, as in Linux.
pub(crate) fn exponent(n: u8) -> Duration {
    Duration::from_millis(1 << n.min(31).saturating_sub(8))
}

/// The service timeout of an MRA that asks for more time while the application decides (kernel: `CMA_CM_MRA_SETTING`).
pub(crate) const MRA_TIMEOUT: u8 = 24;
