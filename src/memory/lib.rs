//! What a NIC knows about application memory: protection domains, memory regions, memory windows, their keys, who may
//! access which bytes and how, and the copies in and out.
//!
//! Everything is in one [`MemoryTable`]. It has a single owner and no locks, and knows nothing of queues, packets or
//! threads. Start reading at `table.rs`, then `check.rs` for the rules and `copy.rs` for the copies.
//!
//! # Memory that others write
//!
//! Registered memory belongs to the application, whose threads may read and write it at any time. This crate never
//! holds a Rust reference into it: addresses are integers, bytes are moved by the copy in `racing.rs`, and nothing is
//! read twice. A copy that races with the application moves some mixture of old and new bytes, exactly as a NIC's DMA
//! does; only 8-byte aligned [atomics](MemoryTable::fetch_add) promise more.
//!
//! # What is slow
//!
//! The owner of a table may keep it behind a lock that other threads wait for. So everything that waits for the kernel,
//! or whose cost grows with a number that the application chooses, takes no table and is called without the lock:
//! [`MrSpec::prepare`], [`DeviceMemory::new`] and its copies, [`Prefetch::run`]. What is slow to free is returned for
//! the caller to drop.
//!
//! # Memory that goes away
//!
//! Hardware pins what is registered; user space cannot. Registration faults every page in and so checks that it exists.
//! Should an application unmap a region before it deregisters it, the next copy raises a signal, which `lost_page.rs`
//! turns into an error as long as the application has not replaced its handler. Regions registered with
//! [`Access::ON_DEMAND`], implicit ones included, are copied with `process_vm_readv` and `process_vm_writev` on the process
//! itself, which report EFAULT instead; [`Config::safe_copies`] extends that to every region, at the cost of a system call
//! per copy.
//!
//! # Without a system
//!
//! WebAssembly has one thread and no kernel: nothing races, every address of its memory is mapped, and a copy is a copy.
//! `wasm.rs` stands there for the files that know about the system, and for the list of what is registered.
//!
//! # Example
//!
//! ```
//! use softrnic_memory::{Access, AppRange, MemoryTable, MrSpec, RemoteFault};
//! use softrnic_wire::Qpn;
//!
//! let buffer = vec![0_u8; 100].leak();
//! let (addr, length) = (buffer.as_mut_ptr().expose_provenance(), 100);
//! let mut table = MemoryTable::new([42; 32]);
//! let pd = table.alloc_pd()?;
//! // SAFETY: leaked memory stays; nothing else uses it.
//! let range = unsafe { AppRange::new(addr, length) };
//! let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
//! let keys = table.reg_mr(pd, MrSpec { range, iova: 0x1000, access })?;
//!
//! let qpn = Qpn::new(17);
//! assert_eq!(table.write_remote(pd, qpn, keys.rkey, 0x1000, b"from a peer"), Ok(()));
//! assert_eq!(table.write_remote(pd, qpn, keys.rkey, 0x1000 + 99, b"xy"), Err(RemoteFault::Bounds));
//! table.dereg_mr(keys.lkey)?;
//! # Ok::<(), softrnic_memory::MemoryError>(())
//! ```

mod access;
mod app_range;
mod atomic;
#[cfg(not(target_family = "wasm"))]
mod available;
mod bind;
mod check;
mod copy;
mod denial;
mod device_memory;
mod error;
mod key;
#[cfg(not(target_family = "wasm"))]
mod lost_page;
mod page_list;
mod pd;
#[cfg(not(target_family = "wasm"))]
mod populate;
#[cfg(not(target_family = "wasm"))]
mod racing;
mod region;
mod register;
#[cfg(not(target_family = "wasm"))]
mod safe_copy;
mod sge;
mod table;
#[cfg(not(target_family = "wasm"))]
mod valgrind;
#[cfg(target_family = "wasm")]
mod wasm;
mod window;

#[cfg(not(target_family = "wasm"))]
use softrnic_mapping as registered;
#[cfg(target_family = "wasm")]
use wasm::{lost_page, populate, racing, registered, safe_copy, valgrind};

pub use access::Access;
pub use app_range::{AppRange, copy_from_app, copy_if_mapped, copy_to_app, write_if_mapped};
pub use atomic::FlushScope;
pub use check::{LocalFault, RemoteFault};
pub use copy::append_shared;
pub use denial::{Denial, Tombstone, ValidRange};
pub use device_memory::{DeviceMemory, DmId};
pub use error::{BindError, InvalidateError, MemoryError};
pub use key::{Lkey, MrKeys};
pub use pd::PdId;
pub use populate::available as pages_can_be_populated;
pub use region::{MrSpec, RegionInfo, RegionKind, RegionState, ReregSpec};
pub use register::{Prefetch, PreparedMr, PreparedPages};
pub use safe_copy::available as safe_copies_work;
pub use sge::Sge;
pub use softrnic_mapping::SharedBytes;
pub use table::{Config, Limits, MemoryTable};
pub use window::{BindSpec, MwType, WindowInfo};
