//! Threads whose stacks are outside of what is registered. The C library maps a stack wherever there is room, with the
//! thread's own variables at its end.

use std::ffi::{CStr, c_void};
use std::hint::black_box;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::{io, ptr};

use crate::mapping::{Mapping, page_size, plugs};

/// As much as threads of the standard library have.
const STACK: usize = 2 << 20;
/// What the C library maps for the heap of a thread, at a multiple of it.
const HEAP: usize = 64 << 20;

/// A thread, to be joined. Dropped without, it runs on, and its stack is freed at some time after its end.
pub struct Thread {
    id: libc::pthread_t,
    stack: ManuallyDrop<Mapping>,
}

// SAFETY: the id names the thread in the whole process; any one thread may join it.
unsafe impl Send for Thread {}
// SAFETY: a shared reference allows nothing.
unsafe impl Sync for Thread {}

/// Threads that nobody waits for.
static LEFT: Mutex<Vec<Thread>> = Mutex::new(Vec::new());

struct Start {
    name: &'static CStr,
    body: Box<dyn FnOnce() + Send>,
    /// Set once the thread has its heap.
    has_heap: Arc<AtomicBool>,
}

impl Thread {
    /// Runs `body` in a thread with this name. A panic ends the thread, once the hook has reported it.
    ///
    /// # Errors
    /// There is no memory, or no thread may be added.
    pub fn spawn(name: &'static CStr, body: impl FnOnce() + Send + 'static) -> io::Result<Thread> {
        free_stacks();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK | libc::MAP_NORESERVE;
        let stack = Mapping::new(STACK, libc::PROT_READ | libc::PROT_WRITE, flags)?;
        // What is below the stack is not ours: its lowest page becomes its guard.
        // SAFETY: a page of the mapping, which nothing uses yet.
        if unsafe { libc::mprotect(stack.base().as_ptr().cast(), page_size(), libc::PROT_NONE) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let has_heap = Arc::new(AtomicBool::new(false));
        let start = Start { name, body: Box::new(body), has_heap: Arc::clone(&has_heap) };
        let start = Box::into_raw(Box::new(start));
        let mut attributes = MaybeUninit::uninit();
        let mut id = MaybeUninit::uninit();
        // The C library maps a heap for the thread wherever there is room.
        let plugs = plugs(HEAP);
        // SAFETY: the attributes are made before they are used, and `id` lives through the call. The stack is mapped until
        // the thread has been joined. The thread gets `start`, and with it the box.
        let made = unsafe {
            let base = stack.base().as_ptr().wrapping_add(page_size()).cast();
            check(libc::pthread_attr_init(attributes.as_mut_ptr()))
                .and_then(|()| {
                    check(libc::pthread_attr_setstack(attributes.as_mut_ptr(), base, STACK - page_size()))
                })
                .and_then(|()| {
                    check(libc::pthread_create(id.as_mut_ptr(), attributes.as_ptr(), run, start.cast()))
                })
        };
        match made {
            Ok(()) => {
                if !plugs.is_empty() {
                    // It needs nothing of this thread for that, no lock of the loader either.
                    while !has_heap.load(Ordering::Acquire) {
                        // SAFETY: there are no conditions.
                        unsafe { libc::sched_yield() };
                    }
                }
                // SAFETY: filled, since the call succeeded.
                Ok(Thread { id: unsafe { id.assume_init() }, stack: ManuallyDrop::new(stack) })
            }
            Err(error) => {
                // SAFETY: no thread has got it.
                drop(unsafe { Box::from_raw(start) });
                Err(error)
            }
        }
    }

    /// Waits for its end.
    pub fn join(self) {
        let mut thread = ManuallyDrop::new(self);
        // SAFETY: joined once, since `self` is used up; then nothing uses the stack.
        unsafe {
            libc::pthread_join(thread.id, ptr::null_mut());
            ManuallyDrop::drop(&mut thread.stack);
        }
    }

    /// Joins it if it has ended.
    fn try_join(&mut self) -> bool {
        // SAFETY: the thread has not been joined: whoever sees true forgets this value.
        let ended = unsafe { libc::pthread_tryjoin_np(self.id, ptr::null_mut()) } == 0;
        if ended {
            // SAFETY: nothing uses the stack of a thread that has been joined.
            unsafe { ManuallyDrop::drop(&mut self.stack) };
        }
        ended
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // SAFETY: `self` is not used again. The stack moves with the thread.
        let thread =
            unsafe { Thread { id: self.id, stack: ManuallyDrop::new(ManuallyDrop::take(&mut self.stack)) } };
        match LEFT.try_lock() {
            Ok(mut left) => left.push(thread),
            // Its stack stays mapped.
            Err(_) => std::mem::forget(thread),
        }
    }
}

/// Frees the stacks of threads that nobody waited for and that have ended. If another thread does so, this one does not.
fn free_stacks() {
    let Ok(mut left) = LEFT.try_lock() else { return };
    for mut thread in std::mem::take(&mut *left) {
        if thread.try_join() {
            std::mem::forget(thread);
        } else {
            left.push(thread);
        }
    }
}

/// # Safety
/// `start` is of [`Thread::spawn`], which gives it to this thread alone.
extern "C" fn run(start: *mut c_void) -> *mut c_void {
    // SAFETY: freed once. What is allocated first decides where the thread's heap is.
    unsafe { libc::free(black_box(libc::malloc(1))) };
    // SAFETY: a box that `spawn` has taken apart for this thread.
    let Start { name, body, has_heap } = *unsafe { Box::from_raw(start.cast::<Start>()) };
    has_heap.store(true, Ordering::Release);
    // SAFETY: the name lives for ever, and has at most fifteen bytes (else the thread has none).
    unsafe { libc::pthread_setname_np(libc::pthread_self(), name.as_ptr()) };
    let _reported = catch_unwind(AssertUnwindSafe(body));
    ptr::null_mut()
}

fn check(error: i32) -> io::Result<()> {
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

#[cfg(test)]
mod tests;
