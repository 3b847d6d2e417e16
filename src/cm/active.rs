//! The active side of a connection: REQ, REP, RTU.

use softrnic_wire::{
    Bits, CmBody, CmIds, CmInfo, CmMessage, CmPath, Mad, Mra, Pkey, Qpn, Rej, RejReason, Rep, Req, Served,
    Time,
};

use crate::cm::{Cm, mad};
use crate::config::{Config, MRA_TIMEOUT, exponent};
use crate::connection::{Connection, Side, State};
use crate::directory::{CommId, Peer};
use crate::error::CmError;
use crate::event::{Event, Reply};
use crate::params::{CmTransport, ConnectParams, Ece, Path, QpParams, Route};

/// The partition of every RoCE device.
const DEFAULT_PKEY: Pkey = Pkey(0xFFFF);

impl Cm {
    /// Asks for a connection. The answer is an event: [`Event::Reply`], [`Event::Rejected`] or [`Event::Unreachable`].
    ///
    /// # Errors
    /// The private data is too long.
    pub fn connect(&mut self, now: Time, params: &ConnectParams) -> Result<CommId, CmError> {
        let id = self.fresh_id();
        let req = self.request(id, params);
        let message = CmMessage::new(CmBody::Req(req), &params.private).ok_or(CmError::TooLong)?;
        let transaction = self.fresh_transaction(id);
        let bytes = mad(transaction, params.ece.options, &message);
        let peer_response = self.config.response_timeout;
        let packet_life = params.packet_life.unwrap_or(self.config.packet_life);
        self.directory.insert(Connection {
            id,
            state: State::ReqSent,
            listener: None,
            transport: Some(params.transport),
            route: params.path.route,
            service: params.service,
            path: Some(params.path),
            transaction,
            remote_id: 0,
            remote_guid: 0,
            source: params.path.route.remote,
            local: Side {
                qpn: params.qpn,
                starting_psn: params.starting_psn,
                responder_resources: params.responder_resources,
                initiator_depth: params.initiator_depth,
                rnr_retry: params.rnr_retry,
            },
            remote: Side::default(),
            retry_count: params.retry_count,
            packet_life,
            timeout: Config::ack_timeout(packet_life, self.config.ack_delay),
            peer_response,
            repeat: None,
            answer: None,
            orphaned: false,
            timer: Time::NEVER,
        });
        self.send_until_answered(now, id, bytes, self.config.request_interval(peer_response));
        Ok(id)
    }

    /// Confirms the connection, once the QP can receive and send.
    ///
    /// # Errors
    /// No reply has arrived, or the private data is too long.
    pub fn establish(&mut self, id: CommId, private: &[u8]) -> Result<(), CmError> {
        let connection = self.directory.get_mut(id).ok_or(CmError::UnknownId)?;
        if connection.state != State::RepRcvd {
            return Err(CmError::WrongState);
        }
        let message = CmMessage::new(CmBody::Rtu(connection.ids()), private).ok_or(CmError::TooLong)?;
        let bytes = mad(connection.transaction, 0, &message);
        connection.state = State::Established;
        connection.answer = Some(bytes.clone());
        let route = connection.route;
        self.send_bytes(route, bytes);
        Ok(())
    }

    /// The attributes to set on the connection's QP; `None` until the peer has named its own.
    pub fn qp_params(&self, id: CommId) -> Option<QpParams> {
        let c = self.directory.get(id)?;
        if matches!(c.state, State::ReqSent) {
            return None;
        }
        Some(QpParams {
            path: c.path?,
            dest_qpn: c.remote.qpn,
            rq_psn: c.local.starting_psn,
            sq_psn: c.remote.starting_psn,
            timeout: c.timeout,
            retry_count: c.retry_count,
            rnr_retry: c.remote.rnr_retry,
            initiator_depth: c.local.initiator_depth,
            responder_resources: c.local.responder_resources,
        })
    }

    pub(crate) fn on_rep(&mut self, now: Time, route: Route, mad: &Mad<'_>, rep: &Rep, private: &[u8]) {
        let Some(connection) = self.directory.find_from(route.remote, rep.ids.remote) else {
            // It answers a late copy of a request. Without a REJ, its sender would wait for us for a minute.
            self.note_unexpected();
            let ids = CmIds { local: rep.ids.remote, remote: rep.ids.local };
            let reason = RejReason::INVALID_COMMUNICATION_ID;
            let rej = Rej { ids, answers: Served::REP, reason, ..Rej::default() };
            return self.send_empty(route, mad.transaction_id, CmBody::Rej(rej));
        };
        let is_repeat = connection.remote_id == rep.ids.local;
        match connection.state {
            State::ReqSent => {
                let id = connection.id;
                self.take_reply(now, route, mad, id, rep, private);
            }
            State::RepRcvd if is_repeat => {
                let mra = Mra {
                    ids: connection.ids(),
                    answers: Served::REP,
                    service_timeout: Bits::new(MRA_TIMEOUT.into()),
                };
                let (route, transaction) = (connection.route, connection.transaction);
                self.note_duplicate();
                self.send_empty(route, transaction, CmBody::Mra(mra));
            }
            // The RTU was lost.
            State::Established if is_repeat => {
                let (route, rtu) = (connection.route, connection.answer.clone());
                self.note_duplicate();
                if let Some(bytes) = rtu {
                    self.send_bytes(route, bytes);
                }
            }
            _ => self.note_unexpected(),
        }
    }

    fn take_reply(&mut self, now: Time, route: Route, mad: &Mad<'_>, id: CommId, rep: &Rep, private: &[u8]) {
        let Some(connection) = self.directory.get(id) else { return };
        // With XRC the peer has a target QP, whose number is in the field of an end-to-end context.
        let is_xrc = connection.transport == Some(CmTransport::Xrc);
        let qpn = if is_xrc { Qpn::new(rep.eecn.get()) } else { rep.qpn };
        let peer = Peer { source: route.remote, guid: rep.ca_guid };
        if let Some(stale) = self.directory.find_by_remote_qp(peer, qpn).map(|c| c.id) {
            let rej = Rej {
                ids: connection.ids_for(rep.ids.local),
                answers: Served::REP,
                reason: RejReason::STALE_CONNECTION,
                ..Rej::default()
            };
            self.counters.refused += 1;
            self.send_empty(route, mad.transaction_id, CmBody::Rej(rej));
            return self.end_stale(now, stale);
        }
        self.stop_repeating(id);
        let Some(connection) = self.directory.get_mut(id) else { return };
        let timeout = Config::ack_timeout(connection.packet_life, rep.target_ack_delay.get() as u8);
        connection.state = State::RepRcvd;
        connection.remote_id = rep.ids.local;
        connection.remote_guid = rep.ca_guid;
        connection.timeout = timeout;
        connection.remote = Side {
            qpn,
            starting_psn: rep.starting_psn,
            responder_resources: rep.responder_resources,
            initiator_depth: rep.initiator_depth,
            rnr_retry: rep.rnr_retry_count.get() as u8,
        };
        let orphaned = connection.orphaned;
        self.directory.note_remote_qp(id);
        if !orphaned {
            self.emit_event(Event::Reply(Reply {
                id,
                qpn,
                responder_resources: rep.initiator_depth,
                initiator_depth: rep.responder_resources,
                rnr_retry: rep.rnr_retry_count.get() as u8,
                flow_control: rep.flow_control,
                srq: rep.srq,
                private: private.into(),
                ece: Ece { vendor_id: rep.vendor_id.get(), options: mad.attribute_modifier },
            }));
        }
    }

    pub(crate) fn on_mra(&mut self, now: Time, route: Route, mra: &Mra) {
        let found = self.directory.find_from(route.remote, mra.ids.remote);
        let Some(connection) = found else { return self.note_unexpected() };
        let id = connection.id;
        let awaited = match connection.state {
            State::ReqSent => mra.answers == Served::REQ,
            State::RepSent => mra.answers == Served::REP && connection.remote_id == mra.ids.local,
            _ => false,
        };
        if !awaited {
            return self.note_unexpected();
        }
        let extension = exponent(mra.service_timeout.get() as u8) + exponent(connection.timeout);
        if let Some(repeat) = self.directory.get_mut(id).and_then(|c| c.repeat.as_mut()) {
            repeat.postpone(now, extension);
        }
        self.keep_repeating(id);
    }

    /// No answer to a REQ or SIDR_REQ, or no confirmation of a REP.
    pub(crate) fn give_up_connecting(&mut self, _: Time, id: CommId) {
        let Some(connection) = self.directory.remove(id) else { return };
        if connection.state == State::ReqSent {
            self.send_timeout_rej(&connection);
        }
        if !connection.orphaned {
            self.emit_event(Event::Unreachable(id));
        }
    }

    /// Tells a passive side, which may have seen the REQ, that its reply is no longer awaited. The peer finds the
    /// connection by our GUID, since it has not told us its own id.
    pub(crate) fn send_timeout_rej(&mut self, connection: &Connection) {
        let guid = self.config.ca_guid.to_be_bytes();
        let info = CmInfo::new(&guid).unwrap_or_default();
        let reason = RejReason::TIMEOUT;
        let rej = Rej { ids: connection.ids(), answers: Served::REQ, reason, info };
        self.send_empty(connection.route, connection.transaction, CmBody::Rej(rej));
    }

    /// Sends a message without private data.
    pub(crate) fn send_empty(&mut self, route: Route, transaction: u64, body: CmBody<'_>) {
        if let Some(message) = CmMessage::new(body, &[]) {
            self.send(route, transaction, &message);
        }
    }

    fn request(&self, id: CommId, params: &ConnectParams) -> Req {
        let (transport, extended_transport) = match params.transport {
            CmTransport::Rc => (0, 0),
            CmTransport::Uc => (1, 0),
            CmTransport::Xrc => (3, 1),
        };
        let is_xrc = params.transport == CmTransport::Xrc;
        let packet_life = params.packet_life.unwrap_or(self.config.packet_life);
        Req {
            local_id: id.get(),
            vendor_id: Bits::new(params.ece.vendor_id),
            service: params.service,
            ca_guid: self.config.ca_guid,
            qpn: params.qpn,
            // An XRC initiator executes no requests (kernel: cm_format_req leaves these out).
            responder_resources: if is_xrc { 0 } else { params.responder_resources },
            initiator_depth: params.initiator_depth,
            remote_cm_timeout: Bits::new(self.config.response_timeout.into()),
            transport: Bits::new(transport),
            flow_control: params.flow_control,
            starting_psn: params.starting_psn,
            local_cm_timeout: Bits::new(self.config.response_timeout.into()),
            retry_count: Bits::new(if is_xrc { 0 } else { params.retry_count.min(7).into() }),
            pkey: DEFAULT_PKEY,
            mtu_code: Bits::new(params.path.mtu.code().into()),
            rnr_retry_count: Bits::new(if is_xrc { 0 } else { params.rnr_retry.min(7).into() }),
            max_cm_retries: Bits::new(self.config.max_retries.into()),
            srq: params.srq && !is_xrc,
            extended_transport: Bits::new(extended_transport),
            primary: primary_path(&params.path, Config::ack_timeout(packet_life, self.config.ack_delay)),
            ..Req::default()
        }
    }
}

/// A path as a REQ names it. LIDs mean nothing on RoCE; Linux fills them in all the same.
fn primary_path(path: &Path, ack_timeout: u8) -> CmPath {
    let routed = path.hop_limit > 1;
    let lid = if routed { 0xFFFF } else { 0 };
    CmPath {
        local_lid: lid,
        remote_lid: lid,
        local_gid: path.local_gid(),
        remote_gid: path.remote_gid(),
        flow_label: Bits::new(path.flow_label),
        traffic_class: path.traffic_class,
        hop_limit: path.hop_limit,
        subnet_local: !routed,
        ack_timeout: Bits::new(ack_timeout.into()),
        ..CmPath::default()
    }
}
