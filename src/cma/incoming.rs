//! Turns what happens to connections into events of identifiers.

use std::net::IpAddr;
use std::sync::Arc;

use crossbeam_channel::Sender;
use softrnic_cm::{CommId, Ece, Event, ListenerId, Path, Request, Route};
use softrnic_wire::{PrivateHeader, Qpn, RejReason, ServiceId};

use super::address::{Address, IbAddress};
use super::error::Error;
use super::event::{EventData, EventKind, EventStatus};
use super::id::IdState;
use super::manager::Inner;
use super::params::{ConnParams, PathRecord, UdParams};
use super::queue::Queued;
use super::resolve::HOPS;
use super::serving::Serving;
use super::state::{Entry, State};
use softrnic_nic::device::{CmIdSnapshot, ConnectionSink};
use softrnic_nic::verbs::AddressVector;

/// What has happened to a device, and its index.
pub(super) type Incoming = (usize, Happened);

/// What has happened to a device.
pub(super) enum Happened {
    Connection(Event),
    /// It has lost its interface for good.
    Removed,
    /// Its interface has another hardware address.
    Readdressed,
}

/// Passes on what happens to a device.
pub(super) struct Sink {
    pub device_index: usize,
    pub incoming: Sender<Incoming>,
    pub serving: Arc<Serving>,
    pub manager: &'static Inner,
}

impl Sink {
    fn put_happened(&self, happened: Happened) {
        // Without its receiver the manager has ended, and wants no more.
        let _sent = self.incoming.send((self.device_index, happened));
    }
}

impl ConnectionSink for Sink {
    fn put(&self, event: Event) {
        self.put_happened(Happened::Connection(event));
    }

    fn removed(&self) {
        self.put_happened(Happened::Removed);
    }

    fn readdressed(&self) {
        self.put_happened(Happened::Readdressed);
    }

    fn wake(&self) {
        self.serving.wake();
    }

    fn identifiers(&self) -> Vec<CmIdSnapshot> {
        self.manager.lock().identifiers(self.device_index)
    }
}

impl State {
    pub fn on_happened(&mut self, device_index: usize, happened: Happened) {
        match happened {
            Happened::Connection(event) => self.on_event(device_index, event),
            Happened::Removed => self.on_removal(device_index),
            Happened::Readdressed => self.on_readdressing(device_index),
        }
    }

    fn ids_on(&self, device_index: usize) -> Vec<u32> {
        let on_it = |entry: &Entry| entry.device == Some(device_index);
        self.ids.iter().filter(|(_, entry)| on_it(entry)).map(|(id, _)| id).collect()
    }

    /// Kernel: `cma_netdev_change`. They go on as they are.
    fn on_readdressing(&mut self, device_index: usize) {
        for number in self.ids_on(device_index) {
            self.tell(number, EventKind::AddressChange, EventStatus::Done, EventData::None);
        }
    }

    /// Kernel: `cma_process_remove`. Its identifiers can only be destroyed.
    fn on_removal(&mut self, device_index: usize) {
        for number in self.ids_on(device_index) {
            self.lookups.forget(number);
            if let Ok(entry) = self.entry_mut(number)
                && entry.state != IdState::Listen
            {
                entry.state = IdState::Disconnect;
            }
            self.tell(number, EventKind::DeviceRemoval, EventStatus::Done, EventData::None);
        }
    }

    fn on_event(&mut self, device_index: usize, event: Event) {
        match event {
            Event::Request(request) => {
                let (comm, ours) = (request.id, self.on_request(device_index, request));
                if ours.is_err() {
                    let refuse = RejReason::CONSUMER_DEFINED;
                    let _gone = self.with_cm(device_index, |management, _| {
                        management.cm().reject(comm, refuse, &[], &[])
                    });
                }
            }
            Event::SidrRequest { id, listener, route, private } => {
                if self.on_question(device_index, id, listener, route, private).is_err() {
                    // Destroying it without an answer rejects it.
                    let _gone =
                        self.with_cm(device_index, |management, now| management.cm().destroy(now, id));
                }
            }
            Event::Reply(reply) => {
                let Some(number) = self.of(device_index, reply.id) else { return };
                let Ok(entry) = self.entry_mut(number) else { return };
                entry.heard = Some((reply.responder_resources, reply.initiator_depth));
                let params = ConnParams {
                    qpn: reply.qpn,
                    private: reply.private,
                    srq: reply.srq,
                    responder_resources: reply.responder_resources,
                    initiator_depth: reply.initiator_depth,
                    flow_control: reply.flow_control,
                    rnr_retry: reply.rnr_retry,
                    ece: reply.ece,
                    ..ConnParams::default()
                };
                let (kind, done) = (EventKind::ConnectResponse, EventStatus::Done);
                self.tell_with(number, kind, done, EventData::Conn(params), reply.ece);
            }
            Event::Established(comm, _) => {
                self.tell_of(device_index, comm, EventKind::Established, EventStatus::Done, EventData::None);
            }
            Event::Rejected { id, reason, private, .. } => {
                let data = EventData::Conn(ConnParams { private, ..ConnParams::default() });
                self.tell_of(device_index, id, EventKind::Rejected, EventStatus::Refused(reason.0), data);
                self.lose(device_index, id);
            }
            Event::Unreachable(comm) => {
                let late = EventStatus::Failed(Error::TimedOut);
                self.tell_of(device_index, comm, EventKind::Unreachable, late, EventData::None);
                self.lose(device_index, comm);
            }
            Event::Disconnected { id, timed_out, .. } => {
                let status = if timed_out { EventStatus::Failed(Error::TimedOut) } else { EventStatus::Done };
                if let Some(entry) = self.of(device_index, id).and_then(|number| self.ids.get_mut(number)) {
                    entry.state = IdState::Disconnect;
                }
                self.tell_of(device_index, id, EventKind::Disconnected, status, EventData::None);
            }
            Event::TimewaitExit(comm) => {
                self.tell_of(device_index, comm, EventKind::TimewaitExit, EventStatus::Done, EventData::None);
                self.lose(device_index, comm);
            }
            Event::SidrReply(answer) => {
                let Some(number) = self.of(device_index, answer.id) else { return };
                self.lose(device_index, answer.id);
                let (kind, status) = match answer.status {
                    0 => (EventKind::Established, EventStatus::Done),
                    status => (EventKind::Unreachable, EventStatus::Refused(status.into())),
                };
                let address = self.way_to(number).ok();
                let params =
                    UdParams { qpn: answer.qpn, qkey: answer.qkey, address, private: answer.private };
                self.tell_with(number, kind, status, EventData::Ud(params), answer.ece);
            }
        }
    }

    /// The identifier of a connection.
    fn of(&self, device_index: usize, comm: CommId) -> Option<u32> {
        self.connections.get(&(device_index, comm)).copied()
    }

    fn tell_of(
        &mut self,
        device_index: usize,
        comm: CommId,
        kind: EventKind,
        status: EventStatus,
        data: EventData,
    ) {
        if let Some(number) = self.of(device_index, comm) {
            self.tell(number, kind, status, data);
        }
    }

    fn lose(&mut self, device_index: usize, comm: CommId) {
        if let Some(number) = self.of(device_index, comm) {
            self.forget_connection(number);
        }
    }

    fn on_request(&mut self, device_index: usize, request: Request) -> Result<(), Error> {
        let Request { id: comm, listener, service, path, .. } = request;
        let (to, header) = self.addressee(device_index, listener, &request.private)?;
        let params = ConnParams {
            qpn: request.qpn,
            private: request.private[header..].to_vec(),
            srq: request.srq,
            responder_resources: request.responder_resources,
            initiator_depth: request.initiator_depth,
            flow_control: request.flow_control,
            retry_count: request.retry_count,
            rnr_retry: request.rnr_retry,
            ece: request.ece,
            ..ConnParams::default()
        };
        let new = self.new_request(to, device_index, comm, &request.private, service, path)?;
        let entry = self.entry_mut(new)?;
        entry.heard = Some((request.responder_resources, request.initiator_depth));
        self.announce(to, new, EventData::Conn(params), request.ece)
    }

    fn on_question(
        &mut self,
        device_index: usize,
        comm: CommId,
        listener: ListenerId,
        route: Route,
        private: Vec<u8>,
    ) -> Result<(), Error> {
        let (to, header) = self.addressee(device_index, listener, &private)?;
        let listening = self.entry(to)?;
        let service = listening.local.map(|local| listening.service(&local)).ok_or(Error::Invalid)?;
        let mtu = self.mtu(device_index)?;
        let path = Path { route, flow_label: 0, traffic_class: 0, hop_limit: HOPS, mtu };
        let new = self.new_request(to, device_index, comm, &private, service, path)?;
        let params = UdParams {
            qpn: Qpn::new(0),
            qkey: Default::default(),
            address: None,
            private: private[header..].to_vec(),
        };
        self.announce(to, new, EventData::Ud(params), Ece::default())
    }

    /// The identifier that a request is for, and how much of its private data is not the application's.
    fn addressee(
        &self,
        device_index: usize,
        listener: ListenerId,
        private: &[u8],
    ) -> Result<(u32, usize), Error> {
        let header = PrivateHeader::read(private);
        let destination = header.map(|header| header.addresses.dst());
        let with_header = destination.and_then(|ip| self.listener_of(device_index, listener, Some(ip)));
        match with_header {
            Some(number) if self.entry(number)?.has_header() => Ok((number, PrivateHeader::LEN)),
            _ => {
                let native = self.listener_of(device_index, listener, None).ok_or(Error::UnknownId)?;
                Ok((native, 0))
            }
        }
    }

    /// Creates the identifier of a request, which the application does not know yet.
    fn new_request(
        &mut self,
        listener: u32,
        device_index: usize,
        comm: CommId,
        private: &[u8],
        service: ServiceId,
        path: Path,
    ) -> Result<u32, Error> {
        let listening = self.entry(listener)?;
        let (channel, kind, tos, one_family) =
            (listening.channel, listening.kind, listening.tos, listening.one_family);
        let has_header = listening.has_header();
        let header = PrivateHeader::read(private).filter(|_| has_header);
        let (number, _) = self.add_id(channel, kind, 0)?;
        let entry = self.entry_mut(number)?;
        let port = service.0 as u16;
        let at = |ip: IpAddr, port: u16| Address::Ip((ip, port).into());
        let native =
            |ip: IpAddr, service| Address::Ib(IbAddress { gid: ip.into(), service, ..IbAddress::default() });
        let (local, peer) = match header {
            Some(header) => (at(header.addresses.dst(), port), at(header.addresses.src(), header.src_port)),
            None => (native(path.route.local, service.0), native(path.route.remote, 0)),
        };
        entry.known = false;
        entry.state = IdState::Connect;
        entry.local = Some(local);
        entry.peer = Some(peer);
        entry.device = Some(device_index);
        entry.route = Some(path.route);
        entry.tos = tos;
        entry.one_family = one_family;
        entry.request_of = Some(listener);
        entry.path = Some(PathRecord {
            dgid: path.remote_gid(),
            sgid: path.local_gid(),
            flow_label: path.flow_label,
            hop_limit: HOPS,
            traffic_class: if tos == 0 { path.traffic_class } else { tos },
            pkey: 0xFFFF,
            sl: 0,
            mtu: path.mtu,
            packet_life: 16,
        });
        self.name_connection(number, device_index, comm)?;
        Ok(number)
    }

    fn announce(&mut self, listener: u32, request: u32, data: EventData, ece: Ece) -> Result<(), Error> {
        let listening = self.entry(listener)?;
        let (channel, context) = (listening.channel, listening.context);
        let event = Queued {
            owner: listener,
            group: None,
            request: Some(request),
            kind: EventKind::ConnectRequest,
            status: EventStatus::Done,
            context,
            data,
            ece,
        };
        self.push(channel, event);
        Ok(())
    }

    /// The path to an identifier's peer, for datagrams.
    pub fn way_to(&self, number: u32) -> Result<AddressVector, Error> {
        let entry = self.entry(number)?;
        let (device_index, route) = entry.device.zip(entry.route).ok_or(Error::Invalid)?;
        let (flow_label, traffic_class) =
            entry.path.map_or((0, entry.tos), |path| (path.flow_label, path.traffic_class));
        Ok(AddressVector {
            dgid: route.remote.into(),
            sgid_index: self.gid_index(device_index, route.local)?,
            flow_label,
            traffic_class,
            hop_limit: HOPS,
        })
    }
}
