//! The peer as what scripts are played on: packets over the wire, everything else through its agent.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use softrnic_script::{
    Access, Completion, Event, Keys, MrSpec, Op, Outgoing, Place as Spot, QpNumbers, QpSpec, Queue, Received,
    Request, Seal, Served, Server, Service, Setting, Sge, State, Target, Trouble, addressee, describe,
};
use softrnic_wire::{
    CmBody, CmIds, CmMessage, Dreq, ICRC_LEN, MAD_LEN, Mad, Opcode, Packet, PortSpace, Qpn, ServiceId,
};

use crate::agent::{Agent, AgentError, Answer};
use crate::place::Place;
use crate::verbs;
use crate::wire::{Seen, Wire, first_id};

type Result<T = ()> = std::result::Result<T, Trouble>;

/// What the script says must happen has this long.
const PATIENCE: Duration = Duration::from_secs(2);
/// A minute of virtual time is this much here: longer than every timer of the suite that could still run.
const REST: Duration = Duration::from_millis(350);
/// A peer that repeats the same for ever does not do what is expected.
const MOST_REPEATS: usize = 16;
/// What is longer is this long: longer than the local ACK timeout that QPs have unless a script says otherwise.
const LULL: Duration = Duration::from_millis(100);
/// The local ACK timeout of scripts that do not say one, and the one that they have if no line is about time: 67 ms, and
/// 1 s.
const USUAL_TIMEOUT: u8 = 14;
const UNHURRIED_TIMEOUT: u8 = 18;
/// The last of a case's communication ids, about which the peer is asked to see that it is alive, and for how long.
const PROBE_ID: u32 = 0xFF;
const PROBE: Duration = Duration::from_millis(500);
/// The GUID of this side's adapter, but for what is different in each case.
const GUID: u64 = 0x0200_00D2_1100_0000;
/// The byte whose first bit asks for an acknowledgement.
const ACK_REQUEST: usize = 8;
const FLUSH: u8 = 0x1C;
const ATOMIC_WRITE: u8 = 0x1D;

/// What a case knows of the peer.
pub struct Peer<'a> {
    wire: &'a mut Wire,
    /// It makes objects and posts; whoever asks a server for connections needs none.
    agent: Option<Agent>,
    /// The TCP port of the server's service.
    server: Option<u16>,
    /// Whether no line is about time, so that QPs need not be in a hurry.
    pub unhurried: bool,
    /// A communication id that the server has given, of a connection that is over.
    pub past: u32,
    pub place: Place,
    ids: HashMap<String, usize>,
    qps: HashMap<String, (QpSpec, QpNumbers)>,
    /// What memory would hold if nobody but the application had written it, and whether its addresses count from 0.
    shadows: HashMap<String, Vec<u8>>,
    zero_based: HashMap<String, bool>,
    windows_of_type_1: HashMap<String, u32>,
    /// When the last line had taken effect, and when it had not yet.
    mark: Instant,
    mark_since: Instant,
    /// When the packet was sent that the next one is likely to answer.
    sent: Option<Instant>,
    /// Whether something was sent that may not have arrived yet.
    in_flight: bool,
    /// When the last packet was sent.
    last_sent: Option<Instant>,
    /// When an expectation that does not hold yet is given up.
    patience: Option<Instant>,
    /// Whether the peer's timer ran out where the script has no timeout: this side was too slow for it.
    pub was_slow: bool,
    /// Whether something did not come at all, however long it was waited for.
    pub nothing_came: bool,
    /// Whether a FLUSH is sent with the ICRC that rxe wants.
    pub rxe_flush: bool,
    /// Requests of the peer and when they were seen last.
    requests: HashMap<Vec<u8>, Instant>,
    /// Whether the packet that was taken last had been sent before, so long ago that the peer's timer did it.
    late_repeat: bool,
    repeats_in_a_row: usize,
}

fn lost(error: AgentError) -> Trouble {
    Trouble::Broken(error.to_string())
}

/// The numbers of a connection, in a packet that wishes to end it.
fn dreq_ids(bytes: &[u8]) -> Option<CmIds> {
    let packet = Packet::parse(bytes).ok()?;
    match Mad::read(packet.payload)?.cm()?.body() {
        CmBody::Dreq(dreq) if packet.bth.dest_qpn == Qpn::GSI => Some(dreq.ids),
        _ => None,
    }
}

/// A verb that fails at the peer means that the script cannot be played there.
fn unable(error: AgentError) -> Trouble {
    match error {
        AgentError::Refused { what, .. } => Trouble::NotApplicable(format!("the peer cannot: {what}")),
        lost => self::lost(lost),
    }
}

fn deviation<T>(what: impl Into<String>) -> Result<T> {
    Err(Trouble::Deviation(what.into()))
}

impl<'a> Peer<'a> {
    /// A peer on a fresh connection with its agent.
    pub fn new(
        wire: &'a mut Wire,
        agent: Option<Agent>,
        server: Option<u16>,
        place: Place,
        first_qpn: u32,
    ) -> Peer<'a> {
        wire.look();
        (wire.first_qpn, wire.sent) = (first_qpn, 0);
        wire.seen.clear();
        wire.messages.clear();
        Peer {
            wire,
            agent,
            server,
            unhurried: false,
            past: 0,
            place,
            ids: HashMap::new(),
            qps: HashMap::new(),
            shadows: HashMap::new(),
            zero_based: HashMap::new(),
            windows_of_type_1: HashMap::new(),
            mark: Instant::now(),
            mark_since: Instant::now(),
            sent: None,
            in_flight: false,
            last_sent: None,
            patience: None,
            was_slow: false,
            nothing_came: false,
            rxe_flush: false,
            requests: HashMap::new(),
            late_repeat: false,
            repeats_in_a_row: 0,
        }
    }

    /// Whether the peer's timer ran out just when this side's last packet was under way. What follows then is about both.
    pub fn look_for_crossing(&mut self) {
        let Some(sent) = self.last_sent else { return };
        self.wire.look();
        let end = sent + self.place.settle();
        while let Some(seen) = self.take() {
            self.was_slow |= self.is_late_repeat(&seen) && seen.at < end;
        }
    }

    fn agent(&mut self) -> std::result::Result<&mut Agent, AgentError> {
        let why = "the script needs the agent on the peer; without --server, or with --port, it is used";
        self.agent.as_mut().ok_or_else(|| AgentError::Refused { errno: 0, what: why.into() })
    }

    fn new_id(&mut self, name: &str) -> Result<usize> {
        let id = self.ids.len();
        match self.ids.insert(name.into(), id) {
            Some(_) => Err(Trouble::Broken(format!("there is a `{name}` already"))),
            None => Ok(id),
        }
    }

    fn id(&self, name: &str) -> Result<usize> {
        self.ids.get(name).copied().ok_or_else(|| Trouble::Broken(format!("there is no `{name}`")))
    }

    /// Asks the agent for something that happens after all that was sent.
    fn ask(&mut self, command: &str) -> std::result::Result<Answer, AgentError> {
        if std::mem::take(&mut self.in_flight) {
            self.wire.look_for(self.place.settle());
        }
        self.wire.look();
        let began = Instant::now();
        self.sent = None;
        let answer = self.agent()?.ask(command);
        (self.mark_since, self.mark) = (began, Instant::now());
        self.wire.held_up(self.mark - began);
        answer
    }

    /// Waits until the peer must have answered what was sent. How long its process takes to say anything shows whether it
    /// could have.
    fn settle(&mut self) -> Result {
        self.wire.look_for(self.place.settle());
        let began = Instant::now();
        match &mut self.agent {
            Some(agent) => drop(agent.ask("ping").map_err(lost)?),
            None => self.ask_server()?,
        }
        self.wire.held_up(began.elapsed());
        self.wire.look();
        Ok(())
    }

    fn make(&mut self, command: &str) -> Result<Answer> {
        self.patience = None;
        self.ask(command).map_err(unable)
    }

    fn take(&mut self) -> Option<Seen> {
        let seen = self.wire.seen.pop_front()?;
        self.in_flight = false;
        Some(seen)
    }

    fn received(&mut self, seen: Seen) -> Result<Received> {
        if seen.to_stranger {
            return deviation(format!("sent to a stranger: {}", describe(&seen.bytes)));
        }
        Ok(Received { bytes: seen.bytes, seal: seen.seal, tos: seen.tos })
    }

    /// Whether a request has been sent before, a local ACK timeout ago. Remembers it otherwise.
    fn is_late_repeat(&mut self, seen: &Seen) -> bool {
        let Seen { at, since, bytes, .. } = seen;
        let Some(opcode) = bytes.first().and_then(|&byte| Opcode::from_byte(byte)) else { return false };
        if !opcode.info().is_request {
            return false;
        }
        let timeouts = self.qps.values().map(|(spec, _)| spec.timeout).filter(|timeout| *timeout > 0);
        let shortest = timeouts.min().map(|code| Duration::from_nanos(4096 << code.min(31)));
        let mut covered = bytes[..bytes.len().saturating_sub(ICRC_LEN)].to_vec();
        // A repeat may ask for an acknowledgement though the first one did not.
        if let Some(byte) = covered.get_mut(ACK_REQUEST) {
            *byte &= 0x7F;
        }
        let before = self.requests.insert(covered, *since);
        let early = self.place.early();
        matches!((before, shortest), (Some(before), Some(timeout)) if at.duration_since(before) + early >= timeout)
    }

    /// The next packet that comes before `end`.
    fn packet_until(&mut self, end: Instant) -> Option<Seen> {
        self.wire.look_until(end);
        self.take()
    }

    fn sges(sges: &[Sge]) -> String {
        let words: Vec<String> =
            sges.iter().map(|sge| format!("{}:{}:{}", sge.addr, sge.length, sge.lkey)).collect();
        if words.is_empty() { String::new() } else { format!(" sges={}", words.join(",")) }
    }

    fn complete(&mut self, wait: Duration) -> Result<Option<Completion>> {
        self.wire.look();
        let Some(agent) = &mut self.agent else { return Ok(None) };
        let answer = agent.ask(&format!("complete ms={}", wait.as_millis())).map_err(lost)?;
        if answer.flag("none") {
            return Ok(None);
        }
        let number = |name: &str| answer.number(name).map_err(lost);
        let (status, qpn) = (number("status")?, number("qpn")? as u32);
        let mut found = Completion {
            wr_id: number("wr")?,
            status: verbs::status(status),
            opcode: None,
            byte_len: None,
            src_qpn: None,
            qpn,
            imm: None,
            invalidated: None,
        };
        if status == 0 {
            let (flags, extra) = (number("flags")?, number("extra")? as u32);
            found.opcode = Some(verbs::opcode(number("opcode")?));
            found.byte_len = Some(number("len")?);
            found.src_qpn = Some(number("src")?);
            (found.imm, found.invalidated) = verbs::extras(flags, extra);
        }
        Ok(Some(found))
    }
}

impl Target for Peer<'_> {
    fn option(&mut self, setting: Setting) -> Result {
        match setting {
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
        let patience = after.map_or(PATIENCE, |after| after + self.place.late());
        self.wire.look_for_message_until(Instant::now() + patience);
        let Some(seen) = self.wire.messages.pop_front() else {
            self.nothing_came = true;
            return deviation("no message was sent");
        };
        self.in_flight = false;
        (self.mark_since, self.mark) = (seen.since, seen.at);
        self.received(seen)
    }

    fn unexpected_message(&mut self) -> Result<Option<Received>> {
        self.settle()?;
        let Some(seen) = self.wire.messages.pop_front() else { return Ok(None) };
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
            format!("qp id={id} type={service} depth={} receives={}", spec.depth, spec.receives);
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
        let made = self.make(&format!("srq id={id} places={places} xrc={xrc} elsewhere={elsewhere}"))?;
        Ok(made.number("srqn").map_err(lost)? as u32)
    }

    fn limit(&mut self, srq: &str, limit: u32) -> Result {
        let id = self.id(srq)?;
        self.make(&format!("limit id={id} limit={limit}")).map(drop)
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
        self.make(&format!("unsrq id={id}")).map(drop)
    }

    fn write(&mut self, place: &Spot, bytes: &[u8]) -> Result {
        let id = self.id(&place.memory)?;
        let offset = place.offset as usize;
        let shadow =
            self.shadows.get_mut(&place.memory).and_then(|all| all.get_mut(offset..offset + bytes.len()));
        shadow.ok_or_else(|| Trouble::Broken("no such memory".into()))?.copy_from_slice(bytes);
        let data: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        self.make(&format!("write mr={id} off={offset} data={data}")).map(drop)
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
        let mut command = format!("post qp={} wr={}", self.id(qp)?, request.wr_id);
        let flag = |on: bool| u8::from(on);
        let (fence, solicited, signaled) =
            (flag(request.fence), flag(request.solicited), flag(request.signaled));
        let _ = write!(command, " fence={fence} solicited={solicited} signaled={signaled}");
        let mut inline = request.inline.clone();
        let with = |name: &str, imm: Option<u32>| match imm {
            Some(imm) => format!("{name}_imm imm={imm}"),
            None => name.to_owned(),
        };
        let op = match request.op {
            Op::Send { imm: None, invalidate: Some(key) } => format!("send_inv rkey={key}"),
            Op::Send { imm, .. } => with("send", imm),
            Op::Write { va, rkey, imm } => format!("{} va={va} rkey={rkey}", with("write", imm)),
            Op::Read { va, rkey } => format!("read va={va} rkey={rkey}"),
            Op::CompareSwap { va, rkey, compare, swap } => {
                format!("cas va={va} rkey={rkey} compare={compare} swap={swap}")
            }
            Op::FetchAdd { va, rkey, add } => format!("fadd va={va} rkey={rkey} compare={add}"),
            Op::AtomicWrite { va, rkey } => format!("awrite va={va} rkey={rkey}"),
            Op::Flush { va, rkey, length, whole } => {
                format!("flush va={va} rkey={rkey} length={length} whole={}", flag(whole))
            }
            Op::Datagram { qpn, qkey, imm } => format!("{} dest={qpn} qkey={qkey}", with("send", imm)),
            Op::Invalidate { rkey } => format!("invalidate rkey={rkey}"),
            Op::FastRegister { .. } => {
                return Err(Trouble::NotApplicable("verbs of user space have no fast registration".into()));
            }
            Op::Bind { tag, .. } => {
                let window = request.named.window.as_deref();
                let window = window.ok_or_else(|| {
                    Trouble::NotApplicable("verbs bind windows that exist, not keys".into())
                })?;
                let memory = request.named.memory.as_deref().unwrap_or_default();
                let zero = flag(self.zero_based.get(memory).copied().unwrap_or(false));
                inline = None;
                format!("bind mw={} mr={} tag={tag} zero={zero}", self.id(window)?, self.id(memory)?)
            }
        };
        let _ = write!(command, " op={op}{}", Self::sges(&request.sges));
        if let Some(srqn) = request.srqn {
            let _ = write!(command, " srqn={srqn}");
        }
        if let Some(bytes) = inline {
            let data: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let _ = write!(command, " inline={data}");
        }
        let answer = self.make(&command)?;
        if let (Op::Bind { .. }, Some(window)) = (request.op, request.named.window)
            && let Some(key) = self.windows_of_type_1.get_mut(&window)
        {
            *key = answer.number("rkey").map_err(lost)? as u32;
        }
        Ok(())
    }

    fn receive(&mut self, queue: Queue<'_>, wr_id: u64, sges: Vec<Sge>) -> Result {
        let queue = match queue {
            Queue::Own(name) => format!("qp={}", self.id(name)?),
            Queue::Shared(name) => format!("srq={}", self.id(name)?),
        };
        self.make(&format!("recv {queue} wr={wr_id}{}", Self::sges(&sges))).map(drop)
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
        self.wire.look();
        self.mark_since = Instant::now();
        self.wire.send(packet).map_err(Trouble::Broken)?;
        (self.mark, self.in_flight) = (Instant::now(), true);
        self.sent = Some(self.mark_since);
        self.last_sent = Some(self.mark);
        Ok(())
    }

    fn burst(&mut self, _begin: bool) -> Result {
        Ok(())
    }

    fn next_packet(&mut self, after: Option<Duration>) -> Result<Received> {
        self.patience = None;
        let Some(after) = after else {
            let Some(seen) = self.packet_until(Instant::now() + PATIENCE) else {
                self.nothing_came = true;
                return deviation("nothing was sent");
            };
            if let Some(sent) = self.sent.take() {
                self.place.answered_after(seen.at.saturating_duration_since(sent));
            }
            (self.mark_since, self.mark) = (seen.since, seen.at);
            self.late_repeat = self.is_late_repeat(&seen);
            // A script about time says itself when repeats come.
            self.was_slow |= self.late_repeat && self.unhurried;
            return self.received(seen);
        };
        // C9-141: the timeout is at least that of the attribute, and at most four times as long.
        let end = self.mark + 4 * after + self.place.late();
        let Some(seen) = self.packet_until(end) else {
            return deviation(format!("nothing was sent within {:?}", end - self.mark));
        };
        let took = seen.at.saturating_duration_since(self.mark_since);
        if took + self.place.early() < after {
            return deviation(format!("sent after {took:?}: {}", describe(&seen.bytes)));
        }
        (self.mark_since, self.mark) = (seen.since, seen.at);
        self.is_late_repeat(&seen);
        self.received(seen)
    }

    fn is_repeat(&mut self, _packet: &Received) -> bool {
        self.repeats_in_a_row = if self.late_repeat { self.repeats_in_a_row + 1 } else { 0 };
        if self.repeats_in_a_row > MOST_REPEATS {
            self.was_slow = false;
        }
        self.late_repeat && self.repeats_in_a_row <= MOST_REPEATS
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
        self.mark = Instant::now();
        self.mark_since = self.mark;
        Ok(())
    }

    fn rest(&mut self) -> Result {
        self.pass(REST)
    }

    fn next_completion(&mut self, after: Option<Duration>) -> Result<Completion> {
        self.patience = None;
        let began = self.mark_since;
        let wait = after.map_or(PATIENCE, |after| 4 * after + self.place.late());
        let found = self.complete(wait)?;
        let now = Instant::now();
        let took = now - began;
        (self.mark_since, self.mark) = (now, now);
        match (found, after) {
            (None, _) => {
                self.nothing_came = true;
                deviation("nothing has completed")
            }
            (Some(found), Some(after)) if took + self.place.early() < after => {
                deviation(format!("wr {} completed after {took:?}", found.wr_id))
            }
            (Some(found), _) => Ok(found),
        }
    }

    fn unexpected_completion(&mut self) -> Result<Option<Completion>> {
        self.complete(Duration::ZERO)
    }

    fn next_event(&mut self, expected: bool) -> Result<Option<(String, Event)>> {
        self.patience = None;
        let wait = if expected { PATIENCE } else { Duration::ZERO };
        if !expected && std::mem::take(&mut self.in_flight) {
            self.wire.look_for(self.place.settle());
        }
        let Some(agent) = &mut self.agent else { return Ok(None) };
        let answer = agent.ask(&format!("event ms={}", wait.as_millis())).map_err(lost)?;
        self.mark = Instant::now();
        self.mark_since = self.mark;
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
        let end = *self.patience.get_or_insert_with(|| Instant::now() + PATIENCE / 4);
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

impl Peer<'_> {
    /// Whether the peer's device has FLUSH.
    fn has_flush(&self) -> bool {
        self.agent.as_ref().is_some_and(|agent| agent.flush)
    }

    /// Asks the peer something that it answers by itself, behind what was sent before: to end a connection that there is
    /// not (IBTA 12.9.7). A peer that does not answer has had the time that others take.
    pub fn ask_server(&mut self) -> Result {
        let first_qpn = self.wire.first_qpn;
        let ids = CmIds { local: first_id(first_qpn) | PROBE_ID, remote: self.past };
        let dreq = CmBody::Dreq(Dreq { ids, remote_qpn: Qpn::new(0) });
        let mut mad = [0; MAD_LEN];
        let message = CmMessage::new(dreq, &[]).ok_or_else(|| Trouble::Broken("no message".into()))?;
        message.emit_mad(u64::from(ids.local), 0, &mut mad);
        self.wire.send(softrnic_script::datagram(&mad)).map_err(Trouble::Broken)?;
        let end = Instant::now() + PROBE;
        let is_answer = |seen: &Seen| addressee(&seen.bytes) == Some(ids.local);
        while !self.wire.messages.iter().any(is_answer) && Instant::now() < end {
            self.wire.look_for(Duration::from_micros(200));
        }
        self.wire.messages.retain(|seen| !is_answer(seen));
        Ok(())
    }

    /// Brings a QP to a state; `begins` if it does so for the first time, with its attributes.
    fn go(
        &mut self,
        qp: &str,
        state: State,
        begins: bool,
        notify: bool,
    ) -> std::result::Result<(), AgentError> {
        let unknown = || AgentError::Lost(format!("there is no QP `{qp}`"));
        let id = *self.ids.get(qp).ok_or_else(unknown)?;
        let (spec, numbers) = self.qps.get(qp).ok_or_else(unknown)?;
        let mut access = verbs::access(spec.access, self.agent.as_ref().is_some_and(|agent| agent.flush));
        if spec.service == Service::Uc {
            access &= 0b10;
        }
        let command = format!(
            "modify qp={id} state={} begin={} notify={} qkey={} access={access} mtu={} dest={} rq_psn={} sq_psn={} \
             rd={} dest_rd={} rnr_timer={} timeout={} retry={} rnr_retry={} tos={}",
            state as u8,
            u8::from(begins),
            u8::from(notify),
            QpSpec::QKEY,
            spec.mtu,
            numbers.peer,
            spec.rq_psn,
            spec.sq_psn,
            spec.max_rd_atomic,
            spec.max_dest_rd_atomic,
            spec.min_rnr_timer,
            if self.unhurried && spec.timeout == USUAL_TIMEOUT { UNHURRIED_TIMEOUT } else { spec.timeout },
            spec.retry_cnt,
            spec.rnr_retry,
            spec.tos,
        );
        self.ask(&command).map(drop)
    }
}
