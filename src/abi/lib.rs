//! The types and numbers of `verbs.h`, with its names.
//!
//! Enumerations are integers here: a C caller may pass any value. `testdata/layout.txt` records the layout of the
//! structs for a C compiler; `build.rs` turns it into assertions, so no other layout compiles. Everything is here, used
//! or not.
#![allow(non_camel_case_types, non_snake_case, dead_code, missing_docs)]

mod consts;
mod context;
mod kern;
mod memory;
mod queue;

pub use consts::*;
pub use context::*;
pub use kern::*;
pub use memory::*;
pub use queue::*;

/// The assertions of `testdata/layout.txt`. The facts are those of x86-64: `pthread_mutex_t` is longer elsewhere.
#[cfg(target_arch = "x86_64")]
mod layout {
    // Fields of unions are accessed in closures that are never called, to find their size.
    #![allow(unused_unsafe)]
    use super::*;

    const fn size<S, F>(_: fn(&S) -> &F) -> usize {
        std::mem::size_of::<F>()
    }

    include!(concat!(env!("OUT_DIR"), "/layout.rs"));
}
