//! The state of the port, as verbs report it.

use softrnic_transport::{Counter, MAX_MESSAGE};
use softrnic_wire::Mtu;

use crate::device::{Port, PortSpeed, PortState};
use softrnic_engine::{DropReason, Engine};

/// The state of the port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortAttributes {
    /// Whether packets pass.
    pub state: PortState,
    /// How fast it says that it is.
    pub speed: PortSpeed,
    /// The largest path MTU that fits the network below.
    pub active_mtu: Mtu,
    /// Longest message, in bytes.
    pub max_message: u32,
    /// Packets with a P_Key that does not match.
    pub bad_pkey: u64,
    /// Packets with a Q_Key that does not match.
    pub qkey_violations: u64,
}

impl PortAttributes {
    pub(crate) fn of(port: &Port, engine: &Engine) -> PortAttributes {
        let dropped =
            |wanted| engine.drops().find(|(reason, _)| *reason == wanted).map_or(0, |(_, count)| count);
        let counted =
            |wanted| engine.counters().find(|(what, _)| *what == wanted).map_or(0, |(_, count)| count);
        PortAttributes {
            state: port.state().into(),
            speed: PortSpeed::of(port.shown().speed),
            active_mtu: port.active_mtu(),
            max_message: MAX_MESSAGE,
            bad_pkey: dropped(DropReason::Pkey),
            qkey_violations: counted(Counter::DropQkey),
        }
    }
}
