//! Who is told what happens.

use crate::frame::{Frame, Priority};
use crate::picos::Picos;
use crate::topology::{Host, PortId};

/// Why a frame did not arrive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum DropReason {
    /// The switch had no room.
    NoRoom,
    /// No path to the destination is known.
    NoRoute,
    /// The link is down, or went down while the frame was on it.
    LinkDown,
    /// The link is a black hole.
    BlackHole,
    /// The link damaged it.
    Damaged,
    /// The player of the model wanted it: [`Meddling::Lose`].
    OnPurpose,
}

/// What a player of the model does on purpose to a frame that leaves a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Meddling {
    /// Nothing that the model needs to know.
    Nothing,
    /// It is lost on the link.
    Lose,
    /// It arrives twice.
    Twice,
    /// It arrives so much later.
    Delay(Picos),
    /// It arrives behind so many frames that leave after it, or a millisecond later if there are fewer.
    Behind(u32),
}

/// What a player of the model does when something happens. Only deliveries must be handled.
pub trait Observer<P> {
    /// A frame has arrived at a host.
    fn deliver(&mut self, at: Picos, host: Host, frame: Frame<P>);

    /// The port of a host has sent something, so that it may have room again.
    fn has_room(&mut self, _at: Picos, _host: Host) {}

    /// A frame was put into the egress queue of `port`, which is now `queued` bytes long.
    fn enqueued(&mut self, _at: Picos, _port: PortId, _frame: &Frame<P>, _queued: u64) {}

    /// Whether it wants to be told of frames that leave: what follows. Asked each time, since it takes time to tell.
    #[inline]
    fn watches(&self) -> bool {
        true
    }

    /// A frame is about to leave by `port`, and its payload may be changed. Only what is done to it on purpose is counted.
    #[inline]
    fn meddle(&mut self, _at: Picos, _port: PortId, _frame: &mut Frame<P>) -> Option<Meddling> {
        None
    }

    /// A frame begins to leave by `port`.
    fn sent(&mut self, _at: Picos, _port: PortId, _frame: &Frame<P>) {}

    /// The queue of `port` has marked a frame.
    fn marked(&mut self, _at: Picos, _port: PortId, _frame: &Frame<P>) {}

    /// A frame on its way to `port`'s queue, or on its link, was lost.
    fn dropped(&mut self, _at: Picos, _port: PortId, _frame: &Frame<P>, _reason: DropReason) {}

    /// `port` stops sending a priority, because its peer says so.
    fn paused(&mut self, _at: Picos, _port: PortId, _priority: Priority) {}

    /// `port` goes on sending a priority.
    fn resumed(&mut self, _at: Picos, _port: PortId, _priority: Priority) {}

    /// The link of a host went down or came up.
    fn link_changed(&mut self, _at: Picos, _host: Host, _is_up: bool) {}
}

/// An observer that ignores everything.
#[derive(Clone, Copy, Debug)]
pub struct Nothing;

impl<P> Observer<P> for Nothing {
    fn deliver(&mut self, _at: Picos, _host: Host, _frame: Frame<P>) {}
}
