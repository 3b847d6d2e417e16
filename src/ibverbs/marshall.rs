//! Structs of the kernel's connection manager, turned into those of verbs and back.

use crate::abi::*;
use crate::ffi_boundary::{Silent, borrow, borrow_mut, call, guard};

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_copy_ah_attr_from_kern(
    dst: *mut ibv_ah_attr,
    src: *mut ib_uverbs_ah_attr,
) {
    guard::<Silent>(call!(ibv_copy_ah_attr_from_kern, dst, src), move || {
        // SAFETY: structs of the application's, valid for the call and changed by nothing else, as `verbs.h` asks.
        let (dst, src) = unsafe { (borrow_mut(dst)?, borrow(src)?) };
        copy_ah_attr(dst, src);
        Ok(Silent)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_copy_qp_attr_from_kern(
    dst: *mut ibv_qp_attr,
    src: *mut ib_uverbs_qp_attr,
) {
    guard::<Silent>(call!(ibv_copy_qp_attr_from_kern, dst, src), move || {
        // SAFETY: structs of the application's, valid for the call and changed by nothing else, as `verbs.h` asks.
        let (dst, src) = unsafe { (borrow_mut(dst)?, borrow(src)?) };
        copy_qp_attr(dst, src);
        Ok(Silent)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_copy_path_rec_from_kern(
    dst: *mut ibv_sa_path_rec,
    src: *mut ib_user_path_rec,
) {
    guard::<Silent>(call!(ibv_copy_path_rec_from_kern, dst, src), move || {
        // SAFETY: structs of the application's, valid for the call and changed by nothing else, as `verbs.h` asks.
        let (dst, src) = unsafe { (borrow_mut(dst)?, borrow(src)?) };
        *dst = path_from_kern(src);
        Ok(Silent)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_copy_path_rec_to_kern(
    dst: *mut ib_user_path_rec,
    src: *mut ibv_sa_path_rec,
) {
    guard::<Silent>(call!(ibv_copy_path_rec_to_kern, dst, src), move || {
        // SAFETY: structs of the application's, valid for the call and changed by nothing else, as `verbs.h` asks.
        let (dst, src) = unsafe { (borrow_mut(dst)?, borrow(src)?) };
        *dst = path_to_kern(src);
        Ok(Silent)
    })
}

fn copy_ah_attr(dst: &mut ibv_ah_attr, src: &ib_uverbs_ah_attr) {
    dst.grh = ibv_global_route {
        dgid: ibv_gid { raw: src.grh.dgid },
        flow_label: src.grh.flow_label,
        sgid_index: src.grh.sgid_index,
        hop_limit: src.grh.hop_limit,
        traffic_class: src.grh.traffic_class,
    };
    dst.dlid = src.dlid;
    dst.sl = src.sl;
    dst.src_path_bits = src.src_path_bits;
    dst.static_rate = src.static_rate;
    dst.is_global = src.is_global;
    dst.port_num = src.port_num;
}

/// The state itself is not copied: it is what the caller asked about.
fn copy_qp_attr(dst: &mut ibv_qp_attr, src: &ib_uverbs_qp_attr) {
    macro_rules! copy {
        ($($field:ident)*) => { $(dst.$field = src.$field;)* };
    }
    copy!(cur_qp_state path_mtu path_mig_state qkey rq_psn sq_psn dest_qp_num qp_access_flags);
    dst.cap = ibv_qp_cap {
        max_send_wr: src.max_send_wr,
        max_recv_wr: src.max_recv_wr,
        max_send_sge: src.max_send_sge,
        max_recv_sge: src.max_recv_sge,
        max_inline_data: src.max_inline_data,
    };
    copy_ah_attr(&mut dst.ah_attr, &src.ah_attr);
    copy_ah_attr(&mut dst.alt_ah_attr, &src.alt_ah_attr);
    copy!(pkey_index alt_pkey_index en_sqd_async_notify sq_draining max_rd_atomic max_dest_rd_atomic
        min_rnr_timer port_num timeout retry_cnt rnr_retry alt_port_num alt_timeout);
}

fn path_from_kern(src: &ib_user_path_rec) -> ibv_sa_path_rec {
    ibv_sa_path_rec {
        dgid: ibv_gid { raw: src.dgid },
        sgid: ibv_gid { raw: src.sgid },
        dlid: src.dlid,
        slid: src.slid,
        raw_traffic: src.raw_traffic as i32,
        flow_label: src.flow_label,
        hop_limit: src.hop_limit,
        traffic_class: src.traffic_class,
        reversible: src.reversible as i32,
        numb_path: src.numb_path,
        pkey: src.pkey,
        sl: src.sl,
        mtu_selector: src.mtu_selector,
        mtu: src.mtu as u8,
        rate_selector: src.rate_selector,
        rate: src.rate,
        packet_life_time_selector: src.packet_life_time_selector,
        packet_life_time: src.packet_life_time,
        preference: src.preference,
    }
}

fn path_to_kern(src: &ibv_sa_path_rec) -> ib_user_path_rec {
    // SAFETY: every bit pattern of a GID is 16 bytes.
    let (dgid, sgid) = unsafe { (src.dgid.raw, src.sgid.raw) };
    ib_user_path_rec {
        dgid,
        sgid,
        dlid: src.dlid,
        slid: src.slid,
        raw_traffic: src.raw_traffic as u32,
        flow_label: src.flow_label,
        reversible: src.reversible as u32,
        mtu: src.mtu.into(),
        pkey: src.pkey,
        hop_limit: src.hop_limit,
        traffic_class: src.traffic_class,
        numb_path: src.numb_path,
        sl: src.sl,
        mtu_selector: src.mtu_selector,
        rate_selector: src.rate_selector,
        rate: src.rate,
        packet_life_time_selector: src.packet_life_time_selector,
        packet_life_time: src.packet_life_time,
        preference: src.preference,
    }
}
