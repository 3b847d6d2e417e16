//! The constants that steer when a queue pair sends. What can be configured has its defaults elsewhere: the window in
//! [`WindowConfig`](crate::WindowConfig), DCQCN in [`RateParameters`](crate::RateParameters), the rest in
//! [`Config`](crate::Config).

use core::time::Duration;

/// How long an ACK waits for the application's next call if none comes. A program that polls calls again within a
/// microsecond or two; this is for one that computes, or sleeps. What it costs then is that much of the peer's time, so it
/// stays well below [`MIN_RTO`], after which the peer would send again.
pub(crate) const NEXT_CALL_WAIT: Duration = Duration::from_micros(100);

/// How long an ACK waits for a reply to what was found in memory. Over `xdp` the ACK that the application polls for comes
/// a moment behind the WRITE, so that this makes `ib_write_lat` 6 µs instead of 20. Several times that moment, and
/// little beside the time that a peer loses which waits for no reply.
pub(crate) const REPLY_WAIT: Duration = Duration::from_micros(10);

/// What is posted within this time after an ACK has left by itself is a reply that the ACK could have left with.
pub(crate) const REPLY_TIME: Duration = Duration::from_micros(20);

/// Of so many request packets in a row at least one asks for an ACK. More ACKs would cost both ends; with fewer the
/// window opens in jumps.
pub(crate) const ACK_SPACING: u32 = 16;

/// The time without progress after which a requester sends again, before it knows a round-trip time. Nanoseconds.
pub(crate) const INITIAL_RTO: u64 = 4_000_000;

/// That time is never shorter. The peer's process may be waiting for a processor; what is sent again before it has had
/// one is more noise than help. Nanoseconds.
pub(crate) const MIN_RTO: u64 = 800_000;

/// Early resends in a row, each after twice the time of the one before, until only the local ACK timeout is left.
pub(crate) const MAX_EARLY_RESENDS: u32 = 8;

/// So many packets, or one READ request, probe a peer that does not answer.
pub(crate) const PROBE_PACKETS: u32 = 2;

/// Losses within this time of a cut of the window belong to the same event.
pub(crate) const CUT_INTERVAL: Duration = Duration::from_micros(200);

/// What the window grows by in a round trip once it has seen a loss. Bytes.
pub(crate) const LINEAR_STEP: u64 = 8 << 10;
