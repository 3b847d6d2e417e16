//! The processes of one user that share an address.
//!
//! The address has a socket for each [slot](ProcessSlot), all on the RoCE port (`SO_REUSEPORT`), and a program in the kernel
//! that reads the slot from each packet and so chooses the socket (`program.rs`). All processes hold all of the sockets,
//! and each reads the one of its own slot. So the kernel's order of the sockets never changes, whoever ends: joining,
//! leaving and dying redirect no packets of other processes.
//!
//! The first process makes the sockets, a table (`table.rs`) and a listener, whose abstract name is the address. Whoever
//! joins connects to that name, and any process that is there already hands over copies of everything (`handshake.rs`). A slot
//! belongs to the process that has a lock on its byte of the table, which the kernel releases when the process ends.

mod handshake;
mod lifelines;
mod listener;
mod program;
mod table;

use std::ffi::c_int;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use softrnic_wire::{ROCE_UDP_PORT, ServiceId};

use softrnic_link::{Backlog, OpenError, ProcessSlot, ServeError, Sharing};

use super::message::SockAddr;
use super::open::{self, bind_error};
use super::sys::{self, Outgoing, Socket};
use handshake::JOIN_TIMEOUT;
use lifelines::{Lifelines, PeerMessage};
use listener::Listener;
pub use program::Instruction;
use table::{Entries, Member, Table};

/// How long it waits before it tries again, at most: not all at the same moment.
const PAUSE: Duration = Duration::from_millis(8);
/// Those that join at the same time.
const BACKLOG: i32 = 128;
/// Tokens of the epoll instance; streams have those above.
const JOINING: u64 = 0;
const TYING: u64 = 1;
const LIFELINES: u64 = 2;
/// By its edge: one that cannot be accepted for want of descriptors, or that another process has accepted, must not wake
/// us for ever.
const EDGE: epoll::EventFlags = epoll::EventFlags::IN.union(epoll::EventFlags::ET);
/// A packet that shows which socket the kernel selects: as much of a BTH as the program reads, and a random number.
const PROBE_LEN: usize = 16;
/// How long it takes at most, in milliseconds.
const PROBE_TIMEOUT_MS: c_int = 100;
/// Packets of others that are read, at most: more than a socket holds, and they may go on sending.
const MOST_STRAYS: usize = 1 << 16;
/// How often an orderly end tries to change the table while another process does.
const TRIES: usize = 20;

/// This process as one of those that share an address.
pub struct Members {
    slot: ProcessSlot,
    listener: Arc<Listener>,
    table: Table,
    /// By slot.
    sockets: Vec<Socket>,
    lifelines: Lifelines,
    /// Readable when a process may want to join, or has ended.
    watch: OwnedFd,
    process: u32,
    left: bool,
}

/// A stream to one of the processes of an address, by the name of its lifelines, if it is this user's.
pub fn lifeline_to(address: IpAddr, lifelines: u64) -> Option<OwnedFd> {
    handshake::connect_to(address, lifelines).ok()
}

/// Why an address is not shared.
#[derive(Debug)]
pub(super) enum NotShared {
    /// The device cannot be opened.
    Failed(OpenError),
    /// It can, alone on its address: why.
    Alone(&'static str),
}

impl From<OpenError> for NotShared {
    fn from(error: OpenError) -> NotShared {
        NotShared::Failed(error)
    }
}

impl Members {
    /// Joins the processes of `address`, or is the first. Returns the socket of this process as well.
    pub(super) fn join(
        address: IpAddr,
        scope: u32,
        gro: bool,
        slot: Option<ProcessSlot>,
    ) -> Result<(Members, Socket), NotShared> {
        let end = Instant::now() + JOIN_TIMEOUT;
        // How long the last answer may come again, and since when it has.
        let (mut patience, mut since) = (JOIN_TIMEOUT, Instant::now());
        loop {
            match handshake::take_name(address) {
                Ok(listener) => {
                    while Instant::now() < end && are_ending(address, scope) {
                        pause();
                    }
                    return Members::begin(address, scope, gro, slot, listener);
                }
                Err(error) if error.raw_os_error() != Some(libc::EADDRINUSE) => {
                    return Err(NotShared::Alone("this system has no abstract socket names"));
                }
                Err(_) => {}
            }
            match handshake::ask(address, end) {
                Ok(handed) => return Members::enter(address, slot, handed),
                // The first one is about to listen, or the last one has just ended.
                Err(handshake::Unanswered::Again(longest)) => {
                    if longest != patience {
                        (patience, since) = (longest, Instant::now());
                    }
                    if since.elapsed() > patience || Instant::now() > end {
                        return Err(NotShared::Alone("its name is taken, and its owner does not answer"));
                    }
                    pause();
                }
                // If they have the address, too, opening it says so.
                Err(handshake::Unanswered::Never(OpenError::OtherUser { .. })) => {
                    return Err(NotShared::Alone("a process of another user has its name"));
                }
                Err(handshake::Unanswered::Never(error)) => return Err(error.into()),
            }
        }
    }

    /// The first process of the address.
    fn begin(
        address: IpAddr,
        scope: u32,
        gro: bool,
        slot: Option<ProcessSlot>,
        listener: OwnedFd,
    ) -> Result<(Members, Socket), NotShared> {
        let at = SockAddr::new(address, ROCE_UDP_PORT, scope);
        let sockets =
            (0..ProcessSlot::COUNT).map(|_| open_one(address, &at, gro)).collect::<Result<Vec<_>, _>>()?;
        let no_table = |_| NotShared::Alone("this system has no memory files with locks");
        let mut table = Table::create().map_err(no_table)?;
        let slot = table.take_a_slot(slot).map_err(no_table)?.ok_or_else(|| none_free(address, slot))?;
        let mut members = Members::new(address, slot, listener, table, sockets)?;
        members
            .settle()
            .map_err(|_| NotShared::Alone("the kernel refuses the BPF program that selects the socket"))?;
        if !members.is_obeyed(address, scope, &at) {
            return Err(NotShared::Alone("the kernel does not select sockets as the BPF program says"));
        }
        let own = members.own()?;
        Ok((members, own))
    }

    fn enter(
        address: IpAddr,
        slot: Option<ProcessSlot>,
        handed: handshake::Handed,
    ) -> Result<(Members, Socket), NotShared> {
        let handshake::Handed { listener, table, sockets } = handed;
        let doubtful = || OpenError::NoAnswer(address);
        let mut table = Table::open(&table).map_err(|_| doubtful())?;
        let sockets: Vec<Socket> = sockets.into_iter().map(Socket::from).collect();
        let is_right = |socket: &Socket| {
            socket.local_addr().is_ok_and(|at| at.ip() == address && at.port() == ROCE_UDP_PORT)
        };
        if !sockets.iter().all(is_right) {
            return Err(doubtful().into());
        }
        let slot =
            table.take_a_slot(slot).map_err(|_| doubtful())?.ok_or_else(|| none_free(address, slot))?;
        let mut members = Members::new(address, slot, listener, table, sockets)?;
        let settled = |members: &mut Members| members.settle().inspect_err(|_| pause()).is_ok();
        if !(0..TRIES).any(|_| settled(&mut members)) {
            return Err(doubtful().into());
        }
        members.tie();
        let own = members.own()?;
        Ok((members, own))
    }

    fn new(
        address: IpAddr,
        slot: ProcessSlot,
        listener: OwnedFd,
        table: Table,
        sockets: Vec<Socket>,
    ) -> Result<Members, OpenError> {
        let lifelines = Lifelines::new(address, LIFELINES);
        let watch = || -> rustix::io::Result<OwnedFd> {
            let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            epoll::add(&watch, &listener, epoll::EventData::new_u64(JOINING), EDGE)?;
            if let Some(listener) = &lifelines.listener {
                epoll::add(&watch, listener, epoll::EventData::new_u64(TYING), EDGE)?;
            }
            Ok(watch)
        };
        let watch = watch().map_err(|error| OpenError::System {
            doing: "watching for processes that join",
            errno: error.raw_os_error(),
        })?;
        Ok(Members {
            slot,
            listener: Arc::new(Listener::new(listener)),
            table,
            sockets,
            lifelines,
            watch,
            process: std::process::id(),
            left: false,
        })
    }

    /// A copy of the own socket, without what came for the process that had the slot before.
    fn own(&self) -> Result<Socket, OpenError> {
        let socket = &self.sockets[self.slot.number()];
        empty(socket);
        socket.duplicate().map_err(open::system("copying a descriptor"))
    }

    /// The slot of this process.
    pub fn slot(&self) -> ProcessSlot {
        self.slot
    }

    /// Hands copies of what is shared to those that were accepted. Returns whether others may wait.
    fn answer(&self) -> bool {
        let (accepted, more) = self.listener.take();
        let shared = [self.listener.as_fd(), self.table.file()];
        let shared: Vec<_> = shared.into_iter().chain(self.sockets.iter().map(AsFd::as_fd)).collect();
        accepted.iter().for_each(|stream| handshake::answer(stream, &shared));
        more
    }

    fn listener(&self, token: u64) -> Option<&Arc<Listener>> {
        if token == JOINING { Some(&self.listener) } else { self.lifelines.listener.as_ref() }
    }

    /// Has those that still wait be another event, as if they had come just now.
    fn come_back_to(&self, token: u64) {
        if let Some(listener) = self.listener(token) {
            let _ = epoll::modify(&self.watch, listener, epoll::EventData::new_u64(token), EDGE);
        }
    }

    fn hear(&mut self, token: u64) {
        match self.lifelines.hear(token) {
            PeerMessage::Nothing => {}
            PeerMessage::ProcessSlot(slot) => {
                let process = self.table.member(slot).map_or(0, |member| member.process);
                self.lifelines.name(token, slot, process);
            }
            PeerMessage::End => {
                // Whoever changes the table takes out those that have ended. If another process is at it, again.
                let changed = self.change(|_, _| Ok(())).is_ok();
                let table = &self.table;
                let is_there = |slot, process| !changed || table.lists(slot, process);
                let ended = self.lifelines.end(&self.watch, token, is_there);
                if ended.is_some_and(|was_own| was_own || !self.lifelines.is_tied()) {
                    self.tie();
                }
            }
        }
    }

    /// Makes a stream to the next process, if there is one.
    fn tie(&mut self) {
        let next = (1..ProcessSlot::COUNT)
            .filter_map(|step| ProcessSlot::new((self.slot.number() + step) % ProcessSlot::COUNT));
        for slot in next {
            if let Some(member) = self.table.member(slot)
                && self.lifelines.tie(&self.watch, self.slot, slot, member).is_ok()
            {
                return;
            }
        }
    }

    /// Takes the place of the process that had the slot before, if any.
    fn settle(&mut self) -> Result<(), ServeError> {
        let member = Member { process: self.process, lifelines: self.lifelines.name };
        self.change(|entries, slot| {
            entries.begin(slot, member);
            Ok(())
        })
    }

    /// Changes the table, and has the kernel choose as it says from then on.
    fn change(
        &self,
        change: impl FnOnce(&mut Entries, ProcessSlot) -> Result<(), ServeError>,
    ) -> Result<(), ServeError> {
        self.table.change(|entries| {
            change(entries, self.slot)?;
            let program = program::choosing(entries.services(), &entries.slots());
            self.sockets[self.slot.number()].choose_by(&program).map_err(|_| ServeError::TooMany)
        })
    }

    /// Whether packets come to the sockets that the program says.
    fn is_obeyed(&self, address: IpAddr, scope: u32, at: &SockAddr) -> bool {
        let Ok(sender) = Socket::open(address.is_ipv6()) else { return false };
        if sender.bind(&SockAddr::new(address, 0, scope)).is_err() {
            return false;
        }
        let mut secret = [0; 8];
        if sys::random(&mut secret).is_err() {
            return false;
        }
        // Others may send to the address meanwhile, and what they send would fill the sockets, which have next to no room.
        let filter = program::letting_in(secret);
        let is_prepared = self.sockets.iter().all(|socket| socket.filter_by(&filter).is_ok());
        self.sockets.iter().for_each(empty);
        let obeyed = is_prepared
            && (0..ProcessSlot::COUNT).all(|number| {
                let Some(slot) = ProcessSlot::new(number) else { return false };
                let mut packet = [0; PROBE_LEN];
                packet[4..8].copy_from_slice(&slot.qpns().start().to_be_bytes());
                packet[8..].copy_from_slice(&secret);
                let message = Outgoing { to: Some(at), payload: &packet, control: &[] };
                let sent = sys::send_many(&sender, std::iter::once(message)).is_ok_and(|sent| sent == 1);
                sent && arrives(&self.sockets[number], &packet)
            });
        // What the kernel has put elsewhere must not stay there.
        self.sockets.iter().for_each(empty);
        let lets_in = self.sockets.iter().all(|socket| socket.stop_filtering().is_ok());
        obeyed && lets_in
    }
}

impl Sharing for Members {
    /// Those of another PID namespace are what they are there.
    fn processes(&mut self) -> Vec<u32> {
        self.table.processes().unwrap_or_default()
    }

    fn lifelines(&mut self, address: IpAddr, slot: ProcessSlot) -> Option<u64> {
        let is_here = address == self.lifelines.address;
        self.table.member(slot).filter(|_| is_here).map(|member| member.lifelines)
    }

    fn descriptor(&self) -> RawFd {
        self.watch.as_raw_fd()
    }

    fn attend(&mut self) -> Vec<Arc<dyn Backlog>> {
        let none = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut events = [none; 16];
        let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let count = epoll::wait(&self.watch, &mut events[..], Some(&at_once)).unwrap_or(0);
        let mut listeners = Vec::new();
        for event in &events[..count] {
            match event.data.u64() {
                token @ (JOINING | TYING) => {
                    listeners.extend(
                        self.listener(token).map(|listener| Arc::clone(listener) as Arc<dyn Backlog>),
                    );
                }
                token => self.hear(token),
            }
        }
        listeners
    }

    fn let_in(&mut self) {
        if self.answer() {
            self.come_back_to(JOINING);
        }
        if self.lifelines.let_in(&self.watch) {
            self.come_back_to(TYING);
        }
    }

    /// There is one address alone.
    fn serve(&mut self, service: ServiceId, _at: Option<IpAddr>) -> Result<(), ServeError> {
        self.change(|entries, slot| entries.add(service, slot))
    }

    fn stop_serving(&mut self, service: ServiceId) -> Result<(), ServeError> {
        self.change(|entries, slot| {
            entries.remove(service, slot);
            Ok(())
        })
    }

    fn end_sharing(&mut self) {
        if std::mem::replace(&mut self.left, true) || self.process != std::process::id() {
            return;
        }
        for _ in 0..TRIES {
            let gone = self.change(|entries, slot| {
                entries.end(slot);
                Ok(())
            });
            match gone {
                Err(ServeError::Busy) => pause(),
                _ => break,
            }
        }
        let own = &self.sockets[self.slot.number()];
        let _ = own.set(libc::SOL_SOCKET, libc::SO_RCVBUF, 0);
        empty(own);
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        self.end_sharing();
    }
}

/// Why there is no slot to take: any, or that one.
fn none_free(address: IpAddr, wanted: Option<ProcessSlot>) -> OpenError {
    match wanted {
        Some(_) => OpenError::PartTaken(address),
        None => OpenError::TooManyProcesses(address),
    }
}

/// One of the sockets of the address. Nothing is meant for it yet.
fn open_one(address: IpAddr, at: &SockAddr, gro: bool) -> Result<Socket, OpenError> {
    let socket = Socket::open(address.is_ipv6()).map_err(|error| open::open_error(address, error))?;
    socket
        .set(libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)
        .and_then(|()| socket.set(libc::SOL_SOCKET, libc::SO_RCVBUF, 0))
        .map_err(open::system("setting up the socket"))?;
    // Before it knows which socket a packet is for, the kernel asks any of them whether it may coalesce it.
    let _ = socket.set(libc::SOL_UDP, libc::UDP_GRO, c_int::from(gro));
    socket.bind(at).map_err(|error| bind_error(address, error))?;
    Ok(socket)
}

/// Whether those before have not closed all of their sockets: a process that ends closes their name first. Ours would
/// stand among them in the kernel's order, which changes with each that closes.
fn are_ending(address: IpAddr, scope: u32) -> bool {
    let at = SockAddr::new(address, ROCE_UDP_PORT, scope);
    let binds = |shares: bool| {
        Socket::open(address.is_ipv6()).is_ok_and(|socket| {
            socket.set(libc::SOL_SOCKET, libc::SO_REUSEPORT, shares.into()).is_ok()
                && socket.bind(&at).is_ok()
        })
    };
    // Those of this user with SO_REUSEPORT let in nobody but others like them.
    !binds(false) && binds(true)
}

/// Whether a packet comes to a socket, and no other before it.
fn arrives(socket: &Socket, packet: &[u8; PROBE_LEN]) -> bool {
    let mut bytes = [0; PROBE_LEN + 1];
    socket.wait_readable(PROBE_TIMEOUT_MS).unwrap_or(false)
        && socket.take(&mut bytes).is_ok_and(|len| bytes[..len] == packet[..])
}

/// Reads and forgets what a socket has.
fn empty(socket: &Socket) {
    let _rest = (0..MOST_STRAYS).find(|_| socket.take(&mut []).is_err());
}

/// For a random time, so that those who wait for the same thing do not meet again.
fn pause() {
    let mut random = [0];
    let _ = sys::random(&mut random);
    std::thread::sleep(PAUSE * u32::from(random[0]) / 256);
}

/// Whose an address is that has the name of another user's process.
pub(super) fn other_user(address: IpAddr) -> Option<OpenError> {
    handshake::owner(address).filter(|owner| !owner.are_ours()).map(|owner| OpenError::OtherUser {
        address,
        uid: owner.uid,
        pid: owner.pid,
    })
}

#[cfg(test)]
mod tests;
