//! How switches and hosts behave.

use crate::balance::Balance;
use crate::frame::{PRIORITIES, Priority};
use crate::picos::Picos;

/// When a queue marks frames with "congestion experienced".
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ecn {
    /// No mark up to this queue length, in bytes.
    pub kmin: u64,
    /// Every frame is marked beyond this queue length, in bytes.
    pub kmax: u64,
    /// The probability of a mark just before `kmax`, from 0 to 1; it grows linearly from `kmin` on.
    pub pmax: f64,
}

/// Memory that holds what arrives between a pause and its effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Headroom {
    /// What the cable and both ends need: see [`Pfc::headroom_for`].
    Auto,
    /// A number of bytes for each port and lossless priority.
    Bytes(u64),
}

/// Priority flow control.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pfc {
    /// The priorities that must not lose frames, one bit each.
    pub lossless: u8,
    /// Memory beyond the threshold.
    pub headroom: Headroom,
    /// A pause is taken back once the queue is this many bytes below the threshold.
    pub xon_offset: u64,
    /// How long a pause lasts, in quanta of 512 bit times of the port that obeys it. Refreshed at half of that time.
    /// `None`: until it is taken back.
    pub quanta: Option<u16>,
    /// Bytes of a PFC frame on the wire.
    pub frame_bytes: u32,
    /// How long a port takes to obey a pause that it has received.
    pub response: Picos,
}

impl Default for Pfc {
    fn default() -> Pfc {
        Pfc {
            lossless: 0,
            headroom: Headroom::Auto,
            xon_offset: 3 << 10,
            quanta: Some(u16::MAX),
            // 64 bytes, preamble and gap.
            frame_bytes: 84,
            response: Picos::ZERO,
        }
    }
}

impl Pfc {
    /// Whether a priority must not lose frames.
    pub fn is_lossless(&self, priority: Priority) -> bool {
        self.lossless >> priority & 1 != 0
    }

    /// Bytes beyond the threshold that can arrive: the frame that crosses it; what comes while the PFC frame waits for a frame that
    /// is being sent, crosses the cable, and is obeyed; the frame that the peer is sending then; and what is on the cable.
    pub fn headroom_for(&self, rate: u64, delay: Picos, mtu_bytes: u64) -> u64 {
        match self.headroom {
            Headroom::Bytes(bytes) => bytes,
            Headroom::Auto => {
                let cable = (delay + delay + self.response).bytes_at(rate);
                cable + 3 * mtu_bytes + u64::from(self.frame_bytes)
            }
        }
    }
}

/// How an egress port chooses the priority that it serves next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Schedule {
    /// Before all weighted priorities, and before strict ones of a lower number.
    Strict,
    /// By deficit round robin; a weight of 2 gets twice the bytes of a weight of 1. At least 1.
    Weighted(u32),
}

/// Trimming: what does not fit loses its payload, and goes on in another priority.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trim {
    /// What is left of a frame, in bytes on the wire.
    pub bytes: u32,
    /// The priority of what is left.
    pub priority: Priority,
}

/// A switch.
#[derive(Clone, PartialEq, Debug)]
pub struct SwitchConfig {
    /// Bytes of memory that its ports share.
    pub buffer: u64,
    /// Bytes of it that each ingress port has for itself, for each lossless priority.
    pub reserve: u64,
    /// The threshold of an ingress port and lossless priority is free memory times 2 to this power.
    pub ingress_alpha_log2: i8,
    /// The longest queue of an egress port and lossy priority is free memory times 2 to this power.
    pub egress_alpha_log2: i8,
    /// Flow control.
    pub pfc: Pfc,
    /// ECN of each priority.
    pub ecn: [Option<Ecn>; PRIORITIES],
    /// Scheduling of each priority.
    pub schedule: [Schedule; PRIORITIES],
    /// The priority of each DSCP.
    pub dscp_to_priority: [Priority; 64],
    /// Trimming of lossy priorities, instead of dropping.
    pub trim: Option<Trim>,
    /// How one of several shortest paths is chosen.
    pub balance: Balance,
    /// From the last bit of a frame to the time at which it can leave.
    pub latency: Picos,
}

impl Default for SwitchConfig {
    fn default() -> SwitchConfig {
        SwitchConfig {
            buffer: 32 << 20,
            reserve: 4 << 10,
            ingress_alpha_log2: -3,
            egress_alpha_log2: 0,
            pfc: Pfc::default(),
            ecn: [None; PRIORITIES],
            schedule: [Schedule::Weighted(1); PRIORITIES],
            // The three high bits, as switches do by default.
            dscp_to_priority: std::array::from_fn(|dscp| (dscp >> 3) as Priority),
            trim: None,
            balance: Balance::default(),
            latency: Picos::ZERO,
        }
    }
}

/// The network port of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostConfig {
    /// Bytes that may wait in the port for each priority, or one frame if it is longer; a NIC asks for more when there is room.
    pub queue: u64,
    /// The priority of each DSCP.
    pub dscp_to_priority: [Priority; 64],
    /// How the port obeys a pause: quanta and response time are used.
    pub pfc: Pfc,
}

impl Default for HostConfig {
    fn default() -> HostConfig {
        HostConfig {
            queue: 0,
            dscp_to_priority: std::array::from_fn(|dscp| (dscp >> 3) as Priority),
            pfc: Pfc::default(),
        }
    }
}
