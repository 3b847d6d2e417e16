//! The names of syndromes and other codes, in the specification's words.

use softrnic_wire::{NakCode, Placement, Selectivity, Syndrome};

use super::out::Out;

/// The name of a NAK code.
pub const fn nak_name(code: NakCode) -> &'static str {
    match code {
        NakCode::PsnSequence => "PSN sequence error",
        NakCode::InvalidRequest => "invalid request",
        NakCode::RemoteAccess => "remote access error",
        NakCode::RemoteOperational => "remote operational error",
        NakCode::InvalidRd => "invalid RD request",
        NakCode::Reserved(_) => "reserved code",
    }
}

/// ACK, RNR NAK or NAK.
pub const fn syndrome_kind(syndrome: Syndrome) -> &'static str {
    match syndrome {
        Syndrome::Ack(_) => "ACK",
        Syndrome::RnrNak(_) => "RNR NAK",
        Syndrome::Nak(_) => "NAK",
        Syndrome::Reserved(_) => "reserved syndrome",
    }
}

/// What a FLUSH must achieve.
pub const fn placement_name(placement: Placement) -> &'static str {
    match placement.bits() {
        0 => "nothing",
        1 => "global visibility",
        2 => "persistence",
        3 => "global visibility and persistence",
        _ => "reserved",
    }
}

/// Which memory a FLUSH concerns.
pub const fn selectivity_name(selectivity: Selectivity) -> &'static str {
    match selectivity {
        Selectivity::Range => "memory range",
        Selectivity::Region => "memory region",
        Selectivity::Reserved2 | Selectivity::Reserved3 => "reserved",
    }
}

/// Microseconds as milliseconds: `0.64 ms`.
pub(crate) fn millis(out: &mut Vec<u8>, us: u64) {
    out.dec(us / 1000);
    let (rest, mut digits) = (us % 1000, 3);
    if rest > 0 {
        let mut shown = rest;
        while shown % 10 == 0 {
            shown /= 10;
            digits -= 1;
        }
        out.push(b'.');
        out.dec_zeros(shown, digits);
    }
    out.text(" ms");
}

/// A time span in the unit that reads best.
pub fn span(out: &mut Vec<u8>, ns: u64) {
    match ns {
        0..10_000 => {
            out.dec(ns);
            out.text(" ns");
        }
        10_000..1_000_000 => {
            out.dec(ns / 1000);
            out.text(" µs");
        }
        1_000_000..10_000_000_000 => {
            let tenths = ns / 100_000;
            out.dec(tenths / 10);
            if !tenths.is_multiple_of(10) {
                out.push(b'.');
                out.dec(tenths % 10);
            }
            out.text(" ms");
        }
        _ => {
            out.dec(ns / 1_000_000_000);
            out.push(b'.');
            out.dec(ns / 100_000_000 % 10);
            out.text(" s");
        }
    }
}
