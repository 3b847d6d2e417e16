use std::sync::mpsc;

use super::*;
use crate::testing::Hole;

#[test]
fn no_stack_is_where_memory_was_registered() {
    let hole = Hole::of(STACK);
    for _ in 0..4 {
        let (sender, receiver) = mpsc::channel();
        let thread = Thread::spawn(c"stack", move || {
            let name = std::fs::read_to_string("/proc/thread-self/comm").expect("a name");
            let _heard = sender.send((own_stack(), name));
        });
        let thread = thread.expect("a thread");
        let ((base, len), name) = receiver.recv().expect("what the thread says");
        thread.join();
        assert!(!hole.has(base, len), "a stack of {len} bytes at {base:x} in {:x?}", hole.range);
        assert_eq!(name, "stack\n");
    }
}

/// What the C library says: the address sanitizer keeps local variables elsewhere.
fn own_stack() -> (usize, usize) {
    let mut attributes = MaybeUninit::uninit();
    let (mut base, mut len) = (ptr::null_mut(), 0);
    // SAFETY: the attributes are filled before they are read, and freed once.
    unsafe {
        check(libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr())).expect("attributes");
        check(libc::pthread_attr_getstack(attributes.as_ptr(), &mut base, &mut len)).expect("a stack");
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
    }
    (base.addr(), len)
}

/// The C library maps a heap for a thread when the thread first asks it for memory.
#[test]
fn no_heap_of_a_thread_is_where_memory_was_registered() {
    let hole = Hole::of(HEAP);
    let (sender, receiver) = mpsc::channel();
    let thread = Thread::spawn(c"heap", move || {
        // SAFETY: freed once, and not used.
        let at = unsafe {
            let block = libc::malloc(100);
            libc::free(block);
            block.addr()
        };
        let _heard = sender.send(at);
    });
    let at = receiver.recv().expect("what the thread says");
    thread.expect("a thread").join();
    assert!(!hole.has(at, 100), "a block at {at:x} in {:x?}", hole.range);
}

#[test]
fn a_thread_that_panics_can_be_joined() {
    Thread::spawn(c"panic", || panic!("on purpose")).expect("a thread").join();
}

#[test]
fn the_stacks_of_threads_that_nobody_joins_are_freed() {
    for _ in 0..100 {
        let (sender, receiver) = mpsc::channel();
        let last: Box<dyn Send> = Box::new(sender);
        drop(Thread::spawn(c"left", move || drop(last)).expect("a thread"));
        receiver.recv().map_or_else(drop, |()| unreachable!());
    }
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while !LEFT.lock().expect("the list").is_empty() {
        assert!(std::time::Instant::now() < deadline, "threads that have ended are kept");
        std::thread::yield_now();
        free_stacks();
    }
}
