//! Back-traces: return addresses, each stack once, and numbers that stand for them.
//!
//! Unwinding a stack costs microseconds. A program posts from few places, so the last stack from each depth is kept with the
//! places on the stack where its return addresses are. While those are the same, so is the trace.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::ffi::{CStr, c_void};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use softrnic_check::Trace;

use crate::python::Lines;

/// Calls of the program in a trace.
const DEPTH: usize = 16;
/// Calls that are unwound, with those of this library.
const UNWOUND: usize = 48;
/// Traces that are kept; later ones are not known.
const MOST: usize = 1 << 16;
/// Depths of which the last stack is kept.
const DEPTHS: usize = 1 << 12;
/// Callers at each.
const CALLERS: usize = 4;

/// Every stack once, with a number.
#[derive(Default)]
pub struct Traces {
    stacks: Vec<Stack>,
    numbers: HashMap<Stack, Trace>,
    recent: HashMap<usize, Vec<Recent>>,
}

/// The calls that led to a verb, innermost first.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Stack {
    /// Return addresses.
    pub calls: Box<[usize]>,
    /// The lines of Python that led there, if any did.
    pub lines: Lines,
}

/// Places on a stack, and the return addresses there.
type Slots = Box<[(usize, usize)]>;

/// A stack that was unwound.
struct Recent {
    /// Where its return addresses are, and what they were.
    slots: Slots,
    calls: Box<[usize]>,
    /// What it is without Python.
    trace: Trace,
}

thread_local! {
    /// This thread's stack; empty if it is not known.
    static STACK: OnceCell<Range<usize>> = const { OnceCell::new() };
}

impl Traces {
    /// The calls that led here, and the lines of Python that did.
    #[inline(never)]
    pub fn here(&mut self, lines: Lines) -> Trace {
        let marker = 0_usize;
        let depth = (&raw const marker).addr();
        let stack = own_stack();
        let recent = self.recent.get(&depth).filter(|_| stack.contains(&depth));
        let found = recent.and_then(|recent| recent.iter().find(|recent| recent.is_now(stack.end)));
        if let Some(recent) = found {
            if lines.is_empty() {
                return recent.trace;
            }
            let calls = recent.calls.clone();
            return self.number(Stack { calls, lines });
        }
        let (calls, slots) = unwind(depth, &stack);
        let trace = self.number(Stack { calls: calls.clone(), lines: Lines::default() });
        if let Some(slots) = slots {
            if self.recent.len() == DEPTHS {
                self.recent.clear();
            }
            let recent = self.recent.entry(depth).or_default();
            if recent.len() == CALLERS {
                recent.remove(0);
            }
            recent.push(Recent { slots, calls: calls.clone(), trace });
        }
        if lines.is_empty() { trace } else { self.number(Stack { calls, lines }) }
    }

    /// The stack with a number.
    pub fn stack(&self, trace: Trace) -> Option<&Stack> {
        self.stacks.get((trace.0 as usize).checked_sub(1)?)
    }

    fn number(&mut self, stack: Stack) -> Trace {
        if let Some(known) = self.numbers.get(&stack) {
            return *known;
        }
        if self.stacks.len() == MOST {
            return Trace::default();
        }
        self.stacks.push(stack.clone());
        let trace = Trace(self.stacks.len() as u32);
        self.numbers.insert(stack, trace);
        trace
    }
}

impl Recent {
    /// Whether it is the stack of this thread, which ends at `end`, and which the thread is on.
    #[inline]
    fn is_now(&self, end: usize) -> bool {
        // Unwinding goes outwards, so the last is the highest. Another thread may have had its stack here.
        self.slots.last().is_none_or(|(slot, _)| *slot < end)
            && self.slots.iter().all(|(slot, call)| {
                // SAFETY: between the depth by which the entry was found, where this thread is on its own stack, as the caller
                // has checked, and the end of that, as just checked; aligned, as `unwind` has checked.
                let now = unsafe { AtomicUsize::from_ptr(std::ptr::with_exposed_provenance_mut(*slot)) };
                now.load(Ordering::Relaxed) == *call
            })
    }
}

/// Unwinds the stack: the calls of the program, and where on the stack they are if that is certain.
fn unwind(depth: usize, stack: &Range<usize>) -> (Box<[usize]>, Option<Slots>) {
    let (mut calls, mut slots, mut certain, mut count) = (Vec::new(), Vec::new(), stack.contains(&depth), 0);
    // SAFETY: unsynchronised, since nothing else of the crate is called meanwhile on this thread: the lock on all that is
    // known is held. It reads the stack and the tables of the libraries.
    unsafe {
        backtrace::trace_unsynchronized(|frame| {
            let (call, above) = (frame.ip().addr(), frame.sp().addr());
            if call == 0 {
                // Below the first function there is nothing.
                return false;
            }
            let slot = above.wrapping_sub(size_of::<usize>());
            if slot > depth {
                // Where this processor keeps a return address right below the caller's frame.
                let is_there = slot.is_multiple_of(align_of::<usize>()) && stack.contains(&slot) && {
                    let kept = AtomicUsize::from_ptr(std::ptr::with_exposed_provenance_mut(slot));
                    kept.load(Ordering::Relaxed) == call
                };
                certain &= is_there;
                slots.push((slot, call));
            }
            if !is_ours(call) || !calls.is_empty() {
                calls.push(call);
            }
            count += 1;
            calls.len() < DEPTH && count < UNWOUND
        });
    }
    (calls.into(), certain.then(|| slots.into()))
}

/// Whether an address is in this library, or in the one that is preloaded beside it.
fn is_ours(address: usize) -> bool {
    static OURS: OnceLock<Vec<Range<usize>>> = OnceLock::new();
    OURS.get_or_init(own_ranges).iter().any(|range| range.contains(&address))
}

/// The library that calls this one for programs that bypass it.
const PRELOADED: &[u8] = b"/libsoftrnic_interpose.so";

/// Where the code of both is.
fn own_ranges() -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    // SAFETY: the callback gets the pointer that is passed here, which lives through the call.
    unsafe { libc::dl_iterate_phdr(Some(find), (&raw mut ranges).cast()) };
    ranges
}

/// Adds the range of an object that is one of ours.
unsafe extern "C" fn find(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> i32 {
    // SAFETY: the linker's description of an object, valid for the call; `data` is what `own_ranges` passes.
    let (info, ranges) = unsafe { (&*info, &mut *data.cast::<Vec<Range<usize>>>()) };
    // SAFETY: a name of the linker's, or null.
    let is_preloaded = !info.dlpi_name.is_null()
        && unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes().ends_with(PRELOADED);
    // SAFETY: the headers of the object, as many as it says.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let loaded = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let base = info.dlpi_addr as usize;
    let (mut from, mut to) = (usize::MAX, 0);
    for header in loaded {
        let start = base + header.p_vaddr as usize;
        from = from.min(start);
        to = to.max(start + header.p_memsz as usize);
    }
    let own = own_ranges as fn() -> Vec<Range<usize>> as usize;
    if is_preloaded || (from..to).contains(&own) {
        ranges.push(from..to);
    }
    0
}

/// This thread's stack. A program may be on another one, of a signal or a coroutine.
fn own_stack() -> Range<usize> {
    STACK.with(|known| known.get_or_init(|| find_stack().unwrap_or_default()).clone())
}

fn find_stack() -> Option<Range<usize>> {
    let mut attributes = std::mem::MaybeUninit::uninit();
    let (mut base, mut size) = (std::ptr::null_mut(), 0);
    // SAFETY: the attributes are filled by the first call, read by the second and given back by the third.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return None;
        }
        let found = libc::pthread_attr_getstack(attributes.as_ptr(), &mut base, &mut size);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        (found == 0).then(|| base.addr()..base.addr() + size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn inner(traces: &mut Traces) -> Trace {
        traces.here(Lines::default())
    }

    #[inline(never)]
    fn outer(traces: &mut Traces) -> Trace {
        std::hint::black_box(inner(traces))
    }

    #[test]
    fn a_stack_is_unwound_once_as_long_as_it_is_the_same() {
        let mut traces = Traces::default();
        let first: Vec<_> = (0..3).map(|_| outer(&mut traces)).collect();
        assert!(first.iter().all(|trace| *trace == first[0] && trace.0 != 0));
        let kept: usize = traces.recent.values().map(Vec::len).sum();
        assert_eq!(kept, 1, "on x86-64 the places of return addresses are known");
    }
}
