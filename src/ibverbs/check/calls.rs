//! Verbs that were refused.

use softrnic_check::{Kind, Part};
use softrnic_stacks::Lines;

use softrnic_sync::channel::AckCounter;

use super::{State, subject, verb_name, why, with};
use crate::errno::Errno;

/// A verb outside the data path was refused.
#[cold]
pub(crate) fn refused(verb: &str, errno: Errno) {
    let verb = verb_name().unwrap_or(verb);
    let why = why();
    let about = subject();
    let kind = match errno {
        Errno::BUSY => Kind::StillUsed,
        Errno::INVAL | Errno::NOENT | Errno(libc::EFAULT) => Kind::RefusedVerb,
        // What the device does not offer, or has no room for, is no mistake.
        _ => return,
    };
    let what = said(verb, errno, why);
    let lines = softrnic_stacks::lines();
    with(|state| {
        let call = call(state, verb, lines);
        state.checker.refused(kind, what, call, (about != 0).then_some(about));
    });
}

/// An object is to be destroyed, with events that were not acknowledged: the verb waits for that.
#[cold]
pub(crate) fn unacknowledged(verb: &str, object: usize, acks: &AckCounter) {
    let events = acks.outstanding();
    if events == 0 {
        return;
    }
    let what = format!("{verb} waits until {events} events have been acknowledged, which may be for ever");
    let lines = softrnic_stacks::lines();
    with(|state| {
        let call = call(state, verb, lines);
        state.checker.refused(Kind::UnackedEvents, what, call, Some(object));
    });
    super::write();
}

/// A call of the program that this thread is in.
pub(super) fn call(state: &mut State, verb: &str, lines: Lines) -> Part {
    Part { says: format!("{verb} was called"), trace: state.traces.here(lines) }
}

pub(super) fn said(verb: &str, errno: Errno, why: Option<String>) -> String {
    let name = match errno {
        Errno::INVAL => "EINVAL",
        Errno::BUSY => "EBUSY",
        Errno::NOENT => "ENOENT",
        Errno::NOMEM => "ENOMEM",
        Errno(libc::EFAULT) => "EFAULT",
        _ => "an error",
    };
    match why {
        Some(why) => format!("{verb} fails with {name}: {why}"),
        None => format!("{verb} fails with {name}"),
    }
}
