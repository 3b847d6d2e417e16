//! Capture files, whole or damaged, are printed and explained without a panic.

use std::io::sink;

use softrnic_explain::{Limits, TextOptions, explain, write_text};
use softrnic_inspect::capture::Reader;
use softrnic_inspect::decode::{Options, Peers, decode};

/// Treats the bytes as a capture.
pub fn captures(data: &[u8]) {
    let limits = Limits { packets: 1000, ..Limits::default() };
    if let Ok(mut reader) = Reader::new(data) {
        let _ = decode(&mut reader, &mut sink(), &Options::default(), &mut Peers::new(), |_| {});
    }
    if let Ok(mut reader) = Reader::new(data) {
        let report = explain(&mut reader, limits, |_| {});
        let _ = write_text(&report, TextOptions::default(), &mut sink());
    }
}
