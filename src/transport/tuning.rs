//! The constants that steer when a queue pair sends. What can be configured has its defaults elsewhere: the window in
//! [`WindowConfig`](crate::WindowConfig), DCQCN in [`RateParameters`](crate::RateParameters), the rest in
//! [`Config`](crate::Config).
//!
//! What each is worth was measured in simulation, at half and at double of it
//! (`docs/decisions/0024-transport-constants.md`).

use core::time::Duration;

/// How long an ACK waits for the application's next call. A program that polls calls again within a microsecond or two;
/// this limit is for one that computes or sleeps. The peer then loses that much time, so it stays well below
/// [`MIN_RTO`], after which the peer would send again. At half, replies after 50 to 100 µs take a send more; at double,
/// a peer of an application that computes for longer waits 200 µs.
pub(crate) const NEXT_CALL_WAIT: Duration = Duration::from_micros(100);

/// How long an ACK waits for a reply to what was found in memory. Over `xdp` the ACK that the application polls for
/// arrives a moment after the WRITE; waiting for it makes `ib_write_lat` 6 µs instead of 20. This is several times that
/// moment, and short compared with what it costs a peer that waits for no reply. At half, replies after 5 to 10 µs come
/// too late; at double, those after up to 20 µs come in time, and the peer has its ACK as late.
pub(crate) const REPLY_WAIT: Duration = Duration::from_micros(10);

/// Something posted within this time after an ACK has left by itself is a reply that the ACK could have left with.
/// Twice [`REPLY_WAIT`]; at half, what comes too late for that is never waited for, and at double, every second ACK
/// waits in vain for replies after 20 to 40 µs.
pub(crate) const REPLY_TIME: Duration = Duration::from_micros(20);

/// At least one of this many request packets in a row asks for an ACK. More ACKs would cost both ends; with fewer, the
/// window opens in jumps. Messages of 256 packets at 1 % loss take 1.4 times as many ACKs at half, and 0.6 times at
/// double; goodput differs by 2 % at most.
pub(crate) const ACK_SPACING: u32 = 16;

/// The retransmission timeout before a round-trip time is known. Nanoseconds. A first message that is lost comes that
/// much sooner or later; at half, a peer that takes 3 ms to begin gets everything twice.
pub(crate) const INITIAL_RTO: u64 = 4_000_000;

/// The shortest retransmission timeout. The peer's process may be waiting for a processor; resending before it has had
/// one does more harm than good. Nanoseconds. At 5 % loss, one QP moves 1.3 times the bytes with half of it, and 0.6
/// times with double; up to 1 % it makes no difference to goodput. At half, a peer that has no processor for 700 µs is
/// sent things again that it has not lost.
pub(crate) const MIN_RTO: u64 = 800_000;

/// Early resends in a row, each after twice the time of the one before, until only the local ACK timeout remains. At
/// half, a QP waits for that timeout already after an outage of 20 ms; at double, not even after one of 400 ms.
pub(crate) const MAX_EARLY_RESENDS: u32 = 8;

/// The shortest time after which a QP that recovers selectively asks by one packet what the peer has. Too early costs one
/// packet. Nanoseconds.
pub(crate) const MIN_LOSS_PROBE: u64 = 100_000;

/// How often in a row it does so before it goes back. Each time waits twice as long.
pub(crate) const MAX_LOSS_PROBES: u32 = 3;

/// What is missing is waited for longer by this part of a round trip for everything that turns out to have come twice.
pub(crate) const LATENESS_STEPS: u64 = 16;

/// That wait shrinks by this part with every packet that is sent again.
pub(crate) const LATENESS_DECAY: u32 = 64;

/// A peer that does not answer is probed with this many packets, or with one READ request. At half, each loss of a
/// probe costs a timeout: 64 KiB at 5 % loss take 1.5 times as long in the worst hundredth; double brings nothing.
pub(crate) const PROBE_PACKETS: u32 = 2;

/// How often to ask whether it is known by now that the peer's process is stopped, when all retries are used up. Nobody
/// is served sooner by half of it, and a QP whose peer is gone fails that much later.
pub(crate) const ANSWER_POLL: Duration = Duration::from_millis(1);

/// Losses within this time after the window was cut belong to the same event. At half, QPs that share a window move 0.8
/// times the bytes at 5 % loss; at double 1.2 times, but eight senders to one receiver 0.95 times.
pub(crate) const CUT_INTERVAL: Duration = Duration::from_micros(200);

/// What the window grows by in a round trip once there has been a loss. Bytes. At half, eight senders to one receiver
/// move 1.1 times the bytes, and QPs that share a window 0.8 times at 5 % loss; at double it is the other way round.
pub(crate) const LINEAR_STEP: u64 = 8 << 10;

/// One missing byte of so many is rare. At half and at double, goodput of simulated links differs by 2 % at most; over sockets at
/// 1 % loss, a window that is cut further leaves in smaller batches.
pub(crate) const RARE_LOSS: u64 = 32;

/// When so many bytes were acknowledged, half of them are forgotten, and half of those that were missing: about 2,000 packets,
/// so that chance does not decide which losses are rare.
pub(crate) const LOSSES_REMEMBERED: u64 = 8 << 20;

/// How long a peer may have no receive before the application is told. Half of it tells of programs that are only slow to
/// start; double lets who watches it wonder for two seconds.
pub(crate) const RNR_CONCERN: Duration = Duration::from_secs(1);

/// The part that a path has of all packets until it loses something, or is marked. No unit but this.
pub(crate) const FULL_SHARE: u16 = 1024;

/// The least part.
pub(crate) const LEAST_SHARE: u16 = 128;

/// What a path gets back with each packet that comes.
pub(crate) const SHARE_STEP: u16 = 4;

/// A path that loses so many packets in a row is left.
pub(crate) const LOSSES_TO_LEAVE: u8 = 4;

/// How long a path is left for the first time, and at most. Each time in a row takes twice as long.
pub(crate) const MIN_PATH_REST: Duration = Duration::from_millis(1);
pub(crate) const MAX_PATH_REST: Duration = Duration::from_secs(1);

/// So many packets ask about silence where there are many paths before the time until the next one doubles.
pub(crate) const PATH_PROBES: u32 = 128;

/// A path that brings nothing for so long although others do has lost what was sent on it. Nanoseconds; at least twice a round trip.
pub(crate) const MIN_PATH_SILENCE: u64 = 20_000;

/// A path is left if the peer asks so many times for responses that took it, and half as often again as for those of others on
/// average.
pub(crate) const REPEATS_TO_LEAVE: u8 = 6;

/// When so many are counted, half of them are forgotten.
pub(crate) const REPEATS_REMEMBERED: u32 = 64;

/// Whoever answers a READ of so many packets finds out whether the answer may be spread. One of so many large packets that come has
/// the receiver find out whether they may be.
pub(crate) const BUSY_PACKETS: u32 = 16;

/// With so many bytes under way, a queue pair is worth spreading.
pub(crate) const BUSY_BYTES: u64 = 8 << 10;
