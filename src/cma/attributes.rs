//! The attributes to set on a QP, and queries about an identifier.

use softrnic_transport::{AttrMask, MAX_RD_ATOMIC, QpAccess, QpAttr, QpState, QpType};
use softrnic_wire::Gid;

use super::error::Error;
use super::params::Query;
use super::state::{State, UDP_QKEY};
use softrnic_nic::verbs::QpAttributes;

const TO_INIT: AttrMask = AttrMask::STATE.union(AttrMask::PKEY_INDEX).union(AttrMask::PORT);
const TO_RTR: AttrMask = AttrMask::STATE
    .union(AttrMask::AV)
    .union(AttrMask::PATH_MTU)
    .union(AttrMask::DEST_QPN)
    .union(AttrMask::RQ_PSN);
const RESPONDER: AttrMask = AttrMask::MAX_DEST_RD_ATOMIC.union(AttrMask::MIN_RNR_TIMER);
const TO_RTS: AttrMask = AttrMask::STATE.union(AttrMask::SQ_PSN);
const REQUESTER: AttrMask = AttrMask::RETRY_CNT.union(AttrMask::RNR_RETRY).union(AttrMask::MAX_QP_RD_ATOMIC);

impl State {
    /// Kernel: `rdma_init_qp_attr`, `cm_init_qp_init_attr` and so on.
    pub fn qp_attributes(&self, number: u32, state: QpState) -> Result<(QpAttributes, AttrMask), Error> {
        let entry = self.entry(number)?;
        let device_index = entry.device.ok_or(Error::Invalid)?;
        let mut attr = QpAttr { state, ..QpAttr::default() };
        if entry.is_datagram() {
            attr.qkey = UDP_QKEY;
            return Ok((without_address(attr), TO_INIT.union(AttrMask::QKEY)));
        }
        let Some(comm) = entry.comm else {
            if entry.connected {
                // Nothing is known about a connection that no longer exists.
                return Err(Error::Invalid);
            }
            return Ok((without_address(attr), TO_INIT.union(AttrMask::ACCESS_FLAGS)));
        };
        let at = self.with_cm(device_index, |management, _| management.cm().state(comm))?;
        if !at.is_some_and(softrnic_cm::State::is_usable) {
            return Err(Error::Invalid);
        }
        let (responder_resources, initiator_depth) =
            entry.heard.unwrap_or((entry.said.responder_resources, entry.said.initiator_depth));
        if state == QpState::Init {
            let serves = responder_resources != 0;
            attr.access = QpAccess {
                remote_write: true,
                remote_read: serves,
                remote_atomic: serves,
                ..QpAccess::default()
            };
            return Ok((without_address(attr), TO_INIT.union(AttrMask::ACCESS_FLAGS)));
        }
        let params = self.with_cm(device_index, |management, _| management.cm().qp_params(comm))?;
        let params = params.ok_or(Error::Invalid)?;
        let service = entry.kind.service;
        let mask = match state {
            QpState::Rtr => {
                let responds = matches!(service, QpType::Rc | QpType::XrcTarget);
                if responds { TO_RTR.union(RESPONDER) } else { TO_RTR }
            }
            QpState::Rts => match service {
                QpType::Rc | QpType::XrcInitiator => TO_RTS.union(REQUESTER).union(AttrMask::TIMEOUT),
                QpType::XrcTarget => TO_RTS.union(AttrMask::TIMEOUT),
                _ => TO_RTS,
            },
            _ => return Err(Error::Invalid),
        };
        attr.mtu = params.path.mtu;
        attr.dest_qpn = params.dest_qpn;
        attr.rq_psn = entry.psn;
        attr.sq_psn = params.sq_psn;
        attr.max_dest_rd_atomic = responder_resources.min(MAX_RD_ATOMIC);
        attr.max_rd_atomic = initiator_depth.min(MAX_RD_ATOMIC);
        attr.timeout = entry.ack_timeout.unwrap_or(params.timeout).min(31);
        attr.retry_cnt = params.retry_count.min(7);
        attr.rnr_retry = params.rnr_retry.min(7);
        Ok((QpAttributes { transport: attr, address: Some(self.way_to(number)?) }, mask))
    }

    pub fn query(&self, number: u32) -> Result<Query, Error> {
        let entry = self.entry(number)?;
        let device = entry.device.and_then(|device_index| self.device(device_index).ok());
        let route = entry.route.filter(|_| device.is_some());
        Ok(Query {
            kind: entry.kind,
            device: device.map(|device| device.identity),
            local: entry.local,
            peer: entry.peer,
            local_gid: route.map(|route| Gid::from(route.local)).unwrap_or_default(),
            peer_gid: route
                .filter(|route| !route.remote.is_unspecified())
                .map(|route| Gid::from(route.remote))
                .unwrap_or_default(),
            pkey: 0xFFFF,
            path: entry.path,
        })
    }
}

fn without_address(transport: QpAttr) -> QpAttributes {
    QpAttributes { transport, address: None }
}
