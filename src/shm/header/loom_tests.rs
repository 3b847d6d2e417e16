use loom::sync::Arc;
use loom::sync::atomic::AtomicBool;
use loom::thread;

use super::*;

impl Header {
    fn model() -> Header {
        Header {
            shown: Line(Shown { tail: AtomicU64::new(0), start: AtomicU64::new(0) }),
            head: Line(AtomicU64::new(0)),
            sleeps: Line(AtomicU32::new(0)),
            waits: Line(AtomicU32::new(0)),
        }
    }
}

struct Pair {
    near: Header,
    far: Header,
    /// The near side's.
    bell: AtomicBool,
}

impl Pair {
    fn model() -> Arc<Pair> {
        Arc::new(Pair { near: Header::model(), far: Header::model(), bell: AtomicBool::new(false) })
    }
}

/// What is shown is found before the sleep, or rings.
#[test]
fn loom_a_record_wakes_or_is_found() {
    loom::model(|| {
        let pair = Pair::model();
        let far = pair.clone();
        let writer = thread::spawn(move || {
            let mut rung = Sleep::NONE;
            for tail in [16, 32] {
                far.far.show(tail);
                if far.near.to_be_woken(&mut rung).is_some() {
                    far.bell.store(true, Ordering::Release);
                }
            }
        });
        let mut head = 0;
        let mut asleep = false;
        let mut sleep = Sleep::NONE;
        for _ in 0..2 {
            sleep = sleep.next(Sleeper::Thread);
            pair.near.sleep(sleep);
            let tail = pair.far.tail();
            asleep = tail == head;
            if asleep {
                break;
            }
            head = tail;
            pair.near.wake();
        }
        writer.join().expect("the writer");
        if asleep && pair.far.tail() != head {
            assert!(pair.bell.load(Ordering::Acquire), "sleeps over a record");
        }
    });
}

/// Room is found before the sleep, or rings.
#[test]
fn loom_room_wakes_or_is_found() {
    loom::model(|| {
        let pair = Pair::model();
        let far = pair.clone();
        let reader = thread::spawn(move || {
            let mut rung = Sleep::NONE;
            for head in [16, 32] {
                if far.far.publish_head(head, &far.near, &mut rung).is_some() {
                    far.bell.store(true, Ordering::Release);
                }
            }
        });
        // Room for what is wanted is there once the peer has read 32.
        let mut asleep = pair.far.head() < 32;
        if asleep {
            pair.near.wait(true);
            asleep = pair.far.head() < 32;
        }
        if asleep {
            pair.near.sleep(Sleep::NONE.next(Sleeper::Thread));
            asleep = pair.far.head() < 32;
        }
        reader.join().expect("the reader");
        if asleep {
            assert!(pair.bell.load(Ordering::Acquire), "sleeps over room");
        }
    });
}

/// The model finds the fault: without the fence between storing and asking, a side sleeps for ever.
#[test]
#[should_panic(expected = "sleeps over a record")]
fn loom_a_wake_up_without_a_fence_is_lost() {
    loom::model(|| {
        let pair = Pair::model();
        let far = pair.clone();
        let writer = thread::spawn(move || {
            far.far.show(16);
            if far.near.sleeps.0.load(Ordering::Relaxed) != 0 {
                far.bell.store(true, Ordering::Release);
            }
        });
        pair.near.sleep(Sleep::NONE.next(Sleeper::Thread));
        let asleep = pair.far.tail() == 0;
        writer.join().expect("the writer");
        if asleep {
            assert!(pair.bell.load(Ordering::Acquire), "sleeps over a record");
        }
    });
}

/// Whoever sleeps last has the bell: a record is found, or rings for the thread or for the caller that sleeps then.
#[test]
fn loom_a_record_wakes_the_sleeper() {
    loom::model(|| {
        let pair = Pair::model();
        let callers = Arc::new(AtomicBool::new(false));
        let (far, bell) = (pair.clone(), callers.clone());
        let writer = thread::spawn(move || {
            let mut rung = Sleep::NONE;
            for tail in [16, 32] {
                far.far.show(tail);
                match far.near.to_be_woken(&mut rung) {
                    Some(sleep) if sleep.is_callers() => bell.store(true, Ordering::Release),
                    Some(_) => far.bell.store(true, Ordering::Release),
                    None => {}
                }
            }
        });
        // The progress thread sleeps, and then a caller, which has looked.
        let sleep = Sleep::NONE.next(Sleeper::Thread);
        pair.near.sleep(sleep);
        pair.near.sleep(sleep.next(Sleeper::Caller));
        let head = pair.far.tail();
        writer.join().expect("the writer");
        if pair.far.tail() != head {
            assert!(callers.load(Ordering::Acquire), "the caller sleeps over a record");
        }
    });
}

/// Whoever sees a record behind a beginning sees the beginning.
#[test]
fn loom_a_beginning_is_seen_with_the_record_behind_it() {
    loom::model(|| {
        let pair = Pair::model();
        let far = pair.clone();
        let writer = thread::spawn(move || {
            far.far.show(16);
            far.far.begin_at(64);
            far.far.show(80);
        });
        if pair.far.tail() == 80 {
            assert_eq!(pair.far.start(), 64);
        }
        writer.join().expect("the writer");
    });
}
