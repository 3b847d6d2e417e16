//! Connections that the connection manager makes: what the application does about its events.
//!
//! The manager is the NIC's own. The application is a server at the second NIC, which accepts whatever it is asked, and
//! clients at the others.

use softrnic_cm::{
    AcceptParams, CmTransport, CommId, ConnectParams, Ece, Event, Listen, Path as CmPath, QpParams, Route,
    State,
};
use softrnic_engine::Management;
use softrnic_transport::{AttrMask, QpAttr, QpState};
use softrnic_wire::{AddressPair, Mtu, PortSpace, PrivateHeader, Psn, ServiceId};

use crate::action::Service;
use crate::post::QKEY;
use crate::view::What;
use crate::world::World;

/// The port of the server, and that of the clients.
const PORTS: [u16; 2] = [7471, 40000];
/// Requests that may wait for the server.
const BACKLOG: usize = 8;

/// The GUID of the NIC with this number.
fn guid(side: usize) -> u64 {
    0x0200_0000_0000_0000 + side as u64 + 1
}

fn service() -> ServiceId {
    ServiceId::of_port(PortSpace::Tcp, PORTS[0])
}

impl World {
    /// Serves QP 1 at every NIC.
    pub(crate) fn serve_qp_1(&mut self) {
        for (number, side) in self.sides.iter_mut().enumerate() {
            side.engine.serve_management(guid(number));
        }
    }

    /// Serves QP 1 at every NIC, with a listener at the second.
    pub(crate) fn serve_management(&mut self) -> Result<(), String> {
        let transport = self.transport()?;
        self.serve_qp_1();
        let listen = Listen { service: service(), transport: Some(transport), backlog: BACKLOG };
        let now = self.now;
        self.management(1)?.listen(now, listen).map_err(|error| error.to_string())?;
        Ok(())
    }

    /// A client asks for its connection, with another QP if its last one has been used.
    pub(crate) fn ask(&mut self, number: usize) -> Result<(), String> {
        let (side, peer) = (self.end(number)?.side, self.end(number ^ 1)?.side);
        if !self.setup.connection_manager {
            return Err("these NICs are connected already: choose the connection manager".into());
        }
        if number % 2 == 1 {
            return Err("this end is the server: it waits to be asked".into());
        }
        if self.ends[number].connection.is_some_and(|id| self.connection_state(side, id).is_some()) {
            return Err("there is a connection, or the last one's QP number may not be used again yet".into());
        }
        self.fresh_qp(number)?;
        let (setup, transport) = (&self.setup, self.transport()?);
        let route = Route { local: self.sides[side].address, remote: self.sides[peer].address };
        let addresses = AddressPair::new(route.local, route.remote).ok_or("two families")?;
        let mtu = Mtu::from_bytes(setup.mtu).ok_or("no such MTU")?;
        let params = ConnectParams {
            service: service(),
            path: CmPath { route, flow_label: 0, traffic_class: self.tos(), hop_limit: 64, mtu },
            transport,
            qpn: self.ends[number].qp.qpn,
            starting_psn: Psn::new(setup.psns[1]),
            responder_resources: setup.rd_atomic,
            initiator_depth: setup.rd_atomic,
            retry_count: setup.retry_cnt,
            rnr_retry: setup.rnr_retry,
            packet_life: None,
            flow_control: true,
            srq: false,
            private: PrivateHeader { version: 0, src_port: PORTS[1], addresses }.to_bytes().to_vec(),
            ece: Ece::default(),
        };
        let now = self.now;
        let id = self.management(side)?.cm().connect(now, &params).map_err(|error| error.to_string())?;
        self.ends[number].connection = Some(id);
        self.tell(Some(side), What::Connection, None, "asks for a connection".into());
        Ok(())
    }

    /// An end asks to end its connection. Its QP can do nothing from now on.
    pub(crate) fn part(&mut self, number: usize) -> Result<(), String> {
        let side = self.end(number)?.side;
        let id = self.ends[number].connection.ok_or("there is no connection to end")?;
        if !matches!(self.connection_state(side, id), Some(State::Established | State::RepSent)) {
            return Err("there is no connection to end".into());
        }
        self.stop(number)?;
        let now = self.now;
        self.management(side)?.cm().disconnect(now, id, &[]).map_err(|error| error.to_string())?;
        self.tell(Some(side), What::Connection, None, "ends the connection: its QP goes to ERR".into());
        Ok(())
    }

    /// Handles what has happened to connections of a NIC. Returns whether anything has.
    pub(crate) fn handle_connections(&mut self, side: usize) -> bool {
        let events: Vec<Event> = self.sides[side].engine.take_connection_events().collect();
        let any = !events.is_empty();
        for event in events {
            if let Err(error) = self.handle(side, event) {
                self.tell(Some(side), What::Connection, None, error);
            }
        }
        any
    }

    /// The first packet of a peer has come before its RTU: the connection is in use.
    pub(crate) fn in_use(&mut self, number: usize) {
        let (side, connection) = (self.ends[number].side, self.ends[number].connection);
        if let (Some(id), Ok(management)) = (connection, self.management(side)) {
            management.cm().notify_established(id);
        }
    }

    /// The state of an end's connection, in words.
    pub(crate) fn connection_name(&self, number: usize) -> Option<&'static str> {
        let end = &self.ends[number];
        Some(match self.connection_state(end.side, end.connection?)? {
            State::ReqSent => "REQ sent",
            State::RepRcvd => "REP received",
            State::ReqRcvd => "REQ received",
            State::RepSent => "REP sent",
            State::Established => "established",
            State::DreqSent => "DREQ sent",
            State::DreqRcvd => "DREQ received",
            State::Timewait => "timewait",
            State::SidrReqSent | State::SidrReqRcvd => return None,
        })
    }

    fn handle(&mut self, side: usize, event: Event) -> Result<(), String> {
        let text = match event {
            Event::Request(request) => {
                let client = self.sides.iter().position(|side| side.address == request.path.route.remote);
                let place = client.and_then(|client| self.ends.iter().position(|end| end.side == client));
                let number = place.ok_or("asked by nobody known")? + 1;
                self.accept(number, request.id)?;
                "is asked for a connection, sets its QP up, and accepts".into()
            }
            Event::Reply(reply) => {
                let number = self.end_of(side, reply.id)?;
                self.set_up(number, reply.id)?;
                self.management(side)?.cm().establish(reply.id, &[]).map_err(|error| error.to_string())?;
                "the server accepts: sets its QP up, and confirms".into()
            }
            Event::Established(..) => "the connection is established".into(),
            Event::Rejected { reason, .. } => format!("refused: {}", reason.name()),
            Event::Unreachable(_) => "nobody answers: gives up".into(),
            Event::Disconnected { id, timed_out, .. } => {
                if self.connection_state(side, id) == Some(State::DreqRcvd) {
                    let number = self.end_of(side, id)?;
                    self.stop(number)?;
                    let now = self.now;
                    let agreed = self.management(side)?.cm().disconnect(now, id, &[]);
                    agreed.map_err(|error| error.to_string())?;
                    "the peer ends the connection: its QP goes to ERR, and agrees".into()
                } else if timed_out {
                    "the connection has ended, although the peer has never agreed".into()
                } else {
                    "the peer agrees: the connection has ended".into()
                }
            }
            Event::TimewaitExit(_) => "no packet can be left: the QP number may be used again".to_string(),
            Event::SidrRequest { .. } | Event::SidrReply(_) => return Ok(()),
        };
        self.tell(Some(side), What::Connection, None, text);
        Ok(())
    }

    fn accept(&mut self, number: usize, id: CommId) -> Result<(), String> {
        self.fresh_qp(number)?;
        let (side, setup) = (self.ends[number].side, &self.setup);
        let params = AcceptParams {
            qpn: self.ends[number].qp.qpn,
            starting_psn: Psn::new(setup.psns[0]),
            responder_resources: setup.rd_atomic,
            initiator_depth: setup.rd_atomic,
            rnr_retry: setup.rnr_retry,
            flow_control: true,
            ..AcceptParams::default()
        };
        let now = self.now;
        self.management(side)?.cm().accept(now, id, &params).map_err(|error| error.to_string())?;
        self.ends[number].connection = Some(id);
        // Before the answer leaves: the peer may send at once.
        self.set_up(number, id)
    }

    /// To RTS, with what both sides have agreed on.
    fn set_up(&mut self, number: usize, id: CommId) -> Result<(), String> {
        let side = self.ends[number].side;
        let agreed: QpParams =
            self.management(side)?.cm().qp_params(id).ok_or("the peer has not said what it has")?;
        let attr = QpAttr {
            mtu: agreed.path.mtu,
            dest_qpn: agreed.dest_qpn,
            sq_psn: agreed.sq_psn,
            rq_psn: agreed.rq_psn,
            max_rd_atomic: agreed.initiator_depth,
            max_dest_rd_atomic: agreed.responder_resources,
            timeout: agreed.timeout,
            retry_cnt: agreed.retry_count,
            rnr_retry: agreed.rnr_retry,
            ..self.attributes(number)?
        };
        self.change(number, &attr, 1..)
    }

    /// A QP in INIT for an end: the one that it has, or another one. A program that connects anew has a new one too.
    fn fresh_qp(&mut self, number: usize) -> Result<(), String> {
        let (side, key) = (self.ends[number].side, self.ends[number].qp.key);
        let state = self.sides[side].engine.query_qp(key).map_err(|error| error.to_string())?.status.state;
        if state == QpState::Init {
            return Ok(());
        }
        let now = self.now;
        let _remains = self.sides[side].engine.destroy_qp(now, key).map_err(|error| error.to_string())?;
        self.ends[number] = self.create_end(side)?;
        let attr = self.attributes(number)?;
        self.change(number, &attr, ..1)
    }

    /// To ERR: whatever is queued is flushed.
    fn stop(&mut self, number: usize) -> Result<(), String> {
        let (side, key, now) = (self.ends[number].side, self.ends[number].qp.key, self.now);
        let attr = QpAttr { state: QpState::Err, qkey: QKEY, ..QpAttr::default() };
        let engine = &mut self.sides[side].engine;
        engine.modify_qp(now, key, AttrMask::STATE, &attr).map_err(|error| error.to_string())
    }

    fn end_of(&self, side: usize, id: CommId) -> Result<usize, String> {
        let found = self.ends.iter().position(|end| end.side == side && end.connection == Some(id));
        found.ok_or_else(|| "a connection of nobody".into())
    }

    fn connection_state(&self, side: usize, id: CommId) -> Option<State> {
        let mut connections = self.sides[side].engine.connections(None);
        connections.find(|status| status.id == id).map(|status| status.state)
    }

    fn management(&mut self, side: usize) -> Result<&mut Management, String> {
        self.sides[side].engine.management().ok_or_else(|| "this NIC has no connection manager".into())
    }

    fn transport(&self) -> Result<CmTransport, String> {
        match self.setup.service {
            Service::Rc => Ok(CmTransport::Rc),
            Service::Uc => Ok(CmTransport::Uc),
            Service::Ud => Err("UD needs no connection: choose RC or UC for the connection manager".into()),
        }
    }
}
