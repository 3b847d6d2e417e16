//! How far apart two processors are. A host may move the virtual ones, and all that two processes exchange takes
//! longer when it has put them far from each other.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;

use crate::process::{Result, limit_time};

#[derive(Serialize)]
pub struct RoundTrip {
    nanoseconds: f64,
}

/// Round trips that are timed together.
const TRIPS: u32 = 1000;

/// The shortest of so many counts: what else runs only makes them longer.
const TRIES: usize = 10;

/// Says that no more trips follow.
const OVER: u32 = u32::MAX;

/// A number in a cache line of its own: odd on the way there, even on the way back.
#[repr(align(128))]
struct CacheLine(AtomicU32);

static LINE: CacheLine = CacheLine(AtomicU32::new(0));

pub fn run() -> Result<RoundTrip> {
    limit_time();
    let allowed = sched_getaffinity(None)?;
    let mut processors = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    let (Some(here), Some(there)) = (processors.next(), processors.next()) else {
        return Err("two processors are needed, and only one is allowed".into());
    };
    // A thread begins with the processors of the one that makes it.
    stay_on(there)?;
    let returning = thread::spawn(give_back);
    stay_on(here)?;
    let nanoseconds = (0..TRIES).map(|_| time_trips()).fold(f64::INFINITY, f64::min);
    LINE.0.store(OVER, Ordering::Release);
    returning.join().map_err(|_| "the other thread has failed")?;
    Ok(RoundTrip { nanoseconds })
}

fn stay_on(processor: usize) -> Result<()> {
    let mut only = CpuSet::new();
    only.set(processor);
    Ok(sched_setaffinity(None, &only)?)
}

/// Nanoseconds of one round trip, on average.
fn time_trips() -> f64 {
    let start = Instant::now();
    for trip in 0..TRIPS {
        LINE.0.store(2 * trip + 1, Ordering::Release);
        while LINE.0.load(Ordering::Acquire) != 2 * trip + 2 {}
    }
    start.elapsed().as_nanos() as f64 / f64::from(TRIPS)
}

fn give_back() {
    loop {
        match LINE.0.load(Ordering::Acquire) {
            OVER => return,
            number if number % 2 == 1 => LINE.0.store(number + 1, Ordering::Release),
            _ => {}
        }
    }
}
