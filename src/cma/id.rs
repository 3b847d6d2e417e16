//! Identifiers.

use std::sync::Arc;
use std::time::Duration;

use softrnic_transport::{AttrMask, QpState};

use super::address::Address;
use super::channel::EventChannel;
use super::error::Error;
use super::event::{EventData, EventKind, EventStatus};
use super::manager::Manager;
use super::params::{ConnParams, IdOption, Query};
use super::state::State;
use softrnic_nic::device::Process;
use softrnic_nic::verbs::QpAttributes;

/// State of an identifier.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum IdState {
    Idle,
    Bound,
    AddressQuery,
    AddressResolved,
    RouteQuery,
    RouteResolved,
    Connect,
    Disconnect,
    Listen,
}

/// A handle to an identifier. It does not keep the identifier alive: that lasts until it is [destroyed](Id::destroy),
/// or its channel is [shut](EventChannel::shut).
#[derive(Clone)]
pub struct Id {
    manager: Arc<Manager>,
    process: Process,
    number: u32,
    /// Tells it apart from earlier ones with the same number.
    generation: u64,
}

impl Id {
    pub(super) fn new(manager: &Arc<Manager>, process: Process, number: u32, generation: u64) -> Id {
        Id { manager: manager.clone(), process, number, generation }
    }

    /// Runs `operate` on the state if the identifier exists.
    fn with<T>(&self, operate: impl FnOnce(&mut State) -> Result<T, Error>) -> Result<T, Error> {
        let mut state = self.manager.lock(self.process)?;
        if state.entry(self.number)?.generation != self.generation {
            return Err(Error::UnknownId);
        }
        operate(&mut state)
    }

    /// Its number, below 2^31. The smallest free number is used first.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Destroys it. The peer is told what the state calls for; unreported events are dropped. A listener's unreported
    /// requests go with it. Returns how many of its events were reported.
    ///
    /// # Errors
    /// [`Error::UnknownId`], as for all other calls.
    pub fn destroy(&self) -> Result<u32, Error> {
        self.with(|state| state.destroy(self.number))
    }

    /// Its state.
    ///
    /// # Errors
    /// [`Error::UnknownId`].
    pub fn state(&self) -> Result<IdState, Error> {
        self.with(|state| Ok(state.entry(self.number)?.state))
    }

    /// Binds it to an address and port. Port 0 takes any free port.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is bound already, [`Error::AddressInUse`], [`Error::AddressNotAvailable`],
    /// [`Error::Denied`].
    pub fn bind(&self, address: &Address) -> Result<(), Error> {
        if !address.is_any() || self.manager.devices().are_on_own_network() {
            self.manager.open_devices(self.process)?;
        }
        self.with(|state| state.bind(self.number, address, true))
    }

    /// Sets an option.
    ///
    /// # Errors
    /// [`Error::Invalid`] for invalid values or states.
    pub fn set_option(&self, option: IdOption) -> Result<(), Error> {
        self.with(|state| {
            let entry = state.entry_mut(self.number)?;
            let early = matches!(entry.state, IdState::Idle | IdState::Bound);
            match option {
                IdOption::TypeOfService(tos) => entry.tos = tos,
                IdOption::ReuseAddress(reuse) if entry.state != IdState::Listen || !reuse => {
                    entry.reuse = reuse
                }
                IdOption::OneFamily(one_family) if early => entry.one_family = one_family,
                IdOption::AckTimeout(timeout) if entry.has_ack_timeout() => entry.ack_timeout = Some(timeout),
                IdOption::Path(paths) => return state.set_path(self.number, &paths),
                _ => return Err(Error::Invalid),
            }
            Ok(())
        })
    }

    /// Listens for connections, or for SIDR requests for its datagram service. An unbound identifier takes any free
    /// port. A backlog of 0 or less, or above 1024, is 1024.
    ///
    /// # Errors
    /// [`Error::Invalid`] in other states, [`Error::AddressInUse`], [`Error::NoDevice`].
    pub fn listen(&self, backlog: i32) -> Result<(), Error> {
        self.manager.open_devices(self.process)?;
        let listening = self.with(|state| state.listen(self.number, backlog));
        self.manager.wake();
        listening
    }

    /// Finds the device and the peer of an address; [`EventKind::AddressResolved`] or [`EventKind::AddressError`]
    /// reports the result. Binds an unbound identifier to `source`, or to any address.
    ///
    /// # Errors
    /// [`Error::Invalid`] in other states, those of [`Id::bind`].
    pub fn resolve_addr(
        &self,
        source: Option<&Address>,
        destination: &Address,
        timeout: Duration,
    ) -> Result<(), Error> {
        // The time for which the kernel would ask for neighbours. Nothing here takes longer than a second.
        let _ = timeout;
        self.manager.open_devices(self.process)?;
        let resolving = self.with(|state| state.resolve_addr(self.number, source, destination));
        self.manager.wake();
        resolving
    }

    /// Finds the route to the peer; [`EventKind::RouteResolved`] follows.
    ///
    /// # Errors
    /// [`Error::Invalid`] in other states, or with a time of zero.
    pub fn resolve_route(&self, timeout: Duration) -> Result<(), Error> {
        if timeout.is_zero() {
            return Err(Error::Invalid);
        }
        self.with(|state| state.resolve_route(self.number))
    }

    /// Asks the peer for a connection, or for the QP of its datagram service. The answer is
    /// [`EventKind::ConnectResponse`] ([`EventKind::Established`] for a datagram service), [`EventKind::Rejected`] or
    /// [`EventKind::Unreachable`].
    ///
    /// # Errors
    /// [`Error::Invalid`] in other states, or if the private data is too long.
    pub fn connect(&self, params: &ConnParams) -> Result<(), Error> {
        let connecting = self.with(|state| state.connect(self.number, params));
        self.manager.wake();
        connecting
    }

    /// Accepts a connection, or answers with the QP of the datagram service. Events carry `context` from now on; there
    /// are none before. On an error the request is also rejected, as by the kernel.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the request is no longer pending, or the private data is too long.
    pub fn accept(&self, context: u64, params: &ConnParams) -> Result<(), Error> {
        self.with(|state| state.accept(self.number, context, params))
    }

    /// The active side's QP is set up: confirms the connection. (In the command ABI, an accept without parameters.)
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is nothing to confirm.
    pub fn establish(&self) -> Result<(), Error> {
        self.with(|state| state.establish(self.number))
    }

    /// Rejects a connection. The reason is 28, for which 0 stands too, or 35.
    ///
    /// # Errors
    /// [`Error::Invalid`] for other reasons, in other states, or if the private data is too long.
    pub fn reject(&self, reason: u8, private: &[u8]) -> Result<(), Error> {
        self.with(|state| state.reject(self.number, reason, private))
    }

    /// Disconnects, or agrees to the peer's disconnecting. Does nothing if there is nothing to end.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it was never connected.
    pub fn disconnect(&self) -> Result<(), Error> {
        self.with(|state| state.disconnect(self.number))
    }

    /// A packet has arrived at its QP before the peer confirmed the connection: establishes it.
    ///
    /// # Errors
    /// [`Error::IsConnected`] if it is established already, [`Error::Invalid`] in other states.
    pub fn notify_established(&self) -> Result<(), Error> {
        self.with(|state| state.notify_established(self.number))
    }

    /// The attributes to set on its QP for the transition to `state`, and which of them count. While nothing is known
    /// yet, and for datagram services, they are those that [`QpState::Init`] needs.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the peer has not yet sent what that state needs, or there is no device.
    pub fn qp_attributes(&self, state: QpState) -> Result<(QpAttributes, AttrMask), Error> {
        self.with(|all| all.qp_attributes(self.number, state))
    }

    /// What is known about it.
    ///
    /// # Errors
    /// [`Error::UnknownId`].
    pub fn query(&self) -> Result<Query, Error> {
        self.with(|state| state.query(self.number))
    }

    /// Joins a group, only to send to it if `send_only`. [`EventKind::MulticastJoin`] follows, with `context`. The
    /// application attaches the QP. Returns the group's number, for [`EventChannel::leave_multicast`].
    ///
    /// # Errors
    /// [`Error::Invalid`] if the identifier is not for datagrams, not bound to a device, or the address is not a group.
    pub fn join_multicast(&self, context: u64, group: &Address, send_only: bool) -> Result<u32, Error> {
        // Receiving starts when a QP is attached.
        let _ = send_only;
        self.with(|state| state.join_multicast(self.number, context, group))
    }

    /// Moves it, with its unreported events, to another channel. Returns how many of its events were reported.
    ///
    /// # Errors
    /// [`Error::UnknownId`], [`Error::Gone`].
    pub fn migrate(&self, to: &EventChannel) -> Result<u32, Error> {
        self.with(|state| state.migrate(self.number, to.key()))
    }

    /// Queues one of the application's own events: [`EventKind::User`] or [`EventKind::Internal`].
    ///
    /// # Errors
    /// [`Error::Invalid`] for other kinds.
    pub fn write_event(&self, kind: EventKind, status: i32, argument: u64) -> Result<(), Error> {
        if !matches!(kind, EventKind::User | EventKind::Internal) {
            return Err(Error::Invalid);
        }
        self.with(|state| {
            state.tell(self.number, kind, EventStatus::Own(status), EventData::Own(argument));
            Ok(())
        })
    }
}

impl PartialEq for Id {
    fn eq(&self, other: &Id) -> bool {
        Arc::ptr_eq(&self.manager, &other.manager) && self.generation == other.generation
    }
}

impl std::fmt::Debug for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Id({})", self.number)
    }
}
