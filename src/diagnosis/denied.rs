//! What the memory refused, and why.

use std::fmt::{self, Formatter};

use softrnic_memory::{Access, BindError, Denial, InvalidateError, MemoryError, ValidRange};
use softrnic_wire::{Qkey, Rkey, Time};

use crate::words::ago;

/// What the memory table refused to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denied {
    /// Access to a range under a key.
    Key(KeyDenied),
    /// To bind a window.
    Bind(BindError),
    /// To invalidate a key.
    Invalidate(Rkey, InvalidateError),
    /// A fast registration.
    FastRegister(MemoryError),
    /// A message with another Q_Key than the queue pair.
    Qkey {
        /// That of the message.
        came: Qkey,
        /// That of the queue pair.
        expected: Qkey,
    },
}

/// A key that did not give access to a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyDenied {
    /// The key.
    pub key: u32,
    /// Whether a peer named it; else a local request.
    pub remote: bool,
    /// First address.
    pub addr: u64,
    /// Bytes.
    pub length: u64,
    /// Why.
    pub denial: Denial,
}

impl Denied {
    /// Writes why, as half a sentence.
    pub(crate) fn write(&self, now: Time, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Denied::Key(denied) => denied.write(now, f),
            Denied::Bind(error) => write!(f, "the window cannot be bound: {error}"),
            Denied::Invalidate(rkey, error) => {
                write!(f, "key {:#x} cannot be invalidated: {error}", rkey.0)
            }
            Denied::Qkey { came, expected } => {
                write!(f, "its Q_Key is {:#x}, that of the QP {:#x}", came.0, expected.0)
            }
            Denied::FastRegister(error) => write!(f, "the region cannot be registered: {error}"),
        }
    }
}

impl KeyDenied {
    fn write(&self, now: Time, f: &mut Formatter<'_>) -> fmt::Result {
        let KeyDenied { key, addr, length, .. } = *self;
        let kind = if self.remote { "rkey" } else { "lkey" };
        match self.denial {
            Denial::UnknownKey if self.remote => write!(f, "no region or window has rkey {key:#x}"),
            Denial::UnknownKey => write!(f, "no region has lkey {key:#x}"),
            Denial::SwappedKey => {
                write!(f, "{kind} {key:#x} is {:#x} with its bytes in the wrong order", key.swap_bytes())
            }
            Denial::Destroyed(stone) => {
                let what = if stone.window { "deallocated" } else { "deregistered" };
                write!(f, "{kind} {key:#x} was {what}{}", ago(stone.at, now))
            }
            Denial::OldTag { key: present } => {
                write!(f, "{kind} {key:#x} is not valid: its index now belongs to {kind} {present:#x}")
            }
            Denial::WindowKey => {
                write!(
                    f,
                    "{key:#x} is the rkey of a memory window, and a local request needs the lkey of a region"
                )
            }
            Denial::WrongPd => {
                write!(f, "{kind} {key:#x} belongs to another protection domain than the queue")
            }
            Denial::Access { missing } => {
                write!(f, "{kind} {key:#x} was registered without {}", Flags(missing))
            }
            Denial::BeforeStart { by, valid } => {
                write!(f, "{addr:#x} is {by} B before the start of {kind} {key:#x} ({})", Range(valid))
            }
            Denial::PastEnd { by, valid } => {
                write!(
                    f,
                    "{length} B at {addr:#x} end {by} B past the end of {kind} {key:#x} ({})",
                    Range(valid)
                )
            }
            Denial::SwappedAddress { valid } => {
                let right = addr.swap_bytes();
                write!(
                    f,
                    "address {addr:#x} is {right:#x} with its bytes in the wrong order, in {kind} {key:#x} ({})",
                    Range(valid)
                )
            }
            Denial::CutAddress { valid } => {
                write!(f, "address {addr:#x} was cut to 32 bits; {kind} {key:#x} is {}", Range(valid))
            }
            Denial::NotBound => write!(f, "the window with rkey {key:#x} is not bound"),
            Denial::NotValid => write!(f, "the region with {kind} {key:#x} waits for its registration"),
            Denial::BoundElsewhere { qpn } => {
                write!(f, "the window with rkey {key:#x} is bound to QP {:#x}", qpn.get())
            }
            Denial::Misaligned => write!(f, "address {addr:#x} of an atomic is not a multiple of 8"),
            Denial::Unmapped => {
                write!(f, "the memory at {addr:#x} of {kind} {key:#x} is not mapped, or not writable")
            }
        }
    }
}

struct Range(ValidRange);

impl fmt::Display for Range {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} B from {:#x}", self.0.length, self.0.start)
    }
}

/// Access flags as the program spells them.
struct Flags(Access);

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (at, (name, _)) in self.0.iter_names().enumerate() {
            let between = if at == 0 { "" } else { " | " };
            write!(f, "{between}IBV_ACCESS_{name}")?;
        }
        Ok(())
    }
}
