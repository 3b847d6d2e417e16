//! The types and numbers of `efadv.h` (rdma-core 65), with its names, and what `libefa.so.1` exports (`exports.txt`).
//!
//! `libefa.so.1` itself has no code: `tools/link-efa` links it, and each of its functions jumps to the one of the same name
//! behind `softrnic_` in our `libibverbs.so.1`, where the objects are that it works on. Structures have grown with rdma-core;
//! a caller says how long its own is.
#![forbid(unsafe_code)]
#![allow(non_camel_case_types, missing_docs)]

use std::mem::{offset_of, size_of};

#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct efadv_device_attr {
    pub comp_mask: u64,
    pub max_sq_wr: u32,
    pub max_rq_wr: u32,
    pub max_sq_sge: u16,
    pub max_rq_sge: u16,
    pub inline_buf_size: u16,
    pub inline_buf_size_ex: u16,
    pub device_caps: u32,
    pub max_rdma_size: u32,
}

pub const EFADV_DEVICE_ATTR_CAPS_RDMA_READ: u32 = 1;
pub const EFADV_DEVICE_ATTR_CAPS_RNR_RETRY: u32 = 1 << 1;
pub const EFADV_DEVICE_ATTR_CAPS_CQ_WITH_SGID: u32 = 1 << 2;
pub const EFADV_DEVICE_ATTR_CAPS_RDMA_WRITE: u32 = 1 << 3;
pub const EFADV_DEVICE_ATTR_CAPS_UNSOLICITED_WRITE_RECV: u32 = 1 << 4;

/// What our devices have of these, for a caller whose `efadv_device_attr` is `length` bytes long. Who does not know the longest
/// WRITE and READ cannot use them.
pub const fn device_caps(length: usize) -> u32 {
    const ONE_SIDED: u32 = EFADV_DEVICE_ATTR_CAPS_RDMA_READ | EFADV_DEVICE_ATTR_CAPS_RDMA_WRITE;
    const OTHERS: u32 = EFADV_DEVICE_ATTR_CAPS_RNR_RETRY
        | EFADV_DEVICE_ATTR_CAPS_CQ_WITH_SGID
        | EFADV_DEVICE_ATTR_CAPS_UNSOLICITED_WRITE_RECV;
    if length >= size_of::<efadv_device_attr>() { ONE_SIDED | OTHERS } else { OTHERS }
}

#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct efadv_ah_attr {
    pub comp_mask: u64,
    pub ahn: u16,
    pub reserved: [u8; 6],
}

#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct efadv_qp_init_attr {
    pub comp_mask: u64,
    pub driver_qp_type: u32,
    pub flags: u16,
    pub sl: u8,
    pub reserved: u8,
    pub wr_flags: u64,
}

pub const EFADV_QP_DRIVER_TYPE_SRD: u32 = 0;
pub const EFADV_QP_FLAGS_UNSOLICITED_WRITE_RECV: u16 = 1;
pub const EFADV_QP_FLAGS_INLINE_WRITE: u16 = 1 << 1;
pub const EFADV_WR_EX_WITH_PROCESSING_HINTS: u64 = 1;

#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct efadv_cq_init_attr {
    pub comp_mask: u64,
    pub wc_flags: u64,
    pub flags: u64,
    /// An external buffer, which we have no use for.
    pub ext_mem_dmabuf: [u64; 4],
}

pub const EFADV_WC_EX_WITH_SGID: u64 = 1;
pub const EFADV_WC_EX_WITH_IS_UNSOLICITED: u64 = 1 << 1;

/// What extends a CQ; callers find it by `efadv_cq_from_ibv_cq_ex`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct efadv_cq {
    pub comp_mask: u64,
    pub wc_read_sgid: Option<unsafe extern "C" fn(*mut efadv_cq, *mut [u8; 16]) -> i32>,
    pub wc_is_unsolicited: Option<unsafe extern "C" fn(*mut efadv_cq) -> bool>,
}

/// What extends a QP; callers find it by `efadv_qp_from_ibv_qp_ex`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct efadv_qp {
    pub comp_mask: u64,
    pub wr_set_processing_hints: Option<unsafe extern "C" fn(*mut efadv_qp, u32)>,
}

#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct efadv_sq_depth_attr {
    pub comp_mask: u64,
    pub flags: u32,
    pub max_send_sge: u32,
    pub max_rdma_sge: u32,
    pub max_inline_data: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct efadv_rq_depth_attr {
    pub comp_mask: u64,
    pub max_recv_sge: u32,
    pub reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct efadv_mr_attr {
    pub comp_mask: u64,
    pub ic_id_validity: u16,
    pub recv_ic_id: u16,
    pub rdma_read_ic_id: u16,
    pub rdma_recv_ic_id: u16,
}

/// What a caller of rdma-core 44, the oldest that is supported, has of a structure at least.
pub const SHORTEST_QP_INIT_ATTR: usize = offset_of!(efadv_qp_init_attr, flags);
pub const SHORTEST_CQ_INIT_ATTR: usize = offset_of!(efadv_cq_init_attr, flags);
pub const SHORTEST_AH_ATTR: usize = offset_of!(efadv_ah_attr, reserved);
pub const SHORTEST_DEVICE_ATTR: usize = offset_of!(efadv_device_attr, device_caps);

// As a C compiler lays them out on x86-64, with the header of rdma-core 65.
const _: () = {
    assert!(size_of::<efadv_device_attr>() == 32 && offset_of!(efadv_device_attr, device_caps) == 24);
    assert!(offset_of!(efadv_device_attr, max_rdma_size) == 28);
    assert!(size_of::<efadv_ah_attr>() == 16 && offset_of!(efadv_ah_attr, ahn) == 8);
    assert!(size_of::<efadv_qp_init_attr>() == 24 && offset_of!(efadv_qp_init_attr, flags) == 12);
    assert!(offset_of!(efadv_qp_init_attr, sl) == 14 && offset_of!(efadv_qp_init_attr, wr_flags) == 16);
    assert!(size_of::<efadv_cq_init_attr>() == 56 && offset_of!(efadv_cq_init_attr, flags) == 16);
    assert!(size_of::<efadv_cq>() == 24 && offset_of!(efadv_cq, wc_is_unsolicited) == 16);
    assert!(size_of::<efadv_qp>() == 16 && offset_of!(efadv_qp, wr_set_processing_hints) == 8);
    assert!(size_of::<efadv_sq_depth_attr>() == 24 && size_of::<efadv_rq_depth_attr>() == 16);
    assert!(size_of::<efadv_mr_attr>() == 16);
};
