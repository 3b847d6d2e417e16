//! Connections that the script asks a server for, by messages of the connection manager.

use std::collections::BTreeMap;
use std::time::Duration;

use softrnic_wire::{
    AddressPair, Bits, CmBody, CmIds, CmInfo, CmMessage, CmPath, Dreq, Lap, MAD_LEN, Mad, Mra, Pkey,
    PrivateHeader, Psn, Qpn, Rej, RejReason, Rep, Req, Served as Answered, ServiceId, SidrRep, SidrReq,
};

use super::capabilities::vendor;
use super::names::Connection;
use super::{Player, Result, deviation};
use crate::message::{self, GSI_QKEY, MessageKind};
use crate::packet::{self, Fields, describe};
use crate::statement::Message;
use crate::target::{Outgoing, QpNumbers, Received, Seal, Trouble};

/// Exponents: how long either side may take to answer a message (1 s), how long a packet may go unacknowledged (67 ms).
const RESPONSE_TIMEOUT: u32 = 18;
const ACK_TIMEOUT: u32 = 14;
/// So long a server has to agree that a connection ends.
const FAREWELL: Duration = Duration::from_millis(300);

impl Player<'_> {
    pub(super) fn send_message(&mut self, told: &Message) -> Result {
        self.names.introduce(&told.of)?;
        let mut bytes = match self.names.connection(&told.of)?.sent.get(&told.kind) {
            Some(sent) if told.again => *sent,
            _ if told.again => return Err(Trouble::Broken("it was not sent before".into())),
            _ => self.datagram(told.kind, &told.of)?,
        };
        let mut carrier = message::carrier();
        for (name, value) in &told.fields {
            let value = self.names.of_message(told.kind, false, name, value)?;
            match *name {
                "gsi_qkey" => _ = carrier.insert("qkey", value),
                "gsi_pkey" => _ = carrier.insert("pkey", value),
                name => message::set(told.kind, &mut bytes, name, value),
            }
        }
        let connection = self.names.connection_mut(&told.of)?;
        connection.sent.insert(told.kind, bytes);
        connection.note_sent(told.kind, &bytes);
        let len = told.len.unwrap_or(MAD_LEN).min(MAD_LEN);
        self.carry(&bytes[..len], carrier, told.seal, told.stranger)
    }

    /// Sends a datagram to QP 1.
    fn carry(&mut self, payload: &[u8], fields: Fields, seal: Seal, stranger: bool) -> Result {
        let bytes = message::carried(payload, fields);
        self.target.inject(Outgoing { bytes, seal, stranger, tos: 0 })
    }

    /// A message as it should be.
    fn datagram(&self, kind: MessageKind, name: &str) -> Result<[u8; MAD_LEN]> {
        let served = self.names.served()?;
        let connection = self.names.connection(name)?;
        let ids = CmIds { local: connection.ours, remote: connection.theirs.unwrap_or(0) };
        let addresses = AddressPair::new(served.peer, served.nic);
        let addresses = addresses.ok_or_else(|| Trouble::Broken("addresses of two families".into()))?;
        let header = PrivateHeader { version: 0, src_port: 40_000, addresses }.to_bytes();
        let path = CmPath {
            local_lid: 0xFFFF,
            remote_lid: 0xFFFF,
            local_gid: served.peer.into(),
            remote_gid: served.nic.into(),
            hop_limit: 64,
            ack_timeout: Bits::new(ACK_TIMEOUT),
            ..CmPath::default()
        };
        let guid = served.guid.to_be_bytes();
        let body = match kind {
            MessageKind::Req => CmBody::Req(Req {
                local_id: ids.local,
                service: ServiceId(served.service),
                ca_guid: served.guid,
                qpn: Qpn::new(connection.qpn),
                responder_resources: 4,
                initiator_depth: 4,
                remote_cm_timeout: Bits::new(RESPONSE_TIMEOUT),
                flow_control: true,
                starting_psn: Psn::new(100),
                local_cm_timeout: Bits::new(RESPONSE_TIMEOUT),
                retry_count: Bits::new(7),
                pkey: Pkey(0xFFFF),
                mtu_code: Bits::new(3),
                rnr_retry_count: Bits::new(7),
                max_cm_retries: Bits::new(15),
                primary: path,
                ..Req::default()
            }),
            MessageKind::Mra => {
                let service_timeout = Bits::new(RESPONSE_TIMEOUT);
                CmBody::Mra(Mra { ids, answers: Answered::REP, service_timeout })
            }
            MessageKind::Rej => {
                let info = CmInfo::new(&guid).unwrap_or_default();
                CmBody::Rej(Rej { ids, answers: Answered::REP, reason: RejReason::CONSUMER_DEFINED, info })
            }
            MessageKind::Rep => CmBody::Rep(Rep {
                ids,
                qpn: Qpn::new(connection.qpn),
                starting_psn: Psn::new(100),
                ca_guid: served.guid,
                ..Rep::default()
            }),
            MessageKind::Rtu => CmBody::Rtu(ids),
            MessageKind::Drep => CmBody::Drep(ids),
            MessageKind::Dreq => CmBody::Dreq(Dreq { ids, remote_qpn: Qpn::new(connection.their_qpn) }),
            MessageKind::SidrReq => CmBody::SidrReq(SidrReq {
                request_id: ids.local,
                pkey: Pkey(0xFFFF),
                service: ServiceId(served.service),
            }),
            MessageKind::SidrRep => CmBody::SidrRep(SidrRep { request_id: ids.remote, ..SidrRep::default() }),
            MessageKind::Lap => {
                CmBody::Lap(Lap { ids, remote_qpn: Qpn::new(connection.their_qpn), path, ..Lap::default() })
            }
            MessageKind::Apr => CmBody::Apr(softrnic_wire::Apr { ids, ..Default::default() }),
        };
        let private: &[u8] =
            if matches!(kind, MessageKind::Req | MessageKind::SidrReq) { &header } else { &[] };
        let message = CmMessage::new(body, private);
        let message = message.ok_or_else(|| Trouble::Broken("too much private data".into()))?;
        let mut bytes = [0; MAD_LEN];
        message.emit_mad(connection.transaction(kind), 0, &mut bytes);
        Ok(bytes)
    }

    pub(super) fn expect_message(&mut self, told: &Message, after: Option<Duration>) -> Result {
        self.names.introduce(&told.of)?;
        loop {
            let received = self.target.next_message(after)?;
            if vendor(&received).is_some() {
                continue;
            }
            let (kind, bytes) = self.read(&received)?;
            if kind == MessageKind::Dreq && told.kind != kind && self.agree(&bytes)? {
                continue;
            }
            // It was repeated before the answer came.
            if self.is_repeated(kind, &bytes) && !told.again && after.is_none() {
                continue;
            }
            return self.judge_message(told, kind, &bytes);
        }
    }

    /// The message in a packet. A reply makes a connection and a refusal ends it, whether the script wants it or not.
    fn read(&mut self, received: &Received) -> Result<(MessageKind, [u8; MAD_LEN])> {
        let (kind, bytes) = read(received)?;
        let remote = message::get(kind, &bytes, "remote");
        let connection = self.names.connections_mut().find(|c| Some(c.ours.into()) == remote);
        match (kind, connection) {
            (MessageKind::Rep, Some(connection)) if connection.theirs.is_none() => {
                connection.note_reply(&bytes)
            }
            (MessageKind::Rej, Some(connection)) => connection.ended = true,
            _ => {}
        }
        Ok((kind, bytes))
    }

    fn judge_message(&mut self, told: &Message, kind: MessageKind, bytes: &[u8; MAD_LEN]) -> Result {
        let line = || format!("sent: {}", message::describe(bytes).unwrap_or_default());
        if kind != told.kind {
            return deviation(line());
        }
        let connection = self.names.connection(&told.of)?;
        if told.again && connection.seen.get(&kind) != Some(bytes) {
            return deviation(format!("it is not the same; {}", line()));
        }
        let mut wanted: BTreeMap<&str, u64> = connection.must_have(kind).into_iter().collect();
        for (name, value) in &told.fields {
            wanted.insert(name, self.names.of_message(kind, true, name, value)?);
        }
        let difference = |(name, expected): (&str, u64)| {
            let found = message::get(kind, bytes, name).unwrap_or(0);
            (found != expected).then(|| format!("{name} is {found:#x}, not {expected:#x}"))
        };
        let differences: Vec<String> = wanted.into_iter().filter_map(difference).collect();
        if !differences.is_empty() {
            return deviation(format!("{}; {}", differences.join("; "), line()));
        }
        let connection = self.names.connection_mut(&told.of)?;
        connection.note_seen(kind, bytes);
        let numbers = QpNumbers { ours: connection.their_qpn, peer: connection.qpn };
        if kind == MessageKind::Rep && self.names.qp(&told.of).is_err() {
            self.names.qps.push((told.of.clone(), numbers));
        }
        Ok(())
    }

    /// A server may end a connection whenever it likes; that is agreed to. `false` if it is none of the script's.
    fn agree(&mut self, dreq: &[u8; MAD_LEN]) -> Result<bool> {
        let kind = MessageKind::Dreq;
        let remote = message::get(kind, dreq, "remote");
        let Some(connection) = self.names.connections().find(|c| Some(u64::from(c.ours)) == remote) else {
            return Ok(false);
        };
        let name = connection.name.clone();
        let connection = self.names.connection_mut(&name)?;
        connection.note_seen(kind, dreq);
        connection.ended = true;
        let drep = self.datagram(MessageKind::Drep, &name)?;
        self.carry(&drep, message::carrier(), Seal::Good, false)?;
        Ok(true)
    }

    fn is_repeated(&self, kind: MessageKind, bytes: &[u8; MAD_LEN]) -> bool {
        self.names.connections().any(|connection| connection.seen.get(&kind) == Some(bytes))
    }

    /// Nothing may have come that the script did not mention, but for the server's wish to end a connection, and if
    /// `repeats`, what had come before.
    pub(super) fn no_message(&mut self, repeats: bool) -> Result {
        while let Some(received) = self.target.unexpected_message()? {
            if vendor(&received).is_some() {
                continue;
            }
            let (kind, bytes) = self.read(&received)?;
            if kind == MessageKind::Dreq && self.agree(&bytes)? || repeats && self.is_repeated(kind, &bytes) {
                continue;
            }
            return deviation(format!("sent: {}", describe(&received.bytes)));
        }
        Ok(())
    }

    /// Ends the connections that are still there, so that the server can forget them: as clients do, since servers may give up
    /// on what clients never do. Nothing is judged any more.
    pub(super) fn part(&mut self) {
        let names: Vec<String> =
            self.names.connections().filter(|c| !c.ended && c.was_asked).map(|c| c.name.clone()).collect();
        for name in names {
            let Ok(connection) = self.names.connection(&name) else { continue };
            let was_told = |kind| connection.sent.contains_key(&kind);
            let messages: &[MessageKind] = match connection.theirs {
                Some(_) if was_told(MessageKind::Rtu) || was_told(MessageKind::Rej) => &[MessageKind::Dreq],
                Some(_) => &[MessageKind::Rtu, MessageKind::Dreq],
                None => &[MessageKind::Rej],
            };
            for &kind in messages {
                let Ok(mut bytes) = self.datagram(kind, &name) else { continue };
                if kind == MessageKind::Rej {
                    // The server may know the connection, but its own number for it never came here.
                    message::set(kind, &mut bytes, "reason", RejReason::TIMEOUT.0.into());
                    message::set(kind, &mut bytes, "what", 0);
                }
                let sent = self.carry(&bytes, message::carrier(), Seal::Good, false);
                if sent.is_ok() && kind == MessageKind::Dreq {
                    let _answered = self.target.next_message(Some(FAREWELL));
                }
            }
        }
    }
}

/// The message in a packet to QP 1, if it is carried as it must be (IBTA 13.5, IBTA 12.6).
fn read(received: &Received) -> Result<(MessageKind, [u8; MAD_LEN])> {
    let wrong = |what: &str| Trouble::Deviation(format!("{what}; sent: {}", describe(&received.bytes)));
    let (info, fields, payload) = packet::take_apart(&received.bytes).ok_or_else(|| wrong("no packet"))?;
    if info.name != "UD SEND Only" {
        return Err(wrong("another opcode"));
    }
    for (name, expected) in [("qp", 1), ("src", 1), ("qkey", GSI_QKEY), ("pkey", 0xFFFF), ("tver", 0)] {
        if fields.get(name) != Some(&expected) {
            return Err(wrong(&format!("{name} is not {expected:#x}")));
        }
    }
    if received.seal == Seal::Bad {
        return Err(wrong("a wrong ICRC"));
    }
    let bytes: [u8; MAD_LEN] = payload.try_into().map_err(|_| wrong("a datagram of another length"))?;
    let mad = Mad::read(&bytes).filter(|mad| mad.is_cm_send() && mad.status == 0);
    let message =
        mad.and_then(|mad| mad.cm()).ok_or_else(|| wrong("no message of the connection manager"))?;
    Ok((MessageKind::of(message.body()), bytes))
}

impl Connection {
    /// The transaction that a message belongs to. Answers repeat that of the question.
    fn transaction(&self, kind: MessageKind) -> u64 {
        let of = |kind, datagrams: &BTreeMap<MessageKind, [u8; MAD_LEN]>| {
            datagrams.get(&kind).and_then(|bytes| message::get(kind, bytes, "tid"))
        };
        let fresh = u64::from(self.ours) << 32 | u64::from(self.ours) | kind as u64;
        match kind {
            MessageKind::Rtu | MessageKind::Rej | MessageKind::Mra => {
                of(MessageKind::Req, &self.sent).unwrap_or(fresh)
            }
            MessageKind::Drep => of(MessageKind::Dreq, &self.seen).unwrap_or(fresh),
            _ => fresh,
        }
    }

    /// What a message of the NIC about this connection must say, whatever the line does not.
    fn must_have(&self, kind: MessageKind) -> Vec<(&'static str, u64)> {
        use MessageKind::*;
        let ours = u64::from(self.ours);
        let mut wanted = vec![(if kind == SidrRep { "id" } else { "remote" }, ours)];
        let question = match kind {
            Rep | Mra | Rej => Some(Req),
            Drep => Some(Dreq),
            SidrRep => Some(SidrReq),
            _ => None,
        };
        if let Some(question) = question
            && let Some(tid) = self.sent.get(&question).and_then(|sent| message::get(question, sent, "tid"))
        {
            wanted.push(("tid", tid));
        }
        if let (Some(theirs), Rtu | Dreq | Drep | Rep) = (self.theirs, kind) {
            wanted.push(("id", theirs.into()));
        }
        if kind == Dreq {
            wanted.push(("qpn", self.qpn.into()));
        }
        wanted
    }

    fn note_sent(&mut self, kind: MessageKind, bytes: &[u8; MAD_LEN]) {
        if kind == MessageKind::Req {
            self.was_asked = true;
            let sent = |name| message::get(kind, bytes, name).unwrap_or(0) as u32;
            (self.ours, self.qpn) = (sent("id"), sent("qpn"));
        }
    }

    fn note_seen(&mut self, kind: MessageKind, bytes: &[u8; MAD_LEN]) {
        self.seen.insert(kind, *bytes);
        match kind {
            MessageKind::Rep => self.note_reply(bytes),
            MessageKind::Rej | MessageKind::Drep => self.ended = true,
            _ => {}
        }
    }

    fn note_reply(&mut self, bytes: &[u8; MAD_LEN]) {
        let seen = |name| message::get(MessageKind::Rep, bytes, name).unwrap_or(0) as u32;
        self.theirs = Some(seen("id"));
        (self.their_qpn, self.their_psn) = (seen("qpn"), seen("psn"));
    }
}
