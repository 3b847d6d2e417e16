//! How far a program's time lags behind the wall clock.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::clocks::monotonic;
use super::counter_now;

/// The greatest factor (`study/description.rs`).
pub const MOST: u64 = 100_000;
/// So many reads of clocks in a row, with no look at the network in between, are a wait.
pub const IN_A_ROW: u64 = 2000;
/// The pace of such a wait, if the factor is greater. At that of the wall clock, a program that loses its processor between
/// two clocks which it compares would see that whole time; perftest then prints zeroes.
const WAITING: u64 = 10;

/// The factor; 1 until the library is prepared, and in programs that are not slowed at all.
static FACTOR: AtomicU64 = AtomicU64::new(1);
/// What counts looks at the network; null until a device has been opened.
static LOOKS: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());
/// Looks at the last read of a clock, and how many reads there have been since they changed.
static LAST_LOOKS: AtomicU64 = AtomicU64::new(0);
static READS: AtomicU64 = AtomicU64::new(0);

/// A stretch in which time has one pace.
#[derive(Debug)]
struct Stretch {
    /// When it began, and the lag then: in nanoseconds, and of the counter.
    began: AtomicU64,
    lag: AtomicU64,
    counter_began: AtomicU64,
    counter_lag: AtomicU64,
    /// 1 is that of the wall clock.
    pace: AtomicU64,
}

impl Stretch {
    const fn new() -> Stretch {
        Stretch {
            began: AtomicU64::new(0),
            lag: AtomicU64::new(0),
            counter_began: AtomicU64::new(0),
            counter_lag: AtomicU64::new(0),
            pace: AtomicU64::new(1),
        }
    }

    fn lag(&self, now: u64) -> u64 {
        lag(self.lag.load(Relaxed), now.saturating_sub(self.began.load(Relaxed)), self.pace.load(Relaxed))
    }

    fn counter_lag(&self, now: u64) -> u64 {
        let since = now.saturating_sub(self.counter_began.load(Relaxed));
        lag(self.counter_lag.load(Relaxed), since, self.pace.load(Relaxed))
    }
}

/// What a stretch of this length and pace adds to a lag.
fn lag(before: u64, length: u64, pace: u64) -> u64 {
    before + (length - length / pace)
}

/// The last stretches. A reader that was interrupted may still read the one before; 64 later none does.
static STRETCHES: [Stretch; 64] = [const { Stretch::new() }; 64];
/// How many there have been; odd numbers while the next is written.
static CURRENT: AtomicU64 = AtomicU64::new(0);

fn current() -> (u64, &'static Stretch) {
    let number = CURRENT.load(Ordering::Acquire);
    (number, &STRETCHES[(number / 2) as usize % STRETCHES.len()])
}

/// Whether this program's time can be slowed.
#[inline]
pub fn is_prepared() -> bool {
    FACTOR.load(Relaxed) > 1
}

/// Time can be slowed from now on.
pub fn prepare(factor: u64) {
    FACTOR.store(factor, Relaxed);
}

/// Slows time down.
pub fn slow_down(factor: u64, looks: &'static AtomicU64) -> bool {
    if FACTOR.load(Relaxed) != factor {
        return false;
    }
    LOOKS.store(std::ptr::from_ref(looks).cast_mut(), Ordering::Release);
    change_pace(factor);
    true
}

/// From now on, time has another pace. If another thread changes it at the same time, that one decides.
fn change_pace(pace: u64) {
    let (number, stretch) = current();
    if number % 2 == 1 || stretch.pace.load(Relaxed) == pace {
        return;
    }
    if CURRENT.compare_exchange(number, number + 1, Ordering::AcqRel, Relaxed).is_err() {
        return;
    }
    let next = &STRETCHES[(number / 2 + 1) as usize % STRETCHES.len()];
    let (now, counter) = (monotonic(), counter_now());
    next.began.store(now, Relaxed);
    next.lag.store(stretch.lag(now), Relaxed);
    next.counter_began.store(counter, Relaxed);
    next.counter_lag.store(stretch.counter_lag(counter), Relaxed);
    next.pace.store(pace, Relaxed);
    CURRENT.store(number + 2, Ordering::Release);
}

/// How far the program's clocks lag, in nanoseconds.
pub fn lag_at(now: u64) -> u64 {
    current().1.lag(now)
}

/// How far its counter lags.
pub fn counter_lag_at(now: u64) -> u64 {
    current().1.counter_lag(now)
}

/// The program reads a clock.
pub fn note_read() {
    // SAFETY: null, or of a static variable of the verbs library, which stays loaded.
    let Some(looks) = (unsafe { LOOKS.load(Ordering::Acquire).as_ref() }) else { return };
    let looks = looks.load(Relaxed);
    if LAST_LOOKS.swap(looks, Relaxed) != looks {
        READS.store(0, Relaxed);
        change_pace(FACTOR.load(Relaxed));
    } else if READS.fetch_add(1, Relaxed) == IN_A_ROW {
        change_pace(FACTOR.load(Relaxed).min(WAITING));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_at_its_pace() {
        assert_eq!(lag(0, 1000, 1), 0);
        assert_eq!(1000 - lag(0, 1000, 100), 10);
        assert_eq!(lag(500, 1000, 100), 500 + 990);
    }

    #[test]
    fn who_only_reads_clocks_waits_at_another_pace() {
        static LOOKED: AtomicU64 = AtomicU64::new(1);
        let pace = || current().1.pace.load(Relaxed);
        note_read();
        assert_eq!((slow_down(100, &LOOKED), pace()), (false, 1));
        prepare(100);
        assert_eq!((slow_down(50, &LOOKED), pace()), (false, 1));
        assert_eq!((slow_down(100, &LOOKED), pace()), (true, 100));
        let at = monotonic();
        let lagged = lag_at(at);
        assert_eq!(lag_at(at + 1_000_000) - lagged, 990_000);
        for _ in 0..IN_A_ROW {
            note_read();
        }
        assert_eq!(pace(), 100);
        for _ in 0..2 {
            note_read();
        }
        assert_eq!(pace(), 10);
        let at = monotonic();
        assert_eq!(lag_at(at + 1_000_000) - lag_at(at), 900_000);
        assert!(lag_at(at) > lagged);
        LOOKED.store(2, Relaxed);
        note_read();
        assert_eq!(pace(), 100);
    }
}
