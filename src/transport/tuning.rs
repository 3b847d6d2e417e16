//! The constants that steer when a queue pair sends. What can be configured has its defaults elsewhere: the window in
//! [`WindowConfig`](crate::WindowConfig), DCQCN in [`RateParameters`](crate::RateParameters), the rest in
//! [`Config`](crate::Config).

use core::time::Duration;

/// How long an ACK waits for the application's next call. A program that polls calls again within a microsecond or two;
/// this limit is for one that computes or sleeps. The peer then loses that much time, so it stays well below
/// [`MIN_RTO`], after which the peer would send again.
pub(crate) const NEXT_CALL_WAIT: Duration = Duration::from_micros(100);

/// How long an ACK waits for a reply to what was found in memory. Over `xdp` the ACK that the application polls for
/// arrives a moment after the WRITE; waiting for it makes `ib_write_lat` 6 µs instead of 20. This is several times that
/// moment, and short compared with what it costs a peer that waits for no reply.
pub(crate) const REPLY_WAIT: Duration = Duration::from_micros(10);

/// Something posted within this time after an ACK has left by itself is a reply that the ACK could have left with.
pub(crate) const REPLY_TIME: Duration = Duration::from_micros(20);

/// At least one of this many request packets in a row asks for an ACK. More ACKs would cost both ends; with fewer, the
/// window opens in jumps.
pub(crate) const ACK_SPACING: u32 = 16;

/// The retransmission timeout before a round-trip time is known. Nanoseconds.
pub(crate) const INITIAL_RTO: u64 = 4_000_000;

/// The shortest retransmission timeout. The peer's process may be waiting for a processor; resending before it has had
/// one does more harm than good. Nanoseconds.
pub(crate) const MIN_RTO: u64 = 800_000;

/// Early resends in a row, each after twice the time of the one before, until only the local ACK timeout remains.
pub(crate) const MAX_EARLY_RESENDS: u32 = 8;

/// A peer that does not answer is probed with this many packets, or with one READ request.
pub(crate) const PROBE_PACKETS: u32 = 2;

/// Losses within this time after the window was cut belong to the same event.
pub(crate) const CUT_INTERVAL: Duration = Duration::from_micros(200);

/// What the window grows by in a round trip once there has been a loss. Bytes.
pub(crate) const LINEAR_STEP: u64 = 8 << 10;
