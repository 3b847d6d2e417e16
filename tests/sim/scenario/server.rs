//! A server on the NIC: it accepts whoever asks for a connection, or tells whoever asks the QP of a datagram service.

use softrnic_cm::{AcceptParams, CmTransport, CommId, Event, Listen, SidrReply};
use softrnic_engine::{Management, QpInit, ReceiveSource};
use softrnic_script::{Served, Server};
use softrnic_transport::{QpAccess, QpState, QpType};
use softrnic_wire::{PortSpace, Psn, Qkey, Qpn, ServiceId};

use super::machine::{Machine, NIC, REMOTE, Result, broken};
use crate::world::Agreement;

/// The port that it listens on.
const PORT: u16 = 7174;
/// Where its QPs expect to begin.
const FIRST_PSN: u32 = 0xFF_FFFE;

impl Machine {
    /// Starts it.
    pub fn start_server(&mut self, kind: Server) -> Result<Served> {
        let now = self.world().now;
        let (space, transport) = match kind {
            Server::Connections => (PortSpace::Tcp, Some(CmTransport::Rc)),
            Server::Datagrams => (PortSpace::Udp, None),
        };
        let service = ServiceId::of_port(space, PORT);
        if self.node().engine.management().is_none() {
            self.node().engine.serve_management(0x0200_0000_0000_0001);
        }
        self.management()?.listen(now, Listen { service, transport, backlog: 16 }).map_err(broken)?;
        Ok(Served {
            nic: NIC.into(),
            peer: REMOTE.into(),
            service: service.0,
            guid: 0x0200_0000_0000_0002,
            first_id: 0x1000,
            first_qpn: 0xA00,
        })
    }

    fn management(&mut self) -> Result<&mut Management> {
        self.node().engine.management().ok_or_else(|| broken("nobody manages connections"))
    }

    /// Does what a server does about what has happened, and says whether anything has.
    pub fn serve(&mut self) -> bool {
        let events: Vec<Event> = self.node().engine.take_connection_events().collect();
        let any = !events.is_empty();
        for event in events {
            let now = self.world().now;
            match event {
                Event::Request(request) => self.accept(request.id).expect("a request"),
                Event::SidrRequest { id, .. } => {
                    let reply =
                        SidrReply { qpn: Qpn::new(0x55), qkey: Qkey(0x0123_4567), ..SidrReply::default() };
                    self.management().expect("there").cm().sidr_reply(id, &reply).expect("a question");
                }
                Event::Disconnected { id, .. } => {
                    // It may be that the NIC itself wanted to, and then there is nothing to agree to.
                    let _agreed = self.management().expect("there").cm().disconnect(now, id, &[]);
                    self.close(id);
                }
                Event::Rejected { id, .. } => self.close(id),
                _ => {}
            }
        }
        any
    }

    fn accept(&mut self, id: CommId) -> Result {
        let cq = self.cq();
        let node = self.node();
        let receive = ReceiveSource::Own(4);
        let (pd, service) = (node.pd, QpType::Rc);
        let init = QpInit { service, pd, send_cq: cq, recv_cq: cq, max_send_wr: 4, receive };
        let handle = node.engine.create_qp(init).map_err(broken)?;
        let (key, qpn) = (handle.key, handle.qpn);
        let now = self.world().now;
        let accepted = AcceptParams {
            qpn,
            starting_psn: Psn::new(FIRST_PSN),
            responder_resources: 4,
            initiator_depth: 4,
            rnr_retry: 7,
            ..AcceptParams::default()
        };
        self.management()?.cm().accept(now, id, &accepted).map_err(broken)?;
        let params = self.management()?.cm().qp_params(id).ok_or_else(|| broken("no attributes"))?;
        let agreement = Agreement {
            mtu: params.path.mtu,
            timeout: params.timeout,
            retry_cnt: params.retry_count,
            rnr_retry: params.rnr_retry,
            rnr_timer: 12,
            rd_atomic: 4,
            tos: 0,
        };
        let psns = (params.sq_psn, params.rq_psn);
        let world = self.world();
        let mut attr = world.attributes(0, 0, params.dest_qpn, &agreement, psns);
        attr.path.dst = REMOTE.into();
        // Those that the RDMA CM of a kernel gives.
        attr.access =
            QpAccess { remote_read: true, remote_write: true, remote_atomic: true, ..QpAccess::default() };
        world.bring_up(0, key, service, &attr);
        self.served.push((id, handle));
        Ok(())
    }

    /// The connection has ended, and its QP with it.
    fn close(&mut self, id: CommId) {
        let Some(at) = self.served.iter().position(|(known, _)| *known == id) else { return };
        let (_, handle) = self.served.remove(at);
        self.world().go(0, handle.key, QpState::Err);
    }
}
