//! Follows one pair through the capture.

use std::net::IpAddr;

use rustc_hash::FxHashMap;
use softrnic_wire::{Mtu, Operation, Psn, Qpn, Transport};

use super::Limits;
use super::collect::Collected;
use super::connection::Connection;
use super::event::{Event, Extra, Flow, Mark};
use super::finding::{Finding, Kind, rules};
use super::log::Log;
use super::pairing::{PairedBy, Plan};
use super::ports::LeftPath;
use super::recovery::MIN_TIMEOUT_NS;
use super::report::{End, Pair};
use super::stream::{Context, Lost, Stream, psn_of};
use super::unreliable::Unreliable;
use super::words;

/// Round trips looked at per pair.
const RTT_SAMPLE: usize = 256;
const MAX_TIMEOUT_NS: u64 = 20_000_000;
/// What is taken for the local ACK timeout where no REQ tells it: 4.096 µs times two to the 12, as short as one is in use.
const ACK_TIMEOUT_NS: u64 = 4096 << 12;
/// A requester that resends early waits for up to this many of the longest round trips it has seen.
const ROUND_TRIPS_WAITED: u64 = 4;
/// A hole this long is not the result of loss.
const JUMP: u32 = 256;

/// What to follow.
#[derive(Clone, Copy)]
pub(crate) struct Follow<'c> {
    pub plan: &'c Plan,
    pub connection: Option<&'c Connection>,
    /// The pair's number.
    pub number: usize,
    pub limits: Limits,
}

/// Follows a pair, whose events are `order`.
pub(crate) fn analyze(
    collected: &mut Collected,
    follow: Follow<'_>,
    order: Vec<u32>,
    log: &mut Log,
    lost: &mut Vec<Lost>,
) -> Pair {
    let Follow { plan, connection, number, .. } = follow;
    let mtu = find_mtu(collected, plan, connection, &order);
    let RoundTrips { median_ns: rtt_ns, longest_ns } = round_trips(collected, plan, &order);
    let ends = [0, 1].map(|side| end(collected, plan, side));
    let end_ns = collected.last_ns;
    let times_ns = match (order.first(), order.last()) {
        (Some(a), Some(b)) => (collected.events[*a as usize].time_ns, collected.events[*b as usize].time_ns),
        _ => (0, 0),
    };
    let mut pair = Pair {
        ends,
        transport: plan.transport,
        paired_by: plan.paired_by,
        connection: plan.connection,
        mtu,
        rtt_ns,
        messages: Vec::new(),
        message_counts: [0; 2],
        cnps: [0; 2],
        times_ns,
        order: Vec::new(),
        flows: plan.flows,
    };
    let mut ctx = Context {
        events: &mut collected.events,
        extras: &collected.extras,
        injected: &collected.injected,
        order: &order,
        log,
        lost,
        pair: number,
        names: [pair.ends[0].name(), pair.ends[1].name()],
        flows: plan.flows,
        all_flows: &collected.flows,
        mtu,
        min_timeout_ns: rtt_ns.map_or(MIN_TIMEOUT_NS, |rtt| (2 * rtt).clamp(MIN_TIMEOUT_NS, MAX_TIMEOUT_NS)),
        ack_timeout_ns: ack_timeout(connection).max(longest_ns * ROUND_TRIPS_WAITED),
        end_ns,
    };
    match plan.transport {
        Transport::Rc | Transport::Xrc => reliable(&mut ctx, &mut pair, follow),
        Transport::Uc => unreliable(&mut ctx, &mut pair),
        _ => datagrams(&mut ctx, &mut pair),
    }
    report_congestion(&mut ctx, &pair);
    if collected.has_capabilities {
        report_left_paths(&mut ctx, &collected.left_paths);
    }
    if plan.paired_by == PairedBy::Nothing && plan.transport != Transport::Uc {
        report_one_sided(&mut ctx, &pair);
    }
    pair.order = order;
    pair
}

fn end(collected: &Collected, plan: &Plan, side: usize) -> End {
    let (address, qpn): (IpAddr, Option<Qpn>) = plan.ends[side];
    let flow = plan.flows[side].map(|flow| &collected.flows[flow as usize]);
    End {
        address,
        qpn,
        packets: flow.map_or(0, |f| f.packets),
        ports: flow.map_or(0, |f| f.src_ports),
        bytes: flow.map_or(0, |f| f.bytes),
        ce_marks: flow.map_or(0, |f| f.ce_marks),
    }
}

fn reliable(ctx: &mut Context<'_>, pair: &mut Pair, follow: Follow<'_>) {
    let Follow { plan, connection, .. } = follow;
    let mut streams = [0, 1].map(|side| Stream::new(side, follow.limits.history));
    let order = ctx.order;
    for (at, index) in order.iter().enumerate() {
        let event = ctx.event(*index);
        if event.operation == Operation::Cnp {
            pair.cnps[1 - sender(ctx.all_flows, &pair.ends, ctx.flows, &event)] += 1;
            continue;
        }
        let Some(side) = side_of(ctx, &event) else { continue };
        let asks = event.operation.is_request() || plan.paired_by == PairedBy::Itself;
        let requester = if asks { side } else { 1 - side };
        let stream = &mut streams[requester];
        if event.bad_icrc() {
            ctx.mark(*index, Mark::Corrupt);
            report_corrupt(ctx, *index, side);
            stream.note_corrupt(&event, *index);
        } else if event.operation.is_request() {
            if !stream.started {
                check_starting_psn(ctx, *index, side, connection, plan);
            }
            stream.request(ctx, at);
        } else {
            stream.response(ctx, *index);
        }
    }
    for stream in &mut streams {
        finish(ctx, stream);
        pair.message_counts[stream.requester] = stream.assembler.count;
        pair.messages.append(&mut stream.assembler.messages);
    }
}

/// Which side sent a packet that concerns the pair, including one that travels beside the connection, to set it up or
/// slow it down.
pub(crate) fn sender(flows: &[Flow], ends: &[End; 2], own: [Option<u32>; 2], event: &Event) -> usize {
    if let Some(side) = own.iter().position(|flow| *flow == Some(event.flow)) {
        return side;
    }
    let key = &flows[event.flow as usize].key;
    let to_first = key.dst == ends[0].address;
    let named = ends.iter().position(|end| end.address == key.dst && end.qpn == Some(key.dest));
    named.map_or(usize::from(to_first && key.src != ends[0].address), |receiver| 1 - receiver)
}

/// Which side sent a packet of the connection; `None` for messages that only concern it.
fn side_of(ctx: &Context<'_>, event: &Event) -> Option<usize> {
    ctx.flows.iter().position(|flow| *flow == Some(event.flow))
}

fn finish(ctx: &mut Context<'_>, stream: &mut Stream) {
    stream.advance(ctx);
    let from = stream.segments.partition_point(|s| s.end() <= stream.una);
    let mut unanswered = 0u64;
    let mut open = None;
    for place in from..stream.segments.len() {
        let segment = stream.segments[place];
        if segment.sent {
            stream.assembler.take(ctx, stream.requester, &segment);
            if !segment.acked && ctx.event(segment.first_event).ack_req() {
                unanswered += 1;
                open.get_or_insert(segment);
            }
        } else {
            stream.assembler.interrupt();
            report_hole(ctx, stream, place);
        }
    }
    stream.assembler.finish();
    let troubled = stream.recovery.is_some() || stream.rnr.is_some() || stream.fatal.is_some();
    stream.report_unsolved(ctx);
    let responder_seen = ctx.flows[stream.responder()].is_some();
    stream.report_unsent(ctx);
    if let (Some(first), false, true) = (open, troubled, responder_seen) {
        let psn = psn_of(first.first);
        let text = format!(
            "{} of {} {} still unanswered when the capture ends, the first with PSN {psn}",
            words::count(unanswered, "request"),
            ctx.names[stream.requester],
            if unanswered == 1 { "is" } else { "are" },
        );
        ctx.report(Kind::Unanswered, None, (psn, psn), &[first.first_event], text);
    }
}

/// PSNs that were skipped and neither sent later nor acknowledged.
fn report_hole(ctx: &mut Context<'_>, stream: &mut Stream, place: usize) {
    let hole = stream.segments[place];
    if hole.acked {
        stream.report_capture_gap(ctx, &hole);
        return;
    }
    let shown_ns = ctx.event(hole.first_event).time_ns;
    let (first, last) = (psn_of(hole.first), psn_of(hole.last()));
    let asked = stream.recovery.filter(|r| r.nak.is_some() && (hole.first..hole.end()).contains(&r.at));
    let since = asked.and_then(|r| r.nak).map_or(shown_ns, |nak| ctx.event(nak).time_ns);
    let passed_over = asked.is_some_and(|r| r.passed_over);
    let went_on = passed_over || stream.sent_ns.saturating_sub(since) >= ctx.min_timeout_ns;
    let name = &ctx.names[stream.requester];
    if went_on || hole.count >= JUMP {
        let nak = match asked.and_then(|r| r.nak) {
            Some(nak) => format!(", although the sequence NAK in packet {} asked for them", ctx.number(nak)),
            None => String::new(),
        };
        let before = psn_of(hole.first - 1);
        let text = format!(
            "the PSN of {name} jumps from {before} to {}: {} {} never sent{nak}",
            last.next(),
            words::psns(first, last),
            if hole.count == 1 { "is" } else { "are" },
        );
        if asked.is_some() {
            stream.recovery = None;
        }
        ctx.report(Kind::PsnJump, Some(rules::CONSECUTIVE_PSN), (first, last), &[hole.first_event], text);
    } else if asked.is_none() {
        let text = format!(
            "{} of {name} are missing and were not sent again before the capture ends",
            words::psns(first, last)
        );
        ctx.report(Kind::RequestLost, None, (first, last), &[hole.first_event], text);
    }
}

fn check_starting_psn(
    ctx: &mut Context<'_>,
    index: u32,
    side: usize,
    connection: Option<&Connection>,
    plan: &Plan,
) {
    let Some(connection) = connection else { return };
    let active = plan.ends[side].0 == connection.active && plan.ends[side].1 == connection.qpns[0];
    let Some(agreed) = connection.first_psns[usize::from(!active)] else { return };
    let event = ctx.event(index);
    // Within a few packets of it, the first ones may simply be missing, which the hole then reports.
    if event.psn() != agreed {
        let text = format!(
            "{} begins with PSN {}, but the other side's {} said {agreed}",
            ctx.names[side],
            event.psn(),
            if active { "REP" } else { "REQ" },
        );
        let psns = (event.psn(), event.psn());
        ctx.report(Kind::StartingPsn, Some(rules::NEGOTIATED_PSN), psns, &[index], text);
    }
}

fn report_corrupt(ctx: &mut Context<'_>, index: u32, side: usize) {
    let event = ctx.event(index);
    let text = format!(
        "the {} of {} in packet {} has a wrong ICRC: it was damaged on the way, and receivers drop it",
        words::operation(event.operation),
        ctx.names[side],
        event.number
    );
    ctx.report(Kind::BadIcrc, Some(rules::ICRC), (event.psn(), event.psn()), &[index], text);
}

fn unreliable(ctx: &mut Context<'_>, pair: &mut Pair) {
    let mut sides = [Unreliable::new(0), Unreliable::new(1)];
    for index in ctx.order {
        let event = ctx.event(*index);
        if event.operation == Operation::Cnp {
            pair.cnps[1 - sender(ctx.all_flows, &pair.ends, ctx.flows, &event)] += 1;
        } else if let Some(side) = side_of(ctx, &event) {
            if event.bad_icrc() {
                ctx.mark(*index, Mark::Corrupt);
                report_corrupt(ctx, *index, side);
            } else {
                sides[side].packet(ctx, *index);
            }
        }
    }
    for (side, mut unreliable) in sides.into_iter().enumerate() {
        unreliable.assembler.finish();
        pair.message_counts[side] = unreliable.assembler.count;
        pair.messages.append(&mut unreliable.assembler.messages);
    }
}

fn datagrams(ctx: &mut Context<'_>, pair: &mut Pair) {
    for index in ctx.order {
        let event = ctx.event(*index);
        let Some(side) = side_of(ctx, &event) else { continue };
        if event.bad_icrc() {
            ctx.mark(*index, Mark::Corrupt);
            report_corrupt(ctx, *index, side);
        } else {
            pair.message_counts[side] += 1;
        }
    }
}

fn report_congestion(ctx: &mut Context<'_>, pair: &Pair) {
    for side in 0..2 {
        let other = 1 - side;
        if pair.cnps[side] > 0 {
            let first = ctx.order.iter().copied().find(|i| {
                let event = ctx.event(*i);
                event.operation == Operation::Cnp
                    && sender(ctx.all_flows, &pair.ends, ctx.flows, &event) == other
            });
            let text = format!(
                "{} told {} to slow down with {}",
                ctx.names[other],
                ctx.names[side],
                words::count(pair.cnps[side], "CNP")
            );
            if let Some(first) = first {
                let psn = ctx.event(first).psn();
                ctx.report(Kind::Cnp, None, (psn, psn), &[first], text);
            }
        }
        if pair.ends[side].ce_marks > 0 {
            let marked = ctx.order.iter().copied().find(|i| {
                let event = ctx.event(*i);
                event.flags.contains(super::event::Flags::CONGESTION) && side_of(ctx, &event) == Some(side)
            });
            let text = format!(
                "{} of {} came with the mark of a congested switch (ECN: congestion experienced)",
                words::count(pair.ends[side].ce_marks, "packet"),
                ctx.names[side]
            );
            if let Some(marked) = marked {
                let psn = ctx.event(marked).psn();
                ctx.report(Kind::CongestionMarks, None, (psn, psn), &[marked], text);
            }
        }
    }
}

fn report_left_paths(ctx: &mut Context<'_>, left_paths: &FxHashMap<u32, Vec<LeftPath>>) {
    for side in 0..2 {
        let Some(flow) = ctx.flows[side] else { continue };
        let Some(left) = left_paths.get(&flow) else { continue };
        // With one path, a port that changes says nothing.
        if ctx.all_flows[flow as usize].src_ports as usize <= left.len() + 1 {
            continue;
        }
        for LeftPath { from, to, last, first } in left.iter().copied() {
            let (last_event, first_event) = (ctx.event(last), ctx.event(first));
            let text = format!(
                "{} sent nothing from UDP port {from} after packet {}, and goes on from port {to} {} later, in packet {}: packets were lost on that path, or nothing came by any",
                ctx.names[side],
                last_event.number,
                words::span(first_event.time_ns.saturating_sub(last_event.time_ns)),
                first_event.number,
            );
            ctx.report_seen(Kind::PathLeft, (last_event.psn(), first_event.psn()), &[last, first], text);
        }
    }
}

fn report_one_sided(ctx: &mut Context<'_>, pair: &Pair) {
    let Some(first) = ctx.order.first().copied() else { return };
    let side = usize::from(pair.ends[0].packets == 0);
    if pair.transport == Transport::Ud {
        return;
    }
    let psn = ctx.event(first).psn();
    let text = format!(
        "only what {} sends is in this capture, so answers can not be followed",
        pair.ends[side].name().replace(" QP unknown", "")
    );
    ctx.log.add(Finding {
        kind: Kind::OneSided,
        pair: Some(ctx.pair),
        time_ns: ctx.event(first).time_ns,
        psns: Some((psn, psn)),
        packets: vec![ctx.number(first)],
        rule: None,
        text,
    });
}

/// The path MTU: agreed on in the handshake, or what First and Middle packets carry, or what makes
/// the PSNs after a READ fit.
fn find_mtu(
    collected: &Collected,
    plan: &Plan,
    connection: Option<&Connection>,
    order: &[u32],
) -> Option<u32> {
    if let Some(mtu) = connection.and_then(|c| c.mtu) {
        return Some(mtu.bytes());
    }
    if !matches!(plan.transport, Transport::Rc | Transport::Xrc | Transport::Uc) {
        return None;
    }
    use Operation::*;
    let mut by_read = None;
    let mut pending: [Option<(u32, u32)>; 2] = [None; 2];
    let mut largest = 0;
    for index in order {
        let event = &collected.events[*index as usize];
        if event.bad_icrc() {
            continue;
        }
        let full = matches!(
            event.operation,
            SendFirst | SendMiddle | WriteFirst | WriteMiddle | ReadResponseFirst | ReadResponseMiddle
        );
        if full && let Some(mtu) = Mtu::from_bytes(event.len.into()) {
            return Some(mtu.bytes());
        }
        let Some(side) = plan.flows.iter().position(|f| *f == Some(event.flow)) else { continue };
        largest = largest.max(u32::from(event.len));
        if by_read.is_none() && event.operation.is_request() {
            if let Some((psn, len)) = pending[side].take() {
                let step = event.psn().get().wrapping_sub(psn) & 0xFF_FFFF;
                by_read =
                    Mtu::ALL.iter().rev().find(|m| step > 1 && m.packets(len) == step).map(|m| m.bytes());
            }
            let reth = event.extra().and_then(|x| collected.extras.get(x));
            if let (ReadRequest, Some(Extra::Reth { len, .. })) = (event.operation, reth) {
                pending[side] = Some((event.psn().get(), *len));
            }
        }
    }
    by_read.filter(|mtu| *mtu >= largest)
}

/// The local ACK timeout as the handshake gives it, less a tenth for the timers of others.
fn ack_timeout(connection: Option<&Connection>) -> u64 {
    let exponent = connection.and_then(|c| c.ack_timeout).filter(|exponent| (1..32).contains(exponent));
    exponent.map_or(ACK_TIMEOUT_NS, |exponent| 4096 << exponent) / 10 * 9
}

/// Times from a request that asks for an answer to the answer.
struct RoundTrips {
    /// The median of those first seen.
    median_ns: Option<u64>,
    /// Of all.
    longest_ns: u64,
}

/// The longest leaves out requests that were sent twice: nobody knows which of them the answer is for.
fn round_trips(collected: &Collected, plan: &Plan, order: &[u32]) -> RoundTrips {
    let mut asked: [Option<(Psn, u64)>; 2] = [None; 2];
    let mut oldest: [Option<(Psn, u64)>; 2] = [None; 2];
    let mut newest: [Option<Psn>; 2] = [None; 2];
    let other = |side: usize| if plan.paired_by == PairedBy::Itself { side } else { 1 - side };
    let mut samples = Vec::new();
    let mut longest_ns = 0;
    for index in order {
        let event = &collected.events[*index as usize];
        let Some(side) = plan.flows.iter().position(|f| *f == Some(event.flow)) else { continue };
        let psn = event.psn();
        if event.operation.is_request() {
            let asks = event.ack_req() || event.operation == Operation::ReadRequest;
            if asks {
                asked[side] = Some((psn, event.time_ns));
            }
            if newest[side].is_some_and(|newest| psn.distance_from(newest) <= 0) {
                oldest[side] = None;
            } else {
                newest[side] = Some(psn);
                oldest[side] = oldest[side].or(asked[side].filter(|_| asks));
            }
            continue;
        }
        let took = |asked: &mut Option<(Psn, u64)>, fits: fn(i32) -> bool| {
            let (_, at) = asked.take_if(|(wanted, _)| fits(psn.distance_from(*wanted)))?;
            Some(event.time_ns.saturating_sub(at))
        };
        if let Some(sample) = took(&mut asked[other(side)], |distance| distance == 0)
            && samples.len() < RTT_SAMPLE
        {
            samples.push(sample);
        }
        if let Some(sample) = took(&mut oldest[other(side)], |distance| distance >= 0) {
            longest_ns = longest_ns.max(sample);
        }
    }
    samples.sort_unstable();
    RoundTrips { median_ns: samples.get(samples.len() / 2).copied(), longest_ns }
}
