//! Static rates.

use std::ffi::c_int;

use crate::ffi_boundary::{Plain, call, guard};

/// `enum ibv_rate`, the multiple of 2.5 Gb/s if it has an exact one in verbs, and Mb/s.
const RATES: &[(u32, c_int, c_int)] = &[
    (2, 1, 2_500),
    (5, 2, 5_000),
    (3, 4, 10_000),
    (6, 8, 20_000),
    (4, 12, 30_000),
    (7, 16, 40_000),
    (8, 24, 60_000),
    (9, 32, 80_000),
    (10, 48, 120_000),
    (11, NONE, 14_062),
    (12, NONE, 56_250),
    (13, NONE, 112_500),
    (14, NONE, 168_750),
    (15, NONE, 25_781),
    (16, NONE, 103_125),
    (17, NONE, 206_250),
    (18, NONE, 309_375),
    (19, 11, 28_125),
    (20, 20, 53_125),
    (21, 160, 425_000),
    (22, 240, 637_500),
    (23, 320, 850_000),
    (24, 480, 1_275_000),
];

const NONE: c_int = -1;
const IBV_RATE_MAX: u32 = 0;

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_rate_to_mult(rate: u32) -> c_int {
    guard::<Plain<c_int>>(call!(ibv_rate_to_mult, rate), move || {
        Ok(Plain(RATES.iter().find(|row| row.0 == rate).map_or(NONE, |row| row.1)))
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mult_to_ibv_rate(mult: c_int) -> u32 {
    guard::<Plain<u32>>(call!(ibv_mult_to_ibv_rate, mult), move || {
        Ok(Plain(RATES.iter().find(|row| row.1 == mult && mult != NONE).map_or(IBV_RATE_MAX, |row| row.0)))
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_rate_to_mbps(rate: u32) -> c_int {
    guard::<Plain<c_int>>(call!(ibv_rate_to_mbps, rate), move || {
        Ok(Plain(RATES.iter().find(|row| row.0 == rate).map_or(NONE, |row| row.2)))
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> u32 {
    guard::<Plain<u32>>(call!(ibv_mbps_to_ibv_rate, mbps), move || {
        Ok(Plain(RATES.iter().find(|row| row.2 == mbps).map_or(IBV_RATE_MAX, |row| row.0)))
    })
}
