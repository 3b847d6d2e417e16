//! The passive side of a connection: REQ, REP, RTU.

use softrnic_wire::{
    Bits, CmBody, CmIds, CmInfo, CmMessage, Mad, Mra, Mtu, PrivateHeader, Rej, RejReason, Rep, Req, Served,
    Time,
};

use crate::cm::{Cm, mad};
use crate::config::{MRA_TIMEOUT, exponent};
use crate::connection::{Connection, Side, State};
use crate::directory::{CommId, ListenerId, Peer};
use crate::error::CmError;
use crate::event::{Event, Request};
use crate::params::{AcceptParams, CmTransport, Ece, Listen, Path, Route};

impl Cm {
    /// Accepts requests for a service from now on.
    ///
    /// # Errors
    /// The service has a listener already.
    pub fn listen(&mut self, listen: Listen) -> Result<ListenerId, CmError> {
        self.directory.listen(listen).ok_or(CmError::ServiceTaken)
    }

    /// Stops listening. Requests not yet answered are refused.
    ///
    /// # Errors
    /// No such listener.
    pub fn unlisten(&mut self, now: Time, listener: ListenerId) -> Result<(), CmError> {
        for id in self.directory.unanswered(listener) {
            self.destroy(now, id);
        }
        if self.directory.remove_listener(listener) { Ok(()) } else { Err(CmError::UnknownId) }
    }

    /// Sets how many requests for a listener may wait for the application to see them.
    ///
    /// # Errors
    /// No such listener.
    pub fn set_backlog(&mut self, listener: ListenerId, backlog: usize) -> Result<(), CmError> {
        let listener = self.directory.listener_by_id(listener).ok_or(CmError::UnknownId)?;
        listener.listen.backlog = backlog;
        Ok(())
    }

    /// The application has seen a request. The request no longer counts against the backlog, and outlives the listener.
    pub fn note_seen(&mut self, id: CommId) {
        self.note_answered(id);
    }

    /// Accepts a connection. Its QP must already be able to receive and send, since the peer may send at once.
    ///
    /// # Errors
    /// The request is no longer pending, or the private data is too long.
    pub fn accept(&mut self, now: Time, id: CommId, params: &AcceptParams) -> Result<(), CmError> {
        let ca_guid = self.config.ca_guid;
        let ack_delay = self.config.ack_delay;
        let connection = self.directory.get_mut(id).ok_or(CmError::UnknownId)?;
        if connection.state != State::ReqRcvd {
            return Err(CmError::WrongState);
        }
        let is_xrc = connection.transport == Some(CmTransport::Xrc);
        let rep = Rep {
            ids: connection.ids(),
            qpn: if is_xrc { Default::default() } else { params.qpn },
            // The number of an XRC target is in the field of an end-to-end context (kernel: cm_format_rep).
            eecn: Bits::new(if is_xrc { params.qpn.get() } else { 0 }),
            vendor_id: Bits::new(params.ece.vendor_id),
            starting_psn: params.starting_psn,
            responder_resources: params.responder_resources,
            initiator_depth: if is_xrc { 0 } else { params.initiator_depth },
            target_ack_delay: Bits::new(ack_delay.into()),
            flow_control: params.flow_control,
            rnr_retry_count: Bits::new(params.rnr_retry.min(7).into()),
            srq: params.srq || is_xrc,
            ca_guid,
            ..Rep::default()
        };
        let message = CmMessage::new(CmBody::Rep(rep), &params.private).ok_or(CmError::TooLong)?;
        let bytes = mad(connection.transaction, params.ece.options, &message);
        connection.state = State::RepSent;
        connection.local = Side {
            qpn: params.qpn,
            starting_psn: params.starting_psn,
            responder_resources: params.responder_resources,
            initiator_depth: params.initiator_depth,
            rnr_retry: params.rnr_retry,
        };
        let interval = exponent(connection.peer_response);
        self.note_answered(id);
        self.send_until_answered(now, id, bytes, interval);
        Ok(())
    }

    /// Rejects a connection: before it is accepted or, on the active side, after.
    ///
    /// # Errors
    /// There is nothing to reject, or the private data or additional information is too long.
    pub fn reject(
        &mut self,
        id: CommId,
        reason: RejReason,
        info: &[u8],
        private: &[u8],
    ) -> Result<(), CmError> {
        let connection = self.directory.get(id).ok_or(CmError::UnknownId)?;
        let answers = match connection.state {
            State::ReqRcvd => Served::REQ,
            State::RepRcvd => Served::REP,
            _ => return Err(CmError::WrongState),
        };
        let info = CmInfo::new(info).ok_or(CmError::TooLong)?;
        let rej = Rej { ids: connection.ids(), answers, reason, info };
        let message = CmMessage::new(CmBody::Rej(rej), private).ok_or(CmError::TooLong)?;
        let (route, transaction) = (connection.route, connection.transaction);
        self.send(route, transaction, &message);
        self.note_answered(id);
        self.directory.remove(id);
        Ok(())
    }

    /// The first packet has arrived at the QP of a connection that the peer has not confirmed. The peer uses the
    /// connection, so its confirmation was lost (IBTA 12.9.7.2).
    pub fn notify_established(&mut self, id: CommId) {
        if self.state(id) == Some(State::RepSent) {
            self.established(id, &[]);
        }
    }

    pub(crate) fn on_req(&mut self, now: Time, route: Route, mad: &Mad<'_>, req: &Req, private: &[u8]) {
        let peer = Peer { source: route.remote, guid: req.ca_guid };
        if let Some(known) = self.directory.find_by_remote_id(peer, req.local_id) {
            let asked =
                (known.state == State::ReqRcvd).then(|| (known.ids(), known.route, known.transaction));
            self.note_duplicate();
            // A lost REP is repeated by its own timer.
            if let Some((ids, route, transaction)) = asked {
                let service_timeout = Bits::new(MRA_TIMEOUT.into());
                self.send_empty(
                    route,
                    transaction,
                    CmBody::Mra(Mra { ids, answers: Served::REQ, service_timeout }),
                );
            }
            return;
        }
        match self.judge(req, private) {
            Ok(None) => self.counters.drop_backlog += 1,
            // Only now, unlike in Linux. Else whoever sends from the peer's address tries all QPNs, unnoticed by any
            // listener, and without its backlog as a bound (IBTA 12.9.8.3).
            Ok(Some(offer)) => match self.directory.find_by_remote_qp(peer, req.qpn).map(|c| c.id) {
                Some(stale) => {
                    self.refuse(route, mad, req, RejReason::STALE_CONNECTION, &[]);
                    self.end_stale(now, stale);
                }
                None => self.offer(offer, route, mad, req, private),
            },
            Err(reason) => {
                let gid = self.first_gid().0;
                let info: &[u8] = if reason == RejReason::INVALID_GID { &gid } else { &[] };
                self.refuse(route, mad, req, reason, info);
            }
        }
    }

    /// Whether a request can be passed to an application, checked in the same order as in Linux; `None` if too many
    /// wait already.
    fn judge(&mut self, req: &Req, private: &[u8]) -> Result<Option<Offer>, RejReason> {
        let has_gid = self.has_gid(req.primary.remote_gid);
        let is_full = self.directory.pending >= self.config.max_pending;
        let Some(listener) = self.directory.listener(req.service) else {
            return Err(RejReason::INVALID_SERVICE_ID);
        };
        if !has_gid {
            return Err(RejReason::INVALID_GID);
        }
        if req.alternate.local_lid != 0 {
            return Err(RejReason::INVALID_ALTERNATE_GID);
        }
        let is_of_rdma_cm = req.service.port().is_some();
        let header = PrivateHeader::read(private);
        // With another IP version it is the application's own data: native addresses have no header.
        if is_of_rdma_cm && header.is_some_and(|header| header.version != 0) {
            return Err(RejReason::CONSUMER_DEFINED);
        }
        let transport = match (req.transport.get(), req.extended_transport.get()) {
            (0, _) => CmTransport::Rc,
            (1, _) => CmTransport::Uc,
            (3, 1) => CmTransport::Xrc,
            _ => return Err(RejReason::CONSUMER_DEFINED),
        };
        let Some(mtu) = req.mtu() else { return Err(RejReason::CONSUMER_DEFINED) };
        if listener.listen.transport != Some(transport) {
            return Err(RejReason::CONSUMER_DEFINED);
        }
        if is_full || listener.pending >= listener.listen.backlog {
            return Ok(None);
        }
        Ok(Some(Offer { listener: listener.id, transport, mtu }))
    }

    /// Passes a request to the application.
    fn offer(&mut self, offer: Offer, from: Route, mad: &Mad<'_>, req: &Req, private: &[u8]) {
        let id = self.fresh_id();
        let Offer { listener, transport, mtu } = offer;
        // All further messages go to the address that the peer names, as in Linux.
        let (local, remote) = (req.primary.remote_gid.to_ip(), req.primary.local_gid.to_ip());
        let route = Route { local, remote };
        let path = Path {
            route,
            flow_label: req.primary.flow_label.get(),
            traffic_class: req.primary.traffic_class,
            hop_limit: req.primary.hop_limit,
            mtu,
        };
        let remote = Side {
            qpn: req.qpn,
            starting_psn: req.starting_psn,
            responder_resources: req.responder_resources,
            initiator_depth: req.initiator_depth,
            rnr_retry: req.rnr_retry_count.get() as u8,
        };
        self.directory.insert(Connection {
            id,
            state: State::ReqRcvd,
            listener: Some(listener),
            transport: Some(transport),
            route,
            service: req.service,
            path: Some(path),
            transaction: mad.transaction_id,
            remote_id: req.local_id,
            remote_guid: req.ca_guid,
            source: from.remote,
            local: Side::default(),
            remote,
            retry_count: req.retry_count.get() as u8,
            packet_life: self.config.packet_life,
            timeout: req.primary.ack_timeout.get() as u8,
            peer_response: req.local_cm_timeout.get() as u8,
            repeat: None,
            answer: None,
            orphaned: false,
            timer: Time::NEVER,
        });
        self.directory.note_remote_id(id);
        self.directory.note_remote_qp(id);
        self.directory.note_pending(req.service);
        self.emit_event(Event::Request(Request {
            id,
            listener,
            service: req.service,
            path,
            transport,
            qpn: req.qpn,
            responder_resources: req.initiator_depth,
            initiator_depth: req.responder_resources,
            retry_count: req.retry_count.get() as u8,
            rnr_retry: req.rnr_retry_count.get() as u8,
            flow_control: req.flow_control,
            srq: req.srq,
            private: private.into(),
            ece: Ece { vendor_id: req.vendor_id.get(), options: mad.attribute_modifier },
        }));
    }

    pub(crate) fn on_rtu(&mut self, route: Route, ids: CmIds, private: &[u8]) {
        let found = self.directory.find_from(route.remote, ids.remote);
        match found.filter(|c| c.remote_id == ids.local).map(|c| (c.id, c.state)) {
            Some((id, State::RepSent)) => self.established(id, private),
            Some((_, State::Established)) => self.note_duplicate(),
            _ => self.note_unexpected(),
        }
    }

    pub(crate) fn on_rej(&mut self, now: Time, route: Route, rej: &Rej<'_>, private: &[u8]) {
        let Some(id) = self.rejected_connection(route, rej) else { return self.note_unexpected() };
        let Some(connection) = self.directory.get_mut(id) else { return };
        let orphaned = connection.orphaned;
        match connection.state {
            State::ReqSent if rej.reason == RejReason::STALE_CONNECTION => self.enter_timewait(now, id),
            State::ReqSent | State::RepSent | State::RepRcvd | State::ReqRcvd => {
                self.note_answered(id);
                self.directory.remove(id);
            }
            State::Established | State::DreqSent | State::DreqRcvd => self.enter_timewait(now, id),
            State::Timewait | State::SidrReqSent | State::SidrReqRcvd => return self.note_unexpected(),
        }
        if !orphaned {
            let (info, private) = (rej.info.bytes().into(), private.into());
            self.emit_event(Event::Rejected { id, reason: rej.reason, info, private });
        }
    }

    /// The connection that a REJ is about. A peer that gave up on its REQ does not know our id; one that refuses ours
    /// at once has none of its own.
    fn rejected_connection(&self, route: Route, rej: &Rej<'_>) -> Option<CommId> {
        if rej.reason == RejReason::TIMEOUT {
            let guid = u64::from_be_bytes(*rej.info.bytes().first_chunk()?);
            let peer = Peer { source: route.remote, guid };
            return self.directory.find_by_remote_id(peer, rej.ids.local).map(|c| c.id);
        }
        let connection = self.directory.find_from(route.remote, rej.ids.remote)?;
        let fits = match connection.state {
            State::ReqSent => rej.answers == Served::REQ || rej.ids.local == 0,
            _ => connection.remote_id == rej.ids.local,
        };
        fits.then_some(connection.id)
    }

    fn established(&mut self, id: CommId, private: &[u8]) {
        self.stop_repeating(id);
        if let Some(connection) = self.directory.get_mut(id) {
            connection.state = State::Established;
        }
        if !self.is_orphaned(id) {
            self.emit_event(Event::Established(id, private.into()));
        }
    }

    /// Refuses a request without keeping any state for it.
    fn refuse(&mut self, route: Route, mad: &Mad<'_>, req: &Req, reason: RejReason, info: &[u8]) {
        self.counters.refused += 1;
        let ids = CmIds { local: 0, remote: req.local_id };
        let info = CmInfo::new(info).unwrap_or_default();
        let rej = Rej { ids, answers: Served::REQ, reason, info };
        self.send_empty(route, mad.transaction_id, CmBody::Rej(rej));
    }

    /// A request is no longer pending.
    pub(crate) fn note_answered(&mut self, id: CommId) {
        let Some(connection) = self.directory.get_mut(id) else { return };
        if let Some(listener) = connection.listener.take() {
            self.directory.note_answered(listener);
        }
    }
}

/// What an acceptable request is for.
struct Offer {
    listener: ListenerId,
    transport: CmTransport,
    mtu: Mtu,
}
