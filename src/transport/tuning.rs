//! The constants that steer when a queue pair sends.

use core::time::Duration;

/// How long an ACK waits for the application's next call if there is none. That call comes within a microsecond or two,
/// so this is for applications that compute, or that have gone to sleep.
pub(crate) const NEXT_CALL_WAIT: Duration = Duration::from_micros(100);

/// How long an ACK waits for a reply to what was found in memory: several times what it takes the ACK that follows a
/// WRITE to arrive.
pub(crate) const REPLY_WAIT: Duration = Duration::from_micros(10);

/// What is posted within this time after an ACK has left by itself is a reply that the ACK could have left with.
pub(crate) const REPLY_TIME: Duration = Duration::from_micros(20);
