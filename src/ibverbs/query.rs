//! Queries of the device, its port and its tables.

use std::ffi::c_int;
use std::net::IpAddr;

use softrnic_nic::verbs::{Context, DeviceCaps, Gid, Model};

use crate::abi::*;
use crate::context::Ctx;
use crate::device::text;
use crate::errno::Errno;
use crate::ffi_boundary::{OrMinusOne, OrNegated, borrow, borrow_mut, call, guard};

/// The only port.
pub(crate) const PORT: u32 = 1;

/// The index of the loopback interface in every network namespace (`LOOPBACK_IFINDEX` of the kernel).
const LOOPBACK: u32 = 1;

/// What the port can do.
pub(crate) const PORT_FLAGS: u32 = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;

/// The only P_Key: full member of the default partition.
const PKEY: u16 = 0xFFFF;

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_device(
    context: *mut ibv_context,
    attr: *mut ibv_device_attr,
) -> c_int {
    guard::<()>(call!(ibv_query_device, context, attr), move || {
        // SAFETY: a context of ours and a struct, which the application keeps valid for the call.
        let (ctx, attr) = unsafe { (Ctx::of(context)?, borrow_mut(attr)?) };
        *attr = device_attr(ctx.nic()?, ctx.file.device.guid());
        Ok(())
    })
}

/// The old entry point. Its struct ends before `port_cap_flags2`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut _compat_ibv_port_attr,
) -> c_int {
    guard::<()>(call!(ibv_query_port, context, port, attr), move || {
        let full = port_attr(Ctx::of(context)?, port)?;
        // SAFETY: a struct of the application's, valid for the call and of the size that it says.
        unsafe { write_prefix(&full, attr.cast(), size_of::<_compat_ibv_port_attr>()) }
    })
}

/// In units of 100 Mb/s.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_port_speed(
    context: *mut ibv_context,
    port: u32,
    speed: *mut u64,
) -> c_int {
    guard::<()>(call!(ibv_query_port_speed, context, port, speed), move || {
        // SAFETY: a context that the application keeps for the call, and a number that is valid for it.
        let (ctx, speed) = unsafe { (Ctx::of(context)?, borrow_mut(speed)?) };
        check_port(port)?;
        *speed = ctx.nic()?.port()?.speed.hundred_megabits();
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_gid(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    guard::<OrMinusOne>(call!(ibv_query_gid, context, port, index, gid), move || {
        // SAFETY: a context that the application keeps for the call, and a GID that is valid for it.
        let (ctx, gid) = unsafe { (Ctx::of(context)?, borrow_mut(gid)?) };
        check_port(port.into())?;
        gid.raw = gid_at(
            ctx,
            usize::try_from(index).map_err(|_| Errno::invalid(format_args!("index {index} is negative")))?,
        )?
        .0;
        Ok(OrMinusOne(0))
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut ibv_context,
    port: u32,
    index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
    entry_size: usize,
) -> c_int {
    guard::<()>(call!(_ibv_query_gid_ex, context, port, index, entry, flags, entry_size), move || {
        let ctx = Ctx::of(context)?;
        if flags != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        check_port(port)?;
        let gid = gid_at(ctx, index as usize)?;
        if gid == Gid::ZERO {
            return Err(Errno::NODATA);
        }
        // SAFETY: a struct of the application's, valid for the call and of the size that it says.
        unsafe { write_prefix(&gid_entry(ctx.nic()?, index, gid)?, entry, entry_size) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    max_entries: usize,
    flags: u32,
    entry_size: usize,
) -> isize {
    guard::<OrNegated<isize>>(
        call!(_ibv_query_gid_table, context, entries, max_entries, flags, entry_size),
        move || {
            let ctx = Ctx::of(context)?;
            if flags != 0 {
                return Err(Errno::OPNOTSUPP);
            }
            if entry_size < size_of::<ibv_gid_entry>() {
                return Err(Errno::invalid(format_args!(
                    "entry_size {entry_size} is below that of ibv_gid_entry"
                )));
            }
            let mut valid = 0;
            let nic = ctx.nic()?;
            for index in 0..nic.gids_used()? {
                let gid = nic.gid(index)?;
                if gid == Gid::ZERO {
                    continue;
                }
                if valid == max_entries {
                    return Err(Errno::invalid(format_args!(
                        "max_entries {max_entries}: there are more GIDs"
                    )));
                }
                let place = entries.wrapping_byte_add(valid * entry_size);
                // SAFETY: not beyond the entries that the application has room for, of the size that it says.
                unsafe { write_prefix(&gid_entry(nic, index as u32, gid)?, place, entry_size)? };
                valid += 1;
            }
            Ok(OrNegated(valid as isize))
        },
    )
}

/// GIDs are for RoCE v2, including empty entries, except those that a device that is imitated has for v1.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_gid_type(
    context: *mut ibv_context,
    port: u8,
    index: u32,
    kind: *mut u32,
) -> c_int {
    guard::<OrMinusOne>(call!(ibv_query_gid_type, context, port, index, kind), move || {
        // SAFETY: a context that the application keeps for the call, and a number that is valid for it.
        let (ctx, kind) = unsafe { (Ctx::of(context)?, borrow_mut(kind)?) };
        check_port(port.into())?;
        gid_at(ctx, index as usize)?;
        let is_v1 = ctx.nic()?.is_gid_v1(index as usize)?;
        *kind = if is_v1 { IBV_GID_TYPE_SYSFS_IB_ROCE_V1 } else { IBV_GID_TYPE_SYSFS_ROCE_V2 };
        Ok(OrMinusOne(0))
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_pkey(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    pkey: *mut u16,
) -> c_int {
    guard::<OrMinusOne>(call!(ibv_query_pkey, context, port, index, pkey), move || {
        // SAFETY: a context that the application keeps for the call, and a number that is valid for it.
        let (_, pkey) = unsafe { (Ctx::of(context)?, borrow_mut(pkey)?) };
        check_port(port.into())?;
        if index != 0 {
            return Err(Errno::invalid(format_args!("index {index}: the P_Key table has one entry")));
        }
        *pkey = PKEY.to_be();
        Ok(OrMinusOne(0))
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_pkey_index(context: *mut ibv_context, port: u8, pkey: u16) -> c_int {
    guard::<OrMinusOne>(call!(ibv_get_pkey_index, context, port, pkey), move || {
        Ctx::of(context)?;
        check_port(port.into())?;
        if pkey == PKEY.to_be() { Ok(OrMinusOne(0)) } else { Err(Errno::NOENT) }
    })
}

pub(crate) unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
    size: usize,
) -> c_int {
    guard::<()>(call!(ibv_query_port, context, port, attr, size), move || {
        let full = port_attr(Ctx::of(context)?, port)?;
        // SAFETY: a struct of the application's, valid for the call and of the size that it says.
        unsafe { write_prefix(&full, attr, size) }
    })
}

pub(crate) unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
    size: usize,
) -> c_int {
    guard::<()>(call!(ibv_query_device_ex, context, input, attr, size), move || {
        let ctx = Ctx::of(context)?;
        if !input.is_null() {
            // SAFETY: a struct of the application's, valid for the call and changed by nothing else, as `verbs.h` asks.
            if unsafe { borrow(input)? }.comp_mask != 0 {
                return Err(Errno::invalid("the comp_mask of the input is not 0"));
            }
        }
        let full = device_attr_ex(ctx.nic()?, ctx.file.device.guid());
        // SAFETY: a struct of the application's, valid for the call and of the size that it says.
        unsafe { write_prefix(&full, attr, size) }
    })
}

/// The clock of completion timestamps, in nanoseconds.
pub(crate) unsafe extern "C" fn query_rt_values(
    context: *mut ibv_context,
    values: *mut ibv_values_ex,
) -> c_int {
    guard::<()>(call!(ibv_query_rt_values, context, values), move || {
        // SAFETY: a context of ours and a struct, which the application keeps valid for the call.
        let (ctx, values) = unsafe { (Ctx::of(context)?, borrow_mut(values)?) };
        if values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK == 0 {
            values.comp_mask = 0;
            return Ok(());
        }
        let now = ctx.nic()?.now().as_nanos();
        // A cycle of this clock is a nanosecond, and providers report cycles in the nanoseconds field.
        values.raw_clock = libc::timespec { tv_sec: 0, tv_nsec: now as libc::c_long };
        values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
        Ok(())
    })
}

/// EINVAL for any port but the only one.
pub(crate) fn check_port(port: u32) -> Result<(), Errno> {
    if port == PORT {
        Ok(())
    } else {
        Err(Errno::invalid(format_args!("port {port}: the device has port 1 alone")))
    }
}

/// The GID at an index of the table, which may be empty.
fn gid_at(ctx: &Ctx, index: usize) -> Result<Gid, Errno> {
    let nic = ctx.nic()?;
    if index >= nic.caps().gid_table_len {
        return Err(Errno::invalid(format_args!(
            "index {index}: the GID table has {} entries",
            nic.caps().gid_table_len
        )));
    }
    Ok(nic.gid(index)?)
}

fn gid_entry(nic: &Context, index: u32, gid: Gid) -> Result<ibv_gid_entry, Errno> {
    let address: IpAddr = gid.to_ip();
    let interface = if address.is_loopback() { Some(LOOPBACK) } else { nic.interface_of(address)? };
    Ok(ibv_gid_entry {
        gid: ibv_gid { raw: gid.0 },
        gid_index: index,
        port_num: PORT,
        gid_type: if nic.is_gid_v1(index as usize)? { IBV_GID_TYPE_ROCE_V1 } else { IBV_GID_TYPE_ROCE_V2 },
        ndev_ifindex: interface.unwrap_or(0),
    })
}

/// No caller's struct is longer, however new its header is.
pub(crate) const LONGEST_STRUCT: usize = 4096;

/// Writes as much of a struct as the caller knows, and zeros for fields of the caller's that ours lacks.
///
/// # Safety
/// `to` is null or has room for `size` bytes, if that is a size that a struct can have.
pub(crate) unsafe fn write_prefix<T: Copy>(from: &T, to: *mut T, size: usize) -> Result<(), Errno> {
    if to.is_null() || size > LONGEST_STRUCT {
        return Err(Errno::invalid(format_args!(
            "the struct is null, or its size {size} is none that it can have"
        )));
    }
    let ours = size.min(size_of::<T>());
    // SAFETY: not null, so that there is room for `size` bytes, as the caller promises; `from` has at least `ours`,
    // padding included.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const *from).cast::<u8>(), to.cast(), ours);
        std::ptr::write_bytes(to.cast::<u8>().add(ours), 0, size - ours);
    }
    Ok(())
}

fn port_attr(ctx: &Ctx, port: u8) -> Result<ibv_port_attr, Errno> {
    check_port(port.into())?;
    let nic = ctx.nic()?;
    let port = nic.port()?;
    Ok(ibv_port_attr {
        state: port.state.logical().0,
        max_mtu: softrnic_wire::Mtu::B4096 as u32,
        active_mtu: port.active_mtu as u32,
        gid_tbl_len: nic.caps().gid_table_len as c_int,
        port_cap_flags: PORT_FLAGS,
        max_msg_sz: nic
            .model()
            .map_or(port.max_message, |model| port.max_message.min(model.limits.max_message)),
        bad_pkey_cntr: port.bad_pkey as u32,
        qkey_viol_cntr: port.qkey_violations as u32,
        pkey_tbl_len: 1,
        lid: 0,
        sm_lid: 0,
        lmc: 0,
        max_vl_num: 1,
        sm_sl: 0,
        subnet_timeout: 0,
        init_type_reply: 0,
        active_width: port.speed.width,
        active_speed: port.speed.speed,
        phys_state: port.state.physical().0 as u8,
        link_layer: if nic.has_short_numbers() {
            IBV_LINK_LAYER_UNSPECIFIED
        } else {
            IBV_LINK_LAYER_ETHERNET
        },
        flags: 0,
        port_cap_flags2: 0,
        active_speed_ex: 0,
    })
}

/// Capability bits, in the order of their numbers.
pub(crate) const CAP_FLAGS: u32 = IBV_DEVICE_BAD_PKEY_CNTR
    | IBV_DEVICE_BAD_QKEY_CNTR
    | IBV_DEVICE_UD_AV_PORT_ENFORCE
    | IBV_DEVICE_PORT_ACTIVE_EVENT
    | IBV_DEVICE_SYS_IMAGE_GUID
    | IBV_DEVICE_RC_RNR_NAK_GEN
    | IBV_DEVICE_SRQ_RESIZE
    | IBV_DEVICE_MEM_WINDOW
    | IBV_DEVICE_XRC
    | IBV_DEVICE_MEM_MGT_EXTENSIONS
    | IBV_DEVICE_MEM_WINDOW_TYPE_2B;

/// The vendor of software devices, which have no OUI; the same as rxe's.
const VENDOR: u32 = 0xFF_FFFF;

/// What a device that is imitated does not have.
fn cap_flags(model: Option<&Model>) -> u32 {
    let mut flags = CAP_FLAGS;
    if let Some(Model { features, .. }) = model {
        for (has, flag) in [
            (features.xrc, IBV_DEVICE_XRC),
            (features.srq_resize, IBV_DEVICE_SRQ_RESIZE),
            (features.windows_1 || features.windows_2, IBV_DEVICE_MEM_WINDOW),
            (features.windows_2, IBV_DEVICE_MEM_WINDOW_TYPE_2B),
        ] {
            flags &= if has { !0 } else { !flag };
        }
    }
    flags
}

fn device_attr(nic: &Context, guid: u64) -> ibv_device_attr {
    let model = nic.model();
    let (identity, limits) = (model.map(|model| model.identity), model.map(|model| model.limits));
    let DeviceCaps {
        max_qp,
        max_qp_wr,
        max_sge,
        max_inline: _,
        max_cq,
        max_cqe,
        max_mr,
        max_mw,
        max_pd,
        max_rd_atomic,
        max_ah,
        max_srq,
        max_srq_wr,
        max_srq_sge,
        max_mcast_groups,
        max_mcast_qp_attach,
        max_fast_reg_pages: _,
        gid_table_len: _,
        max_dm_size: _,
    } = nic.caps();
    let number = |value: usize| c_int::try_from(value).unwrap_or(c_int::MAX);
    ibv_device_attr {
        fw_ver: text(identity.and_then(|identity| identity.fw_ver).unwrap_or(env!("CARGO_PKG_VERSION"))),
        node_guid: guid,
        sys_image_guid: guid,
        max_mr_size: u64::MAX,
        page_size_cap: !0xFFF,
        vendor_id: identity.map_or(VENDOR, |identity| identity.vendor_id),
        vendor_part_id: identity.map_or(0, |identity| identity.part_id),
        hw_ver: identity.map_or(0, |identity| identity.hw_ver),
        max_qp: number(max_qp),
        max_qp_wr: number(max_qp_wr),
        device_cap_flags: cap_flags(model),
        max_sge: number(max_sge),
        max_sge_rd: if model.is_some_and(|model| model.srd.is_some()) { 1 } else { number(max_sge) },
        max_cq: number(max_cq),
        max_cqe: number(max_cqe),
        max_mr: number(max_mr),
        max_pd: number(max_pd),
        max_qp_rd_atom: max_rd_atomic.into(),
        max_ee_rd_atom: 0,
        max_res_rd_atom: number(max_qp.saturating_mul(max_rd_atomic.into())),
        max_qp_init_rd_atom: limits
            .map_or(max_rd_atomic, |limits| limits.max_qp_init_rd_atom.min(softrnic_transport::MAX_RD_ATOMIC))
            .into(),
        max_ee_init_rd_atom: 0,
        atomic_cap: match model {
            Some(model) if !model.features.atomics => IBV_ATOMIC_NONE,
            _ => IBV_ATOMIC_HCA,
        },
        max_ee: 0,
        max_rdd: 0,
        max_mw: number(max_mw),
        max_raw_ipv6_qp: 0,
        max_raw_ethy_qp: 0,
        max_mcast_grp: number(max_mcast_groups),
        max_mcast_qp_attach: number(max_mcast_qp_attach),
        max_total_mcast_qp_attach: number(max_mcast_groups.saturating_mul(max_mcast_qp_attach)),
        max_ah: number(max_ah),
        max_fmr: 0,
        max_map_per_fmr: 0,
        max_srq: number(max_srq),
        max_srq_wr: number(max_srq_wr),
        max_srq_sge: number(max_srq_sge),
        max_pkeys: 1,
        local_ca_ack_delay: limits.map_or(15, |limits| limits.local_ca_ack_delay),
        phys_port_cnt: 1,
    }
}

fn device_attr_ex(nic: &Context, guid: u64) -> ibv_device_attr_ex {
    const SEND_RECV: u32 = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
    const ONE_SIDED: u32 = IBV_ODP_SUPPORT_WRITE
        | IBV_ODP_SUPPORT_READ
        | IBV_ODP_SUPPORT_ATOMIC
        | IBV_ODP_SUPPORT_FLUSH
        | IBV_ODP_SUPPORT_ATOMIC_WRITE;
    let on_demand = nic.on_demand_available();
    let odp = |caps: u32| if on_demand { caps } else { 0 };
    let persists = nic.model().is_none_or(|model| model.features.persistence);
    let persistence = if persists { IB_DEVICE_FLUSH_GLOBAL | IB_DEVICE_ATOMIC_WRITE } else { 0 };
    let none = ibv_rss_caps {
        supported_qpts: 0,
        max_rwq_indirection_tables: 0,
        max_rwq_indirection_table_size: 0,
        rx_hash_fields_mask: 0,
        rx_hash_function: 0,
    };
    ibv_device_attr_ex {
        orig_attr: device_attr(nic, guid),
        comp_mask: 0,
        odp_caps: ibv_odp_caps {
            general_caps: if on_demand { IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT } else { 0 },
            per_transport_caps: per_transport_caps {
                rc_odp_caps: odp(SEND_RECV | ONE_SIDED),
                uc_odp_caps: odp(SEND_RECV | IBV_ODP_SUPPORT_WRITE),
                ud_odp_caps: odp(SEND_RECV),
            },
        },
        completion_timestamp_mask: u64::MAX,
        // kHz: a cycle is a nanosecond.
        hca_core_clock: 1_000_000,
        device_cap_flags_ex: u64::from(cap_flags(nic.model())) | persistence,
        tso_caps: ibv_tso_caps { max_tso: 0, supported_qpts: 0 },
        rss_caps: none,
        max_wq_type_rq: 0,
        packet_pacing_caps: ibv_packet_pacing_caps {
            qp_rate_limit_min: 0,
            qp_rate_limit_max: 0,
            supported_qpts: 0,
        },
        raw_packet_caps: 0,
        tm_caps: ibv_tm_caps { max_rndv_hdr_size: 0, max_num_tags: 0, flags: 0, max_ops: 0, max_sge: 0 },
        cq_mod_caps: ibv_cq_moderation_caps { max_cq_count: 0, max_cq_period: 0 },
        max_dm_size: nic.caps().max_dm_size,
        pci_atomic_caps: ibv_pci_atomic_caps { fetch_add: 0, swap: 0, compare_swap: 0 },
        xrc_odp_caps: odp(SEND_RECV | ONE_SIDED),
        phys_port_cnt_ex: 1,
    }
}
