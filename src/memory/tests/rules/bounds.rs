use proptest::prelude::*;
use softrnic_memory::{Access, AppRange, BindError, BindSpec, LocalFault, MrSpec, MwType, RemoteFault};

use crate::world::{ALL, World, sge};

/// Whether `[va, va + len)` lies in `[start, start + length)`, in numbers that cannot overflow.
fn inside(start: u64, length: u64, va: u64, len: u64) -> bool {
    va >= start && u128::from(va) + u128::from(len) <= u128::from(start) + u128::from(length)
}

/// Addresses and lengths, many of them near the ends of the number range.
fn edgy() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0..64_u64,
        (0..64_u64).prop_map(|n| u64::MAX - n),
        (0..64_u64).prop_map(|n| (1 << 63) - 32 + n),
        0..1_u64 << 32,
    ]
}

/// A value near one of the ends of a range.
fn near(start: u64, length: u64) -> impl Strategy<Value = u64> {
    let end = start.wrapping_add(length);
    prop_oneof![
        (0..16_u64).prop_map(move |n| start.wrapping_add(n).wrapping_sub(8)),
        (0..16_u64).prop_map(move |n| end.wrapping_add(n).wrapping_sub(8)),
        edgy(),
    ]
}

prop_compose! {
    /// A registration, and an access that often comes close to its ends.
    fn access_near_region()(addr in edgy(), iova in edgy(), length in edgy())
        (va in near(iova, length), len in prop_oneof![near(0, length), edgy()],
         addr in Just(addr), iova in Just(iova), length in Just(length))
        -> (u64, u64, u64, u64, u64) { (addr, iova, length, va, len) }
}

fn on_demand(addr: u64, length: u64, iova: u64) -> MrSpec {
    // SAFETY: these tests only check, they do not copy.
    let range = unsafe { AppRange::new(addr as usize, length) };
    MrSpec { range, iova, access: ALL | Access::ON_DEMAND }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn nothing_outside_a_region_is_ever_accepted((addr, iova, length, va, len) in access_near_region()) {
        let mut w = World::new();
        let implicit = addr == 0 && length == u64::MAX;
        let legal = if implicit { iova == 0 } else {
            u128::from(addr) + u128::from(length) < 1 << 64
                && u128::from(iova) + u128::from(length) < 1 << 64
        };
        let registered = w.table.reg_mr(w.pd, on_demand(addr, length, iova));
        prop_assert_eq!(registered.is_ok(), legal);
        let Ok(keys) = registered else { return Ok(()) };

        let remote = w.table.check_remote(w.pd, w.qpn, keys.rkey, va, len, Access::REMOTE_WRITE);
        let fits = inside(iova, length, va, len);
        prop_assert_eq!(remote, if fits { Ok(()) } else { Err(RemoteFault::Bounds) });

        let short = len as u32;
        let local = w.table.check_local(w.pd, &sge(va, short, keys.lkey), true);
        let fits = short == 0 || inside(iova, length, va, u64::from(short));
        prop_assert_eq!(local, if fits { Ok(()) } else { Err(LocalFault::Bounds) });
    }

    #[test]
    fn a_window_lies_in_its_region_and_bounds_its_users(
        (iova, length, va, len) in (0..1_u64 << 40, 1..1_u64 << 20)
            .prop_flat_map(|(iova, length)| (Just(iova), Just(length), near(iova, length), near(0, length))),
        zero_based in any::<bool>(),
        probe in (edgy(), edgy(), 0..32_u64, 0..32_u64),
    ) {
        let mut w = World::new();
        let mr = w.table.reg_mr(w.pd, on_demand(4096, length, iova)).unwrap();
        let mw = w.table.alloc_mw(w.pd, MwType::Type2).unwrap();
        let access = Access::REMOTE_READ | if zero_based { Access::ZERO_BASED } else { Access::empty() };
        let spec = BindSpec { mw, tag: 1, mr: mr.lkey, addr: va, length: len, access };
        let bound = w.table.bind_mw(w.qpn, w.pd, spec);
        if len == 0 {
            prop_assert_eq!(bound, Err(BindError::ZeroLength));
        } else if !inside(iova, length, va, len) {
            prop_assert_eq!(bound, Err(BindError::Bounds));
        } else {
            let start = if zero_based { 0 } else { va };
            let (far, wide, a, b) = probe;
            let ends = [start.wrapping_add(a).wrapping_sub(16), start.wrapping_add(len).wrapping_sub(b), far];
            for probe_va in ends {
                for probe_len in [1, b, len, len.wrapping_sub(a), len + 1, wide, u64::MAX - a] {
                    let check =
                        w.table.check_remote(w.pd, w.qpn, bound.unwrap(), probe_va, probe_len, Access::REMOTE_READ);
                    let fits = inside(start, len, probe_va, probe_len);
                    prop_assert_eq!(check, if fits { Ok(()) } else { Err(RemoteFault::Bounds) });
                }
            }
        }
    }
}
