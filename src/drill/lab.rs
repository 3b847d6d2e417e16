//! This side, the peer's agent, and the playing of scripts between them.

mod server;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use softrnic_link::OpenError;
use softrnic_link::capture::{Capture, CaptureOptions, WhenFull};
use softrnic_script::{Case, Error, Failure, Line, Needs, Script, Trouble, play};

use crate::agent::{Agent, AgentError};
use crate::known::{FLUSH_ICRC, Known};
use crate::peer::Peer;
use crate::timing::Place;
use crate::verdict::{CaseResult, Judgement, Verdict};
use crate::wire::Wire;

/// Where the peer is, and how to judge it.
#[derive(Clone, Debug)]
pub struct Options {
    /// The peer's address.
    pub peer: IpAddr,
    /// The agent's TCP port there, if it has an agent.
    pub agent: Option<u16>,
    /// The port of a rdma_cm server there, if it has one.
    pub server: Option<u16>,
    /// This side's address; if absent, one that the peer can reach is found.
    pub own: Option<IpAddr>,
    /// A second address of this side, for packets from somebody whom no queue pair is connected with.
    pub stranger: Option<IpAddr>,
    /// Whether a SoftRNIC process of this machine is reached through shared memory, as other such processes do.
    pub shared_memory: bool,
    /// Where captures go, one for each script.
    pub captures: Option<PathBuf>,
    /// How often a deviation is looked at again.
    pub repeats: usize,
}

/// Why nothing could be played.
#[derive(Debug)]
#[non_exhaustive]
pub enum LabError {
    /// This side has no such address, or it is taken.
    Open(OpenError),
    /// The agent is not there, or does not know the device.
    Agent(SocketAddr, AgentError),
    /// The server does not accept connections.
    Server(SocketAddr, String),
    /// A capture cannot be written.
    Capture(PathBuf, io::Error),
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LabError::Open(error) => error.fmt(f),
            LabError::Agent(address, error) => write!(
                f,
                "the agent at {address}: {error}; `softrnic drill --agent` prints the program that must run there"
            ),
            LabError::Server(address, why) => write!(
                f,
                "no rdma_cm server accepts connections at {address}: {why}; `rping -s -P -p {}` is one",
                address.port()
            ),
            LabError::Capture(path, error) => write!(f, "cannot write {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for LabError {}

/// See the [crate](crate).
pub struct Lab {
    options: Options,
    own: IpAddr,
    stranger: Option<IpAddr>,
    place: Place,
    /// Before the first script.
    measured: Place,
    device: Option<String>,
    next_qpn: u32,
    /// Whether FLUSHes are sent with the ICRC that rxe wants.
    rxe_flush: bool,
    /// The server's number of the connection that was made first.
    past: u32,
    /// Why nothing can be played any more.
    lost: Option<LabError>,
}

/// An attempt during which this side was held up for longer than it counts on, or which came too late for a server, says
/// nothing; so many may be.
const MOST_VOID: usize = 5;

impl Lab {
    /// Connects with the agent, or with the server by a connection that ends at once, and measures how exactly time can be
    /// told here. No other packet is sent to the peer's NIC yet.
    ///
    /// # Errors
    /// See [`LabError`].
    pub fn open(options: Options) -> Result<Lab, LabError> {
        let own = options.own.or_else(|| own_address(options.peer));
        let wire = Wire::open(own, options.stranger, options.peer, options.shared_memory, None)
            .map_err(LabError::Open)?;
        let (own, stranger) = (wire.own, wire.stranger_address());
        drop(wire);
        let mut place = Place::measure(|| Ok(()))?;
        let mut device = None;
        if let Some(port) = options.agent {
            let address = SocketAddr::new(options.peer, port);
            let lost = |error| LabError::Agent(address, error);
            let mut agent = Agent::connect(address, own).map_err(lost)?;
            place = Place::measure(|| agent.ask("complete cq=0 ms=0").map(drop)).map_err(lost)?;
            device = Some(agent.device);
        }
        // Different for every run: packets of an earlier one must not be taken for those of this.
        let next_qpn = 0x10_0000 + (std::process::id() % 0x6000) * 0x100;
        let mut lab = Lab {
            own,
            stranger,
            place,
            measured: place,
            device,
            next_qpn,
            rxe_flush: false,
            past: 0,
            lost: None,
            options,
        };
        if let Some(port) = lab.options.server {
            lab.meet_server(port)?;
        }
        Ok(lab)
    }

    /// This side's address.
    pub fn own(&self) -> IpAddr {
        self.own
    }

    /// What the peer calls its device, if its agent has said it.
    pub fn device(&self) -> Option<&str> {
        self.device.as_deref()
    }

    /// How long nothing must come for it to count as nothing.
    pub fn settle(&self) -> Duration {
        self.place.settle()
    }

    /// The most packets that one case sends.
    pub fn most_packets() -> usize {
        crate::wire::MOST_PACKETS
    }

    /// Why nothing can be played any more, if the agent or this side's address was lost.
    pub fn lost(&self) -> Option<&LabError> {
        self.lost.as_ref()
    }

    /// Plays all cases of a script. Those that cannot be played because something is [lost](Lab::lost) cannot be told.
    ///
    /// # Errors
    /// A line of the script that cannot be understood.
    pub fn judge(&mut self, script: &Script, known: &Known) -> Result<Judgement, Error> {
        let cases = script.cases()?;
        let mut judgement = Judgement {
            script: script.name.clone(),
            title: script.title.clone(),
            rules: script.rules.clone(),
            cases: Vec::new(),
            capture: None,
        };
        let crash = known.crash(&script.name).map(|what| format!("not played: it is known that {what}"));
        if let Some(why) = script.not_on_wires.clone().or(crash) {
            judgement.cases =
                cases.into_iter().map(|case| unplayed(case, Verdict::NotApplicable, &why)).collect();
            return Ok(judgement);
        }
        let folder = self.options.captures.clone();
        let file = |name: String| folder.as_ref().map(|folder| folder.join(name));
        let path = file(format!("{}.pcapng", script.name)).filter(|_| self.lost.is_none());
        let capture = path.as_ref().map(create).transpose().unwrap_or_else(|error| {
            self.lost = Some(error);
            None
        });
        // So that the other scripts about FLUSHes are about more than their ICRC.
        self.rxe_flush = known.wants_rxe_flush() && script.name != FLUSH_ICRC;
        let mut frames = 0;
        for (number, mut case) in (1..).zip(cases) {
            let missing = known.take_events(&mut case);
            let own = file(format!("{}.case-{number}.pcapng", script.name));
            if self.lost.is_none() {
                let is_known = |line| known.has(&script.name, line);
                match self.judge_case(script, &case, &is_known, capture.as_ref(), &mut frames, own) {
                    Ok(judged) => {
                        judgement.cases.push(without(missing, judged));
                        continue;
                    }
                    Err(error) => self.lost = Some(error),
                }
            }
            judgement.cases.push(unplayed(case, Verdict::CannotTell, "not played"));
        }
        known.mark(&script.name, &mut judgement.cases);
        judgement.capture = capture.and(path);
        Ok(judgement)
    }

    /// Plays a case; one that fails in a way that is not known, again, until it is clear whether it always does. What passes goes to `capture`, which
    /// holds `frames` packets so far; the last repeat of a deviation is kept in a file of its own.
    fn judge_case(
        &mut self,
        script: &Script,
        case: &Case,
        is_known: &dyn Fn(usize) -> bool,
        capture: Option<&Capture>,
        frames: &mut u64,
        own: Option<PathBuf>,
    ) -> Result<CaseResult, LabError> {
        let mut deviations: Vec<Attempt> = Vec::new();
        let mut void = 0;
        loop {
            let last = !deviations.is_empty() && deviations.len() == self.options.repeats;
            let separate = own.as_ref().filter(|_| last);
            let attempt = match separate {
                Some(path) => self.play(script, case, Some(&create(path)?), &mut 0),
                None => self.play(script, case, capture, frames),
            };
            let given_up = |verdict, mut attempts: Vec<Attempt>, more: &str| {
                let Attempt { failure, frames, .. } = attempts.swap_remove(0);
                let told = failure.map(|failure| told(&failure, more)).unwrap_or_default();
                Ok(result(case.clone(), verdict, told, frames))
            };
            let attempt = match attempt {
                // What was seen may be what has ended the peer's program.
                Err(error) if !deviations.is_empty() => {
                    self.lost = Some(error);
                    return given_up(Verdict::CannotTell, deviations, "; it could not be played again");
                }
                attempt => attempt?,
            };
            let Some(failure) = &attempt.failure else {
                return match deviations.is_empty() {
                    true => Ok(result(case.clone(), Verdict::Conforms, Default::default(), attempt.frames)),
                    false => given_up(Verdict::CannotTell, deviations, "; a repeat conforms"),
                };
            };
            match &failure.trouble {
                Trouble::NotApplicable(_) => return given_up(Verdict::NotApplicable, vec![attempt], ""),
                Trouble::Broken(_) => return given_up(Verdict::CannotTell, vec![attempt], ""),
                Trouble::Deviation(_) if is_known(failure.number) => {}
                Trouble::Deviation(_) if (attempt.held_up || attempt.too_late) && void < MOST_VOID => {
                    void += 1;
                    continue;
                }
                Trouble::Deviation(_) if attempt.held_up => {
                    let why = "; this machine is too busy to tell";
                    return given_up(Verdict::CannotTell, vec![attempt], why);
                }
                Trouble::Deviation(_) => {}
            }
            let elsewhere = |before: &Attempt| {
                before.failure.as_ref().is_some_and(|before| before.number != failure.number)
            };
            if deviations.first().is_some_and(elsewhere) {
                let why = format!("; a repeat ends at line {}", failure.number);
                return given_up(Verdict::CannotTell, deviations, &why);
            }
            let number = failure.number;
            deviations.push(attempt);
            if deviations.len() > self.options.repeats || is_known(number) {
                deviations.reverse();
                let judged = given_up(Verdict::Deviates, deviations, "");
                return judged.map(|judged| CaseResult { capture: separate.cloned(), ..judged });
            }
        }
    }

    fn wire(&self, capture: Option<&Capture>) -> Result<Wire, LabError> {
        Wire::open(Some(self.own), self.stranger, self.options.peer, self.options.shared_memory, capture)
            .map_err(LabError::Open)
    }

    /// 256 QP numbers that no case has had before.
    fn take_qpns(&mut self) -> u32 {
        let first = self.next_qpn;
        self.next_qpn = if first >= 0xFF_0000 { 0x10_0000 } else { first + 0x100 };
        first
    }

    /// Plays a case once, on a fresh connection.
    fn play(
        &mut self,
        script: &Script,
        case: &Case,
        capture: Option<&Capture>,
        frames: &mut u64,
    ) -> Result<Attempt, LabError> {
        if let Some(port) = self.options.server.filter(|_| script.needs() == Needs::Server) {
            self.await_server(port)?;
        }
        let mut wire = self.wire(capture)?;
        let agent = self.options.agent.filter(|_| script.needs() == Needs::Agent).map(|port| {
            let address = SocketAddr::new(self.options.peer, port);
            Agent::connect(address, self.own).map_err(|error| LabError::Agent(address, error))
        });
        let first_qpn = self.take_qpns();
        let mut peer = Peer::new(&mut wire, agent.transpose()?, self.options.server, self.place, first_qpn);
        peer.past = self.past;
        peer.unhurried = !case.lines.iter().any(Line::is_timed);
        peer.rxe_flush = self.rxe_flush;
        let failure = play(&case.lines, &mut peer).err();
        if failure.is_some() {
            peer.look_for_crossing();
        }
        // Nobody was too slow for what never came, unless the peer has given up sending it.
        let (nothing_came, was_slow, is_turned_away) =
            (peer.nothing_came, peer.was_slow, peer.is_turned_away == Some(true));
        self.place = peer.place.calmed(self.measured);
        let first = *frames + 1;
        *frames += wire.frames;
        let paused = wire.longest_pause > self.place.settle() / 2;
        let held_up = was_slow || paused && !nothing_came;
        if failure.is_some() && paused {
            self.place.allow(wire.longest_pause);
        }
        let too_late = script.needs() == Needs::Server && (wire.frames == wire.sent as u64 || is_turned_away);
        Ok(Attempt { failure, frames: (first, *frames), held_up, too_late })
    }
}

/// One playing of a case.
struct Attempt {
    failure: Option<Failure>,
    frames: (u64, u64),
    /// Whether this side was held up meanwhile.
    held_up: bool,
    /// Whether a server said nothing at all, or only that it does not want the connection: one of a single connection was
    /// about to end when it was found to listen.
    too_late: bool,
}

fn create(path: &PathBuf) -> Result<Capture, LabError> {
    let options = CaptureOptions { when_full: WhenFull::Wait, ..CaptureOptions::default() };
    Capture::create(path, options).map_err(|error| LabError::Capture(path.clone(), error))
}

fn told(failure: &Failure, more: &str) -> (usize, String, String) {
    (failure.number, failure.line.clone(), format!("{}{more}", failure.trouble))
}

/// What a case says in which this event is missing, everything else being as judged.
fn without(missing: Option<Line>, judged: CaseResult) -> CaseResult {
    match missing {
        Some(Line { number, text, .. }) if judged.verdict == Verdict::Conforms => {
            let what = "no event was raised".into();
            CaseResult { verdict: Verdict::Deviates, number, line: text, what, ..judged }
        }
        _ => judged,
    }
}

/// The result of a case that was not played at all.
fn unplayed(case: Case, verdict: Verdict, why: &str) -> CaseResult {
    result(case, verdict, (0, String::new(), why.to_owned()), (0, 0))
}

fn result(
    case: Case,
    verdict: Verdict,
    (number, line, what): (usize, String, String),
    frames: (u64, u64),
) -> CaseResult {
    CaseResult { values: case.values, verdict, number, line, what, frames, capture: None, known: None }
}

/// The address from which this machine reaches the peer; on loopback, any.
fn own_address(peer: IpAddr) -> Option<IpAddr> {
    if peer.is_loopback() && peer.is_ipv4() {
        return None;
    }
    let any: IpAddr = if peer.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    // Connecting a UDP socket sends nothing; it finds the route.
    let socket = std::net::UdpSocket::bind((any, 0)).ok()?;
    socket.connect((peer, 9)).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}
