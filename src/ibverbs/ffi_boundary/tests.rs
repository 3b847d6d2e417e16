use std::ptr::null_mut;

use super::*;
use crate::abi::*;
use crate::ah::ibv_attach_mcast;
use crate::cq::{ibv_create_cq, ibv_destroy_cq};
use crate::device::{ibv_close_device, ibv_free_device_list, ibv_get_device_list, ibv_open_device};
use crate::event::{ibv_ack_async_event, ibv_get_async_event};
use crate::pd::{ibv_alloc_pd, ibv_dealloc_pd};
use crate::qp::{ibv_create_qp, ibv_destroy_qp};
use crate::query::ibv_query_device;

/// What C gets from a function that fails, or panics.
fn called<O: Outcome>(fails: bool) -> O::C {
    guard::<O>(call!(called), move || if fails { Err(Errno::NOENT) } else { panic!("as the test wants it") })
}

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

/// The only test of this crate that opens a device: a panic is every device's end.
#[test]
fn a_panic_is_an_io_error_and_the_end_of_every_open_device() {
    let mut count = 0;
    // SAFETY: called as verbs.h says.
    unsafe {
        let list = ibv_get_device_list(&mut count);
        assert!(count > 0);
        let context = ibv_open_device(*list);
        ibv_free_device_list(list);
        assert!(!context.is_null());
        let mut attr = std::mem::zeroed();
        assert_eq!(ibv_query_device(context, &mut attr), 0);
        let (pd, cq) = (ibv_alloc_pd(context), ibv_create_cq(context, 4, null_mut(), null_mut(), 0));
        let cap = ibv_qp_cap { max_send_wr: 1, max_recv_wr: 1, ..std::mem::zeroed() };
        let mut init =
            ibv_qp_init_attr { send_cq: cq, recv_cq: cq, cap, qp_type: IBV_QPT_UD, ..std::mem::zeroed() };
        let qp = ibv_create_qp(pd, &mut init);
        let mut group = ibv_gid { raw: [0; 16] };
        group.raw[10..].copy_from_slice(&[0xFF, 0xFF, 239, 7, 7, 7]);
        assert_eq!(ibv_attach_mcast(qp, &group, 0), 0);
        assert_eq!(ibv_destroy_qp(qp), libc::EBUSY);

        assert!(called::<*mut c_int>(false).is_null());
        assert_eq!(errno(), libc::EIO);
        assert_eq!(called::<()>(false), libc::EIO);
        Errno::INVAL.set();
        assert_eq!((called::<OrMinusOne>(false), errno()), (-1, libc::EIO));
        assert_eq!(called::<OrNegated<isize>>(false), -(libc::EIO as isize));
        called::<Silent>(false);
        assert_eq!(called::<Plain<u32>>(false), 0);

        let mut event = std::mem::zeroed::<ibv_async_event>();
        assert_eq!(ibv_get_async_event(context, &mut event), 0);
        assert_eq!(event.event_type, IBV_EVENT_DEVICE_FATAL);
        ibv_ack_async_event(&mut event);
        assert!(ibv_alloc_pd(context).is_null());
        assert_eq!(errno(), libc::EIO);
        // Nothing is attached any more, and what there was can be destroyed.
        assert_eq!((ibv_destroy_qp(qp), ibv_destroy_cq(cq), ibv_dealloc_pd(pd)), (0, 0, 0));
        assert_eq!(ibv_close_device(context), 0);
    }
}

#[test]
fn errors_reach_c_in_the_way_of_each_type() {
    assert!(called::<*mut c_int>(true).is_null());
    assert_eq!(errno(), libc::ENOENT);
    assert_eq!(called::<()>(true), libc::ENOENT);
    Errno::INVAL.set();
    assert_eq!((called::<OrMinusOne>(true), errno()), (-1, libc::ENOENT));
    assert_eq!(called::<OrNegated<isize>>(true), -(libc::ENOENT as isize));
    called::<Silent>(true);
    assert_eq!(called::<Plain<u32>>(true), 0);
}

#[test]
fn null_is_refused() {
    // SAFETY: null is what these functions tell apart.
    unsafe {
        assert_eq!(borrow::<u64>(null_mut()), Err(Errno::INVAL));
        assert_eq!(borrow_mut::<u64>(null_mut()), Err(Errno::INVAL));
        assert_eq!(ibv_query_device(null_mut(), null_mut()), libc::EINVAL);
        assert!(ibv_alloc_pd(null_mut()).is_null());
        assert_eq!(errno(), libc::EINVAL);
    }
}
