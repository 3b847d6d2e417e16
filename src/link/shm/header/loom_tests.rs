use loom::sync::Arc;
use loom::sync::atomic::AtomicBool;
use loom::thread;

use super::*;

impl Header {
    fn model() -> Header {
        Header {
            tail: Line(AtomicU64::new(0)),
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
            let mut rung = 0;
            for tail in [16, 32] {
                far.far.show(tail);
                if far.near.is_to_be_woken(&mut rung) {
                    far.bell.store(true, Ordering::Release);
                }
            }
        });
        let mut head = 0;
        let mut asleep = false;
        for sleep in 1..=2 {
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
            let mut rung = 0;
            for head in [16, 32] {
                if far.far.tell(head, &far.near, &mut rung) {
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
            pair.near.sleep(1);
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
fn loom_a_bell_without_a_fence_is_lost() {
    loom::model(|| {
        let pair = Pair::model();
        let far = pair.clone();
        let writer = thread::spawn(move || {
            far.far.show(16);
            if far.near.sleeps.0.load(Ordering::Relaxed) != 0 {
                far.bell.store(true, Ordering::Release);
            }
        });
        pair.near.sleep(1);
        let asleep = pair.far.tail() == 0;
        writer.join().expect("the writer");
        if asleep {
            assert!(pair.bell.load(Ordering::Acquire), "sleeps over a record");
        }
    });
}
