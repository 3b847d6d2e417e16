//! Parts of sentences.

use std::fmt::{self, Formatter};
use std::time::Duration;

use softrnic_transport::{Attempt, QpFacts, QpState, QpType, WcOpcode};
use softrnic_wire::Time;

/// What a QP is, in front of a sentence about it.
pub(crate) struct Subject<'a>(pub &'a QpFacts);

impl fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let QpFacts { qpn, service, state, peer, .. } = self.0;
        write!(f, "QP {:#x} ({}", qpn.get(), state.name())?;
        let connected = !matches!(state, QpState::Reset | QpState::Init);
        if connected && *service != QpType::Ud {
            write!(f, ", peer {} QP {:#x}", peer.0, peer.1.get())?;
        }
        f.write_str(")")
    }
}

/// A request, with its length and where it goes.
pub(crate) struct Request<'a>(pub &'a Attempt);

impl fmt::Display for Request<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Attempt { opcode, length, remote, .. } = self.0;
        f.write_str(operation(*opcode))?;
        if !matches!(opcode, WcOpcode::BindMw | WcOpcode::LocalInvalidate) {
            write!(f, " of {length} B")?;
        }
        if let Some(remote) = remote {
            let way = if *opcode == WcOpcode::RdmaRead { "from" } else { "to" };
            write!(f, " {way} {:#x} with rkey {:#x}", remote.va, remote.rkey.0)?;
        }
        Ok(())
    }
}

fn operation(opcode: WcOpcode) -> &'static str {
    match opcode {
        WcOpcode::Send => "SEND",
        WcOpcode::RdmaWrite | WcOpcode::RecvRdmaWithImm => "WRITE",
        WcOpcode::RdmaRead => "READ",
        WcOpcode::CompareSwap => "compare-and-swap",
        WcOpcode::FetchAdd => "fetch-and-add",
        WcOpcode::BindMw => "bind of a window",
        WcOpcode::LocalInvalidate => "invalidation or registration",
        WcOpcode::Flush => "FLUSH",
        WcOpcode::AtomicWrite => "ATOMIC WRITE",
        WcOpcode::Recv => "message",
    }
}

/// `" 1.5 s ago"`, or nothing where the time is not known.
pub(crate) fn ago(then: Option<Time>, now: Time) -> String {
    then.map_or_else(String::new, |then| format!(" {} ago", span(then, now)))
}

/// The time between, to two digits or so.
pub(crate) fn span(then: Time, now: Time) -> String {
    let span = Duration::from_nanos(now.as_nanos().saturating_sub(then.as_nanos()));
    match span.as_micros() {
        us @ 0..1_000 => format!("{us} µs"),
        us @ 1_000..1_000_000 => format!("{} ms", us / 1_000),
        _ => format!("{:.1} s", span.as_secs_f64()),
    }
}
