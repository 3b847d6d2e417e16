//! The ranges of addresses that are registered in this process, by whichever device.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// A registered range, until it is dropped.
pub struct Registered {
    /// Its place in the list; `None` for a range that is not in it.
    place: Option<Place>,
}

/// Its first address, and a number that tells it from others that begin there.
type Place = (usize, u64);

/// Longer ranges are taken for the whole address space, outside of which there is no room: half of what user space has.
const WHOLE: usize = 1 << 46;

/// The list. A child has one of its own, since its parent's devices do not reach its memory; another thread of the parent
/// may have held the old one at the fork.
static LIST: AtomicPtr<Mutex<Ranges>> = AtomicPtr::new((&raw const FIRST).cast_mut());
static FIRST: Mutex<Ranges> = Mutex::new(Ranges::NONE);

struct Ranges {
    ends: BTreeMap<Place, usize>,
    /// No range has ever been longer.
    longest: usize,
}

impl Registered {
    /// `length` bytes from `addr` are registered from now on. What ends beyond the address space is not in the list, nor
    /// are ranges of no bytes.
    pub fn new(addr: usize, length: u64) -> Registered {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let end = addr.checked_add(length).filter(|_| (1..=WHOLE).contains(&length));
        let place = end.map(|end| {
            handle_forks();
            ranges().add(addr, end)
        });
        Registered { place }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            ranges().ends.remove(&place);
        }
    }
}

impl Ranges {
    const NONE: Ranges = Ranges { ends: BTreeMap::new(), longest: 0 };

    fn add(&mut self, start: usize, end: usize) -> Place {
        /// Of all lists, so that what was in the parent's takes nothing from the child's.
        static LAST: AtomicU64 = AtomicU64::new(0);
        self.longest = self.longest.max(end - start);
        let place = (start, LAST.fetch_add(1, Ordering::Relaxed));
        self.ends.insert(place, end);
        place
    }

    /// Those that have bytes within `range`, by their first addresses.
    fn within(&self, range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let from = range.start.saturating_sub(self.longest);
        let found = self.ends.range((from, 0)..(range.end, 0)).map(|(&(start, _), &end)| start..end);
        found.filter(move |found| found.end > range.start)
    }
}

/// The length of a registered range that has bytes within `range`, if there is one.
pub(crate) fn length_within(range: Range<usize>) -> Option<usize> {
    ranges().within(range).map(|found| found.len()).max()
}

/// The first address of `length` bytes within `range` of which none is registered. It is at a multiple of `page`, if
/// `range` begins at one.
pub(crate) fn gap(range: Range<usize>, length: usize, page: usize) -> Option<usize> {
    let mut from = range.start;
    for taken in ranges().within(range.clone()) {
        if taken.start.saturating_sub(from) >= length {
            break;
        }
        from = from.max(taken.end.checked_next_multiple_of(page)?);
    }
    (range.end.saturating_sub(from) >= length).then_some(from)
}

fn ranges() -> MutexGuard<'static, Ranges> {
    // SAFETY: the address of `FIRST`, or of a list that `begin_child` has leaked.
    let list = unsafe { &*LIST.load(Ordering::Acquire) };
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

fn handle_forks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: a function that lives as long as the program: the C libraries are never unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(begin_child)) };
    });
}

extern "C" fn begin_child() {
    LIST.store(Box::leak(Box::new(Mutex::new(Ranges::NONE))), Ordering::Release);
}
