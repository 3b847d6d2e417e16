//! AddressSanitizer's runtime ends a program in which another library was loaded before it, as it may miss calls of
//! functions that both define. Ours passes all on to the next definition, so it misses none.

use std::ffi::{CStr, c_char};

/// Settings that the runtime asks the program for; those in `ASAN_OPTIONS` come on top. A program with an answer of its own
/// does not ask ours, so `softrnic run` puts the same into the variable.
#[unsafe(no_mangle)]
extern "C" fn __asan_default_options() -> *const c_char {
    const OPTIONS: &CStr = c"verify_asan_link_order=0";
    OPTIONS.as_ptr()
}
