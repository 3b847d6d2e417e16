//! What a capture held, in numbers.

use std::fmt;

use rustc_hash::FxHashMap;

use crate::capture::{CaptureError, Record};
use crate::dissect::{Icrc, Roce, Skipped, Transport};

/// Counts of everything that was read.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Records read.
    pub records: u64,
    /// RoCE packets among them.
    pub roce: u64,
    /// Packets printed.
    pub shown: u64,
    /// Packets with a wrong ICRC.
    pub bad_icrc: u64,
    /// FLUSH packets with the ICRC that Linux rxe computes.
    pub rxe_flush_icrc: u64,
    /// Packets that are no valid packets.
    pub malformed: u64,
    /// Packets of which only a part was captured.
    pub cut: u64,
    /// Records that held several packets.
    pub merged: u64,
    /// Records that were not shown because they are not RoCE, by reason.
    pub skipped: Vec<(Skipped, u64)>,
    /// Packets that the capturing program says it lost.
    pub dropped_by_capture: u64,
    /// Where and why reading ended early.
    pub damage: Option<CaptureError>,
}

impl Summary {
    /// Counts a record that is not shown.
    #[inline]
    pub fn skip(&mut self, why: Skipped) {
        match self.skipped.iter_mut().find(|(reason, _)| *reason == why) {
            Some((_, count)) => *count += 1,
            None => self.skipped.push((why, 1)),
        }
    }

    /// Counts a packet.
    #[inline]
    pub fn count(&mut self, record: &Record<'_>, roce: &Roce<'_>) {
        self.roce += 1;
        self.cut += u64::from(record.data.len() < record.wire_len as usize);
        let malformed = matches!(roce.transport, Transport::Malformed(_)) && roce.srd().is_none();
        self.malformed += u64::from(malformed);
        match roce.icrc {
            Icrc::Good | Icrc::NotCaptured => {}
            Icrc::RxeFlush => self.rxe_flush_icrc += 1,
            Icrc::Bad { .. } => self.bad_icrc += 1,
        }
    }

    /// Adds what was counted elsewhere.
    pub(crate) fn add(&mut self, other: &Summary) {
        self.records += other.records;
        self.roce += other.roce;
        self.shown += other.shown;
        self.bad_icrc += other.bad_icrc;
        self.rxe_flush_icrc += other.rxe_flush_icrc;
        self.malformed += other.malformed;
        self.cut += other.cut;
        self.merged += other.merged;
        for (why, count) in &other.skipped {
            match self.skipped.iter_mut().find(|(reason, _)| reason == why) {
                Some((_, sum)) => *sum += count,
                None => self.skipped.push((*why, *count)),
            }
        }
    }

    /// Records that are not RoCE.
    pub fn not_roce(&self) -> u64 {
        self.skipped.iter().map(|(_, count)| count).sum()
    }
}

/// One line, and one more when the file is damaged.
impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} records: {} RoCE", self.records, self.roce)?;
        if self.shown != self.roce {
            write!(f, " ({} shown)", self.shown)?;
        }
        for (count, what) in [
            (self.bad_icrc, "with a bad ICRC"),
            (self.rxe_flush_icrc, "with rxe's FLUSH ICRC"),
            (self.malformed, "malformed"),
            (self.cut, "cut by the capture"),
        ] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        if self.merged > 0 {
            write!(f, "; {} records hold several packets, not yet cut apart", self.merged)?;
        }
        if self.not_roce() > 0 {
            write!(f, "; {} skipped", self.not_roce())?;
            // Link types differ in their number but are told of together.
            let mut by_name = FxHashMap::default();
            for (why, count) in &self.skipped {
                *by_name.entry(why.name()).or_insert(0u64) += count;
            }
            let mut by_name: Vec<_> = by_name.into_iter().collect();
            by_name.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
            let mut mark = " (";
            for (name, count) in by_name {
                write!(f, "{mark}{count} {name}")?;
                mark = ", ";
            }
            f.write_str(")")?;
        }
        if self.dropped_by_capture > 0 {
            write!(f, "; the capture itself lost {} packets", self.dropped_by_capture)?;
        }
        if let Some(damage) = &self.damage {
            write!(f, "\n{damage}")?;
        }
        Ok(())
    }
}
