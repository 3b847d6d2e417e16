//! Memory of the NIC's own: mappings, stacks of threads and large blocks of the heap, none of them where an application
//! has registered memory.
//!
//! An application may unmap memory that is still registered. The kernel is free to map something else there, and peers
//! that have the key go on writing to it. If it is the application's, that is its own mistake, as on hardware every use of
//! memory after its end is; a NIC's rings and stacks, which hardware has elsewhere, must not be there. So the process has
//! one list of what is [registered](Registered), and what is mapped here keeps clear of it.
//!
//! Two things are not kept apart. Small blocks come from the C library's heap, which is the application's as well. And an
//! implicit on-demand region has all of the address space, so nothing is outside of it.
//!
//! [`SharedBytes`] are bytes of whatever memory, to be copied from.

#[cfg(not(target_family = "wasm"))]
mod heap;
#[cfg(not(target_family = "wasm"))]
mod mapping;
#[cfg(not(target_family = "wasm"))]
mod registered;
mod shared_bytes;
#[cfg(all(test, not(target_family = "wasm")))]
mod testing;
#[cfg(not(target_family = "wasm"))]
mod thread;

#[cfg(not(target_family = "wasm"))]
pub use heap::Heap;
#[cfg(not(target_family = "wasm"))]
pub use mapping::Mapping;
#[cfg(not(target_family = "wasm"))]
pub use registered::Registered;
pub use shared_bytes::SharedBytes;
#[cfg(not(target_family = "wasm"))]
pub use thread::Thread;
