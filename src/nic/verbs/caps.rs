//! What a device can do. At least as wide as kernel rxe, unless a limit is real.

use softrnic_link::host::LinkState;
use softrnic_transport::{Counter, MAX_MESSAGE};
use softrnic_wire::Mtu;

use crate::device::Port;
use crate::engine::{DropReason, Engine, MAX_QP};

/// Limits of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct DeviceCaps {
    pub max_qp: usize,
    pub max_qp_wr: usize,
    pub max_sge: usize,
    pub max_inline: usize,
    pub max_cq: usize,
    pub max_cqe: usize,
    pub max_mr: usize,
    pub max_mw: usize,
    pub max_pd: usize,
    pub max_rd_atomic: u8,
    pub max_ah: usize,
    pub max_srq: usize,
    pub max_srq_wr: usize,
    pub max_srq_sge: usize,
    pub max_mcast_groups: usize,
    pub max_mcast_qp_attach: usize,
    pub max_fast_reg_pages: usize,
    pub gid_table_len: usize,
    pub max_dm_size: u64,
}

impl Default for DeviceCaps {
    fn default() -> Self {
        DeviceCaps {
            max_qp: MAX_QP,
            max_qp_wr: 1 << 20,
            max_sge: 32,
            max_inline: 512,
            max_cq: 1 << 20,
            max_cqe: 1 << 22,
            max_mr: 1 << 20,
            max_mw: 1 << 20,
            max_pd: 1 << 20,
            max_rd_atomic: softrnic_transport::MAX_RD_ATOMIC,
            max_ah: 1 << 20,
            max_srq: 1 << 20,
            max_srq_wr: 1 << 20,
            max_srq_sge: 32,
            max_mcast_groups: 8192,
            max_mcast_qp_attach: 56,
            max_fast_reg_pages: 512,
            gid_table_len: 1024,
            max_dm_size: 256 << 20,
        }
    }
}

/// Whether packets get through, and if not, why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortState {
    /// The interface is switched off or gone.
    Disabled,
    /// The interface is up and has no carrier.
    Polling,
    /// Packets get through.
    Active,
}

/// The state of the port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortAttributes {
    /// Whether packets get through.
    pub state: PortState,
    /// The largest path MTU that fits the network below.
    pub active_mtu: Mtu,
    /// Longest message, in bytes.
    pub max_message: u32,
    /// Packets with a foreign P_Key.
    pub bad_pkey: u64,
    /// Packets with a foreign Q_Key.
    pub qkey_violations: u64,
}

impl PortAttributes {
    pub(crate) fn of(port: &Port, engine: &Engine) -> PortAttributes {
        let dropped =
            |wanted| engine.drops().find(|(reason, _)| *reason == wanted).map_or(0, |(_, count)| count);
        let counted =
            |wanted| engine.counters().find(|(what, _)| *what == wanted).map_or(0, |(_, count)| count);
        PortAttributes {
            state: match port.state() {
                LinkState::Up => PortState::Active,
                LinkState::NoCarrier => PortState::Polling,
                LinkState::AdminDown => PortState::Disabled,
            },
            active_mtu: port.active_mtu(),
            max_message: MAX_MESSAGE,
            bad_pkey: dropped(DropReason::Pkey),
            qkey_violations: counted(Counter::DropQkey),
        }
    }
}
