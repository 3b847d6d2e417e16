//! Capabilities of a device. At least as large as kernel rxe's, unless a limit is real.

use softrnic_link::ProcessSlot;

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

impl DeviceCaps {
    /// Those of a device that has a slot of its address, and so fewer numbers.
    pub fn in_slot(self, slot: Option<ProcessSlot>) -> DeviceCaps {
        let max_qp = slot.map_or(self.max_qp, |_| self.max_qp.min(ProcessSlot::MAX_QPS));
        DeviceCaps { max_qp, ..self }
    }
}

impl Default for DeviceCaps {
    fn default() -> Self {
        DeviceCaps {
            max_qp: 1 << 20,
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
            gid_table_len: super::gid_table::GID_TABLE_LEN,
            max_dm_size: 256 << 20,
        }
    }
}
