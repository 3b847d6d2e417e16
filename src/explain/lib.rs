//! Explaining a capture: which QPs communicated, what they asked of each other, what went wrong, and which side broke
//! which rule.
//!
//! A capture is read once into [`Event`]s of forty bytes. Flows are paired to connections, and each pair is followed
//! packet by packet: a `Stream` per direction models the state of requester and responder, and everything out of the
//! ordinary becomes a [`Finding`]. [`html`] makes a page of that, and [`svg`] a picture.

#![forbid(unsafe_code)]

mod analyze;
mod assemble;
mod collect;
mod connection;
mod event;
mod finding;
pub mod html;
mod injected;
mod log;
mod msn;
mod pairing;
mod ports;
mod recovery;
mod report;
mod requests;
mod responses;
mod sightings;
mod stream;
pub mod svg;
mod text;
mod unreliable;
pub(crate) mod words;

use rustc_hash::FxHashMap;
use softrnic_wire::Transport;

pub use assemble::{Message, MessageKind};
pub(crate) use connection::service_name;
pub use connection::{CmState, Connection};
pub use event::{Event, Flags, Mark};
pub use finding::{Finding, Kind, Rule, Severity, rules};
pub use log::Tally;
pub use pairing::PairedBy;
pub use report::{End, Pair, Report};
pub use stream::Lost;
pub use text::{TextOptions, write_text};

use collect::Collected;
use log::{Finished, Log};
use pairing::Plan;
use softrnic_inspect::capture::Source;

/// How much to follow.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Packets kept; each takes some fifty bytes.
    pub packets: usize,
    /// Acknowledged requests remembered per direction, so that repeats of them are recognised.
    pub history: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { packets: 10_000_000, history: 8192 }
    }
}

/// Reads a whole capture, or several together, and explains it. Damage ends the reading and becomes a finding. `progress` is
/// called now and then with the number of bytes read so far.
pub fn explain(reader: &mut impl Source, limits: Limits, progress: impl FnMut(u64)) -> Report {
    let mut collected = collect::collect(reader, limits.packets, progress);
    let mut log = Log::new((collected.first_ns, collected.last_ns));
    if collected.summary.dropped_by_capture > 0 {
        log.note_lossy();
    }
    trust_bad_icrcs(&mut collected, &mut log);
    report_oddities(&collected, &mut log);
    collected.injected.report(&mut log);
    collected.summary.shown = collected.summary.roce;
    let connections = connection::follow(&collected.cm, collected.last_ns, &mut log);
    let plans = pairing::pair(&collected, &connections);
    let orders = distribute(&collected, &plans, &connections);
    let mut lost = Vec::new();
    let pairs = plans
        .iter()
        .zip(orders)
        .enumerate()
        .map(|(number, (plan, order))| {
            let follow = analyze::Follow {
                plan,
                connection: plan.connection.map(|c| &connections[c]),
                number,
                limits,
            };
            analyze::analyze(&mut collected, follow, order, &mut log, &mut lost)
        })
        .collect();
    let Finished { mut findings, more, kinds } = log.finish();
    findings.iter_mut().for_each(|finding| collected.injected.explain(&plans, finding));
    Report {
        summary: collected.summary,
        times_ns: (collected.first_ns, collected.last_ns),
        pairs,
        connections,
        findings,
        more_findings: more,
        kinds,
        lost,
        events: collected.events,
        flows: collected.flows,
        extras: collected.extras,
        cm: collected.cm,
    }
}

/// Gives every event to its pair: congestion notifications to the pair they slow down, connection
/// messages to the pair they set up.
fn distribute(collected: &Collected, plans: &[Plan], connections: &[Connection]) -> Vec<Vec<u32>> {
    let mut pair_of_flow = vec![None; collected.flows.len()];
    let mut pair_of_end = FxHashMap::default();
    let mut pair_of_connection = FxHashMap::default();
    for (number, plan) in plans.iter().enumerate() {
        for flow in plan.flows.into_iter().flatten() {
            pair_of_flow[flow as usize] = Some(number);
        }
        if plan.transport != Transport::Ud {
            for side in 0..2 {
                pair_of_end.insert((plan.ends[1 - side].0, plan.ends[side]), number);
            }
        }
        if let Some(connection) = plan.connection {
            pair_of_connection.insert(connection, number);
        }
    }
    for (flow, pair) in collected.flows.iter().zip(&mut pair_of_flow) {
        if flow.key.transport == Transport::Cnp {
            *pair = pair_of_end.get(&(flow.key.src, (flow.key.dst, Some(flow.key.dest)))).copied();
        }
    }
    let mut pair_of_event = FxHashMap::default();
    for (number, connection) in connections.iter().enumerate() {
        if let Some(pair) = pair_of_connection.get(&number) {
            pair_of_event.extend(connection.events.iter().map(|event| (*event, *pair)));
        }
    }
    let mut orders = vec![Vec::new(); plans.len()];
    for (index, event) in collected.events.iter().enumerate() {
        let index = index as u32;
        let pair = match event.extra() {
            Some(_) if !pair_of_event.is_empty() => {
                pair_of_event.get(&index).copied().or(pair_of_flow[event.flow as usize])
            }
            _ => pair_of_flow[event.flow as usize],
        };
        if let Some(pair) = pair {
            orders[pair].push(index);
        }
    }
    orders
}

/// If nearly all packets of a flow fail their ICRC, the capture or the sender is wrong, not the network; they are then
/// followed like any others.
fn trust_bad_icrcs(collected: &mut Collected, log: &mut Log) {
    let distrusted: Vec<bool> =
        collected.flows.iter().map(|f| f.packets >= 4 && f.bad_icrc * 10 > f.packets * 9).collect();
    if !distrusted.contains(&true) {
        return;
    }
    for event in &mut collected.events {
        if distrusted[event.flow as usize] {
            event.trust_icrc();
        }
    }
    for (flow, _) in collected.flows.iter().zip(&distrusted).filter(|(_, distrusted)| **distrusted) {
        let first = &collected.events[flow.first as usize];
        log.add(Finding {
            kind: Kind::IcrcDistrusted,
            pair: None,
            time_ns: first.time_ns,
            psns: None,
            packets: vec![first.number],
            rule: Some(rules::ICRC),
            text: format!(
                "{} of {} packets from {} to {} QP {:#x} have a wrong ICRC: the sender computes it differently, or something on the way changes packets; they are followed as if it were right",
                flow.bad_icrc, flow.packets, flow.key.src, flow.key.dst, flow.key.dest.get()
            ),
        });
    }
}

/// Findings about the capture itself, and about packets that belong to no pair.
fn report_oddities(collected: &Collected, log: &mut Log) {
    let mut report = |kind, time_ns, packets, rule, text| {
        log.add(Finding { kind, pair: None, time_ns, psns: None, packets, rule, text });
    };
    let end = collected.last_ns;
    for m in &collected.malformed {
        let text = format!(
            "a packet from {} to {} is malformed: {}; receivers drop it silently",
            m.src, m.dst, m.error
        );
        report(Kind::Malformed, m.time_ns, vec![m.number], Some(rules::HEADER), text);
    }
    for (time_ns, index) in &collected.bad_pkeys {
        let event = &collected.events[*index as usize];
        let flow = &collected.flows[event.flow as usize];
        let text =
            format!("a packet from {} to {} names partition 0, which is invalid", flow.key.src, flow.key.dst);
        report(Kind::BadPkey, *time_ns, vec![event.number], Some(rules::PARTITION), text);
    }
    if let Some(damage) = &collected.summary.damage {
        report(Kind::Damaged, end, Vec::new(), None, format!("{damage}; what comes before is explained"));
    }
    if collected.summary.dropped_by_capture > 0 {
        let text = format!(
            "the capturing program lost {}: nothing is concluded from what is not in the capture",
            words::count(collected.summary.dropped_by_capture, "packet")
        );
        report(Kind::CaptureDropped, end, Vec::new(), None, text);
    }
    if collected.captured_twice > 0 {
        let text = format!(
            "{} were captured twice, at two interfaces or as they left and as they came, and are counted once",
            words::count(collected.captured_twice, "packet")
        );
        report(Kind::CapturedTwice, collected.first_ns, Vec::new(), None, text);
    }
    if collected.clock_backwards > 0 {
        let text = format!(
            "time stamps go backwards {}: the packets are followed in the order of their times, not of the file",
            words::count(collected.clock_backwards, "time")
        );
        report(Kind::ClockBackwards, collected.first_ns, Vec::new(), None, text);
    }
    if collected.srd > 0 {
        let text = format!(
            "{} of SRD {} not followed: `softrnic decode` shows what is in them",
            words::count(collected.srd, "packet"),
            if collected.srd == 1 { "is" } else { "are" }
        );
        report(Kind::SrdNotFollowed, collected.first_ns, Vec::new(), None, text);
    }
    if collected.not_followed > 0 {
        let text = format!(
            "the last {} are not followed: the capture has more than {}",
            words::count(collected.not_followed, "packet"),
            collected.events.len()
        );
        report(Kind::NotFollowed, end, Vec::new(), None, text);
    }
}
