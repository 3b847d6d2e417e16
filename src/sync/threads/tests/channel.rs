use std::ffi::c_void;
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::thread::JoinHandleExt;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::channel::{AckCounter, EventChannel};
use crate::kick::Kick;
use crate::lock::NicLock;

fn is_readable<E>(channel: &EventChannel<E>) -> bool {
    let mut poll = libc::pollfd { fd: channel.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd, which poll reads and writes.
    unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
}

fn set_nonblocking<E>(channel: &EventChannel<E>) {
    // SAFETY: sets a flag of a descriptor that is open.
    assert_eq!(unsafe { libc::fcntl(channel.as_fd().as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) }, 0);
}

fn recv<E>(channel: &EventChannel<E>) -> std::io::Result<E> {
    channel.recv(|_| {})
}

#[test]
fn events_arrive_in_order_and_the_descriptor_counts_them() {
    let channel = EventChannel::new().unwrap();
    assert!(!is_readable(&channel));
    channel.send(1);
    channel.send(2);
    assert!(is_readable(&channel));
    assert_eq!(recv(&channel).unwrap(), 1);
    assert!(is_readable(&channel));
    assert_eq!(recv(&channel).unwrap(), 2);
    assert!(!is_readable(&channel));
}

#[test]
fn the_application_may_make_the_descriptor_non_blocking() {
    let channel = EventChannel::new().unwrap();
    set_nonblocking(&channel);
    assert_eq!(recv::<u32>(&channel).unwrap_err().kind(), ErrorKind::WouldBlock);
    channel.send(5);
    assert_eq!(recv(&channel).unwrap(), 5);
    assert_eq!(recv(&channel).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn draining_leaves_the_descriptor_with_what_is_left() {
    for nonblocking in [false, true] {
        let channel = EventChannel::new().unwrap();
        if nonblocking {
            set_nonblocking(&channel);
        }
        (0..6).for_each(|event| channel.send(event));
        assert_eq!(channel.drain_matching(|event| event % 3 == 0), 2);
        channel.send(7);
        for expected in [1, 2, 4, 5, 7] {
            assert!(is_readable(&channel));
            assert_eq!(recv(&channel).unwrap(), expected);
        }
        assert!(!is_readable(&channel));
        channel.send(8);
        assert_eq!(channel.drain_matching(|_| true), 1);
        assert!(!is_readable(&channel), "nothing left, in either mode");
    }
}

#[test]
fn the_token_of_a_drained_event_is_good_for_no_other() {
    let channel = EventChannel::new().unwrap();
    channel.send(1);
    channel.wait().unwrap();
    assert_eq!(channel.drain_matching(|_| true), 1);
    channel.send(2);
    assert_eq!(channel.take(|_| {}), None);
    assert_eq!(recv(&channel).unwrap(), 2);
    assert!(!is_readable(&channel));
}

#[test]
fn what_is_counted_when_taken_is_counted_before_it_can_be_drained() {
    let channel = EventChannel::new().unwrap();
    let acks = AckCounter::new();
    channel.send(());
    recv(&channel).unwrap();
    channel.send(());
    channel.recv(|()| acks.delivered()).unwrap();
    acks.acknowledge(1);
    acks.wait();
}

/// Readers compete for events while those of one kind are drained over and over: no event is read twice, none is lost,
/// and in the end the descriptor is as empty as the channel.
#[test]
fn several_readers_and_a_drainer_account_for_every_event() {
    const EVENTS: usize = 20_000;
    const STOP: usize = usize::MAX;
    let channel = EventChannel::new().unwrap();
    let received = AtomicUsize::new(0);
    let drained = AtomicUsize::new(0);
    thread::scope(|scope| {
        let readers = [0, 1, 2].map(|_| {
            scope.spawn(|| {
                while recv(&channel).unwrap() != STOP {
                    received.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        let sent = AtomicUsize::new(0);
        thread::scope(|inner| {
            inner.spawn(|| {
                for event in 0..EVENTS {
                    channel.send(event);
                    sent.store(event + 1, Ordering::Release);
                }
            });
            // Only events whose sending is over are drained, as destroying an object makes sure.
            while sent.load(Ordering::Relaxed) < EVENTS {
                let over = sent.load(Ordering::Acquire);
                let count = channel.drain_matching(|event| *event < over && event % 2 == 0);
                drained.fetch_add(count, Ordering::Relaxed);
            }
        });
        readers.iter().for_each(|_| channel.send(STOP));
    });
    assert_eq!(received.into_inner() + drained.into_inner(), EVENTS);
    assert!(!is_readable(&channel));
}

#[test]
fn a_signal_interrupts_a_reader() {
    extern "C" fn nothing(_signal: i32) {}
    // SAFETY: installs a handler that does nothing, without SA_RESTART, for a signal that no other test uses.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR2, &raw const action, ptr::null_mut()), 0);
    }
    let channel = Arc::new(EventChannel::<()>::new().unwrap());
    let reader = thread::spawn({
        let channel = channel.clone();
        move || recv(&channel)
    });
    let deadline = Instant::now() + Duration::from_secs(10);
    // The signal may come before the read begins, so it is repeated until the reader is back.
    while !reader.is_finished() && Instant::now() < deadline {
        // SAFETY: the thread is not joined yet.
        unsafe { libc::pthread_kill(reader.as_pthread_t(), libc::SIGUSR2) };
        thread::sleep(Duration::from_millis(1));
    }
    channel.send(());
    assert_eq!(reader.join().unwrap().unwrap_err().kind(), ErrorKind::Interrupted);
}

unsafe extern "C" {
    fn pthread_cancel(thread: libc::pthread_t) -> i32;
}

/// A thread is cancelled in the blocking read. It holds nothing there: the channel goes on working for others.
#[test]
fn a_reader_that_is_cancelled_leaves_the_channel_usable() {
    extern "C" fn reader(channel: *mut c_void) -> *mut c_void {
        // SAFETY: the test keeps the channel until it has joined this thread.
        let channel = unsafe { &*channel.cast::<EventChannel<u32>>() };
        let _never_returns = channel.wait();
        ptr::null_mut()
    }
    let channel = Arc::new(EventChannel::<u32>::new().unwrap());
    let argument = Arc::as_ptr(&channel).cast_mut().cast::<c_void>();
    let pthread_canceled = usize::MAX as *mut c_void;
    let mut result = ptr::null_mut();
    // SAFETY: the thread is joined before `channel` goes, and each pointer is valid for the call.
    unsafe {
        let mut thread: libc::pthread_t = std::mem::zeroed();
        assert_eq!(libc::pthread_create(&raw mut thread, ptr::null(), reader, argument), 0);
        // Cancellation is deferred to the read, whether or not the thread has got there.
        assert_eq!(pthread_cancel(thread), 0);
        assert_eq!(libc::pthread_join(thread, &raw mut result), 0);
    }
    assert_eq!(result, pthread_canceled);
    channel.send(9);
    assert_eq!(recv(&channel).unwrap(), 9);
    assert_eq!(channel.drain_matching(|_| true), 0);
}

/// Everything but the blocking read is free of cancellation points: a thread with a cancellation pending gets
/// through all of it, waiting for locks and dropping everything included.
#[test]
fn nothing_else_is_a_cancellation_point() {
    struct Shared {
        survived: AtomicBool,
        channel: EventChannel<u32>,
    }
    fn use_everything() {
        let kick = Arc::new(Kick::new().unwrap());
        let lock = NicLock::new((), kick.clone());
        let channel = EventChannel::new().unwrap();
        let acks = AckCounter::new();
        assert!(kick.prepare_sleep());
        drop(lock.ring());
        kick.clear(true);
        channel.send(1);
        channel.drain_matching(|_| true);
        acks.delivered();
        thread::scope(|scope| {
            let guard = lock.lock().unwrap();
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(20));
                drop(guard);
                acks.acknowledge(1);
            });
            drop(lock.lock().unwrap());
            acks.wait();
        });
    }
    extern "C" fn busy(shared: *mut c_void) -> *mut c_void {
        // SAFETY: the test keeps it until it has joined this thread.
        let shared = unsafe { &*shared.cast::<Shared>() };
        // SAFETY: asks for the cancellation of this very thread.
        unsafe { pthread_cancel(libc::pthread_self()) };
        use_everything();
        shared.survived.store(true, Ordering::Release);
        let _never_returns = shared.channel.wait();
        ptr::null_mut()
    }
    let shared = Shared { survived: AtomicBool::new(false), channel: EventChannel::new().unwrap() };
    let argument = (&raw const shared).cast_mut().cast::<c_void>();
    let mut result = ptr::null_mut();
    // SAFETY: the thread is joined before `shared` goes, and each pointer is valid for the call.
    unsafe {
        let mut thread: libc::pthread_t = std::mem::zeroed();
        assert_eq!(libc::pthread_create(&raw mut thread, ptr::null(), busy, argument), 0);
        assert_eq!(libc::pthread_join(thread, &raw mut result), 0);
    }
    assert!(shared.survived.load(Ordering::Acquire), "cancelled too early");
    assert_eq!(result, usize::MAX as *mut c_void, "the read is the place to be cancelled");
}

#[test]
fn destruction_waits_for_acknowledgement() {
    let acks = AckCounter::new();
    let acknowledged = AtomicBool::new(false);
    acks.delivered();
    acks.delivered();
    acks.acknowledge(1);
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(20));
            acknowledged.store(true, Ordering::Release);
            acks.acknowledge(1);
        });
        acks.wait();
        assert!(acknowledged.load(Ordering::Acquire));
    });
    acks.acknowledge(5);
    acks.delivered();
    acks.acknowledge(1);
    acks.wait();
}
