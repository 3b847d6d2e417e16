//! AF_XDP sockets: frames between an interface's queue and memory of the process, without the kernel's network stack.
//!
//! A [`Queue`] is one receive queue of an interface in use: a socket, its packet memory ("UMEM") and its four rings. Frames
//! may span several chunks of packet memory (multi-buffer, Linux 6.6), and the kernel says when it needs a system call
//! (need-wakeup). Which chunk and which slot is whose is accounted for exactly; what the kernel says is checked, and what
//! makes no sense is counted.
//!
//! Opening takes three steps, so that one process can do what needs privileges for another: [`Xsk::new`] makes a socket
//! (`CAP_NET_RAW`), [`BoundQueue::open`] gives it memory and binds it, and [`BoundQueue::start`] puts it into use. The
//! descriptors of a bound queue can be handed over: [`BoundQueue::handed_over`].
//!
//! Not here: an XDP program, which directs frames to the socket, and the meaning of frames.

mod error;
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub mod fuzz;
mod memory;
mod options;
mod queue;
mod receive;
mod ring;
#[cfg(any(test, feature = "fuzz"))]
mod testing;
mod transmit;
mod xsk;

pub use error::Error;
pub use memory::Sharing;
pub use options::{BusyPoll, CopyChoice, Options};
pub use queue::{BindMode, BoundQueue, Queue, QueueLayout, QueueSetup, bind_modes};
pub use receive::{ReceiveCount, Received};
pub use transmit::{Kicked, Slot, TransmitCount};
pub use xsk::{Xsk, XskStatistics, single_buffer};
