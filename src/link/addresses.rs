//! One link out of one for each address of an interface: [`AddressesLink`].
//!
//! A link that has one address alone, as that over UDP sockets, becomes a link that has those of an interface, and has them
//! come and go. It opens a link when an address has come, in a thread of its own, since that can take its time, and closes
//! it when the address has gone. All of them have the same [slot](crate::ProcessSlot), since queue pair numbers do not depend on
//! the address.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{EventfdFlags, epoll, eventfd};
use softrnic_sys::epoll_ctl;
use softrnic_wire::{ServiceId, Time};

use crate::{
    Backlog, Capabilities, Datagram, Flow, Link, LinkCounters, OpenError, Overrun, ProcessSlot, Reach,
    ServeError, Sharing, Sleeper, TxError, TxSlot,
};

/// The link of an address, or why there is none.
type Opened = Result<Box<dyn Link>, OpenError>;
/// Opens the link of an address, in the given slot if there is one.
pub type Opener = dyn Fn(IpAddr, Option<ProcessSlot>) -> Opened + Send + Sync;
/// Runs something in a thread of its own.
pub type Background = fn(Box<dyn FnOnce() + Send>) -> io::Result<()>;

/// A slot that is free at the first address may be taken at another, by a process that has that one alone.
const TRIES: usize = 32;

/// See the [module](self).
pub struct AddressesLink {
    homes: Vec<AddressLink>,
    /// Addresses whose links are being opened.
    awaited: BTreeSet<IpAddr>,
    arrivals: Arc<Arrivals>,
    opener: Arc<Opener>,
    background: Background,
    capabilities: Capabilities,
    /// Of links that are closed.
    before: LinkCounters,
    /// Readable when a link is, or when one has been opened.
    ready: OwnedFd,
    /// Readable when there is something to attend to, if addresses are shared.
    attention: OwnedFd,
    shared: bool,
    /// What is listened for, and at which address if not at all of them.
    services: BTreeSet<(ServiceId, Option<IpAddr>)>,
    /// Groups, and the address whose link has joined.
    groups: BTreeMap<IpAddr, Option<IpAddr>>,
    /// Which link has the slot that was reserved last.
    reserved: usize,
    /// The link that is read first, so that none has to wait for those before it.
    first: usize,
    sleeper: Sleeper,
    keeps_icrcs: bool,
    leaves_payloads: bool,
    shows_headers: bool,
    segments: bool,
}

/// An address and its link.
struct AddressLink {
    address: IpAddr,
    link: Box<dyn Link>,
    /// What of it is watched, and whether it was blocked then.
    watched: Option<(RawFd, bool)>,
    /// What we listen for, and its table does not say yet: another process was changing it.
    unserved: BTreeSet<ServiceId>,
}

impl AddressLink {
    fn new(address: IpAddr, link: Box<dyn Link>) -> AddressLink {
        AddressLink { address, link, watched: None, unserved: BTreeSet::new() }
    }

    /// Says what is listened for here, as far as nobody else is changing the table. Returns whether that was all.
    fn serve(&mut self) -> bool {
        let Some(sharing) = self.link.sharing() else { return true };
        self.unserved.retain(|service| match sharing.serve(*service, None) {
            Ok(()) => false,
            Err(ServeError::Busy) => true,
            Err(error) => {
                tracing::warn!("at {}: {error}", self.address);
                false
            }
        });
        self.unserved.is_empty()
    }
}

/// Links that have been opened, or not.
struct Arrivals {
    come: Mutex<Vec<(IpAddr, Opened)>>,
    any: AtomicBool,
    bell: OwnedFd,
}

impl Arrivals {
    /// Whoever drives or watches the link looks at what has come.
    fn look_again(&self) {
        self.any.store(true, Ordering::Release);
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }
}

impl AddressesLink {
    /// Opens a link at each address, and returns when all are open.
    ///
    /// # Errors
    /// One cannot be opened, or there is no descriptor; there must be an address.
    pub fn open(
        addresses: &[IpAddr],
        opener: Arc<Opener>,
        background: Background,
    ) -> Result<AddressesLink, OpenError> {
        let mut tries = 0;
        let homes = loop {
            tries += 1;
            match open_all(addresses, &*opener) {
                Err(OpenError::PartTaken(_)) if tries < TRIES => {}
                done => break done?,
            }
        };
        let capabilities = in_common(&homes);
        let system = |error: rustix::io::Errno| OpenError::System {
            doing: "watching addresses",
            errno: error.raw_os_error(),
        };
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(system)?;
        let ready = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system)?;
        let attention = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system)?;
        epoll::add(&ready, &bell, epoll::EventData::new_u64(0), epoll::EventFlags::IN).map_err(system)?;
        let mut link = AddressesLink {
            homes: Vec::new(),
            awaited: BTreeSet::new(),
            arrivals: Arc::new(Arrivals { come: Mutex::default(), any: AtomicBool::new(false), bell }),
            opener,
            background,
            capabilities,
            before: LinkCounters::default(),
            ready,
            attention,
            shared: false,
            services: BTreeSet::new(),
            groups: BTreeMap::new(),
            reserved: 0,
            first: 0,
            sleeper: Sleeper::Nobody,
            keeps_icrcs: false,
            leaves_payloads: false,
            shows_headers: false,
            segments: true,
        };
        homes.into_iter().for_each(|home| link.add(home));
        Ok(link)
    }

    /// Begins to use a link.
    fn add(&mut self, mut home: AddressLink) {
        if let Some(sharing) = home.link.sharing() {
            self.shared = true;
            let fd = sharing.descriptor();
            let _ = epoll_ctl(&self.attention, libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN, 0);
            let here = |at: &Option<IpAddr>| at.is_none_or(|at| at == home.address);
            home.unserved =
                self.services.iter().filter(|(_, at)| here(at)).map(|(service, _)| *service).collect();
        }
        if self.shows_headers {
            home.link.show_headers();
        }
        if !self.segments {
            home.link.stop_segmenting();
        }
        if self.keeps_icrcs {
            home.link.keep_icrcs();
        }
        if self.leaves_payloads {
            home.link.leave_payloads();
        }
        // Whoever watches looks again when the bell has woken it.
        let _ = home.link.watch(self.sleeper);
        self.homes.push(home);
        self.join_orphans();
        self.rewatch();
    }

    /// Says what is listened for where that could not be said before.
    fn serve_late(&mut self) {
        let mut all = true;
        for home in &mut self.homes {
            all &= home.serve();
        }
        if !all {
            self.arrivals.look_again();
        }
    }

    /// Closes the links of addresses that have gone.
    fn close(&mut self, wanted: &BTreeSet<IpAddr>) {
        let (stay, gone) =
            std::mem::take(&mut self.homes).into_iter().partition(|home| wanted.contains(&home.address));
        self.homes = stay;
        for AddressLink { address, mut link, watched, .. } in gone {
            if let Some((fd, _)) = watched {
                let _ = epoll_ctl(&self.ready, libc::EPOLL_CTL_DEL, fd, 0, 0);
            }
            if let Some(sharing) = link.sharing() {
                let fd = sharing.descriptor();
                let _ = epoll_ctl(&self.attention, libc::EPOLL_CTL_DEL, fd, 0, 0);
            }
            self.before = self.before + link.counters();
            let orphans = self.groups.values_mut().filter(|via| **via == Some(address));
            orphans.for_each(|via| *via = None);
        }
        self.first = 0;
        self.reserved = 0;
        self.join_orphans();
    }

    /// Joins groups whose link has been closed on another one.
    fn join_orphans(&mut self) {
        for (group, via) in self.groups.iter_mut().filter(|(_, via)| via.is_none()) {
            let same_family = |home: &&mut AddressLink| home.address.is_ipv4() == group.is_ipv4();
            if let Some(home) = self.homes.iter_mut().find(same_family)
                && home.link.join(*group).is_ok()
            {
                *via = Some(home.address);
            }
        }
    }

    /// Takes the links that have been opened.
    #[cold]
    fn take_arrivals(&mut self) {
        self.arrivals.any.store(false, Ordering::Relaxed);
        let _ = rustix::io::read(&self.arrivals.bell, &mut [0; 8]);
        let come = std::mem::take(&mut *self.arrivals.come.lock().unwrap_or_else(PoisonError::into_inner));
        for (address, link) in come {
            // It may have gone again meanwhile.
            if !self.awaited.remove(&address) {
                continue;
            }
            match link {
                Ok(link) => self.add(AddressLink::new(address, link)),
                Err(error) => tracing::warn!("the device cannot use {address}: {error}"),
            }
        }
        self.serve_late();
    }

    #[inline]
    fn look(&mut self) {
        if self.arrivals.any.load(Ordering::Acquire) {
            self.take_arrivals();
        }
    }

    /// The links may wait for other things by now.
    fn rewatch(&mut self) {
        for home in &mut self.homes {
            let wanted = home.link.descriptor().map(|fd| (fd, home.link.is_blocked()));
            if home.watched == wanted {
                continue;
            }
            if let Some((fd, _)) = home.watched.take() {
                // It may be closed by now, which has removed it.
                let _ = epoll_ctl(&self.ready, libc::EPOLL_CTL_DEL, fd, 0, 0);
            }
            if let Some((fd, blocked)) = wanted {
                let events = if blocked { libc::EPOLLIN | libc::EPOLLOUT } else { libc::EPOLLIN };
                if epoll_ctl(&self.ready, libc::EPOLL_CTL_ADD, fd, events, 0).is_ok() {
                    home.watched = wanted;
                }
            }
        }
    }

    fn place_of(&self, address: IpAddr) -> Option<usize> {
        self.homes.iter().position(|home| home.address == address)
    }
}

fn open_all(addresses: &[IpAddr], opener: &Opener) -> Result<Vec<AddressLink>, OpenError> {
    let mut homes: Vec<AddressLink> = Vec::new();
    for &address in addresses {
        let slot = homes.first().and_then(|home| home.link.capabilities().slot);
        homes.push(AddressLink::new(address, opener(address, slot)?));
    }
    Ok(homes)
}

/// What all of the links can do.
fn in_common(homes: &[AddressLink]) -> Capabilities {
    let mut links = homes.iter().map(|home| home.link.capabilities());
    let mut common = links.next().cloned().unwrap_or_else(|| Capabilities::none(""));
    for other in links {
        common.max_datagram = common.max_datagram.min(other.max_datagram);
        common.ip_mtu = common.ip_mtu.min(other.ip_mtu);
        common.sees_ip_header &= other.sees_ip_header;
        common.segments = common.segments.min(other.segments);
        common.receive_buffer = common.receive_buffer.min(other.receive_buffer);
        common.zero_copy &= other.zero_copy;
        common.shared_memory |= other.shared_memory;
    }
    let others: Vec<String> = homes.iter().skip(1).map(|home| home.address.to_string()).collect();
    if !others.is_empty() {
        common.mode = format!("{}; also {}", common.mode, others.join(", "));
    }
    common
}

impl Link for AddressesLink {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn reserve(&mut self, now: Time, flow: &Flow, len: usize) -> Result<TxSlot<'_>, TxError> {
        if len > self.capabilities.max_datagram || len == 0 {
            return Err(TxError::TooLong);
        }
        self.look();
        let place = self.place_of(flow.src).ok_or(TxError::Unreachable)?;
        self.reserved = place;
        let slot = self.homes[place].link.reserve(now, flow, len);
        slot.map_err(|error| match error {
            // An address that has come since has a smaller MTU.
            TxError::TooLong => TxError::Unreachable,
            error => error,
        })
    }

    fn reserved(&self) -> &[u8] {
        self.homes.get(self.reserved).map_or(&[], |home| home.link.reserved())
    }

    fn commit(&mut self, now: Time) {
        if let Some(home) = self.homes.get_mut(self.reserved) {
            home.link.commit(now);
        }
    }

    fn show(&mut self) {
        self.homes.iter_mut().for_each(|home| home.link.show());
    }

    fn flush(&mut self, now: Time) {
        self.look();
        self.homes.iter_mut().for_each(|home| home.link.flush(now));
        self.rewatch();
    }

    fn is_blocked(&self) -> bool {
        self.homes.iter().any(|home| home.link.is_blocked())
    }

    fn receive(&mut self, now: Time, budget: usize, sink: &mut dyn FnMut(Datagram<'_>)) -> Overrun {
        self.look();
        let count = self.homes.len();
        let mut left = budget;
        let mut overrun = Overrun::Drained;
        for step in 0..count {
            let place = (self.first + step) % count;
            let mut got = 0;
            let ended = self.homes[place].link.receive(now, left, &mut |datagram| {
                got += 1;
                sink(datagram);
            });
            left = left.saturating_sub(got);
            match ended {
                Overrun::Drained => {}
                Overrun::Budget => {
                    self.first = (place + 1) % count;
                    return Overrun::Budget;
                }
                other => overrun = other,
            }
            if left == 0 && step + 1 < count {
                self.first = (place + 1) % count;
                return Overrun::Budget;
            }
        }
        overrun
    }

    fn receives_in_memory(&self, now: Time) -> bool {
        self.homes.iter().all(|home| home.link.receives_in_memory(now))
    }

    fn sends_in_memory(&mut self, now: Time, flow: &Flow) -> bool {
        self.place_of(flow.src).is_some_and(|place| self.homes[place].link.sends_in_memory(now, flow))
    }

    fn is_quiet(&mut self, now: Time) -> bool {
        !self.arrivals.any.load(Ordering::Acquire)
            && self.homes.iter_mut().all(|home| home.link.is_quiet(now))
    }

    fn has_room(&mut self, now: Time, flow: &Flow, len: usize) -> bool {
        self.place_of(flow.src).is_none_or(|place| self.homes[place].link.has_room(now, flow, len))
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.homes.iter().filter_map(|home| home.link.poll_timeout()).min()
    }

    fn descriptor(&self) -> Option<RawFd> {
        Some(self.ready.as_raw_fd())
    }

    fn watch(&mut self, sleeper: Sleeper) -> bool {
        self.sleeper = sleeper;
        let mut something = self.arrivals.any.load(Ordering::Acquire);
        for home in &mut self.homes {
            something |= home.link.watch(sleeper);
        }
        something
    }

    fn join(&mut self, group: IpAddr) -> io::Result<()> {
        if self.groups.contains_key(&group) {
            return Ok(());
        }
        // One of them is enough: a datagram would come to each.
        let same_family = |home: &&mut AddressLink| home.address.is_ipv4() == group.is_ipv4();
        let none = || io::Error::from_raw_os_error(libc::EADDRNOTAVAIL);
        let home = self.homes.iter_mut().find(same_family).ok_or_else(none)?;
        home.link.join(group)?;
        self.groups.insert(group, Some(home.address));
        self.rewatch();
        Ok(())
    }

    fn leave(&mut self, group: IpAddr) -> io::Result<()> {
        let via =
            self.groups.remove(&group).ok_or_else(|| io::Error::from_raw_os_error(libc::EADDRNOTAVAIL))?;
        if let Some(place) = via.and_then(|via| self.place_of(via)) {
            self.homes[place].link.leave(group)?;
            self.rewatch();
        }
        Ok(())
    }

    fn counters(&self) -> LinkCounters {
        self.homes.iter().fold(self.before, |sum, home| sum + home.link.counters())
    }

    fn reaches(&self) -> Vec<Reach> {
        self.homes.iter().flat_map(|home| home.link.reaches()).collect()
    }

    fn sharing(&mut self) -> Option<&mut dyn Sharing> {
        if self.shared { Some(self) } else { None }
    }

    fn readdress(&mut self, addresses: &[IpAddr]) {
        let wanted: BTreeSet<IpAddr> = addresses.iter().copied().collect();
        self.look();
        self.close(&wanted);
        self.awaited.retain(|address| wanted.contains(address));
        let new = addresses.iter().filter(|address| self.place_of(**address).is_none());
        let new: Vec<IpAddr> = new.filter(|address| !self.awaited.contains(address)).copied().collect();
        if new.is_empty() {
            return;
        }
        let (opener, arrivals, slot) =
            (Arc::clone(&self.opener), Arc::clone(&self.arrivals), self.capabilities.slot);
        self.awaited.extend(&new);
        let opening = move || {
            for address in new {
                let opened = opener(address, slot);
                arrivals.come.lock().unwrap_or_else(PoisonError::into_inner).push((address, opened));
                arrivals.look_again();
            }
        };
        if let Err(error) = (self.background)(Box::new(opening)) {
            tracing::warn!(%error, "cannot start a thread that opens the links of new addresses");
            self.awaited.clear();
        }
    }

    fn stop_segmenting(&mut self) {
        self.segments = false;
        self.capabilities.segments = 1;
        self.homes.iter_mut().for_each(|home| home.link.stop_segmenting());
    }

    fn keep_icrcs(&mut self) {
        self.keeps_icrcs = true;
        self.homes.iter_mut().for_each(|home| home.link.keep_icrcs());
    }

    fn leave_payloads(&mut self) {
        self.leaves_payloads = true;
        self.homes.iter_mut().for_each(|home| home.link.leave_payloads());
    }

    fn show_headers(&mut self) {
        self.shows_headers = true;
        self.homes.iter_mut().for_each(|home| home.link.show_headers());
    }
}

/// Of all addresses together.
impl Sharing for AddressesLink {
    fn processes(&mut self) -> Vec<u32> {
        let mut all: Vec<u32> = Vec::new();
        for sharing in self.homes.iter_mut().filter_map(|home| home.link.sharing()) {
            let new = sharing.processes().into_iter().filter(|process| !all.contains(process));
            let new: Vec<u32> = new.collect();
            all.extend(new);
        }
        all
    }

    fn lifelines(&mut self, address: IpAddr, slot: ProcessSlot) -> Option<u64> {
        let mut sharing = self.homes.iter_mut().filter_map(|home| home.link.sharing());
        sharing.find_map(|sharing| sharing.lifelines(address, slot))
    }

    fn descriptor(&self) -> RawFd {
        self.attention.as_fd().as_raw_fd()
    }

    fn attend(&mut self) -> Vec<Arc<dyn Backlog>> {
        self.homes
            .iter_mut()
            .filter_map(|home| home.link.sharing())
            .flat_map(|sharing| sharing.attend())
            .collect()
    }

    fn let_in(&mut self) {
        self.homes.iter_mut().filter_map(|home| home.link.sharing()).for_each(|sharing| sharing.let_in());
    }

    fn serve(&mut self, service: ServiceId, at: Option<IpAddr>) -> Result<(), ServeError> {
        let known = self.services.iter().any(|(known, _)| *known == service);
        for place in 0..self.homes.len() {
            let home = &mut self.homes[place];
            if at.is_some_and(|at| at != home.address) {
                continue;
            }
            let Some(sharing) = home.link.sharing() else { continue };
            match sharing.serve(service, at) {
                Ok(()) => {}
                Err(ServeError::Busy) => return Err(ServeError::Busy),
                Err(error) => {
                    if !known {
                        let before = self.homes[..place].iter_mut().filter_map(|home| home.link.sharing());
                        before.for_each(|sharing| {
                            let _ = sharing.stop_serving(service);
                        });
                    }
                    return Err(error);
                }
            }
        }
        self.services.insert((service, at));
        Ok(())
    }

    fn stop_serving(&mut self, service: ServiceId) -> Result<(), ServeError> {
        self.services.retain(|(known, _)| *known != service);
        for home in &mut self.homes {
            home.unserved.remove(&service);
            if let Some(sharing) = home.link.sharing() {
                sharing.stop_serving(service)?;
            }
        }
        Ok(())
    }

    fn end_sharing(&mut self) {
        self.homes
            .iter_mut()
            .filter_map(|home| home.link.sharing())
            .for_each(|sharing| sharing.end_sharing());
    }
}
