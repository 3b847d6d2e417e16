//! The constants that steer when packets leave.

use core::time::Duration;

use softrnic_wire::SRD_WINDOW;

/// Timeout before a round trip was measured.
pub const INITIAL_TIMEOUT: Duration = Duration::from_millis(20);
/// Bounds of the timeout: a peer is a process, which may have to wait for a processor.
pub const MIN_TIMEOUT: Duration = Duration::from_millis(1);
pub const MAX_TIMEOUT: Duration = Duration::from_millis(250);
/// How long a peer may be silent while something waits for its answer.
pub const SILENCE: Duration = Duration::from_secs(5);
/// The least by which a packet may be overtaken before it counts as lost; otherwise a quarter of the round-trip time.
pub const MIN_REORDERING: Duration = Duration::from_micros(20);
/// How long a message waits for a receive: at first, and after many times.
pub const NOT_READY: Duration = Duration::from_micros(250);
pub const MAX_NOT_READY: Duration = Duration::from_millis(8);
/// How long a READ waits for its turn at the peer.
pub const BUSY_WAIT: Duration = Duration::from_micros(100);
/// Packets in flight: at first, at least, and at most. There must be numbers for all that is sent until a loss is noticed
/// and mended, which takes more than two round trips.
pub const INITIAL_WINDOW: u32 = 32;
pub const MIN_WINDOW: u32 = 4;
pub const MAX_WINDOW: u32 = SRD_WINDOW * 3 / 8;
/// READs of a peer that are answered at once.
pub const MAX_READS: usize = 64;
/// Messages of a peer in pieces that take no receive before they are complete.
pub const MAX_PARTIAL: usize = 256;
/// Who has heard nothing for so long begins anew.
pub const IDLE: Duration = Duration::from_secs(30);
/// And who has heard nothing for so long may be forgotten.
pub const FORGET: Duration = Duration::from_secs(60);
/// Packets that one message sends before the next one's turn.
pub const QUANTUM: u32 = 16;
/// Answers that name no connection and wait to be sent.
pub const MAX_REPLIES: usize = 64;
