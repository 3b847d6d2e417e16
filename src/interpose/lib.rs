//! A library to preload, for programs that look for RDMA devices behind libibverbs' back.
//!
//! It rewrites paths, and directs calls on the connection manager's device node to libibverbs. `/sys/class/infiniband`
//! and `/sys/class/infiniband_verbs` become the same directories below `$SOFTRNIC_SYSFS`, where the devices are
//! described. `/dev/infiniband/NAME` becomes `/dev/null`, a character device that every user may open, if NAME is one
//! of the devices there. The same holds for paths relative to `/sys`, `/sys/class` or `/dev`; a directory further down
//! was opened by a rewritten path already. `/dev/infiniband/rdma_cm` can be opened and written to (`node.rs`). All
//! other paths, and all paths if the variable is not set, go to the next library unchanged.
//!
//! Nothing in these directories can be changed: functions that would are refused. `docs/interposed-calls.md` has them all.
//! Clocks run slower for programs on a fabric in slow motion (`slow.rs`).
//! `dlopen` of libibverbs by any path gives ours (`library.rs`). Sockets of NETLINK_RDMA are answered (`netlink.rs`).
//!
//! Its code may run at any point of a program, and on a small stack. So it does not allocate, takes no locks, keeps no
//! state but cached addresses and two sets of descriptors, and does not use
//! `std::fs`, which would call back into it. A path that is none of ours takes next to no stack.

// Modules that define functions of the C library are not part of tests: they would replace those that tests use.
#![cfg_attr(test, allow(unused))]

#[cfg(not(test))]
mod calls;
#[cfg(not(test))]
mod changes;
mod descriptor_set;
#[cfg(not(test))]
mod descriptors;
mod engine;
#[cfg(not(test))]
mod fts;
mod library;
#[cfg(not(test))]
mod netlink;
mod next;
mod node;
mod rewrite;
#[cfg(not(test))]
mod sanitizer;
mod slow;
