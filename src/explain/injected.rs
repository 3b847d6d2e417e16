//! What SoftRNIC did to packets, as their comments say: faults that were injected, losses and marks in a modelled network.
//! They are the causes of findings.

use std::fmt::Write as _;

use rustc_hash::FxHashMap;

use super::finding::{Finding, Kind};
use super::log::Log;
use super::pairing::Plan;
use softrnic_inspect::capture::{FabricNote, InjectedFault, Record};
use softrnic_wire::Psn;

/// Rules and ports told apart; packets that more of them touch are followed without a cause.
const MOST_RULES: usize = 1000;
/// Causes that a finding names.
const MOST_CAUSES: usize = 3;

/// What was done to packets.
#[derive(Debug, Default)]
pub(crate) struct Injected {
    causes: Vec<Cause>,
    /// Which of them touched a packet, by its number in the capture.
    packets: FxHashMap<u32, usize>,
    /// The numbers of packets, by flow and PSN.
    places: FxHashMap<(u32, u32), Vec<u32>>,
}

/// A rule of `--fault` or a port of a network, and what it did.
#[derive(Debug)]
struct Cause {
    done: String,
    /// By which rule, or where and why.
    by: String,
    kind: Kind,
    packets: u64,
    first: (u64, u32),
}

impl Injected {
    /// Notes what the comment of a record says about its packet, also where another record has the packet as well.
    pub fn note(&mut self, record: &Record<'_>, flow: u32, psn: Psn) {
        if record.comment.is_empty() {
            return;
        }
        let (done, by, kind) = if let Some(fault) = InjectedFault::parse(record.comment) {
            let InjectedFault { done, rule, text } = fault;
            (done, format!("by your rule {rule}, {text}"), Kind::FaultInjected)
        } else if let Some(FabricNote { done, port, why }) = FabricNote::parse(record.comment) {
            let why = why.map(|why| format!(": {why}")).unwrap_or_default();
            (done, format!("at {port}{why}"), Kind::FabricTouched)
        } else {
            return;
        };
        let number = record.number as u32;
        let index = match self.causes.iter().position(|cause| cause.done == done && cause.by == by) {
            Some(index) => index,
            None if self.causes.len() < MOST_RULES => {
                let first = (record.time_ns, number);
                self.causes.push(Cause { done: done.to_owned(), by, kind, packets: 0, first });
                self.causes.len() - 1
            }
            None => return,
        };
        self.causes[index].packets += 1;
        self.packets.insert(number, index);
        self.places.entry((flow, psn.get())).or_default().push(number);
    }

    /// Says what each rule and port did, whether or not anything came of it.
    pub fn report(&self, log: &mut Log) {
        for cause in &self.causes {
            let Cause { done, by, kind, packets, first: (time_ns, first) } = cause;
            let by = match kind {
                Kind::FaultInjected => format!("on purpose, {by}"),
                _ => by.clone(),
            };
            let text = match packets {
                1 => format!("packet {first} was {done} {by}"),
                _ => format!("{packets} packets were {done} {by}; the first is packet {first}"),
            };
            log.add(Finding {
                kind: *kind,
                pair: None,
                time_ns: *time_ns,
                psns: None,
                packets: vec![*first],
                rule: None,
                text,
            });
        }
    }

    /// The packet with a PSN of a flow that was dropped last, if one was.
    pub fn dropped(&self, flow: u32, psn: u32) -> Option<u32> {
        let is_drop = |number: &&u32| {
            let cause = self.packets.get(number).and_then(|cause| self.causes.get(*cause));
            cause.is_some_and(|cause| cause.done == "dropped")
        };
        self.places.get(&(flow, psn))?.iter().rev().find(is_drop).copied()
    }

    /// Adds to a finding what was done to its packets: those that it names, and those with its PSNs.
    pub fn explain(&self, plans: &[Plan], finding: &mut Finding) {
        if self.packets.is_empty() || matches!(finding.kind, Kind::FaultInjected | Kind::FabricTouched) {
            return;
        }
        let mut touched: Vec<u32> =
            finding.packets.iter().copied().filter(|number| self.packets.contains_key(number)).collect();
        let last = finding.packets.iter().copied().max().unwrap_or(0);
        if let (Some(plan), Some((from, to))) = (finding.pair.and_then(|pair| plans.get(pair)), finding.psns)
        {
            let psns = (0..=to.get().wrapping_sub(from.get()) & 0xFF_FFFF).take(1024);
            for psn in psns.map(|offset| (from.get() + offset) & 0xFF_FFFF) {
                let here = plan.flows.into_iter().flatten().filter_map(|flow| self.places.get(&(flow, psn)));
                touched.extend(here.flatten().filter(|number| **number <= last));
            }
        }
        touched.sort_unstable();
        touched.dedup();
        for number in touched.iter().take(MOST_CAUSES) {
            let Some(Cause { done, by, .. }) =
                self.packets.get(number).and_then(|cause| self.causes.get(*cause))
            else {
                continue;
            };
            let _ = write!(finding.text, "; packet {number} was {done} {by}");
        }
    }
}
