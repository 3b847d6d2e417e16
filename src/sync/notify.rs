//! Arms a completion queue for an event.
//!
//! The application arms the queue, then polls it once more, then waits. The NIC publishes a completion, then asks
//! whether to fire. When two threads each write one location and then read the other's, both may read the old value,
//! unless something orders them: the application would see no completion, the NIC would see no arming, and the
//! application would sleep for ever. Here both sides do a read-modify-write of the same word, including the NIC when it
//! finds nothing armed. Those are totally ordered; each reads the one before it, and acquires what its thread did
//! earlier. If the NIC's comes first, the application's next poll sees the completion; if the application's comes
//! first, the NIC fires. A plain load on the NIC's side would be cheaper, and wrong.

use crate::atomics::Arc;
use crate::atomics::atomic::{AtomicU8, Ordering};

/// Notified when an armed completion queue gets a completion: an event channel, or a test.
pub trait Notify: Send + Sync {
    /// Passes the event on. Called by the holder of the NIC: must not block.
    fn completion(&self);
}

/// Creates the two ends of a completion queue's arming, disarmed.
pub fn arming() -> (Arming, ArmedNic) {
    let state = Arc::new(AtomicU8::new(NONE));
    (Arming(state.clone()), ArmedNic(state))
}

/// The application's end.
pub struct Arming(Arc<AtomicU8>);

impl Arming {
    /// Asks for one event, for the next completion published after this, or for the next solicited one. A request for
    /// any completion is not weakened by a later one for solicited completions only (IBTA 11.4.2.2).
    ///
    /// Completions published before do not fire: poll the queue once more after arming.
    pub fn arm(&self, solicited_only: bool) {
        self.0.fetch_max(if solicited_only { SOLICITED } else { ANY }, Ordering::AcqRel);
    }
}

/// The NIC's end.
pub struct ArmedNic(Arc<AtomicU8>);

impl ArmedNic {
    /// Whether an event was asked for.
    pub fn is_armed(&self) -> bool {
        self.0.load(Ordering::Relaxed) != NONE
    }

    /// Whether an event is due for what was just published (`solicited` if any of it was); disarms if so.
    ///
    /// Call after publishing, once per completion or once per batch. Failed completions count as solicited.
    pub fn should_fire(&self, solicited: bool) -> bool {
        let mut armed = self.0.load(Ordering::Relaxed);
        loop {
            let fires = armed == ANY || (armed == SOLICITED && solicited);
            let next = if fires { NONE } else { armed };
            // Writes even if nothing changes, see the module documentation.
            match self.0.compare_exchange_weak(armed, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return fires,
                Err(now) => armed = now,
            }
        }
    }
}

const NONE: u8 = 0;
const SOLICITED: u8 = 1;
const ANY: u8 = 2;

#[cfg(all(test, not(loom)))]
mod tests;
