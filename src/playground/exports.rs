//! What a page calls: one function that takes a request and leaves an answer, both as JSON in buffers of this module.

use std::cell::RefCell;

use crate::Session;

#[derive(Default)]
struct Buffers {
    session: Session,
    request: Vec<u8>,
    answer: String,
}

thread_local! {
    static BUFFERS: RefCell<Buffers> = RefCell::default();
}

/// Makes room for a request of `length` bytes, and returns where it is to be written.
// SAFETY: no other function has this name.
#[unsafe(no_mangle)]
extern "C" fn playground_reserve(length: usize) -> *mut u8 {
    BUFFERS.with_borrow_mut(|buffers| {
        buffers.request.clear();
        buffers.request.resize(length, 0);
        buffers.request.as_mut_ptr()
    })
}

/// Answers the request. Returns the length of the answer.
// SAFETY: no other function has this name.
#[unsafe(no_mangle)]
extern "C" fn playground_call() -> usize {
    BUFFERS.with_borrow_mut(|buffers| {
        buffers.answer = buffers.session.call(&buffers.request);
        buffers.answer.len()
    })
}

/// Explains the capture that was written in the place of a request, as the page that `softrnic explain --html` makes.
/// Returns the length of the page, or of a sentence about why there is none; `playground_answer` tells where.
// SAFETY: no other function has this name.
#[unsafe(no_mangle)]
extern "C" fn playground_explain() -> usize {
    BUFFERS.with_borrow_mut(|buffers| {
        buffers.answer = crate::packet::explain(&buffers.request);
        buffers.answer.len()
    })
}

/// Where the last answer is.
// SAFETY: no other function has this name.
#[unsafe(no_mangle)]
extern "C" fn playground_answer() -> *const u8 {
    BUFFERS.with_borrow(|buffers| buffers.answer.as_ptr())
}
