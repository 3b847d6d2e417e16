//! Reads a capture into events and flows.

use std::net::IpAddr;

use rustc_hash::FxHashMap;
use softrnic_wire::{Body, Op, Operation, Packet, ParseError, Qpn, Transport};

use super::event::{CmEvent, CmFacts, Event, EventParts, Extra, Flags, Flow, FlowKey};
use super::injected::Injected;
use super::ports::{LeftPath, Ports};
use super::sightings::{Key, Sightings};
use softrnic_inspect::capture::{Direction, FabricNote, Record, Source};
use softrnic_inspect::decode::Summary;
use softrnic_inspect::dissect::{Dissection, Dissector, Icrc, Net, Roce, Transport as Dissected};

/// Everything that is kept of a capture.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    pub summary: Summary,
    pub events: Vec<Event>,
    pub extras: Vec<Extra>,
    pub flows: Vec<Flow>,
    pub cm: Vec<CmEvent>,
    pub malformed: Vec<Malformed>,
    pub bad_pkeys: Vec<(u64, u32)>,
    pub injected: Injected,
    pub captured_twice: u64,
    pub clock_backwards: u64,
    /// Packets beyond the limit.
    pub not_followed: u64,
    /// Packets of SRD, which has no pairs of queue pairs to follow.
    pub srd: u64,
    /// SoftRNICs have told each other what they can do.
    pub has_capabilities: bool,
    /// By flow.
    pub left_paths: FxHashMap<u32, Vec<LeftPath>>,
    pub first_ns: u64,
    pub last_ns: u64,
}

/// A record that is not a valid packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Malformed {
    pub time_ns: u64,
    pub number: u32,
    pub src: IpAddr,
    pub dst: IpAddr,
    pub error: ParseError,
}

const MALFORMED_KEPT: usize = 1000;
const PROGRESS_EVERY: u64 = 4096;
const CLOCK_STEP_NS: u64 = 1_000_000_000;

/// Reads all of a capture, keeping at most `limit` packets.
pub(crate) fn collect(reader: &mut impl Source, limit: usize, mut progress: impl FnMut(u64)) -> Collected {
    let mut collector = Collector::new(limit);
    let mut dissector = Dissector::new();
    loop {
        match reader.next_record() {
            Ok(Some(record)) => collector.take(&record, &mut dissector),
            Ok(None) => break,
            Err(error) => {
                collector.kept.summary.damage = Some(error);
                break;
            }
        }
        if collector.kept.summary.records.is_multiple_of(PROGRESS_EVERY) {
            progress(reader.consumed());
        }
    }
    let mut kept = collector.finish();
    kept.summary.dropped_by_capture = reader.dropped();
    progress(reader.consumed());
    kept
}

struct Collector {
    kept: Collected,
    limit: usize,
    flow_of: FxHashMap<FlowKey, u32>,
    ports: Ports,
    /// How many connections a QP has had, by its address and number.
    epochs: FxHashMap<(IpAddr, Qpn), Epoch>,
    sightings: Sightings,
    /// The newest time of each interface whose packets have a direction.
    newest: FxHashMap<u32, u64>,
}

/// The connection that now owns a QPN: the communication id that announced it.
#[derive(Clone, Copy)]
struct Epoch {
    count: u16,
    comm_id: u32,
}

impl Collector {
    fn new(limit: usize) -> Collector {
        Collector {
            kept: Collected::default(),
            limit,
            flow_of: FxHashMap::default(),
            ports: Ports::default(),
            epochs: FxHashMap::default(),
            sightings: Sightings::default(),
            newest: FxHashMap::default(),
        }
    }

    fn take(&mut self, record: &Record<'_>, dissector: &mut Dissector) {
        let record = &self.in_order(*record);
        let kept = &mut self.kept;
        kept.summary.records += 1;
        if kept.summary.records == 1 {
            kept.first_ns = record.time_ns;
        }
        kept.first_ns = kept.first_ns.min(record.time_ns);
        kept.last_ns = kept.last_ns.max(record.time_ns);
        match dissector.dissect(record) {
            Dissection::Skipped(why) => kept.summary.skip(why),
            packets => {
                kept.summary.merged += u64::from(matches!(packets, Dissection::Merged(_)));
                packets.for_each(|roce| {
                    self.kept.summary.count(record, roce);
                    self.roce(record, roce);
                });
            }
        }
    }

    /// A NIC writes its packets in the order in which it handles them, whatever the times say that it looks up meanwhile.
    fn in_order<'r>(&mut self, record: Record<'r>) -> Record<'r> {
        if record.direction.is_none() {
            return record;
        }
        let newest = self.newest.entry(record.interface).or_insert(record.time_ns);
        // Beyond that, somebody has set the clock.
        if newest.saturating_sub(record.time_ns) > CLOCK_STEP_NS {
            *newest = record.time_ns;
        }
        *newest = record.time_ns.max(*newest);
        Record { time_ns: *newest, ..record }
    }

    fn roce(&mut self, record: &Record<'_>, roce: &Roce<'_>) {
        match &roce.transport {
            Dissected::Packet(packet) => self.packet(record, roce, packet),
            Dissected::Malformed(_) if roce.srd().is_some() => self.kept.srd += 1,
            Dissected::Malformed(error) => {
                if self.kept.malformed.len() < MALFORMED_KEPT {
                    self.kept.malformed.push(Malformed {
                        time_ns: record.time_ns,
                        number: record.number as u32,
                        src: roce.net.src(),
                        dst: roce.net.dst(),
                        error: *error,
                    });
                }
            }
            Dissected::HeadersCut => {}
        }
    }

    fn packet(&mut self, record: &Record<'_>, roce: &Roce<'_>, packet: &Packet<'_>) {
        if self.kept.events.len() >= self.limit {
            self.kept.not_followed += 1;
            return;
        }
        let bad = !roce.icrc.acceptable();
        let mad = if bad { None } else { roce.mad() };
        self.kept.has_capabilities |= mad.as_ref().is_some_and(|mad| mad.vendor().is_some());
        let cm = mad.and_then(|mad| mad.cm());
        let epoch = cm.as_ref().map_or(0, |cm| self.note_epoch(roce.net.src(), &CmFacts::of(cm.body())));
        let src_port = match &roce.net {
            Net::V2 { header, .. } => header.src_port,
            Net::V1 { .. } => 0,
        };
        let flow = self.flow(roce, packet, src_port);
        let psn = packet.bth.psn;
        // An ICRC that was not captured cannot be compared; the PSN replaces it, so that packets differ at least in
        // that.
        let icrc = if roce.icrc == Icrc::NotCaptured { psn.get() } else { packet.icrc };
        let operation = packet.body.opcode().operation();
        let key = Key { flow, psn: psn.get(), icrc, bad };
        // A packet that a network loses is recorded there again.
        let is_loss = FabricNote::parse(record.comment).is_some_and(|note| note.is_loss());
        let is_known =
            if is_loss { self.sightings.has_seen(&key) } else { self.sightings.is_known(key, record) };
        self.kept.injected.note(record, flow, psn);
        if is_known {
            self.kept.captured_twice += 1;
            return;
        }
        let index = self.kept.events.len() as u32;
        if !bad && self.kept.flows[flow as usize].src_ports > 1 && takes_a_path(operation) {
            self.ports.note_data(flow, src_port, index);
        }
        let extra = match (&cm, &packet.body) {
            (Some(cm), _) => {
                let message = CmFacts::of(cm.body());
                self.kept.cm.push(CmEvent {
                    time_ns: record.time_ns,
                    number: record.number as u32,
                    event: index,
                    epoch,
                    src: roce.net.src(),
                    dst: roce.net.dst(),
                    name: cm.name(),
                    message,
                });
                Some(Extra::Cm(self.kept.cm.len() as u32 - 1))
            }
            (None, body) => body.op().and_then(|op| extra_of(&op)),
        };
        let extra = extra.map(|extra| {
            self.kept.extras.push(extra);
            self.kept.extras.len() as u32 - 1
        });
        let ce = roce.net.congestion_experienced();
        let mut flags = Flags::empty();
        flags.set(Flags::ACK_REQ, packet.bth.ack_req);
        flags.set(Flags::SOLICITED, packet.bth.solicited);
        flags.set(Flags::BAD_ICRC, bad);
        flags.set(Flags::CONGESTION, ce);
        flags.set(Flags::INBOUND, record.direction == Some(Direction::Inbound));
        flags.set(Flags::OUTBOUND, record.direction == Some(Direction::Outbound));
        if !bad && packet.bth.pkey.0 & 0x7FFF == 0 && self.kept.bad_pkeys.len() < MALFORMED_KEPT {
            self.kept.bad_pkeys.push((record.time_ns, index));
        }
        let stats = &mut self.kept.flows[flow as usize];
        stats.packets += 1;
        stats.answers += u64::from(operation.is_response());
        stats.bytes += packet.payload.len() as u64;
        stats.bad_icrc += u64::from(bad);
        stats.ce_marks += u64::from(ce);
        stats.last = index;
        if self.kept.events.last().is_some_and(|last| last.time_ns > record.time_ns) {
            self.kept.clock_backwards += 1;
        }
        self.kept.events.push(Event::new(EventParts {
            time_ns: record.time_ns,
            number: record.number,
            flow,
            psn,
            aeth: match &packet.body {
                Body::SelectiveAck(aeth) => Some(*aeth),
                body => body.op().and_then(|op| op.aeth()),
            },
            icrc,
            extra,
            len: packet.payload.len(),
            operation,
            flags,
        }));
    }

    fn flow(&mut self, roce: &Roce<'_>, packet: &Packet<'_>, src_port: u16) -> u32 {
        let (src, dst, dest) = (roce.net.src(), roce.net.dst(), packet.bth.dest_qpn);
        let transport = match packet.body.opcode().transport() {
            // What SoftRNICs add belongs to their reliable connections.
            Transport::SoftRnic => Transport::Rc,
            transport => transport,
        };
        let src_qpn = match &packet.body {
            Body::Ud { deth, .. } => Some(deth.src_qpn),
            _ => None,
        };
        let epoch = match transport {
            Transport::Ud => 0,
            _ => self.epochs.get(&(dst, dest)).map_or(0, |epoch| epoch.count),
        };
        let key = FlowKey { src, dst, dest, src_qpn, transport, epoch };
        let next = self.kept.flows.len() as u32;
        let flow = *self.flow_of.entry(key).or_insert(next);
        if flow == next {
            let first = self.kept.events.len() as u32;
            self.kept.flows.push(Flow {
                key,
                src_port,
                src_ports: 0,
                packets: 0,
                answers: 0,
                bytes: 0,
                bad_icrc: 0,
                ce_marks: 0,
                first,
                last: first,
            });
        }
        if self.ports.note(flow, src_port) {
            self.kept.flows[flow as usize].src_ports += 1;
        }
        flow
    }

    /// A new connection announces the QP it uses; what comes then does not continue what was before.
    fn note_epoch(&mut self, src: IpAddr, message: &CmFacts) -> u16 {
        let (qpn, comm_id) = match message {
            CmFacts::Req(req) => (req.qpn, req.local_id),
            CmFacts::Rep { ids, qpn, .. } => (*qpn, ids.local),
            _ => return 0,
        };
        let epoch = self.epochs.entry((src, qpn)).or_insert(Epoch { count: 0, comm_id });
        if epoch.comm_id != comm_id || epoch.count == 0 {
            *epoch = Epoch { count: epoch.count.wrapping_add(1), comm_id };
        }
        epoch.count
    }

    fn finish(mut self) -> Collected {
        self.kept.left_paths = std::mem::take(&mut self.ports).left();
        if self.kept.clock_backwards > 0 {
            self.sort_by_time();
        }
        self.kept
    }

    /// Sorts everything by time; events are referred to by index.
    fn sort_by_time(&mut self) {
        let kept = &mut self.kept;
        let mut order: Vec<u32> = (0..kept.events.len() as u32).collect();
        order.sort_by_key(|index| kept.events[*index as usize].time_ns);
        let mut place = vec![0u32; order.len()];
        for (new, old) in order.iter().enumerate() {
            place[*old as usize] = new as u32;
        }
        kept.events = order.iter().map(|old| kept.events[*old as usize]).collect();
        for cm in &mut kept.cm {
            cm.event = place[cm.event as usize];
        }
        for (_, index) in &mut kept.bad_pkeys {
            *index = place[*index as usize];
        }
        for left in kept.left_paths.values_mut().flatten() {
            (left.last, left.first) = (place[left.last as usize], place[left.first as usize]);
        }
        for flow in &mut kept.flows {
            (flow.first, flow.last) = (u32::MAX, 0);
        }
        for (index, event) in kept.events.iter().enumerate() {
            let flow = &mut kept.flows[event.flow as usize];
            flow.first = flow.first.min(index as u32);
            flow.last = index as u32;
        }
    }
}

/// Whether a packet takes one path of its queue pair, and not the next port in turn, as acknowledgements do.
fn takes_a_path(operation: Operation) -> bool {
    use Operation::*;
    operation.is_request()
        || matches!(operation, ReadResponseFirst | ReadResponseMiddle | ReadResponseLast | ReadResponseOnly)
}

fn extra_of(op: &Op) -> Option<Extra> {
    match op {
        Op::AtomicAcknowledge(_, original) => Some(Extra::Original(*original)),
        Op::CompareSwap(a) | Op::FetchAdd(a) => {
            Some(Extra::Atomic { va: a.va, rkey: a.rkey, operands: (a.swap_or_add, a.compare) })
        }
        op => op.reth().map(|r| Extra::Reth { va: r.va, rkey: r.rkey, len: r.dma_len }),
    }
}
