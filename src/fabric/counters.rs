//! What a port counts.

use crate::picos::Picos;

/// Counters of a port: what left by it, and what was refused to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortCounters {
    /// Frames that left.
    pub tx_frames: u64,
    /// Bytes that left.
    pub tx_bytes: u64,
    /// Frames that were marked as they left.
    pub marked: u64,
    /// Frames dropped because the switch had no room for them in this port's queues.
    pub dropped: u64,
    /// Frames trimmed for the same reason.
    pub trimmed: u64,
    /// Frames lost because the link was down or a black hole.
    pub lost_down: u64,
    /// Frames damaged on the link.
    pub lost_damaged: u64,
    /// Frames that the player of the model has lost, doubled, delayed or damaged on purpose.
    pub meddled: u64,
    /// Pauses that this port was told, refreshed ones not counted.
    pub pauses_received: u64,
    /// Pauses that this port told its peer, refreshed ones not counted.
    pub pauses_sent: u64,
    /// How long a priority was paused here, summed over priorities.
    pub paused: Picos,
    /// The longest egress queue, in bytes, all priorities.
    pub queue_peak: u64,
}
