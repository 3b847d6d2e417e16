//! What `softrnic run --report` says when a program ends.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use serde::Serialize;

use super::meaning;

/// What went wrong in a process, and what it has left.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Report {
    /// The process.
    pub pid: u32,
    /// Its command.
    pub program: Vec<String>,
    /// How many QPs have failed.
    pub failures: u64,
    /// The first of them.
    pub failed_qps: Vec<FailedQp>,
    /// What was dropped, by device and by the name of the counter.
    pub dropped: BTreeMap<String, BTreeMap<String, u64>>,
    /// Objects that the program has not destroyed, by the name of their structure.
    pub left: BTreeMap<String, u64>,
    /// How many completion queues have completions of which none was ever polled.
    pub never_polled: u64,
    /// The first of them.
    pub unpolled: Vec<UnpolledCq>,
}

/// A queue pair that has failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FailedQp {
    /// Its number.
    pub qpn: u32,
    /// What `ibv_wc.vendor_err` says.
    pub vendor_err: u32,
    /// Why, in a sentence.
    pub why: String,
}

/// A completion queue that was never polled.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct UnpolledCq {
    /// Completions that it takes.
    pub entries: usize,
    /// Completions that it holds.
    pub completions: usize,
}

impl Report {
    /// Whether there is nothing to say.
    pub fn is_clean(&self) -> bool {
        self.failures == 0 && self.dropped.is_empty() && self.left.is_empty() && self.never_polled == 0
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Report { pid, program, failures, failed_qps, dropped, left, never_polled, unpolled } = self;
        writeln!(f, "SoftRNIC: report of {} ({pid})", program.first().map_or("?", String::as_str))?;
        if self.is_clean() {
            return writeln!(f, "  no QP has failed, nothing was dropped, and no object is left");
        }
        if *failures > 0 {
            writeln!(f, "  failed QPs: {failures}")?;
            failed_qps.iter().try_for_each(|failed| writeln!(f, "    {}", failed.why))?;
        }
        for (device, counters) in dropped {
            writeln!(f, "  dropped by {device}:")?;
            for (name, count) in counters {
                writeln!(f, "    {count} {name}: {}", meaning(name).unwrap_or_default())?;
            }
        }
        if !left.is_empty() {
            let list: Vec<String> =
                left.iter().map(|(structure, count)| format!("{count} {structure}")).collect();
            writeln!(
                f,
                "  objects left: {} (softrnic check --leak-check full says where they were made)",
                list.join(", ")
            )?;
        }
        for UnpolledCq { entries, completions } in unpolled {
            writeln!(
                f,
                "  a completion queue of {entries} entries holds {completions} completions, and was never polled"
            )?;
        }
        match never_polled.saturating_sub(unpolled.len() as u64) {
            0 => Ok(()),
            more => writeln!(f, "  {more} more of these"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_clean_is_one_line_and_everything_else_is_named() {
        let clean = Report { pid: 7, program: vec!["./program".into()], ..Report::default() };
        assert_eq!(clean.to_string().lines().count(), 2);
        let why = "QP 0x11 (RTS): broken".to_owned();
        let report = Report {
            failures: 1,
            failed_qps: vec![FailedQp { qpn: 0x11, vendor_err: 0x203, why }],
            dropped: [("softrnic0".into(), [("qkey_viol".into(), 3)].into())].into(),
            left: [("ibv_mr".into(), 2), ("ibv_pd".into(), 1)].into(),
            never_polled: 3,
            unpolled: vec![UnpolledCq { entries: 8, completions: 1 }],
            ..clean
        };
        let text = report.to_string();
        for part in [
            "failed QPs: 1",
            "0x11",
            "dropped by softrnic0",
            "3 qkey_viol: ",
            "2 ibv_mr, 1 ibv_pd",
            "never polled",
            "2 more of these",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
