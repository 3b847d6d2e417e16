//! The end of a connection: DREQ, DREP, timewait.

use alloc::boxed::Box;
use core::net::IpAddr;

use softrnic_wire::{CmBody, CmIds, CmMessage, Dreq, MAD_LEN, Mad, Rej, RejReason, Served, Time};

use crate::cm::{Cm, mad};
use crate::connection::{Connection, State};
use crate::directory::CommId;
use crate::error::CmError;
use crate::event::Event;
use crate::params::{CmTransport, Route, SidrReply};

impl Cm {
    /// Disconnects, or agrees to the peer's disconnecting.
    ///
    /// # Errors
    /// There is nothing to end, or the private data is too long.
    pub fn disconnect(&mut self, now: Time, id: CommId, private: &[u8]) -> Result<(), CmError> {
        let connection = self.directory.get(id).ok_or(CmError::UnknownId)?;
        match connection.state {
            State::Established | State::RepSent => {
                let bytes = self.dreq(id, private)?;
                self.send_dreq(now, id, bytes);
            }
            State::DreqRcvd => {
                let message =
                    CmMessage::new(CmBody::Drep(connection.ids()), private).ok_or(CmError::TooLong)?;
                let bytes = mad(connection.transaction, 0, &message);
                self.send_drep(now, id, bytes);
            }
            _ => return Err(CmError::WrongState),
        }
        Ok(())
    }

    /// The owner of the connection wants no more events. The peer is told what it has to know.
    pub fn destroy(&mut self, now: Time, id: CommId) {
        let is_passive = self.directory.is_passive(id);
        let Some(connection) = self.directory.get_mut(id) else { return };
        connection.orphaned = true;
        match connection.state {
            // An XRC target outlives the process that created it (kernel: cm_destroy_id).
            State::Established if is_passive && connection.transport == Some(CmTransport::Xrc) => {
                drop(self.directory.remove(id));
            }
            State::ReqSent => {
                if let Some(connection) = self.directory.remove(id) {
                    self.send_timeout_rej(&connection);
                }
            }
            State::ReqRcvd => self.abandon(id, Served::REQ),
            State::RepRcvd => self.abandon(id, Served::REP),
            State::RepSent => {
                let rej = consumer_reject(connection, Served::OTHER);
                let (route, transaction) = (connection.route, connection.transaction);
                self.send_empty(route, transaction, CmBody::Rej(rej));
                self.enter_timewait(now, id);
            }
            State::Established => {
                if let Ok(bytes) = self.dreq(id, &[]) {
                    self.send_dreq(now, id, bytes);
                }
                self.hurry(id);
            }
            State::DreqRcvd => {
                let ids = connection.ids();
                if let Some(message) = CmMessage::new(CmBody::Drep(ids), &[]) {
                    let bytes = mad(connection.transaction, 0, &message);
                    self.send_drep(now, id, bytes);
                }
            }
            State::DreqSent => self.hurry(id),
            State::Timewait => {}
            State::SidrReqSent => drop(self.directory.remove(id)),
            // Status 2: the service's owner rejects.
            State::SidrReqRcvd => {
                let refusal = SidrReply { status: 2, ..SidrReply::default() };
                let _answered = self.sidr_reply(id, &refusal);
            }
        }
    }

    /// Whether a peer has yet to answer that a connection ends, including one whose owner wants no more events.
    pub fn is_disconnecting(&self) -> bool {
        self.directory.iter().any(|connection| connection.state == State::DreqSent)
    }

    /// The process with this address is gone, and will answer nothing. To the application, its connections have ended
    /// in good order, as when a kernel disconnects them for a process that dies.
    pub fn lose_peer(&mut self, now: Time, peer: IpAddr) {
        let connections: Box<[CommId]> = self.with_peer(peer).iter().map(|(id, _)| *id).collect();
        self.lose(now, &connections);
    }

    /// The connections with a peer's address, each with the peer's communication id, 0 until it is known.
    pub fn with_peer(&self, peer: IpAddr) -> Box<[(CommId, u32)]> {
        self.directory.with_peer(peer)
    }

    /// Like [`Cm::lose_peer`], for these connections, if they still exist. What a peer sent before it ended may be
    /// received between looking them up and losing them, and others may have its address by then.
    pub fn lose(&mut self, now: Time, connections: &[CommId]) {
        for &id in connections {
            let Some(connection) = self.directory.get(id) else { continue };
            let (state, transaction, orphaned) =
                (connection.state, connection.transaction, connection.orphaned);
            match state {
                State::Established | State::RepSent => {
                    self.stop_repeating(id);
                    self.disconnected_by_peer(id, transaction, &[]);
                    if orphaned {
                        self.enter_timewait(now, id);
                    }
                }
                State::DreqSent => {
                    self.enter_timewait(now, id);
                    if !orphaned {
                        let private = Default::default();
                        self.emit_event(Event::Disconnected { id, timed_out: false, private });
                    }
                }
                State::DreqRcvd => self.enter_timewait(now, id),
                State::ReqSent | State::RepRcvd | State::ReqRcvd => {
                    self.note_answered(id);
                    self.directory.remove(id);
                    if !orphaned {
                        let reason = RejReason::CONSUMER_DEFINED;
                        let (info, private) = Default::default();
                        self.emit_event(Event::Rejected { id, reason, info, private });
                    }
                }
                State::SidrReqSent => {
                    self.directory.remove(id);
                    self.emit_event(Event::Unreachable(id));
                }
                State::SidrReqRcvd => {
                    self.note_answered(id);
                    self.directory.remove(id);
                }
                State::Timewait => {}
            }
        }
    }

    pub(crate) fn on_dreq(&mut self, now: Time, route: Route, mad: &Mad<'_>, dreq: &Dreq, private: &[u8]) {
        let found = self.directory.find_from(route.remote, dreq.ids.remote);
        let Some(connection) = found.filter(|c| c.remote_id == dreq.ids.local) else {
            // The sender waits for an answer; it must not wait for a peer that knows nothing.
            self.note_unexpected();
            let ids = CmIds { local: dreq.ids.remote, remote: dreq.ids.local };
            return self.send_empty(route, mad.transaction_id, CmBody::Drep(ids));
        };
        if dreq.remote_qpn != connection.local.qpn {
            return self.note_unexpected();
        }
        let id = connection.id;
        match connection.state {
            State::RepSent | State::Established => {
                self.stop_repeating(id);
                self.disconnected_by_peer(id, mad.transaction_id, private);
            }
            // Both sides disconnect: each agrees to the other's.
            State::DreqSent => {
                self.stop_repeating(id);
                self.disconnected_by_peer(id, mad.transaction_id, private);
                let _agreed = self.disconnect(now, id, &[]);
            }
            State::DreqRcvd => self.note_duplicate(),
            State::Timewait => {
                let (route, ids, drep) = (connection.route, connection.ids(), connection.answer.clone());
                self.note_duplicate();
                match drep {
                    Some(bytes) => self.send_bytes(route, bytes),
                    None => self.send_empty(route, mad.transaction_id, CmBody::Drep(ids)),
                }
            }
            _ => self.note_unexpected(),
        }
    }

    pub(crate) fn on_drep(&mut self, now: Time, route: Route, ids: CmIds, private: &[u8]) {
        let found = self.directory.find_from(route.remote, ids.remote);
        match found.filter(|c| c.remote_id == ids.local).map(|c| (c.id, c.state, c.orphaned)) {
            Some((id, State::DreqSent, orphaned)) => {
                self.enter_timewait(now, id);
                if !orphaned {
                    self.emit_event(Event::Disconnected { id, timed_out: false, private: private.into() });
                }
            }
            Some((id, State::DreqRcvd, _)) => self.enter_timewait(now, id),
            Some((_, State::Timewait, _)) => self.note_duplicate(),
            _ => self.note_unexpected(),
        }
    }

    /// Our DREQ was never answered.
    pub(crate) fn disconnect_unanswered(&mut self, now: Time, id: CommId) {
        self.enter_timewait(now, id);
        if !self.is_orphaned(id) {
            self.emit_event(Event::Disconnected { id, timed_out: true, private: Default::default() });
        }
    }

    /// The peer names the QP of this connection for another one: it has forgotten this one.
    pub(crate) fn end_stale(&mut self, now: Time, id: CommId) {
        let Some(connection) = self.directory.get(id) else { return };
        match connection.state {
            State::Established | State::RepSent => {
                let orphaned = connection.orphaned;
                if let Ok(bytes) = self.dreq(id, &[]) {
                    self.send_dreq(now, id, bytes);
                }
                if orphaned {
                    self.hurry(id);
                }
            }
            State::ReqRcvd | State::RepRcvd => {
                let orphaned = connection.orphaned;
                let reason = RejReason::STALE_CONNECTION;
                self.note_answered(id);
                self.directory.remove(id);
                if !orphaned {
                    let (info, private) = Default::default();
                    self.emit_event(Event::Rejected { id, reason, info, private });
                }
            }
            _ => {}
        }
    }

    /// Packets of the connection may still be in the network for a while.
    pub(crate) fn enter_timewait(&mut self, now: Time, id: CommId) {
        self.stop_repeating(id);
        self.note_answered(id);
        // The peer may use its QP again. A late copy of its request is still recognised.
        self.directory.forget_remote_qp(id);
        let Some(connection) = self.directory.get_mut(id) else { return };
        connection.state = State::Timewait;
        let until = now + connection.timewait();
        self.directory.set_timer(id, until);
    }

    pub(crate) fn end_timewait(&mut self, id: CommId) {
        if let Some(connection) = self.directory.remove(id)
            && !connection.orphaned
        {
            self.emit_event(Event::TimewaitExit(id));
        }
    }

    fn disconnected_by_peer(&mut self, id: CommId, transaction: u64, private: &[u8]) {
        if let Some(connection) = self.directory.get_mut(id) {
            connection.state = State::DreqRcvd;
            // That of the DREQ, which the DREP repeats.
            connection.transaction = transaction;
        }
        if !self.is_orphaned(id) {
            self.emit_event(Event::Disconnected { id, timed_out: false, private: private.into() });
        }
    }

    fn dreq(&mut self, id: CommId, private: &[u8]) -> Result<Box<[u8; MAD_LEN]>, CmError> {
        let transaction = self.fresh_transaction(id);
        let connection = self.directory.get(id).ok_or(CmError::UnknownId)?;
        let dreq = Dreq { ids: connection.ids(), remote_qpn: connection.remote.qpn };
        let message = CmMessage::new(CmBody::Dreq(dreq), private).ok_or(CmError::TooLong)?;
        Ok(mad(transaction, 0, &message))
    }

    fn send_dreq(&mut self, now: Time, id: CommId, bytes: Box<[u8; MAD_LEN]>) {
        let Some(connection) = self.directory.get_mut(id) else { return };
        connection.state = State::DreqSent;
        let interval = self.config.request_interval(connection.peer_response);
        self.send_until_answered(now, id, bytes, interval);
    }

    fn send_drep(&mut self, now: Time, id: CommId, bytes: Box<[u8; MAD_LEN]>) {
        let Some(connection) = self.directory.get_mut(id) else { return };
        connection.answer = Some(bytes.clone());
        let route = connection.route;
        self.send_bytes(route, bytes);
        self.enter_timewait(now, id);
    }

    /// The application does not wait for the end of this connection, so the DREQ is repeated for one interval only.
    fn hurry(&mut self, id: CommId) {
        if let Some(repeat) = self.directory.get_mut(id).and_then(|c| c.repeat.as_mut()) {
            repeat.end_after_this_interval();
        }
    }

    /// Rejects a connection that was not accepted, and forgets it.
    fn abandon(&mut self, id: CommId, answers: Served) {
        self.note_answered(id);
        let Some(connection) = self.directory.remove(id) else { return };
        let rej = consumer_reject(&connection, answers);
        self.send_empty(connection.route, connection.transaction, CmBody::Rej(rej));
    }
}

fn consumer_reject(connection: &Connection, answers: Served) -> Rej<'static> {
    Rej { ids: connection.ids(), answers, reason: RejReason::CONSUMER_DEFINED, ..Rej::default() }
}
