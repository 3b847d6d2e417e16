//! What can be seen of a world.

use serde::Serialize;
use softrnic_engine::CqeExtra;
use softrnic_memory::Access;

use crate::packet::Packet;
use crate::switches::Switches;
use crate::world::World;

/// Something that happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Event {
    /// When, in nanoseconds.
    pub at: u64,
    /// At which NIC; none for the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub side: Option<usize>,
    /// Its kind.
    pub what: What,
    /// The packet that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packet: Option<usize>,
    /// In words.
    pub text: String,
    /// The rule that acted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<&'static str>,
    /// What that rule says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub says: Option<&'static str>,
}

/// Kinds of events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum What {
    Post,
    Poll,
    Sent,
    Received,
    Rule,
    Completion,
    Connection,
    Rate,
    Event,
    Timer,
    Wire,
}

/// What congestion control allows a QP to send from some time on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Rate {
    /// When, in nanoseconds.
    pub at: u64,
    /// At which end.
    pub end: usize,
    /// Bytes per second; none if nothing holds it back.
    pub rate: Option<u64>,
}

/// The queue of a switch's port from some time on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Queue {
    /// When, in nanoseconds.
    pub at: u64,
    /// At which port: an even number is the first end of a link, an odd one the second.
    pub port: usize,
    /// Bytes that wait.
    pub bytes: u64,
}

/// A port that must not send, or may again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Pause {
    /// When, in nanoseconds.
    pub at: u64,
    /// Which port, as in [`Queue`].
    pub port: usize,
    /// Whether it is paused.
    pub paused: bool,
}

/// How much of a world has been told.
#[derive(Clone, Copy, Default)]
pub struct Told {
    events: usize,
    rates: usize,
    queues: usize,
    pauses: usize,
}

impl Told {
    /// All of it.
    pub fn all(world: &World) -> Told {
        Told {
            events: world.events.len(),
            rates: world.rates.len(),
            queues: world.queues.len(),
            pauses: world.pauses.len(),
        }
    }
}

/// The switches and their links.
#[derive(Serialize)]
pub struct NetworkView {
    /// Names: the NICs first, in their order.
    pub nodes: Vec<String>,
    /// All links.
    pub links: Vec<LinkView>,
}

/// A link of the network.
#[derive(Serialize)]
pub struct LinkView {
    /// Which nodes it connects.
    pub ends: [usize; 2],
    /// Whether it works.
    pub up: bool,
    /// Packets that its ends have sent.
    pub packets: [u64; 2],
}

/// The state of a world, with what has happened since the last look.
#[derive(Serialize)]
pub struct View<'w> {
    /// Virtual time in nanoseconds.
    now: u64,
    /// When the next step is.
    next: Option<u64>,
    /// The move that was made last, and how many there are.
    pub(crate) cursor: usize,
    pub(crate) moves: usize,
    /// Whether everything before is forgotten: packets and events are all that there are.
    pub(crate) fresh: bool,
    sides: Vec<SideView>,
    ends: Vec<EndView>,
    packets: Vec<&'w Packet>,
    events: &'w [Event],
    rates: &'w [Rate],
    queues: &'w [Queue],
    pauses: &'w [Pause],
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<NetworkView>,
}

#[derive(Serialize)]
struct SideView {
    address: String,
    base: u64,
    rkey: u32,
    window: WindowView,
    /// Nanoseconds until a timer fires.
    timer: Option<u64>,
    completions: Vec<CompletionView>,
    changed: Vec<(usize, usize)>,
    changed_at: usize,
    counters: Vec<(&'static str, u64)>,
}

#[derive(Serialize)]
struct WindowView {
    rkey: u32,
    bound: bool,
    /// Its first byte in the application's memory.
    offset: u64,
    len: u64,
    write: bool,
    qpn: Option<u32>,
}

#[derive(Serialize)]
struct CompletionView {
    wr_id: u64,
    opcode: String,
    status: String,
    bytes: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    imm: Option<u32>,
}

#[derive(Serialize)]
struct EndView {
    side: usize,
    qpn: u32,
    state: String,
    /// That of its connection, if the connection manager makes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    connection: Option<&'static str>,
    /// The oldest PSN that has not been acknowledged.
    una: u32,
    /// The PSN that is sent next.
    send_psn: u32,
    expected_psn: u32,
    msn: u32,
    in_flight: u64,
    retries_left: u8,
    rnr_wait: bool,
    /// Bytes per second that congestion control allows.
    rate: Option<u64>,
    sends: Vec<(u64, crate::action::Op)>,
    receives: Vec<(u64, u32)>,
}

impl<'w> View<'w> {
    /// Everything that has not been told; with all packets, or those that the last move touched.
    pub fn new(world: &'w World, told: Told, all: bool) -> View<'w> {
        let mut touched = world.touched.clone();
        touched.sort_unstable();
        touched.dedup();
        View {
            now: world.now.as_nanos(),
            next: world.next_time().map(|next| next.max(world.now).as_nanos()),
            cursor: 0,
            moves: 0,
            fresh: all,
            sides: world.sides.iter().map(|side| side_view(world, side)).collect(),
            ends: (0..world.ends.len()).map(|number| end_view(world, number)).collect(),
            packets: if all {
                world.packets.iter().collect()
            } else {
                touched.into_iter().map(|packet| &world.packets[packet]).collect()
            },
            events: after(&world.events, told.events),
            rates: after(&world.rates, told.rates),
            queues: after(&world.queues, told.queues),
            pauses: after(&world.pauses, told.pauses),
            network: world.switches.as_ref().map(Switches::view),
        }
    }
}

fn after<T>(all: &[T], count: usize) -> &[T] {
    &all[count.min(all.len())..]
}

fn side_view(world: &World, side: &crate::side::Side) -> SideView {
    let completion = |done: &softrnic_engine::Cqe| CompletionView {
        wr_id: done.wr_id,
        opcode: format!("{:?}", done.opcode),
        status: format!("{:?}", done.status),
        bytes: done.byte_len,
        imm: match done.extra {
            CqeExtra::Imm(imm) => Some(u32::from_be_bytes(imm.0)),
            _ => None,
        },
    };
    let named = side.engine.counters().map(|(counter, count)| (counter.name(), count));
    let dropped = side.engine.drops().map(|(reason, count)| (reason.name(), count));
    let management = side.engine.management_counters().map(|(counter, count)| (counter.name(), count));
    SideView {
        address: side.address.to_string(),
        base: side.base,
        rkey: side.keys.rkey.0,
        window: window_view(side),
        timer: side.engine.poll_timeout().map(|at| at.nanos_since(world.now)),
        completions: side.completed.iter().map(completion).collect(),
        changed: side.changed.clone(),
        changed_at: side.changed_at,
        counters: named.chain(dropped).chain(management).filter(|(_, count)| *count > 0).collect(),
    }
}

fn window_view(side: &crate::side::Side) -> WindowView {
    let known = side.window_now;
    WindowView {
        rkey: side.window_key().0,
        bound: known.is_some_and(|known| known.bound),
        offset: known.filter(|known| known.bound).map_or(0, |known| known.addr - side.base),
        len: known.map_or(0, |known| known.length),
        write: known.is_some_and(|known| known.access.contains(Access::REMOTE_WRITE)),
        qpn: known.and_then(|known| known.qpn).map(|qpn| qpn.get()),
    }
}

fn end_view(world: &World, number: usize) -> EndView {
    let end = &world.ends[number];
    let status = world.sides[end.side].engine.query_qp(end.qp.key).map(|query| query.status).ok();
    EndView {
        side: end.side,
        qpn: end.qp.qpn.get(),
        state: status.map_or(String::new(), |s| format!("{:?}", s.state).to_uppercase()),
        connection: world.connection_name(number),
        una: status.map_or(0, |s| s.una.get()),
        send_psn: status.map_or(0, |s| s.send_psn.get()),
        expected_psn: status.map_or(0, |s| s.expected_psn.get()),
        msn: status.map_or(0, |s| s.msn.get()),
        in_flight: status.map_or(0, |s| s.in_flight),
        retries_left: status.map_or(0, |s| s.retries_left),
        rnr_wait: status.is_some_and(|s| s.rnr_wait),
        rate: status.and_then(|s| s.paced_rate),
        sends: end.sends.clone(),
        receives: end.receives.clone(),
    }
}
