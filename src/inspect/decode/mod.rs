//! Prints packets: one line each, all their fields, or a JSON object each.

mod clock;
mod cm_fields;
mod fields;
mod filter;
mod json;
mod line;
mod names;
mod out;
mod parallel;
mod peers;
mod summary;
mod text;

use std::io::{self, Read, Write};

pub use clock::{TimeForm, date};
pub use fields::{FieldSink, Meaning, Value, describe, icrc_name};
pub use filter::{AddressPattern, Filter, FilterError, OpcodePattern, parse_qpn};
pub use names::{nak_name, placement_name, selectivity_name, syndrome_kind};
pub use peers::Peers;
/// What filters by QP compare.
pub use softrnic_wire::Qpn;
pub use summary::Summary;

use crate::capture::{Reader, Record};
use crate::dissect::{Dissection, Dissector, Roce};
use clock::Clock;
use line::LineWriter;

/// How the crates above write text, so that it looks the same.
#[doc(hidden)]
pub mod writing {
    pub use super::clock::{seconds, utc};
    pub use super::names::span;
    pub use super::out::{Out, json_text};
    pub use super::text::{meaning_text, value_text};
}

/// How much of each packet to print.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Form {
    /// One line.
    #[default]
    Line,
    /// All headers, field by field.
    Fields,
    /// All headers as one JSON object on one line.
    Json,
}

/// What to print.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// How much of each packet.
    pub form: Form,
    /// What the time column shows.
    pub time: TimeForm,
    /// Which packets.
    pub filter: Filter,
    /// Stop after printing this many.
    pub limit: Option<u64>,
    /// Threads that format packets, besides the one that reads. With none, everything read is printed before waiting
    /// for more, which a live capture needs.
    pub threads: usize,
}

/// Printed text is passed on in pieces of about this size.
const FLUSH_AT: usize = 128 << 10;

/// Records between two calls of the progress function.
const PROGRESS_EVERY: u64 = 4096;

/// Prints the packets of a capture.
///
/// `peers` is what is already known about QP pairs: nothing, or what [`learn_peers`] found in a first pass over the
/// same file. `progress` is called now and then with the number of bytes read so far.
///
/// # Errors
/// Only those of writing to `out`. A damaged capture is printed up to the damage, which [`Summary::damage`] then names.
pub fn decode<R: Read, W: Write>(
    reader: &mut Reader<R>,
    out: &mut W,
    options: &Options,
    peers: &mut Peers,
    mut progress: impl FnMut(u64),
) -> io::Result<Summary> {
    let clock = Clock::new(options.time);
    // These options need one packet after the other.
    let in_order = options.limit.is_some() || !options.filter.qps.is_empty() || clock.depends_on_last();
    let mut summary = if options.threads == 0 || in_order {
        one_by_one(reader, out, options, clock, peers, &mut progress)?
    } else {
        parallel::decode(reader, out, options, clock, &mut progress)?
    };
    summary.dropped_by_capture = reader.dropped_by_capture();
    progress(reader.offset());
    Ok(summary)
}

fn one_by_one<R: Read, W: Write>(
    reader: &mut Reader<R>,
    out: &mut W,
    options: &Options,
    mut clock: Clock,
    peers: &mut Peers,
    progress: &mut dyn FnMut(u64),
) -> io::Result<Summary> {
    let mut summary = Summary::default();
    let mut dissector = Dissector::new();
    let mut printer = Printer::new(options);
    let mut text = Vec::with_capacity(FLUSH_AT + (64 << 10));
    let learns = !options.filter.qps.is_empty();
    let limit = options.limit.unwrap_or(u64::MAX);
    while summary.shown < limit {
        if !text.is_empty() && (text.len() >= FLUSH_AT || !reader.is_ready()) {
            out.write_all(&text)?;
            out.flush()?;
            text.clear();
        }
        let record = match reader.next() {
            Ok(Some(record)) => record,
            Ok(None) => break,
            Err(error) => {
                summary.damage = Some(error);
                break;
            }
        };
        clock.see(record.time_ns);
        let dissection = dissector.dissect(&record);
        if learns {
            dissection.for_each(|roce| peers.learn(roce));
        }
        printer.print(&mut text, &mut clock, &mut summary, &record, &dissection, peers);
        if summary.records.is_multiple_of(PROGRESS_EVERY) {
            progress(reader.offset());
        }
    }
    out.write_all(&text)?;
    out.flush()?;
    Ok(summary)
}

/// Counts packets, and prints those that the options select.
struct Printer<'o> {
    options: &'o Options,
    filtered: bool,
    lines: LineWriter,
}

impl<'o> Printer<'o> {
    fn new(options: &'o Options) -> Printer<'o> {
        Printer { options, filtered: !options.filter.is_empty(), lines: LineWriter::new() }
    }

    #[inline(always)]
    fn print(
        &mut self,
        text: &mut Vec<u8>,
        clock: &mut Clock,
        summary: &mut Summary,
        record: &Record<'_>,
        dissection: &Dissection<'_>,
        peers: &Peers,
    ) {
        summary.records += 1;
        match dissection {
            Dissection::Skipped(why) => summary.skip(*why),
            Dissection::Roce(roce) => self.packet(text, clock, summary, record, roce, peers),
            Dissection::Merged(merged) => {
                summary.merged += 1;
                for roce in merged.packets() {
                    self.packet(text, clock, summary, record, &roce, peers);
                }
            }
        }
    }

    #[inline]
    fn packet(
        &mut self,
        text: &mut Vec<u8>,
        clock: &mut Clock,
        summary: &mut Summary,
        record: &Record<'_>,
        roce: &Roce<'_>,
        peers: &Peers,
    ) {
        summary.count(record, roce);
        if !self.filtered || self.options.filter.matches(roce, peers) {
            summary.shown += 1;
            match self.options.form {
                Form::Line => self.lines.write(text, clock, record, roce),
                Form::Fields => text::write(text, clock, record, roce),
                Form::Json => json::write(text, record, roce),
            }
        }
    }
}

/// Learns from a whole capture which QPs communicate, for filtering by QP in a second pass. Damage ends the first pass;
/// the second one will find and report it.
pub fn learn_peers<R: Read>(reader: &mut Reader<R>, mut progress: impl FnMut(u64)) -> Peers {
    let mut peers = Peers::new();
    let mut dissector = Dissector::new();
    let mut records = 0u64;
    while let Ok(Some(record)) = reader.next() {
        records += 1;
        dissector.dissect(&record).for_each(|roce| peers.learn(roce));
        if records.is_multiple_of(PROGRESS_EVERY) {
            progress(reader.offset());
        }
    }
    peers
}
