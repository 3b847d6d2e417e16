//! NICs on a network, and the passing of virtual time.

use std::collections::HashMap;
use std::slice::SliceIndex;
use std::time::Duration;

use softrnic_cm::CommId;
use softrnic_engine::{Budget, Caller, Event as NicEvent, QpHandle, QpInit, ReceiveSource};
use softrnic_link::Link;
use softrnic_link::sim::{Fabric, Meddling};
use softrnic_transport::{AttrMask, Path as QpPath, QpAccess, QpAttr, QpEvent, QpState, QpType};
use softrnic_wire::{Mtu, Psn, RnrTimer, Time};

use crate::action::{Action, Op, Post, Service, Setup};
use crate::network::HELD;
use crate::packet::Packet;
use crate::post::{self, Peer, QKEY};
use crate::rules;
use crate::side::Side;
use crate::switches::Switches;
use crate::view::{Event, Pause, Queue, Rate, What};

/// Entries of a send or receive queue.
const QUEUE: usize = 256;
/// How often a request can be posted at once.
const MAX_TIMES: u32 = 64;
const FULL: &str = "the send queue is full: step until something completes, and poll";

/// An end of a connection.
pub struct End {
    /// The NIC.
    pub side: usize,
    /// The QP, with the application's ends of its queues.
    pub qp: QpHandle,
    /// Receives that wait for a message: number and bytes.
    pub receives: Vec<(u64, u32)>,
    /// Work requests that have not been completed: number and operation.
    pub sends: Vec<(u64, Op)>,
    /// Its connection, if the connection manager makes it.
    pub connection: Option<CommId>,
    /// Bytes of all receives so far.
    received: u64,
    /// The rate that it had when this was last looked at.
    rate: Option<u64>,
}

/// See the [module](self).
pub struct World {
    /// How it was set up.
    pub setup: Setup,
    /// Virtual time.
    pub now: Time,
    /// The NICs.
    pub sides: Vec<Side>,
    /// The ends of connections; those of one are neighbours.
    pub ends: Vec<End>,
    /// All packets so far, in the order in which they left.
    pub packets: Vec<Packet>,
    /// All that has happened so far.
    pub events: Vec<Event>,
    /// How the rates of all ends have changed.
    pub rates: Vec<Rate>,
    /// How the queues of the switches' ports have changed.
    pub queues: Vec<Queue>,
    /// Which ports were paused, and when.
    pub pauses: Vec<Pause>,
    /// Packets that the last move changed.
    pub touched: Vec<usize>,
    pub(crate) fabric: Fabric,
    /// By the number that the fabric gives.
    pub(crate) flying: HashMap<u64, usize>,
    next_wr: u64,
    pub(crate) switches: Option<Switches>,
}

impl World {
    /// NICs that are connected, and have nothing to do.
    ///
    /// # Errors
    /// What is wrong with the setup, in a sentence.
    pub fn new(setup: &Setup) -> Result<World, String> {
        if !(2..=3).contains(&setup.sides) {
            return Err(format!("there are 2 or 3 NICs, not {}", setup.sides));
        }
        let fabric = Fabric::new(setup.seed);
        let mut world = World {
            setup: setup.clone(),
            now: Time::from_nanos(0),
            sides: Vec::new(),
            ends: Vec::new(),
            packets: Vec::new(),
            events: Vec::new(),
            rates: Vec::new(),
            queues: Vec::new(),
            pauses: Vec::new(),
            touched: Vec::new(),
            fabric,
            flying: HashMap::new(),
            next_wr: 1,
            switches: Switches::new(setup)?,
        };
        world.set_network(setup.mark, setup.loss)?;
        for number in 0..setup.sides {
            let side = Side::new(&world.fabric, number, setup, world.switches.is_some())?;
            world.sides.push(side);
        }
        if setup.connection_manager {
            world.serve_management()?;
        } else if setup.selective_recovery {
            world.serve_qp_1();
        }
        for side in (0..setup.sides).filter(|&side| side != 1) {
            world.connect(side, 1)?;
        }
        Ok(world)
    }

    /// Does what is next, if there is anything: a packet is taken, or a timer fires.
    pub fn step(&mut self) -> bool {
        self.touched.clear();
        if self.sides.iter().all(|side| side.inbox.is_empty()) {
            let Some(next) = self.next_time() else { return false };
            self.now = self.now.max(next);
            self.arrive();
        }
        let told = self.events.len();
        let turn = self.sides.iter().position(|side| !side.inbox.is_empty());
        if let Some(side) = turn {
            self.drive(side, 1);
        }
        self.settle();
        if self.events.len() == told {
            self.tell(None, What::Timer, None, "a timer fires, and there is nothing to do".into());
        }
        true
    }

    /// When the next step is, if there is one.
    pub fn next_time(&self) -> Option<Time> {
        if self.sides.iter().any(|side| !side.inbox.is_empty()) {
            return Some(self.now);
        }
        let switches = self.switches.as_ref().and_then(Switches::next);
        [self.next_without_switches(), switches].into_iter().flatten().min()
    }

    /// The next timer, or the next packet that no switch has any more.
    fn next_without_switches(&self) -> Option<Time> {
        let sides = self.sides.iter();
        let timers = sides.flat_map(|side| [side.engine.poll_timeout(), side.link.poll_timeout()]);
        let arrival = self.fabric.next_delivery().filter(|&at| at < HELD);
        timers.chain([arrival]).flatten().min()
    }

    /// Does what somebody wants.
    ///
    /// # Errors
    /// Why it cannot be done, in a sentence. Nothing has changed then.
    pub fn act(&mut self, action: &Action) -> Result<(), String> {
        self.touched.clear();
        match *action {
            Action::Post(ref post) => {
                self.check_state(post.end, &[QpState::Rts, QpState::Err])?;
                if !(1..=MAX_TIMES).contains(&post.times) {
                    return Err(format!("a request is posted 1 to {MAX_TIMES} times, not {}", post.times));
                }
                // All or nothing.
                if self.ends[post.end].sends.len() + post.times as usize > QUEUE {
                    return Err(FULL.into());
                }
                for _ in 0..post.times {
                    self.post(post)?;
                }
            }
            Action::Recv { end, len } => {
                self.check_state(end, &[QpState::Init, QpState::Rts, QpState::Err])?;
                self.recv(end, len)?;
            }
            Action::Connect { end } => self.ask(end)?,
            Action::Disconnect { end } => self.part(end)?,
            Action::Poll { end } => {
                let side = self.end(end)?.side;
                let taken = self.sides[side].completed.len();
                self.sides[side].completed.clear();
                self.tell(Some(side), What::Poll, None, format!("polled: {taken} taken"));
            }
            Action::Write { side, offset, word } => {
                let side = self.sides.get_mut(side).ok_or_else(|| format!("there is no NIC {side}"))?;
                if offset > side.memory.len() - 8 {
                    return Err(format!("a word at {offset} is not within the {} bytes", side.memory.len()));
                }
                side.memory.write(offset, &word.to_le_bytes());
            }
            Action::Wait { ns } => {
                let end = self.now + Duration::from_nanos(ns);
                self.now = self.next_time().map_or(end, |next| end.min(next).max(self.now));
            }
            Action::Drop { packet } => self.meddle(packet, Meddling::Lose, "dropped")?,
            Action::Duplicate { packet } => self.meddle(packet, Meddling::Duplicate, "duplicated")?,
            Action::Delay { packet, ns } => {
                let at = self.arrival(packet)?.max(self.now) + Duration::from_nanos(ns);
                self.meddle(packet, Meddling::ArriveAt(at), "delayed")?;
            }
            Action::Mark { packet } => self.meddle(packet, Meddling::Mark, "marked")?,
            Action::Flip { packet, bit } => {
                self.meddle(packet, Meddling::Flip { bit: bit as usize }, "damaged")?;
            }
            Action::Link { link, up } => self.change_link(link, up)?,
            Action::Network { mark, loss } => {
                self.set_network(mark, loss)?;
                let text = format!("the network marks {:.0}% and loses {:.0}%", mark * 100.0, loss * 100.0);
                self.tell(None, What::Wire, None, text);
            }
        }
        self.settle();
        Ok(())
    }

    fn connect(&mut self, a: usize, b: usize) -> Result<(), String> {
        let first = self.ends.len();
        for side in [a, b] {
            let end = self.create_end(side)?;
            self.ends.push(end);
        }
        for number in [first, first + 1] {
            let attr = self.attributes(number)?;
            // The connection manager does the rest, when somebody asks for it.
            if self.setup.connection_manager {
                self.change(number, &attr, ..1)?;
            } else {
                self.change(number, &attr, ..)?;
            }
        }
        Ok(())
    }

    /// An end with a QP in RESET.
    pub(crate) fn create_end(&mut self, side: usize) -> Result<End, String> {
        let service = self.service();
        let node = &mut self.sides[side];
        let init = QpInit {
            service,
            pd: node.pd,
            send_cq: node.cq,
            recv_cq: node.cq,
            max_send_wr: QUEUE,
            receive: ReceiveSource::Own(QUEUE),
        };
        let qp = node.engine.create_qp(init).map_err(|error| error.to_string())?;
        let (receives, sends) = (Vec::new(), Vec::new());
        Ok(End { side, qp, receives, sends, connection: None, received: 0, rate: None })
    }

    /// The attributes of an end's QP as the setup has them.
    pub(crate) fn attributes(&self, number: usize) -> Result<QpAttr, String> {
        let (end, peer, place) = (&self.ends[number], &self.ends[number ^ 1], number % 2);
        let setup = &self.setup;
        let mtu = Mtu::from_bytes(setup.mtu)
            .ok_or_else(|| format!("the path MTU is 256, 512, 1024, 2048 or 4096, not {}", setup.mtu))?;
        Ok(QpAttr {
            access: QpAccess {
                remote_write: true,
                remote_read: true,
                remote_atomic: true,
                ..QpAccess::default()
            },
            qkey: QKEY,
            path: self.path(number, end.side, peer.side),
            mtu,
            dest_qpn: peer.qp.qpn,
            sq_psn: Psn::new(setup.psns[place]),
            rq_psn: Psn::new(setup.psns[1 - place]),
            max_rd_atomic: setup.rd_atomic,
            max_dest_rd_atomic: setup.rd_atomic,
            min_rnr_timer: RnrTimer::new(setup.rnr_timer & 31),
            timeout: setup.timeout,
            retry_cnt: setup.retry_cnt,
            rnr_retry: setup.rnr_retry,
            ..QpAttr::default()
        })
    }

    /// Makes some of the transitions to INIT, RTR and RTS.
    pub(crate) fn change(
        &mut self,
        number: usize,
        attr: &QpAttr,
        which: impl SliceIndex<[Transition], Output = [Transition]>,
    ) -> Result<(), String> {
        let (key, side, now) = (self.ends[number].qp.key, self.ends[number].side, self.now);
        for &(state, mask) in &transitions(self.service())[which] {
            let attr = QpAttr { state, ..*attr };
            let engine = &mut self.sides[side].engine;
            engine.modify_qp(now, key, mask, &attr).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn path(&self, end: usize, from: usize, to: usize) -> QpPath {
        let tos = self.tos();
        let sport = self.sport(end);
        let (src, dst) = (self.sides[from].address, self.sides[to].address);
        QpPath { src, dst, sport, tos, ttl: 64 }
    }

    /// The UDP source port of an end's connection.
    pub(crate) fn sport(&self, end: usize) -> u16 {
        self.setup.sports[(end / 2).min(1)]
    }

    /// ECT(0), if congestion control is on: switches may mark what they would otherwise drop.
    pub(crate) fn tos(&self) -> u8 {
        if self.setup.congestion_control { 2 } else { 0 }
    }

    fn service(&self) -> QpType {
        service(&self.setup)
    }

    pub(crate) fn end(&self, number: usize) -> Result<&End, String> {
        self.ends.get(number).ok_or_else(|| format!("there is no end {number} of a connection"))
    }

    fn check_state(&self, number: usize, good: &[QpState]) -> Result<(), String> {
        let end = self.end(number)?;
        let known = self.sides[end.side].engine.query_qp(end.qp.key).map_err(|error| error.to_string())?;
        if good.contains(&known.status.state) {
            return Ok(());
        }
        let state = format!("{:?}", known.status.state).to_uppercase();
        Err(format!("the QP is in {state}: connect first"))
    }

    fn post(&mut self, request: &Post) -> Result<(), String> {
        let end = self.end(request.end)?;
        let other = &self.ends[request.end ^ 1];
        let target = &self.sides[other.side];
        let peer = Peer {
            base: target.base,
            rkey: target.keys.rkey,
            window: target.window_key(),
            path: self.path(request.end, end.side, other.side),
            qpn: other.qp.qpn,
        };
        let (side, wr) = (end.side, self.next_wr);
        let wqe = post::send(&self.sides[side], &peer, self.service(), wr, request)?;
        let end = &mut self.ends[request.end];
        end.qp.sends.push(wqe).map_err(|_| FULL)?;
        end.sends.push((wr, request.op));
        let (index, now) = (end.qp.key.index(), self.now);
        self.next_wr += 1;
        let bytes = match request.op {
            Op::FetchAdd | Op::CompareSwap => 8,
            Op::Invalidate => 0,
            _ => request.len,
        };
        self.tell(
            Some(side),
            What::Post,
            None,
            format!("posted {} of {bytes} bytes, wr_id {wr}", name(request.op)),
        );
        self.sides[side].engine.on_doorbell(now, index);
        Ok(())
    }

    fn recv(&mut self, number: usize, len: u32) -> Result<(), String> {
        let end = self.end(number)?;
        let (side, wr) = (end.side, self.next_wr);
        let wqe = post::receive(&self.sides[side], self.service(), wr, len, end.received)?;
        let end = &mut self.ends[number];
        let queue = end.qp.receives.as_mut().ok_or("this QP receives nothing")?;
        queue.push(wqe).map_err(|_| "the receive queue is full")?;
        end.received += u64::from(len);
        end.receives.push((wr, len));
        let (index, now) = (end.qp.key.index(), self.now);
        self.next_wr += 1;
        self.tell(Some(side), What::Post, None, format!("posted a receive of {len} bytes, wr_id {wr}"));
        self.sides[side].engine.on_doorbell(now, index);
        Ok(())
    }

    /// Lets every NIC do what it has to do at this time, except that it receives nothing.
    fn settle(&mut self) {
        self.pass_switches();
        // What a NIC sends at one time is bounded by its queues.
        for _ in 0..1 << 10 {
            let busy = (0..self.sides.len()).filter(|&side| self.drive(side, 0)).count();
            if busy == 0 {
                break;
            }
        }
        self.look_ahead();
        self.see_rates();
        for side in &mut self.sides {
            side.find_changed();
        }
    }

    /// Notes which rates have changed.
    fn see_rates(&mut self) {
        for number in 0..self.ends.len() {
            let end = &self.ends[number];
            let known = self.sides[end.side].engine.query_qp(end.qp.key);
            let rate = known.ok().and_then(|known| known.status.paced_rate);
            if rate == end.rate {
                continue;
            }
            let side = end.side;
            self.ends[number].rate = rate;
            self.rates.push(Rate { at: self.now.as_nanos(), end: number, rate });
            let text = match rate {
                Some(rate) => format!("may send {:.3} Gbit/s", rate as f64 * 8e-9),
                None => "may send as fast as it can".into(),
            };
            self.tell(Some(side), What::Rate, None, text);
        }
    }

    /// Lets a NIC work. Returns whether it had something to do.
    fn drive(&mut self, side: usize, receive: usize) -> bool {
        let budget = Budget { receive, caller: Caller::Control, ..Budget::default() };
        let has_room = self.switches.as_ref().is_none_or(|switches| switches.has_room(side));
        let node = &mut self.sides[side];
        node.link.offer(has_room);
        let step = node.engine.step(self.now, &mut node.link, budget);
        let packet = if step.received > 0 { node.inbox.pop_front() } else { None };
        if let Some(packet) = packet {
            let known = &self.packets[packet];
            let text = format!("took {}, psn {}{}", known.opcode, known.psn, known.note());
            self.tell(Some(side), What::Received, Some(packet), text);
        }
        for (meaning, rule) in self.sides[side].take_counted() {
            self.tell_rule(side, packet, meaning, rule);
        }
        self.see_departures(None);
        let events: Vec<_> = self.sides[side].engine.take_events().collect();
        for event in events {
            self.tell(Some(side), What::Event, None, format!("asynchronous event: {}", event_name(event)));
            if let NicEvent::Qp(key, QpEvent::CommunicationEstablished) = event {
                let end = self.ends.iter().position(|end| end.side == side && end.qp.key == key);
                end.into_iter().for_each(|end| self.in_use(end));
            }
        }
        let connected = self.handle_connections(side);
        while let Some(done) = self.sides[side].ring.pop() {
            for end in self.ends.iter_mut().filter(|end| end.side == side) {
                end.receives.retain(|(wr, _)| *wr != done.wr_id);
                // A completion stands for everything posted before it to the same queue.
                if end.qp.qpn == done.qpn && !done.opcode.is_receive() {
                    end.sends.retain(|(wr, _)| *wr > done.wr_id);
                }
            }
            let text = format!(
                "completed: wr_id {}, {:?}, {:?}, {} bytes",
                done.wr_id, done.opcode, done.status, done.byte_len
            );
            self.tell(Some(side), What::Completion, None, text);
            self.sides[side].completed.push_back(done);
        }
        step.received > 0 || step.sent > 0 || step.completed > 0 || connected
    }

    /// Finds when the switches have something to say next.
    fn look_ahead(&mut self) {
        let waiting: Vec<bool> = self.sides.iter().map(|side| side.link.is_full()).collect();
        let until = self.next_without_switches();
        if let Some(switches) = &mut self.switches {
            switches.look_ahead(&waiting, until);
        }
    }

    pub(crate) fn tell(&mut self, side: Option<usize>, what: What, packet: Option<usize>, text: String) {
        self.tell_at(self.now, side, what, packet, text);
    }

    pub(crate) fn tell_at(
        &mut self,
        at: Time,
        side: Option<usize>,
        what: What,
        packet: Option<usize>,
        text: String,
    ) {
        let at = at.as_nanos();
        self.events.push(Event { at, side, what, packet, text, rule: None, says: None });
    }

    fn tell_rule(&mut self, side: usize, packet: Option<usize>, text: &str, rule: Option<&'static str>) {
        let text = text.trim_end_matches('.').to_string();
        self.events.push(Event {
            at: self.now.as_nanos(),
            side: Some(side),
            what: What::Rule,
            packet,
            text,
            rule,
            says: rule.map(rules::says),
        });
    }
}

fn service(setup: &Setup) -> QpType {
    match setup.service {
        Service::Rc => QpType::Rc,
        Service::Uc => QpType::Uc,
        Service::Ud => QpType::Ud,
    }
}

fn name(op: Op) -> &'static str {
    match op {
        Op::Send => "a SEND",
        Op::Write => "a WRITE",
        Op::Read => "a READ",
        Op::FetchAdd => "a fetch-and-add",
        Op::CompareSwap => "a compare-and-swap",
        Op::Bind => "a bind",
        Op::Invalidate => "an invalidate",
        Op::SendInvalidate => "a SEND with Invalidate",
    }
}

/// An asynchronous event in words: keys of the engine say nothing to a reader.
fn event_name(event: NicEvent) -> String {
    match event {
        NicEvent::Qp(_, event) => format!("{event:?}"),
        other => format!("{other:?}"),
    }
}

/// A state to go to, and the attributes that this needs.
pub(crate) type Transition = (QpState, AttrMask);

/// From RESET to RTS, with the attributes that each transition needs.
fn transitions(service: QpType) -> [Transition; 3] {
    use AttrMask as M;
    let all = |masks: &[M]| masks.iter().fold(M::STATE, |all, &mask| all.union(mask));
    let connected = [M::AV, M::PATH_MTU, M::DEST_QPN, M::RQ_PSN];
    let (init, rtr, rts) = match service {
        QpType::Ud => (all(&[M::PKEY_INDEX, M::PORT, M::QKEY]), M::STATE, all(&[M::SQ_PSN])),
        QpType::Uc => (all(&[M::PKEY_INDEX, M::PORT, M::ACCESS_FLAGS]), all(&connected), all(&[M::SQ_PSN])),
        _ => (
            all(&[M::PKEY_INDEX, M::PORT, M::ACCESS_FLAGS]),
            all(&connected).union(M::MAX_DEST_RD_ATOMIC).union(M::MIN_RNR_TIMER),
            all(&[M::TIMEOUT, M::RETRY_CNT, M::RNR_RETRY, M::SQ_PSN, M::MAX_QP_RD_ATOMIC]),
        ),
    };
    [(QpState::Init, init), (QpState::Rtr, rtr), (QpState::Rts, rts)]
}
