//! Connects and disconnects resolved identifiers.

use softrnic_cm::{AcceptParams, CmError, CommId, ConnectParams, Path, SidrParams, SidrReply};
use softrnic_wire::{AddressPair, PrivateHeader, Qkey, RejReason};

use super::address::Address;
use super::error::Error;
use super::event::{EventData, EventKind, EventStatus};
use super::id::IdState;
use super::lookup::{Found, Purpose};
use super::params::{ConnParams, PathRecord};
use super::state::{Entry, State, UDP_QKEY};

/// Private data of a REQ and of a SIDR_REQ.
const REQ_PRIVATE: usize = 92;
const SIDR_PRIVATE: usize = 216;

/// Statuses of a SIDR_REP (IBTA 12.11.2.1).
const SIDR_UNSUPPORTED: u16 = 1;
const SIDR_REJECTED: u8 = 2;

/// Reasons for which an application may reject.
const CONSUMER: u8 = 28;
const VENDOR_OPTION: u8 = 35;

impl State {
    pub fn connect(&mut self, number: u32, params: &ConnParams) -> Result<(), Error> {
        let entry = self.entry_mut(number)?;
        if entry.state != IdState::RouteResolved {
            return Err(Error::Invalid);
        }
        let room = if entry.is_datagram() { SIDR_PRIVATE } else { REQ_PRIVATE };
        let header = if entry.has_header() { PrivateHeader::LEN } else { 0 };
        if params.private.len() > room - header {
            return Err(Error::Invalid);
        }
        entry.said = params.clone();
        if entry.on_machine {
            // By now, another one may listen.
            entry.state = IdState::Connect;
            self.look_up(number, Purpose::Connect);
            return Ok(());
        }
        self.ask(number)?;
        self.entry_mut(number)?.state = IdState::Connect;
        Ok(())
    }

    /// The listener was found, or not.
    pub fn on_listener(&mut self, number: u32, found: Found) {
        let nobody = |entry: &Entry| match entry.is_datagram() {
            true => (EventKind::Unreachable, EventStatus::Refused(SIDR_UNSUPPORTED)),
            false => (EventKind::Rejected, EventStatus::Refused(RejReason::INVALID_SERVICE_ID.0)),
        };
        let result = match found {
            Found::Device(_) => self.ask(number),
            Found::Nobody => {
                let Ok((kind, status)) = self.entry(number).map(nobody) else { return };
                return self.tell(number, kind, status, EventData::None);
            }
            Found::Silent => Err(Error::TimedOut),
        };
        if let Err(error) = result {
            self.tell(number, EventKind::Unreachable, EventStatus::Failed(error), EventData::None);
        }
    }

    /// Sends the REQ or SIDR_REQ.
    fn ask(&mut self, number: u32) -> Result<(), Error> {
        let entry = self.entry(number)?;
        let (device_index, route) = entry.device.zip(entry.route).ok_or(Error::Invalid)?;
        if route.local.is_ipv4() != route.remote.is_ipv4() {
            return Err(Error::NetworkUnreachable);
        }
        let peer = entry.peer.ok_or(Error::Invalid)?;
        let service = entry.service(&peer);
        let private = private_data(entry)?;
        let comm = match entry.transport() {
            None => {
                let params = SidrParams { service, route, private };
                self.with_cm(device_index, |management, now| management.cm().ask(now, &params))?
            }
            Some(transport) => {
                let path = entry.path.ok_or(Error::Invalid)?;
                let said = &entry.said;
                let params = ConnectParams {
                    service,
                    path: Path {
                        route,
                        flow_label: path.flow_label,
                        traffic_class: path.traffic_class,
                        hop_limit: path.hop_limit,
                        mtu: path.mtu,
                    },
                    transport,
                    qpn: said.qpn,
                    starting_psn: entry.psn,
                    responder_resources: said.responder_resources,
                    initiator_depth: said.initiator_depth,
                    retry_count: said.retry_count.min(7),
                    rnr_retry: said.rnr_retry.min(7),
                    packet_life: Some(path.packet_life),
                    flow_control: said.flow_control,
                    srq: said.srq,
                    private,
                    ece: said.ece,
                };
                self.with_cm(device_index, |management, now| management.cm().connect(now, &params))?
            }
        };
        self.name_connection(number, device_index, comm.map_err(refused)?)
    }

    /// Assigns a connection to an identifier.
    pub fn name_connection(&mut self, number: u32, device_index: usize, comm: CommId) -> Result<(), Error> {
        let entry = self.entry_mut(number)?;
        entry.comm = Some(comm);
        entry.connected = true;
        self.connections.insert((device_index, comm), number);
        Ok(())
    }

    /// A connection no longer exists.
    pub fn forget_connection(&mut self, number: u32) {
        let Ok(entry) = self.entry_mut(number) else { return };
        if let (Some(device_index), Some(comm)) = (entry.device, entry.comm.take()) {
            self.connections.remove(&(device_index, comm));
        }
    }

    /// The device and the connection of an identifier.
    pub fn connection(&self, number: u32) -> Result<(usize, CommId), Error> {
        let entry = self.entry(number)?;
        entry.device.zip(entry.comm).ok_or(Error::Invalid)
    }

    pub fn accept(&mut self, number: u32, context: u64, params: &ConnParams) -> Result<(), Error> {
        let entry = self.entry(number)?;
        if entry.state != IdState::Connect || entry.device.is_none() {
            return Err(Error::Invalid);
        }
        let accepted =
            if entry.is_datagram() { self.answer(number, 0, params) } else { self.agree(number, params) };
        match accepted {
            Ok(()) => {
                let entry = self.entry_mut(number)?;
                entry.context = context;
                entry.known = true;
                entry.said = params.clone();
                // From now on the application's own values count.
                entry.heard = Some((params.responder_resources, params.initiator_depth));
            }
            Err(_) => {
                let _refused = self.reject(number, CONSUMER, &[]);
            }
        }
        accepted
    }

    fn agree(&mut self, number: u32, params: &ConnParams) -> Result<(), Error> {
        let (device_index, comm) = self.connection(number)?;
        let accept = AcceptParams {
            qpn: params.qpn,
            starting_psn: self.entry(number)?.psn,
            responder_resources: params.responder_resources,
            initiator_depth: params.initiator_depth,
            rnr_retry: params.rnr_retry.min(7),
            flow_control: params.flow_control,
            srq: params.srq,
            private: params.private.clone(),
            ece: params.ece,
        };
        self.with_cm(device_index, |management, now| management.cm().accept(now, comm, &accept))?
            .map_err(refused)
    }

    /// Answers a SIDR request, which ends it.
    fn answer(&mut self, number: u32, status: u8, params: &ConnParams) -> Result<(), Error> {
        let (device_index, comm) = self.connection(number)?;
        let qkey = if params.qkey == Qkey(0) { UDP_QKEY } else { params.qkey };
        let (qpn, private, ece) = (params.qpn, params.private.clone(), params.ece);
        let reply = SidrReply { status, qpn, qkey, private, ece };
        self.with_cm(device_index, |management, _| management.cm().sidr_reply(comm, &reply))?
            .map_err(refused)?;
        self.forget_connection(number);
        Ok(())
    }

    pub fn establish(&mut self, number: u32) -> Result<(), Error> {
        let (device_index, comm) = self.connection(number)?;
        self.with_cm(device_index, |management, _| management.cm().establish(comm, &[]))?.map_err(refused)
    }

    pub fn reject(&mut self, number: u32, reason: u8, private: &[u8]) -> Result<(), Error> {
        let reason = if reason == 0 { CONSUMER } else { reason };
        if !matches!(reason, CONSUMER | VENDOR_OPTION) {
            return Err(Error::Invalid);
        }
        let (device_index, comm) = self.connection(number)?;
        if self.entry(number)?.is_datagram() {
            let params = ConnParams { private: private.to_vec(), ..ConnParams::default() };
            return self.answer(number, SIDR_REJECTED, &params);
        }
        let reason = RejReason(reason.into());
        self.with_cm(device_index, |management, _| management.cm().reject(comm, reason, &[], private))?
            .map_err(refused)?;
        self.forget_connection(number);
        Ok(())
    }

    pub fn disconnect(&mut self, number: u32) -> Result<(), Error> {
        let entry = self.entry(number)?;
        if entry.device.is_none() || !entry.connected {
            return Err(Error::Invalid);
        }
        let Ok((device_index, comm)) = self.connection(number) else { return Ok(()) };
        if !self.entry(number)?.is_datagram() {
            // Having nothing to end is not an error.
            let _ended =
                self.with_cm(device_index, |management, now| management.cm().disconnect(now, comm, &[]))?;
        }
        Ok(())
    }

    pub fn notify_established(&mut self, number: u32) -> Result<(), Error> {
        use softrnic_cm::State as At;
        let (device_index, comm) = self.connection(number)?;
        self.with_cm(device_index, |management, _| match management.cm().state(comm) {
            Some(At::RepSent) => {
                management.cm().notify_established(comm);
                Ok(())
            }
            Some(At::Established) => Err(Error::IsConnected),
            _ => Err(Error::Invalid),
        })?
    }

    /// Sets the path to what the application gives.
    pub fn set_path(&mut self, number: u32, paths: &[PathRecord]) -> Result<(), Error> {
        let entry = self.entry(number)?;
        let path = *paths.first().ok_or(Error::Invalid)?;
        if entry.state != IdState::AddressResolved || entry.device.is_none() {
            return Err(Error::Invalid);
        }
        self.take_path(number, path)
    }
}

/// The header with the addresses, if there is one, then the application's own data.
fn private_data(entry: &Entry) -> Result<Vec<u8>, Error> {
    let mut private = Vec::new();
    if let (Some(Address::Ip(local)), Some(Address::Ip(peer))) = (entry.local, entry.peer) {
        let addresses = AddressPair::new(local.ip(), peer.ip()).ok_or(Error::Invalid)?;
        let header = PrivateHeader { version: 0, src_port: local.port(), addresses };
        private.extend_from_slice(&header.to_bytes());
    }
    private.extend_from_slice(&entry.said.private);
    Ok(private)
}

fn refused(error: CmError) -> Error {
    match error {
        CmError::UnknownId | CmError::WrongState | CmError::TooLong => Error::Invalid,
        CmError::ServiceTaken => Error::AddressInUse,
    }
}
