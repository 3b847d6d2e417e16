//! The kernel's part for librdmacm: what is written to `/dev/infiniband/rdma_cm`, and what is answered.
//!
//! librdmacm asks the kernel by commands, each a struct that it writes to the device node, with the address of where
//! the answer goes (`include/uapi/rdma/rdma_user_cm.h`). [`Request::read`] makes a command out of the bytes, and
//! [`Asked::execute`] does what it says with the identifiers of [`softrnic_nic::cm`], which know no C types. Who hands
//! the bytes in is libibverbs, to whom the preloaded interposer leads all writes to the node.
//!
//! Start reading at `command.rs`, then `execute.rs` and `answer.rs`. Nothing here waits: a caller that asks for an event
//! waits for it by itself, since it can be cancelled there.

mod answer;
mod command;
mod errno;
mod execute;
mod fields;
mod sockaddr;
mod user;

use std::os::fd::RawFd;

use softrnic_nic::cm::{Event, EventChannel};

pub use errno::Errno;

use command::Command;
use user::{Answer, Frame};

/// What was written to a channel.
pub enum Request {
    /// To be [executed](Asked::execute).
    Command(Asked),
    /// The next event, to be waited for.
    Event(Wanted),
}

/// A command.
pub struct Asked(Command);

/// Where an event is to be written.
#[derive(Clone, Copy)]
pub struct Wanted(Answer);

impl Request {
    /// Reads what was written; `None` if it is no command, as when the descriptor's number is another file's by now.
    ///
    /// # Safety
    /// `length` bytes at `from` can be read. If they are a command, then the value of an option that it names by address can
    /// be read, and the memory for the answer written, until the command is done.
    ///
    /// # Errors
    /// Whatever the kernel says to such a command.
    pub unsafe fn read(from: *const u8, length: usize) -> Option<Result<Request, Errno>> {
        // SAFETY: the bytes and what they name are as the caller promises.
        let frame = unsafe { Frame::read(from, length) }?;
        Some(Command::read(&frame).map(|command| match command {
            Command::GetEvent { answer } => Request::Event(Wanted(answer)),
            command => Request::Command(Asked(command)),
        }))
    }
}

impl Asked {
    /// Does it. `channel_of` finds other channels by their descriptors.
    ///
    /// # Errors
    /// Whatever the kernel says.
    pub fn execute(
        self,
        channel: &EventChannel,
        channel_of: impl Fn(RawFd) -> Option<EventChannel>,
    ) -> Result<(), Errno> {
        execute::execute(channel, self.0, channel_of)
    }
}

impl Wanted {
    /// Hands an event to the application.
    ///
    /// # Errors
    /// EFAULT.
    pub fn write(self, event: &Event) -> Result<(), Errno> {
        self.0.write(&answer::event(event))
    }
}
