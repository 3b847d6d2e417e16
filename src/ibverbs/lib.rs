//! `libibverbs.so.1`: the C verbs ABI, and nothing else.
//!
//! Every function here translates: C structs to the types of `softrnic-nic`, its errors to error numbers, its
//! completions to `ibv_wc`. What a NIC does is decided elsewhere. Start reading at `ffi_boundary.rs`, through which every call
//! passes, then `context.rs`, which lays out the tables that the inline functions of `verbs.h` call.
//!
//! The library is linked by `tools/link-ibverbs`, with the symbol versions of `exports.txt`.
//!
//! # What callers promise
//!
//! `verbs.h` is the contract for pointers: what is passed in is valid for the call, objects come from this library and
//! are not used after they are destroyed, and no two threads use one object's `ibv_wr_*` or `ibv_start_poll` builder at
//! the same time. A `// SAFETY:` comment that names the application relies on this. Null is refused all the same
//! wherever possible.

mod advise_mr;
mod ah;
mod c_view;
mod check;
mod cm;
mod context;
mod cq;
mod cq_ex;
mod device;
mod dm;
mod efadv;
mod errno;
mod event;
mod ffi_boundary;
mod log;
mod marshall;
mod mr;
mod mw;
mod netlink;
mod object;
mod own_calls;
mod pd;
mod post;
mod private;
mod qp;
mod qp_attr;
mod qp_ex;
mod query;
mod rate;
mod raw_mutex;
mod registry;
mod report;
mod reserve;
mod srq;
mod strings;
mod sysfs;
pub mod testing;
mod unaligned;
mod unsupported;
mod xrcd;

pub use softrnic_abi as abi;
