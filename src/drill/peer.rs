//! The peer as what scripts are played on: packets over the wire, everything else through its agent.

mod post;
mod repeats;
mod target;

use std::collections::HashMap;
use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use softrnic_script::{
    Completion, QpNumbers, QpSpec, Received, Service, State, Trouble, addressee, describe,
};
use softrnic_wire::{CmBody, CmIds, CmMessage, Dreq, MAD_LEN, Mad, Packet, Qpn, RejReason};

use crate::agent::{Agent, AgentError, Answer};
use crate::time_range::TimeRange;
use crate::timing::Place;
use crate::verbs;
use crate::wire::{Seen, Wire, first_id};
use repeats::Repeats;

type Result<T = ()> = std::result::Result<T, Trouble>;

/// What the script says must happen has this long.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// A minute of virtual time is this much here: longer than every timer of the suite that could still run.
const REST: Duration = Duration::from_millis(350);
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
    /// The lines since the last one that let time pass.
    moment: TimeRange,
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
    /// Whether all that a server has said is that its application does not want the connection. Nothing, if it has said nothing.
    pub is_turned_away: Option<bool>,
    /// Whether a FLUSH is sent with the ICRC that rxe wants.
    pub rxe_flush: bool,
    repeats: Repeats,
    /// Whether the packet that was taken last had been sent before, so long ago that the peer's timer did it.
    late_repeat: bool,
}

fn lost(error: AgentError) -> Trouble {
    Trouble::Broken(error.to_string())
}

/// A completion as the agent tells it.
fn completion(word: &str) -> Result<Completion> {
    let numbers: Option<Vec<u64>> = word.split(':').map(|number| number.parse().ok()).collect();
    let (wr_id, status, qpn, rest) = match numbers.as_deref() {
        Some([wr_id, status, qpn, rest @ ..]) if rest.len() == if *status == 0 { 5 } else { 0 } => {
            (*wr_id, *status, *qpn as u32, rest)
        }
        _ => return Err(lost(AgentError::Lost(format!("`{word}` is no completion")))),
    };
    let mut found = Completion {
        wr_id,
        status: verbs::status(status),
        opcode: None,
        byte_len: None,
        src_qpn: None,
        qpn,
        imm: None,
        invalidated: None,
    };
    if let [opcode, len, flags, extra, src] = *rest {
        found.opcode = Some(verbs::opcode(opcode));
        found.byte_len = Some(len);
        found.src_qpn = Some(src);
        (found.imm, found.invalidated) = verbs::extras(flags, extra as u32);
    }
    Ok(found)
}

/// The numbers of a connection, in a packet that wishes to end it.
fn dreq_ids(bytes: &[u8]) -> Option<CmIds> {
    let packet = Packet::parse(bytes).ok()?;
    match Mad::read(packet.payload)?.cm()?.body() {
        CmBody::Dreq(dreq) if packet.bth.dest_qpn == Qpn::GSI => Some(dreq.ids),
        _ => None,
    }
}

/// Whether the server's application does not want the connection, or has ended before it could say.
fn is_refusal(bytes: &[u8]) -> bool {
    let Ok(packet) = Packet::parse(bytes) else { return false };
    let refused = |message: CmMessage<'_>| match message.body() {
        CmBody::Rej(rej) => rej.reason == RejReason::CONSUMER_DEFINED,
        _ => false,
    };
    Mad::read(packet.payload).and_then(|mad| mad.cm()).is_some_and(refused)
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
            moment: TimeRange::now(),
            sent: None,
            in_flight: false,
            last_sent: None,
            patience: None,
            was_slow: false,
            nothing_came: false,
            is_turned_away: None,
            rxe_flush: false,
            repeats: Repeats::default(),
            late_repeat: false,
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
        self.behind_all_sent(|agent| agent.ask(command))
    }

    fn behind_all_sent<T>(
        &mut self,
        talk: impl FnOnce(&mut Agent) -> std::result::Result<T, AgentError>,
    ) -> std::result::Result<T, AgentError> {
        if std::mem::take(&mut self.in_flight) {
            self.wire.look_for(self.place.settle());
        }
        self.wire.look();
        let began = Instant::now();
        self.sent = None;
        let said = talk(self.agent()?);
        self.moment.goes_on();
        self.wire.held_up(began.elapsed());
        said
    }

    /// Waits until the peer must have answered what was sent. How long its process takes to say anything shows whether it
    /// could have.
    fn settle(&mut self) -> Result {
        self.wire.look_for(self.place.settle());
        let began = Instant::now();
        match &mut self.agent {
            Some(agent) => drop(agent.ask("ping").map_err(lost)?),
            None => _ = self.ask_server()?,
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

    fn note_message(&mut self, seen: &Seen) {
        let before = self.is_turned_away.unwrap_or(true);
        self.is_turned_away = Some(before && is_refusal(&seen.bytes));
    }

    fn received(&mut self, seen: Seen) -> Result<Received> {
        if seen.to_stranger {
            return deviation(format!("sent to a stranger: {}", describe(&seen.bytes)));
        }
        Ok(Received { bytes: seen.bytes, seal: seen.seal, tos: seen.tos, sport: seen.sport })
    }

    /// Whether a request has been sent before, a local ACK timeout ago. Remembers it otherwise.
    fn is_late_repeat(&mut self, seen: &Seen) -> bool {
        let timeouts = self.qps.values().map(|(spec, _)| spec.timeout).filter(|timeout| *timeout > 0);
        let shortest = timeouts.min().map(|code| Duration::from_nanos(4096 << code.min(31)));
        self.repeats.is_late_repeat(seen, shortest.map(|time| time.saturating_sub(self.place.early())))
    }

    /// The next packet that comes before `end`.
    fn packet_until(&mut self, end: Instant) -> Option<Seen> {
        self.wire.look_until(end);
        self.take()
    }

    fn complete(&mut self, wait: Duration) -> Result<Option<Completion>> {
        self.wire.look();
        let Some(agent) = &mut self.agent else { return Ok(None) };
        let answer = agent.ask(&format!("complete cq=0 ms={}", wait.as_millis())).map_err(lost)?;
        answer.words().next().map(completion).transpose()
    }
}

impl Peer<'_> {
    /// Whether the peer's device has FLUSH.
    fn has_flush(&self) -> bool {
        self.agent.as_ref().is_some_and(|agent| agent.flush)
    }

    /// Asks the peer something that it answers by itself, behind what was sent before: to end a connection that there is
    /// not (IBTA 12.9.7). Returns whether it does; a peer that does not has had the time that others take.
    pub fn ask_server(&mut self) -> Result<bool> {
        let first_qpn = self.wire.first_qpn;
        let ids = CmIds { local: first_id(first_qpn) | PROBE_ID, remote: self.past ^ 1 };
        let dreq = CmBody::Dreq(Dreq { ids, remote_qpn: Qpn::new(0) });
        let mut mad = [0; MAD_LEN];
        let message = CmMessage::new(dreq, &[]).ok_or_else(|| Trouble::Broken("no message".into()))?;
        message.emit_mad(u64::from(ids.local), 0, &mut mad);
        self.wire.send(softrnic_script::datagram(&mad)).map_err(Trouble::Broken)?;
        let end = Instant::now() + PROBE;
        let is_answer = |seen: &Seen| addressee(&seen.bytes) == Some(ids.local);
        let mut answered = false;
        while !answered && Instant::now() < end {
            self.wire.look_for(Duration::from_micros(200));
            answered = self.wire.messages.iter().any(is_answer);
        }
        self.wire.messages.retain(|seen| !is_answer(seen));
        Ok(answered)
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
        let mut access = verbs::access(spec.access, self.has_flush());
        let gid = self.agent.as_ref().map_or(Ipv6Addr::UNSPECIFIED, |agent| agent.peer);
        if spec.service == Service::Uc {
            access &= 0b10;
        }
        let command = format!(
            "modify qp={id} state={} begin={} notify={} gid={gid} qkey={} access={access} mtu={} dest={} rq_psn={} \
             sq_psn={} rd={} dest_rd={} rnr_timer={} timeout={} retry={} rnr_retry={} tos={}",
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

#[cfg(test)]
mod tests {
    use softrnic_wire::{CmInfo, Rej, Served};

    use super::*;

    fn rejected_for(reason: RejReason) -> Vec<u8> {
        let ids = CmIds { local: 0, remote: 7 };
        let rej = Rej { ids, answers: Served::REQ, reason, info: CmInfo::default() };
        let mut mad = [0; MAD_LEN];
        CmMessage::new(CmBody::Rej(rej), &[]).expect("a message").emit_mad(1, 0, &mut mad);
        softrnic_script::datagram(&mad).bytes
    }

    #[test]
    fn a_refusal_is_that_of_the_application() {
        assert!(is_refusal(&rejected_for(RejReason::CONSUMER_DEFINED)));
        assert!(!is_refusal(&rejected_for(RejReason::INVALID_SERVICE_ID)));
        assert!(!is_refusal(&[]));
    }
}
