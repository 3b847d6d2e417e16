//! The kernel's side of librdmacm: what is written to `/dev/infiniband/rdma_cm`, and what is answered.
//!
//! librdmacm sends the kernel commands, each a struct written to the device node, with the address for the answer
//! (`include/uapi/rdma/rdma_user_cm.h`). [`Request::read`] turns the bytes into a command, and [`Asked::execute`]
//! executes it with the identifiers of [`softrnic_cma`], which know no C types. The bytes come from libibverbs, to
//! which the preloaded interposer directs all writes to the node.
//!
//! Start reading at `command.rs`, then `execute.rs` and `answer.rs`. Nothing here blocks: the caller waits for events
//! itself, where its thread can be cancelled.

mod answer;
mod command;
mod errno;
mod execute;
mod fields;
mod sockaddr;
mod user;

use std::os::fd::RawFd;

use softrnic_cma::{Event, EventChannel};

pub use errno::Errno;

use command::Command;
use user::{Answer, Frame};

/// What was written to a channel.
pub enum Request {
    /// To be [executed](Asked::execute).
    Command(Asked),
    /// Asks for the next event, which the caller waits for.
    Event(Wanted),
}

/// A command.
pub struct Asked(Command);

/// What a command is about, for whoever watches what programs do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum About {
    /// An identifier listens.
    Listen {
        /// The identifier.
        id: u32,
        /// How many requests may wait.
        backlog: i32,
    },
    /// A connection is accepted with a QP.
    Accept {
        /// The number of the QP.
        qpn: u32,
        /// Bytes of private data.
        private: usize,
    },
    /// A connection is asked for.
    Connect {
        /// Bytes of private data.
        private: usize,
    },
    /// An identifier is destroyed.
    Destroy {
        /// The identifier.
        id: u32,
    },
    /// Anything else.
    Other,
}

/// Where an event is to be written.
#[derive(Clone, Copy)]
pub struct Wanted(Answer);

impl Request {
    /// Reads what was written; `None` if it is not a command, for example because the descriptor number now belongs to
    /// another file.
    ///
    /// # Safety
    /// `length` bytes at `from` can be read. If they are a command, then the value of an option that it names by
    /// address can be read, and the memory for the answer written, until the command is done.
    ///
    /// # Errors
    /// Those of the kernel for such a command.
    pub unsafe fn read(from: *const u8, length: usize) -> Option<Result<Request, Errno>> {
        // SAFETY: the bytes and the memory they name are as the caller promises.
        let frame = unsafe { Frame::read(from, length) }?;
        Some(Command::read(&frame).map(|command| match command {
            Command::GetEvent { answer } => Request::Event(Wanted(answer)),
            command => Request::Command(Asked(command)),
        }))
    }
}

impl Asked {
    /// The function of librdmacm that writes such a command.
    pub fn function(&self) -> &'static str {
        self.0.function()
    }

    /// What it is about.
    pub fn about(&self) -> About {
        match &self.0 {
            Command::Listen { id, backlog } => About::Listen { id: *id, backlog: *backlog },
            Command::Accept { params, .. } => {
                About::Accept { qpn: params.qpn.get(), private: params.private.len() }
            }
            Command::Connect { params, .. } => About::Connect { private: params.private.len() },
            Command::DestroyId { id, .. } => About::Destroy { id: *id },
            _ => About::Other,
        }
    }

    /// Executes the command. `channel_of` finds other channels by their descriptors.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn execute(
        self,
        channel: &EventChannel,
        channel_of: impl Fn(RawFd) -> Option<EventChannel>,
    ) -> Result<(), Errno> {
        execute::execute(channel, self.0, channel_of)
    }
}

impl Wanted {
    /// Writes an event to the application's memory.
    ///
    /// # Errors
    /// EFAULT.
    pub fn write(self, event: &Event) -> Result<(), Errno> {
        self.0.write(&answer::event(event))
    }
}
