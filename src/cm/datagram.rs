//! Datagram services: SIDR_REQ asks for the QP of one, SIDR_REP names it (IBTA 12.11).

use alloc::boxed::Box;

use softrnic_wire::{
    Bits, CmBody, CmInfo, CmMessage, MAD_LEN, Mad, Pkey, PrivateHeader, ServiceId, SidrRep, SidrReq, Time,
};

use crate::cm::{Cm, mad};
use crate::config::exponent;
use crate::connection::{Connection, Side, State};
use crate::directory::{CommId, ListenerId};
use crate::error::CmError;
use crate::event::{Event, SidrAnswer};
use crate::params::{Ece, Route, SidrParams, SidrReply};

/// The service has no listener.
const UNSUPPORTED: u8 = 1;

impl Cm {
    /// Asks for the QP of a datagram service. The answer is [`Event::SidrReply`] or [`Event::Unreachable`].
    ///
    /// # Errors
    /// The private data is too long.
    pub fn ask(&mut self, now: Time, params: &SidrParams) -> Result<CommId, CmError> {
        let id = self.fresh_id();
        let req = SidrReq { request_id: id.get(), pkey: Pkey(0xFFFF), service: params.service };
        let message = CmMessage::new(CmBody::SidrReq(req), &params.private).ok_or(CmError::TooLong)?;
        let transaction = self.fresh_transaction(id);
        let bytes = mad(transaction, 0, &message);
        self.directory.insert(self.question(
            id,
            State::SidrReqSent,
            params.service,
            params.route,
            transaction,
        ));
        self.send_until_answered(now, id, bytes, exponent(self.config.response_timeout));
        Ok(id)
    }

    /// Answers a SIDR request.
    ///
    /// # Errors
    /// The request is no longer pending, or the private data is too long.
    pub fn sidr_reply(&mut self, id: CommId, reply: &SidrReply) -> Result<(), CmError> {
        let connection = self.directory.get(id).ok_or(CmError::UnknownId)?;
        if connection.state != State::SidrReqRcvd {
            return Err(CmError::WrongState);
        }
        let (route, transaction) = (connection.route, connection.transaction);
        let question =
            SidrReq { request_id: connection.remote_id, service: connection.service, ..SidrReq::default() };
        let bytes = sidr_rep(transaction, &question, reply).ok_or(CmError::TooLong)?;
        self.send_bytes(route, bytes);
        self.note_answered(id);
        self.directory.remove(id);
        Ok(())
    }

    pub(crate) fn on_sidr_req(&mut self, route: Route, mad: &Mad<'_>, req: &SidrReq, private: &[u8]) {
        if self.directory.find_question(route.remote, req.request_id).is_some() {
            return self.note_duplicate();
        }
        let listener = match self.judge_question(req, private) {
            Ok(Some(listener)) => listener,
            Ok(None) => {
                self.counters.drop_backlog += 1;
                return;
            }
            Err(status) => {
                self.counters.refused += 1;
                let refusal = SidrReply { status, ..SidrReply::default() };
                if let Some(bytes) = sidr_rep(mad.transaction_id, req, &refusal) {
                    self.send_bytes(route, bytes);
                }
                return;
            }
        };
        let id = self.fresh_id();
        let mut question = self.question(id, State::SidrReqRcvd, req.service, route, mad.transaction_id);
        question.listener = Some(listener);
        question.remote_id = req.request_id;
        self.directory.insert(question);
        self.directory.note_question(id);
        self.directory.note_pending(req.service);
        self.emit_event(Event::SidrRequest { id, listener, route, private: private.into() });
    }

    pub(crate) fn on_sidr_rep(&mut self, route: Route, mad: &Mad<'_>, rep: &SidrRep<'_>, private: &[u8]) {
        let found = self.directory.find_from(route.remote, rep.request_id);
        let Some(id) = found.filter(|c| c.state == State::SidrReqSent).map(|c| c.id) else {
            return self.note_unexpected();
        };
        self.directory.remove(id);
        self.emit_event(Event::SidrReply(SidrAnswer {
            id,
            status: rep.status,
            qpn: rep.qpn,
            qkey: rep.qkey,
            private: private.into(),
            ece: Ece { vendor_id: rep.vendor_id.get(), options: mad.attribute_modifier },
        }));
    }

    /// The listener that a SIDR request is for; `None` if too many wait already; or the status that refuses it.
    fn judge_question(&mut self, req: &SidrReq, private: &[u8]) -> Result<Option<ListenerId>, u8> {
        let is_full = self.directory.pending >= self.config.max_pending;
        let Some(listener) = self.directory.listener(req.service) else { return Err(UNSUPPORTED) };
        let header = PrivateHeader::read(private);
        let is_sound = req.service.port().is_none() || header.is_none_or(|header| header.version == 0);
        if listener.listen.transport.is_some() || !is_sound {
            return Err(UNSUPPORTED);
        }
        Ok((!is_full && listener.pending < listener.listen.backlog).then_some(listener.id))
    }

    fn question(
        &self,
        id: CommId,
        state: State,
        service: ServiceId,
        route: Route,
        transaction: u64,
    ) -> Connection {
        Connection {
            id,
            state,
            listener: None,
            transport: None,
            route,
            service,
            path: None,
            transaction,
            remote_id: 0,
            remote_guid: 0,
            source: route.remote,
            local: Side::default(),
            remote: Side::default(),
            retry_count: 0,
            packet_life: self.config.packet_life,
            timeout: 0,
            peer_response: self.config.response_timeout,
            repeat: None,
            answer: None,
            orphaned: false,
            timer: Time::NEVER,
        }
    }
}

fn sidr_rep(transaction: u64, question: &SidrReq, reply: &SidrReply) -> Option<Box<[u8; MAD_LEN]>> {
    let rep = SidrRep {
        request_id: question.request_id,
        service: question.service,
        status: reply.status,
        vendor_id: Bits::new(reply.ece.vendor_id),
        qpn: reply.qpn,
        qkey: reply.qkey,
        info: CmInfo::default(),
    };
    let message = CmMessage::new(CmBody::SidrRep(rep), &reply.private)?;
    Some(mad(transaction, reply.ece.options, &message))
}
