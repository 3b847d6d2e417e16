//! What each line of a script does to the peer.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use softrnic_script::{
    Access, Completion, Event, Keys, MrSpec, Op, Outgoing, Place as Spot, QpNumbers, QpSpec, Queue, Received,
    Request, Seal, Served, Server, Service, Setting, Sge, State, Target, Trouble, describe,
};
use softrnic_wire::{PortSpace, ServiceId};

use super::post::{hex, sge_words};
use super::{ANSWER_TIMEOUT, GUID, LULL, Peer, REST, Result, deviation, dreq_ids, lost, unable};
use crate::agent::AgentError;
use crate::time_range::TimeRange;
use crate::timing::told;
use crate::verbs;
use crate::wire::first_id;

const FLUSH: u8 = 0x1C;
const ATOMIC_WRITE: u8 = 0x1D;

impl Target for Peer<'_> {
    fn option(&mut self, setting: Setting) -> Result {
        match setting {
            // Its answer to the first question says whether it does.
            Setting::SelectiveRecovery(true) | Setting::Paths(_) => Ok(()),
            Setting::CnpInterval(_) | Setting::SafeCopies(_) | Setting::HiddenHeaders(_) => Ok(()),
            Setting::EarlyRetransmission(false) | Setting::Congestion(false) => Ok(()),
            _ => Err(Trouble::NotApplicable("it sets up the simulated NIC".into())),
        }
    }

    fn server(&mut self, kind: Server) -> Result<Served> {
        let (space, port) = match kind {
            Server::Connections => (PortSpace::Tcp, self.server),
            Server::Datagrams => (PortSpace::Udp, None),
        };
        let why = match kind {
            Server::Connections => "it needs a rdma_cm server on the peer (--server)",
            Server::Datagrams => "servers of datagrams are for the simulation",
        };
        let port = port.ok_or_else(|| Trouble::NotApplicable(why.into()))?;
        let first_qpn = self.wire.first_qpn;
        Ok(Served {
            nic: self.wire.peer(),
            peer: self.wire.own,
            service: ServiceId::of_port(space, port).0,
            guid: GUID | u64::from(first_qpn),
            first_id: first_id(first_qpn),
            first_qpn,
        })
    }

    fn next_message(&mut self, after: Option<Duration>) -> Result<Received> {
        self.patience = None;
        let patience = after.map_or(ANSWER_TIMEOUT, |after| after + self.place.late());
        self.wire.look_for_message_until(Instant::now() + patience);
        let Some(seen) = self.wire.messages.pop_front() else {
            self.nothing_came = true;
            return deviation("no message was sent");
        };
        self.in_flight = false;
        self.note_message(&seen);
        match after {
            Some(_) => self.moment = TimeRange::between(seen.since, seen.at),
            None => self.moment.goes_on_until(seen.at),
        }
        self.received(seen)
    }

    fn unexpected_message(&mut self) -> Result<Option<Received>> {
        self.settle()?;
        let Some(seen) = self.wire.messages.pop_front() else { return Ok(None) };
        self.note_message(&seen);
        self.received(seen).map(Some)
    }

    fn create_qp(&mut self, spec: &QpSpec) -> Result<QpNumbers> {
        let id = self.new_id(&spec.name)?;
        let service = match spec.service {
            Service::Rc => "rc",
            Service::Uc => "uc",
            Service::Ud => "ud",
            Service::XrcInitiator => "xrc_ini",
            Service::XrcTarget => "xrc_tgt",
        };
        let mut command =
            format!("qp qp={id} cq=0 type={service} depth={} receives={}", spec.depth, spec.receives);
        if let Some(srq) = &spec.srq {
            let _ = write!(command, " srq={}", self.id(srq)?);
        }
        let ours = self.make(&command)?.number("qpn").map_err(lost)? as u32;
        let numbers = QpNumbers { ours, peer: self.wire.first_qpn + self.qps.len() as u32 };
        self.qps.insert(spec.name.clone(), (spec.clone(), numbers));
        for next in [State::Init, State::Rtr, State::Rts] {
            if next <= spec.state {
                self.go(&spec.name, next, true, false).map_err(unable)?;
            }
        }
        if matches!(spec.state, State::Sqd | State::Err) {
            self.go(&spec.name, spec.state, false, false).map_err(unable)?;
        }
        Ok(numbers)
    }

    fn create_srq(&mut self, name: &str, places: u32, xrc: bool, elsewhere: bool) -> Result<u32> {
        let id = self.new_id(name)?;
        let (xrc, elsewhere) = (u8::from(xrc), u8::from(elsewhere));
        let made =
            self.make(&format!("srq srq={id} cq=0 places={places} xrc={xrc} elsewhere={elsewhere}"))?;
        Ok(made.number("srqn").map_err(lost)? as u32)
    }

    fn limit(&mut self, srq: &str, limit: u32) -> Result {
        let id = self.id(srq)?;
        self.make(&format!("limit srq={id} limit={limit}")).map(drop)
    }

    fn create_mr(&mut self, spec: &MrSpec) -> Result<Keys> {
        let id = self.new_id(&spec.name)?;
        let mut access = verbs::access(spec.access, self.has_flush());
        if spec.zero_based {
            access |= 1 << 5;
        }
        if spec.on_demand {
            access |= 1 << 6;
        }
        let elsewhere = u8::from(spec.elsewhere);
        let made =
            self.make(&format!("mr mr={id} size={} access={access} elsewhere={elsewhere}", spec.len))?;
        let number = |name| made.number(name).map_err(lost);
        let base = if spec.zero_based { 0 } else { number("addr")? };
        let keys = Keys { lkey: number("lkey")? as u32, rkey: number("rkey")? as u32, base };
        let background = (0..spec.len as usize).map(|at| (at.wrapping_mul(37) + 11) as u8).collect();
        self.shadows.insert(spec.name.clone(), background);
        self.zero_based.insert(spec.name.clone(), spec.zero_based);
        Ok(keys)
    }

    fn create_window(&mut self, name: &str, kind: u8) -> Result<u32> {
        let id = self.new_id(name)?;
        let key = self.make(&format!("mw mw={id} type={kind}"))?.number("rkey").map_err(lost)? as u32;
        if kind == 1 {
            self.windows_of_type_1.insert(name.into(), key);
        }
        Ok(key)
    }

    fn create_mapping(&mut self, name: &str, pages: usize) -> Result<Keys> {
        self.create_mr(&MrSpec {
            name: name.into(),
            len: 4096 * pages as u64,
            access: Access::ALL,
            zero_based: false,
            on_demand: true,
            elsewhere: false,
        })
    }

    fn create_fast_mr(&mut self, _name: &str, _mapping: &str) -> Result<Keys> {
        Err(Trouble::NotApplicable("verbs of user space have no fast registration".into()))
    }

    fn unmap(&mut self, mapping: &str, page: usize) -> Result {
        let id = self.id(mapping)?;
        self.make(&format!("unmap mr={id} page={page}")).map(drop)
    }

    fn deregister(&mut self, memory: &str) -> Result {
        let id = self.id(memory)?;
        self.make(&format!("dereg mr={id}")).map(drop)
    }

    fn modify(&mut self, qp: &str, state: State, notify: bool) -> Result<bool> {
        let begins =
            matches!(state, State::Init | State::Rtr) || state == State::Rts && self.state(qp)? == State::Rtr;
        match self.go(qp, state, begins, notify) {
            Ok(()) => Ok(true),
            Err(AgentError::Refused { .. }) => Ok(false),
            Err(error) => Err(lost(error)),
        }
    }

    fn destroy_qp(&mut self, qp: &str) -> Result {
        let id = self.id(qp)?;
        self.make(&format!("destroy qp={id}")).map(drop)
    }

    fn destroy_srq(&mut self, srq: &str) -> Result {
        let id = self.id(srq)?;
        self.make(&format!("unsrq srq={id}")).map(drop)
    }

    fn write(&mut self, place: &Spot, bytes: &[u8]) -> Result {
        let id = self.id(&place.memory)?;
        let offset = place.offset as usize;
        let shadow =
            self.shadows.get_mut(&place.memory).and_then(|all| all.get_mut(offset..offset + bytes.len()));
        shadow.ok_or_else(|| Trouble::Broken("no such memory".into()))?.copy_from_slice(bytes);
        self.make(&format!("write mr={id} off={offset} data={}", hex(bytes))).map(drop)
    }

    fn read(&mut self, place: &Spot, len: usize) -> Result<Vec<u8>> {
        let id = self.id(&place.memory)?;
        let answer = self.ask(&format!("read mr={id} off={} len={len}", place.offset)).map_err(lost)?;
        let data = answer.text("data").unwrap_or_default();
        let bytes = data.as_bytes().chunks(2).map(|digits| {
            std::str::from_utf8(digits).ok().and_then(|digits| u8::from_str_radix(digits, 16).ok())
        });
        bytes.collect::<Option<Vec<u8>>>().ok_or_else(|| Trouble::Broken("the agent sent no bytes".into()))
    }

    fn untouched(&mut self, place: &Spot, len: usize) -> Result<Vec<u8>> {
        let offset = place.offset as usize;
        let shadow = self.shadows.get(&place.memory).and_then(|all| all.get(offset..offset + len));
        shadow.map(<[u8]>::to_vec).ok_or_else(|| Trouble::Broken("no such memory".into()))
    }

    fn post(&mut self, qp: &str, request: Request) -> Result {
        self.post_all(vec![(qp, request)]).map_err(|(_, trouble)| trouble)
    }

    fn post_all(&mut self, requests: Vec<(&str, Request)>) -> std::result::Result<(), (usize, Trouble)> {
        let command = |(at, (qp, request)): (usize, &(&str, Request))| {
            self.post_command(qp, request).map_err(|trouble| (at, trouble))
        };
        let commands: Vec<String> =
            requests.iter().enumerate().map(command).collect::<std::result::Result<_, _>>()?;
        self.patience = None;
        let answers = self.behind_all_sent(|agent| agent.ask_all(&commands));
        let answers = answers.map_err(|error| (0, unable(error)))?;
        for (at, (answer, (_, request))) in answers.into_iter().zip(requests).enumerate() {
            let at_this = |error| (at, unable(error));
            let answer = answer.map_err(at_this)?;
            if let (Op::Bind { .. }, Some(window)) = (request.op, request.named.window)
                && let Some(key) = self.windows_of_type_1.get_mut(&window)
            {
                *key = answer.number("rkey").map_err(at_this)? as u32;
            }
        }
        Ok(())
    }

    fn receive(&mut self, queue: Queue<'_>, wr_id: u64, sges: Vec<Sge>) -> Result {
        let queue = match queue {
            Queue::Own(name) => format!("qp={}", self.id(name)?),
            Queue::Shared(name) => format!("srq={}", self.id(name)?),
        };
        self.make(&format!("recv {queue} wr={wr_id}{}", sge_words(&sges))).map(drop)
    }

    fn inject(&mut self, mut packet: Outgoing) -> Result {
        if packet.stranger && !self.wire.has_stranger() {
            return Err(Trouble::NotApplicable("it needs a second address here (--stranger)".into()));
        }
        let lacking = match packet.bytes.first() {
            Some(&FLUSH) if !self.has_flush() => Some("FLUSH"),
            Some(&ATOMIC_WRITE) if !self.agent.as_ref().is_some_and(|agent| agent.atomic_write) => {
                Some("ATOMIC WRITE")
            }
            _ => None,
        };
        if let Some(lacking) = lacking {
            return Err(Trouble::NotApplicable(format!("the peer's device has no {lacking}")));
        }
        if self.rxe_flush && packet.bytes.first() == Some(&FLUSH) && packet.seal == Seal::Good {
            packet.seal = Seal::Rxe;
        }
        self.patience = None;
        if let Some(ids) = dreq_ids(&packet.bytes) {
            self.past = ids.remote;
        }
        if self.agent.is_none() {
            // The server's timer runs while this side does not, and it may repeat what is answered here.
            self.wire.held_up(self.wire.since_last_look());
        }
        self.wire.look();
        self.sent = Some(Instant::now());
        self.wire.send(packet).map_err(Trouble::Broken)?;
        self.moment.goes_on();
        (self.last_sent, self.in_flight) = (Some(Instant::now()), true);
        Ok(())
    }

    fn burst(&mut self, _begin: bool) -> Result {
        Ok(())
    }

    fn next_packet(&mut self, after: Option<Duration>) -> Result<Received> {
        self.patience = None;
        let Some(after) = after else {
            let Some(seen) = self.packet_until(Instant::now() + ANSWER_TIMEOUT) else {
                self.nothing_came = true;
                return deviation("nothing was sent");
            };
            if let Some(sent) = self.sent.take() {
                self.place.answered_after(seen.at.saturating_duration_since(sent));
            }
            self.moment.goes_on_until(seen.at);
            self.late_repeat = self.is_late_repeat(&seen);
            // A script about time says itself when repeats come.
            self.was_slow |= self.late_repeat && self.unhurried;
            return self.received(seen);
        };
        // C9-141: the timeout is at least that of the attribute, and at most four times as long.
        let patience = 4 * after + self.place.late();
        let Some(seen) = self.packet_until(self.moment.after(patience)) else {
            return deviation(format!("nothing was sent within {}", told(patience)));
        };
        let took = self.moment.longest_until(seen.at);
        if took + self.place.early() < after {
            return deviation(format!("sent after {}: {}", told(took), describe(&seen.bytes)));
        }
        self.moment = TimeRange::between(seen.since, seen.at);
        self.is_late_repeat(&seen);
        self.received(seen)
    }

    fn is_repeat(&mut self, _packet: &Received) -> bool {
        let too_many = self.repeats.too_many(self.late_repeat);
        self.was_slow &= !too_many;
        self.late_repeat && !too_many
    }

    fn wants_migration_bit(&self) -> bool {
        false
    }

    fn bound_key(&mut self, window: &str) -> Option<u32> {
        self.windows_of_type_1.get(window).copied()
    }

    fn unexpected_packet(&mut self) -> Result<Option<Received>> {
        self.patience = None;
        self.settle()?;
        while let Some(seen) = self.take() {
            if !self.is_late_repeat(&seen) {
                return self.received(seen).map(Some);
            }
            self.was_slow = true;
        }
        self.in_flight = false;
        Ok(None)
    }

    fn forget_packets(&mut self) -> Result {
        self.patience = None;
        self.settle()?;
        while let Some(seen) = self.take() {
            self.is_late_repeat(&seen);
        }
        self.wire.messages.clear();
        Ok(())
    }

    fn pass(&mut self, time: Duration) -> Result {
        let time = if time > REST { LULL } else { time };
        self.wire.look_for(time.max(self.place.settle()));
        self.moment = TimeRange::now();
        Ok(())
    }

    fn rest(&mut self) -> Result {
        self.pass(REST)
    }

    fn next_completion(&mut self, after: Option<Duration>) -> Result<Completion> {
        self.patience = None;
        let wait = after.map_or(ANSWER_TIMEOUT, |after| 4 * after + self.place.late());
        let found = self.complete(wait)?;
        let took = self.moment.longest_until(Instant::now());
        match after {
            Some(_) => self.moment = TimeRange::now(),
            None => self.moment.goes_on(),
        }
        match (found, after) {
            (None, _) => {
                self.nothing_came = true;
                deviation("nothing has completed")
            }
            (Some(found), Some(after)) if took + self.place.early() < after => {
                deviation(format!("wr {} completed after {}", found.wr_id, told(took)))
            }
            (Some(found), _) => Ok(found),
        }
    }

    fn unexpected_completion(&mut self) -> Result<Option<Completion>> {
        self.complete(Duration::ZERO)
    }

    fn next_event(&mut self, expected: bool) -> Result<Option<(String, Event)>> {
        self.patience = None;
        let wait = if expected { ANSWER_TIMEOUT } else { Duration::ZERO };
        if !expected && std::mem::take(&mut self.in_flight) {
            self.wire.look_for(self.place.settle());
        }
        let Some(agent) = &mut self.agent else { return Ok(None) };
        let answer = agent.ask(&format!("event ms={}", wait.as_millis())).map_err(lost)?;
        self.moment.goes_on();
        if answer.flag("none") {
            return Ok(None);
        }
        let number = answer.number("event").map_err(lost)?;
        let object = answer.text("object").and_then(|id| id.parse().ok());
        let name = self.ids.iter().find(|(_, id)| Some(**id) == object).map(|(name, _)| name.clone());
        let Some(event) = verbs::event(number) else {
            return deviation(format!("event {number} of verbs.h was raised"));
        };
        Ok(Some((name.unwrap_or_else(|| "cq".into()), event)))
    }

    fn state(&mut self, qp: &str) -> Result<State> {
        let id = self.id(qp)?;
        let number = self.ask(&format!("state qp={id}")).and_then(|answer| answer.number("state"));
        let number = number.map_err(lost)?;
        let found =
            State::NAMES.iter().map(|(_, state)| *state).find(|state| u64::from(*state as u8) == number);
        found.ok_or_else(|| Trouble::Broken(format!("the agent knows a state {number}")))
    }

    fn look_again(&mut self) -> bool {
        let end = *self.patience.get_or_insert_with(|| Instant::now() + ANSWER_TIMEOUT / 4);
        self.wire.look_for(Duration::from_millis(5));
        let again = Instant::now() < end;
        if !again {
            self.patience = None;
        }
        again
    }

    fn counter(&mut self, _name: &str) -> Result<Option<u64>> {
        Ok(None)
    }

    fn dropped(&mut self, _reason: &str) -> Result<Option<u64>> {
        Ok(None)
    }

    fn usage(&mut self, _what: &str) -> Result<Option<u64>> {
        Ok(None)
    }

    fn finish(&mut self) -> Result {
        Ok(())
    }
}
