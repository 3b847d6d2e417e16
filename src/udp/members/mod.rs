//! The processes of one user that share an address.
//!
//! The address has a socket for each [part](Part), all on the RoCE port (`SO_REUSEPORT`), and a program in the kernel
//! that reads the part from each packet and so chooses the socket (`program.rs`). All processes hold all of the sockets,
//! and each reads the one of its own part. So the kernel's order of the sockets never changes, whoever ends: joining,
//! leaving and dying redirect no packets of other processes.
//!
//! The first process makes the sockets, a table (`table.rs`) and a listener, whose abstract name is the address. Whoever
//! joins connects to that name, and any process that is there already hands over copies of everything (`hello.rs`). A part
//! belongs to the process that has a lock on its byte of the table, which the kernel releases when the process ends.

mod hello;
mod lifelines;
mod program;
mod table;

use std::ffi::c_int;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::event::epoll;
use softrnic_wire::{ROCE_UDP_PORT, ServiceId};

use softrnic_link::{OpenError, Part, ServeError, Sharing};

use super::message::SockAddr;
use super::open::{self, bind_error};
use super::sys::{self, Outgoing, Socket};
use hello::JOIN_TIMEOUT;
use lifelines::{Heard, Lifelines};
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
/// How often an orderly end tries to change the table while another process does.
const TRIES: usize = 20;

/// This process as one of those that share an address.
pub struct Members {
    part: Part,
    listener: OwnedFd,
    table: Table,
    /// By part.
    sockets: Vec<Socket>,
    lifelines: Lifelines,
    /// Readable when a process may want to join, or has ended.
    watch: OwnedFd,
    process: u32,
    left: bool,
}

/// A stream to one of the processes of an address, by the name of its lifelines, if it is this user's.
pub fn lifeline_to(address: IpAddr, lifelines: u64) -> Option<OwnedFd> {
    hello::connect_to(address, lifelines).ok()
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
        part: Option<Part>,
    ) -> Result<(Members, Socket), NotShared> {
        let end = Instant::now() + JOIN_TIMEOUT;
        // How long the last answer may come again, and since when it has.
        let (mut patience, mut since) = (JOIN_TIMEOUT, Instant::now());
        loop {
            match hello::take_name(address) {
                Ok(listener) => {
                    while Instant::now() < end && are_ending(address, scope) {
                        pause();
                    }
                    return Members::begin(address, scope, gro, part, listener);
                }
                Err(error) if error.raw_os_error() != Some(libc::EADDRINUSE) => {
                    return Err(NotShared::Alone("this system has no abstract socket names"));
                }
                Err(_) => {}
            }
            match hello::ask(address, end) {
                Ok(handed) => return Members::enter(address, part, handed),
                // The first one is about to listen, or the last one has just ended.
                Err(hello::Unanswered::Again(longest)) => {
                    if longest != patience {
                        (patience, since) = (longest, Instant::now());
                    }
                    if since.elapsed() > patience || Instant::now() > end {
                        return Err(NotShared::Alone("its name is taken, and its owner does not answer"));
                    }
                    pause();
                }
                // If they have the address, too, opening it says so.
                Err(hello::Unanswered::Never(OpenError::OtherUser { .. })) => {
                    return Err(NotShared::Alone("a process of another user has its name"));
                }
                Err(hello::Unanswered::Never(error)) => return Err(error.into()),
            }
        }
    }

    /// The first process of the address.
    fn begin(
        address: IpAddr,
        scope: u32,
        gro: bool,
        part: Option<Part>,
        listener: OwnedFd,
    ) -> Result<(Members, Socket), NotShared> {
        let at = SockAddr::new(address, ROCE_UDP_PORT, scope);
        let sockets = (0..Part::COUNT).map(|_| open_one(address, &at, gro)).collect::<Result<Vec<_>, _>>()?;
        let no_table = |_| NotShared::Alone("this system has no memory files with locks");
        let mut table = Table::create().map_err(no_table)?;
        let part = table.take_a_part(part).map_err(no_table)?.ok_or_else(|| none_free(address, part))?;
        let mut members = Members::new(address, part, listener, table, sockets)?;
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
        part: Option<Part>,
        handed: hello::Handed,
    ) -> Result<(Members, Socket), NotShared> {
        let hello::Handed { listener, table, sockets } = handed;
        let doubtful = || OpenError::NoAnswer(address);
        let mut table = Table::open(&table).map_err(|_| doubtful())?;
        let sockets: Vec<Socket> = sockets.into_iter().map(Socket::from).collect();
        let is_right = |socket: &Socket| {
            socket.local_addr().is_ok_and(|at| at.ip() == address && at.port() == ROCE_UDP_PORT)
        };
        if !sockets.iter().all(is_right) {
            return Err(doubtful().into());
        }
        let part =
            table.take_a_part(part).map_err(|_| doubtful())?.ok_or_else(|| none_free(address, part))?;
        let mut members = Members::new(address, part, listener, table, sockets)?;
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
        part: Part,
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
            part,
            listener,
            table,
            sockets,
            lifelines,
            watch,
            process: std::process::id(),
            left: false,
        })
    }

    /// A copy of the own socket, without what came for the process that had the part before.
    fn own(&self) -> Result<Socket, OpenError> {
        let socket = &self.sockets[self.part.number()];
        let _ = empty(socket);
        socket.duplicate().map_err(open::system("copying a descriptor"))
    }

    /// The part of this process.
    pub fn part(&self) -> Part {
        self.part
    }

    /// Returns whether others may wait.
    fn let_in(&self) -> bool {
        let shared = [self.listener.as_fd(), self.table.file()];
        let sockets = self.sockets.iter().map(AsFd::as_fd);
        hello::answer_some(&self.listener, &shared.into_iter().chain(sockets).collect::<Vec<_>>())
    }

    /// Has those that still wait be another event, as if they had come just now.
    fn come_back_to(&self, token: u64) {
        let listener = if token == JOINING { Some(&self.listener) } else { self.lifelines.listener.as_ref() };
        if let Some(listener) = listener {
            let _ = epoll::modify(&self.watch, listener, epoll::EventData::new_u64(token), EDGE);
        }
    }

    fn hear(&mut self, token: u64) {
        match self.lifelines.hear(token) {
            Heard::Nothing => {}
            Heard::Part(part) => {
                let process = self.table.member(part).map_or(0, |member| member.process);
                self.lifelines.name(token, part, process);
            }
            Heard::End => {
                // Whoever changes the table takes out those that have ended. If another process is at it, again.
                let changed = self.change(|_, _| Ok(())).is_ok();
                let table = &self.table;
                let is_there = |part, process| !changed || table.lists(part, process);
                let ended = self.lifelines.end(&self.watch, token, is_there);
                if ended.is_some_and(|was_own| was_own || !self.lifelines.is_tied()) {
                    self.tie();
                }
            }
        }
    }

    /// Makes a stream to the next process, if there is one.
    fn tie(&mut self) {
        let next = (1..Part::COUNT).filter_map(|step| Part::new((self.part.number() + step) % Part::COUNT));
        for part in next {
            if let Some(member) = self.table.member(part)
                && self.lifelines.tie(&self.watch, self.part, part, member).is_ok()
            {
                return;
            }
        }
    }

    /// Takes the place of the process that had the part before, if any.
    fn settle(&mut self) -> Result<(), ServeError> {
        let member = Member { process: self.process, lifelines: self.lifelines.name };
        self.change(|entries, part| {
            entries.begin(part, member);
            Ok(())
        })
    }

    /// Changes the table, and has the kernel choose as it says from then on.
    fn change(
        &self,
        change: impl FnOnce(&mut Entries, Part) -> Result<(), ServeError>,
    ) -> Result<(), ServeError> {
        self.table.change(|entries| {
            change(entries, self.part)?;
            let program = program::choosing(entries.services(), &entries.parts());
            self.sockets[self.part.number()].choose_by(&program).map_err(|_| ServeError::TooMany)
        })
    }

    /// Whether packets come to the sockets that the program says.
    fn is_obeyed(&self, address: IpAddr, scope: u32, at: &SockAddr) -> bool {
        let Ok(sender) = Socket::open(address.is_ipv6()) else { return false };
        if sender.bind(&SockAddr::new(address, 0, scope)).is_err() {
            return false;
        }
        let obeyed = (0..Part::COUNT).all(|number| {
            let Some(part) = Part::new(number) else { return false };
            let mut packet = [0; 16];
            packet[4..8].copy_from_slice(&part.qpns().start().to_be_bytes());
            let message = Outgoing { to: Some(at), payload: &packet, control: &[] };
            let sent = sys::send_many(&sender, std::iter::once(message)).is_ok_and(|sent| sent == 1);
            sent && self.sockets[number].wait_readable(100).unwrap_or(false)
        });
        // What the kernel has put elsewhere must not stay there either.
        let found: usize = self.sockets.iter().map(empty).sum();
        obeyed && found == Part::COUNT
    }
}

impl Sharing for Members {
    /// Those of another PID namespace are what they are there.
    fn processes(&mut self) -> Vec<u32> {
        self.table.processes().unwrap_or_default()
    }

    fn lifelines(&mut self, address: IpAddr, part: Part) -> Option<u64> {
        let is_here = address == self.lifelines.address;
        self.table.member(part).filter(|_| is_here).map(|member| member.lifelines)
    }

    fn descriptor(&self) -> RawFd {
        self.watch.as_raw_fd()
    }

    fn attend(&mut self) {
        let none = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut events = [none; 16];
        let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let count = epoll::wait(&self.watch, &mut events[..], Some(&at_once)).unwrap_or(0);
        for event in &events[..count] {
            match event.data.u64() {
                token @ (JOINING | TYING) => {
                    let others_wait = if token == JOINING {
                        self.let_in()
                    } else {
                        self.lifelines.accept_some(&self.watch)
                    };
                    if others_wait {
                        self.come_back_to(token);
                    }
                }
                token => self.hear(token),
            }
        }
    }

    /// There is one address alone.
    fn serve(&mut self, service: ServiceId, _at: Option<IpAddr>) -> Result<(), ServeError> {
        self.change(|entries, part| entries.add(service, part))
    }

    fn stop_serving(&mut self, service: ServiceId) -> Result<(), ServeError> {
        self.change(|entries, part| {
            entries.remove(service, part);
            Ok(())
        })
    }

    fn end_sharing(&mut self) {
        if std::mem::replace(&mut self.left, true) || self.process != std::process::id() {
            return;
        }
        for _ in 0..TRIES {
            let gone = self.change(|entries, part| {
                entries.end(part);
                Ok(())
            });
            match gone {
                Err(ServeError::Busy) => pause(),
                _ => break,
            }
        }
        let own = &self.sockets[self.part.number()];
        let _ = own.set(libc::SOL_SOCKET, libc::SO_RCVBUF, 0);
        let _ = empty(own);
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        self.end_sharing();
    }
}

/// Why there is no part to take: any, or that one.
fn none_free(address: IpAddr, wanted: Option<Part>) -> OpenError {
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

/// Reads and forgets what a socket has; returns how much that was.
fn empty(socket: &Socket) -> usize {
    /// More than any socket holds: others may go on sending.
    const MOST: usize = 1 << 16;
    (0..MOST).take_while(|_| socket.discard().is_ok()).count()
}

/// For a random time, so that those who wait for the same thing do not meet again.
fn pause() {
    let mut random = [0];
    let _ = sys::random(&mut random);
    std::thread::sleep(PAUSE * u32::from(random[0]) / 256);
}

/// Whose an address is that has the name of another user's process.
pub(super) fn other_user(address: IpAddr) -> Option<OpenError> {
    hello::owner(address).filter(|owner| !owner.are_ours()).map(|owner| OpenError::OtherUser {
        address,
        uid: owner.uid,
        pid: owner.pid,
    })
}

#[cfg(test)]
mod tests;
