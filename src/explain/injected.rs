//! Faults that SoftRNIC injected, as the comments of packets say: they are the causes of findings.

use std::fmt::Write as _;

use rustc_hash::FxHashMap;

use super::event::Event;
use super::finding::{Finding, Kind};
use super::log::Log;
use super::pairing::Plan;
use softrnic_inspect::capture::{InjectedFault, Record};

/// Rules told apart; packets that more rules touch are followed without a cause.
const MOST_RULES: usize = 1000;
/// Causes that a finding names.
const MOST_CAUSES: usize = 3;

/// What faults did to packets.
#[derive(Debug, Default)]
pub(crate) struct Injected {
    rules: Vec<RuleUse>,
    /// Which of them touched a packet, by its number in the capture.
    packets: FxHashMap<u32, usize>,
    /// The numbers of packets, by flow and PSN.
    places: FxHashMap<(u32, u32), Vec<u32>>,
}

/// A rule of `--fault`, and what it did.
#[derive(Debug)]
struct RuleUse {
    number: u32,
    text: String,
    done: String,
    packets: u64,
    first: (u64, u32),
}

impl Injected {
    /// Notes what the comment of a record says about an event of its.
    pub fn note(&mut self, record: &Record<'_>, event: &Event) {
        let Some(fault) = InjectedFault::parse(record.comment) else { return };
        let same = |rule: &RuleUse| (rule.number, rule.text.as_str()) == (fault.rule, fault.text);
        let index = match self.rules.iter().position(same) {
            Some(index) => index,
            None if self.rules.len() < MOST_RULES => {
                self.rules.push(RuleUse {
                    number: fault.rule,
                    text: fault.text.to_owned(),
                    done: fault.done.to_owned(),
                    packets: 0,
                    first: (event.time_ns, event.number),
                });
                self.rules.len() - 1
            }
            None => return,
        };
        self.rules[index].packets += 1;
        self.packets.insert(event.number, index);
        self.places.entry((event.flow, event.psn().get())).or_default().push(event.number);
    }

    /// Says what each rule did, whether or not anything came of it.
    pub fn tell(&self, log: &mut Log) {
        for rule in &self.rules {
            let RuleUse { number, text, done, packets, first: (time_ns, first) } = rule;
            let text = match packets {
                1 => format!("packet {first} was {done} on purpose, by your rule {number}, {text}"),
                _ => format!(
                    "{packets} packets were {done} on purpose, by your rule {number}, {text}; the first is packet {first}"
                ),
            };
            log.add(Finding {
                kind: Kind::FaultInjected,
                pair: None,
                time_ns: *time_ns,
                psns: None,
                packets: vec![*first],
                rule: None,
                text,
            });
        }
    }

    /// The packet with a PSN of a flow that a fault dropped last, if one did.
    pub fn dropped(&self, flow: u32, psn: u32) -> Option<u32> {
        let is_drop = |number: &&u32| {
            let rule = self.packets.get(number).and_then(|rule| self.rules.get(*rule));
            rule.is_some_and(|rule| rule.done == "dropped")
        };
        self.places.get(&(flow, psn))?.iter().rev().find(is_drop).copied()
    }

    /// Adds to a finding which of its packets a fault touched: those that it names, and those with its PSNs.
    pub fn explain(&self, plans: &[Plan], finding: &mut Finding) {
        if self.packets.is_empty() || finding.kind == Kind::FaultInjected {
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
            let Some(rule) = self.packets.get(number).and_then(|rule| self.rules.get(*rule)) else {
                continue;
            };
            let RuleUse { number: rule, text, done, .. } = rule;
            let _ = write!(finding.text, "; packet {number} was {done} by your rule {rule}, {text}");
        }
    }
}
