//! How queue pairs are connected, and whether the two ends of a connection fit.

use softrnic_transport::QpState;
use softrnic_wire::Gid;

use crate::checker::{Checker, made};
use crate::finding::{Finding, Part};
use crate::object::Facts;
use crate::{Kind, Trace};

/// What a call of `ibv_modify_qp` has set.
#[derive(Clone, Copy, Default, Debug)]
pub struct Change {
    /// The state.
    pub state: Option<QpState>,
    /// The number of the QP at the other end.
    pub dest: Option<u32>,
    /// The PSN with which the other end begins.
    pub rq_psn: Option<u32>,
    /// The PSN with which this end begins.
    pub sq_psn: Option<u32>,
    /// The path MTU in bytes.
    pub mtu: Option<u32>,
    /// The address of the other end.
    pub peer: Option<Gid>,
    /// The Q_Key.
    pub qkey: Option<u32>,
    /// The timeout.
    pub timeout: Option<u8>,
}

/// What a QP was told about its peer, and where.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Connection {
    now: Change,
    receives: Trace,
    sends: Trace,
    keyed: Trace,
}

impl Connection {
    /// The address of the other end.
    pub fn peer(&self) -> Option<Gid> {
        self.now.peer
    }

    /// Where the QP went to RTR.
    pub fn ready(&self) -> Trace {
        self.receives
    }

    /// Where its Q_Key was set.
    pub fn keyed(&self) -> Trace {
        self.keyed
    }
}

impl Checker {
    /// The program has changed a QP.
    pub fn modified(&mut self, qpn: u32, change: Change, trace: Trace) {
        if change.state == Some(QpState::Reset) {
            self.forget(qpn);
        }
        let connection = self.connections.entry(qpn).or_default();
        let now = &mut connection.now;
        now.state = change.state.or(now.state);
        now.dest = change.dest.or(now.dest);
        now.rq_psn = change.rq_psn.or(now.rq_psn);
        now.sq_psn = change.sq_psn.or(now.sq_psn);
        now.mtu = change.mtu.or(now.mtu);
        now.peer = change.peer.or(now.peer);
        now.qkey = change.qkey.or(now.qkey);
        if change.rq_psn.is_some() || change.state == Some(QpState::Rtr) {
            connection.receives = trace;
        }
        if change.qkey.is_some() {
            connection.keyed = trace;
        }
        if change.sq_psn.is_some() {
            connection.sends = trace;
        }
        if change.timeout == Some(0)
            && let Some(Facts::Qp { reliable: true, .. }) = self.history.qp(qpn).map(|qp| &qp.facts)
        {
            let what = format!("QP {qpn:#x}: timeout is 0, so a packet that is lost is never sent again");
            let parts = vec![Part { says: "ibv_modify_qp was called".into(), trace }];
            self.find(Finding { kind: Kind::EndlessTimeout, what, parts });
        }
    }

    /// What does not fit between a QP and its peer, which are both of this process.
    pub(crate) fn misfit(&self, qpn: u32, peer: u32) -> Option<(String, Vec<Part>)> {
        let here = self.connections.get(&qpn)?;
        let name = format!("QP {peer:#x}");
        let Some(there) = self.connections.get(&peer) else {
            return Some((format!("{name} is in RESET"), Vec::new()));
        };
        let told =
            |what: &str, qpn: u32, trace| Part { says: format!("{what} of QP {qpn:#x} was set"), trace };
        if let Some(state @ (QpState::Reset | QpState::Init | QpState::Err)) = there.now.state {
            return Some((format!("{name} is in {}", state.name()), Vec::new()));
        }
        let service = |qpn| self.history.qp(qpn).and_then(|qp| Some((qp, qp.facts.service()?)));
        if let (Some((_, here)), Some((object, there))) = (service(qpn), service(peer))
            && here != there
        {
            return Some((
                format!("{name} is of the service {there}, this one of {here}"),
                vec![made(object)],
            ));
        }
        if let Some(dest) = there.now.dest
            && dest != qpn
        {
            let parts = vec![told("dest_qp_num", peer, there.receives)];
            return Some((format!("{name} is connected to QP {dest:#x}"), parts));
        }
        if let (Some(sends), Some(expects)) = (here.now.sq_psn, there.now.rq_psn)
            && sends != expects
        {
            let parts = vec![told("sq_psn", qpn, here.sends), told("rq_psn", peer, there.receives)];
            return Some((format!("sq_psn is {sends:#x} here, and rq_psn of {name} is {expects:#x}"), parts));
        }
        if let (Some(mtu), Some(other)) = (here.now.mtu, there.now.mtu)
            && mtu != other
        {
            let parts = vec![told("path_mtu", qpn, here.receives), told("path_mtu", peer, there.receives)];
            return Some((format!("path_mtu is {mtu} here, and {other} of {name}"), parts));
        }
        None
    }
}
