//! Why messages of SRD fail, for whoever is told: what the endpoint says by a number alone.

use std::net::{IpAddr, Ipv4Addr};

use softrnic_diagnosis::{Denied, KeyDenied};
use softrnic_memory::Access;
use softrnic_srd::Code;
use softrnic_transport::{Attempt, Failure, QpFacts, QpType, Reason, RemoteBuffer, SendOp, WcOpcode};
use softrnic_wire::{Qpn, Rkey, SrdBody};

use super::super::attention::Act;
use super::super::data::{LocalData, SendRequest};
use super::super::objects::QpKey;
use super::View;

/// How often a QP tells that it refuses something: anybody may send it messages.
const MOST_REFUSALS: u8 = 16;

/// The packet that is being received.
#[derive(Clone, Copy)]
pub(super) struct Arrived {
    pub own: IpAddr,
    /// Who has sent it.
    pub from: (IpAddr, Qpn),
    pub body: SrdBody,
}

impl View<'_, '_> {
    /// What the engine does to memory, or is about to do.
    pub(super) fn tell(&self, act: &Act<'_>) {
        if self.shared.is_attended
            && let Some(watch) = self.shared.diagnoses.watch().filter(|watch| watch.sees_memory())
        {
            watch.saw(act);
        }
    }

    fn facts(&self, qp: QpKey, own: IpAddr, peer: (IpAddr, Qpn)) -> Option<QpFacts> {
        let slot = self.qps.get(qp)?;
        let attr = slot.qp.attr();
        Some(QpFacts {
            qpn: slot.io.qpn,
            service: QpType::Srd,
            state: slot.qp.state(),
            own,
            peer,
            retries: attr.retry_cnt,
            rnr_retries: attr.rnr_retry,
            timeout: attr.timeout,
        })
    }

    /// A request of this side has failed.
    #[cold]
    pub(super) fn diagnose(&mut self, qp: QpKey, wqe: &SendRequest, code: Code) {
        let reason = match code {
            Code::Ok | Code::Flushed => return,
            Code::QpInternal => Reason::Internal,
            Code::UnsupportedOp => Reason::WrongService,
            Code::InvalidAh => Reason::AddressHandle,
            Code::InvalidLkey => Reason::LocalMemory,
            Code::BadLength => Reason::NoForm,
            Code::BadAddress => Reason::NakRemoteAccess,
            Code::BadDestination => Reason::NakDestination,
            Code::ReceiverNotReady => Reason::ReceiverNotReady,
            Code::ReceiveTooShort => Reason::NakInvalidRequest,
            Code::BadStatus => Reason::NakRemoteOperation,
            Code::Aborted | Code::Unresponsive | Code::Unreachable => Reason::NoAnswer,
        };
        let nowhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let (own, peer) = match wqe.op {
            SendOp::Srd { handle, dest_qpn, .. } => {
                let place = self.around.handles.places.get(usize::from(handle)).copied().flatten();
                place.map_or((nowhere, (nowhere, dest_qpn)), |place| (place.local, (place.remote, dest_qpn)))
            }
            _ => (nowhere, (nowhere, Qpn::SMI)),
        };
        let Some(facts) = self.facts(qp, own, peer) else { return };
        let attempt = Attempt::of(wqe);
        let denied = match reason {
            Reason::LocalMemory => self.local_denial(qp, &wqe.data, attempt.opcode == WcOpcode::RdmaRead),
            _ => None,
        };
        let failure = Failure { reason, attempt: Some(attempt), qp: facts, since: None };
        let heard = self.qps.get(qp).map_or(0, |slot| slot.io.counts.packets_received);
        self.shared.diagnoses.conclude(failure, denied, heard, self.now);
    }

    /// The message that is being received is refused. `receive` is the number of a receive and what that can take.
    #[cold]
    pub(super) fn refuse(
        &mut self,
        qp: QpKey,
        reason: Reason,
        denied: Option<Denied>,
        receive: Option<(u64, u32)>,
    ) {
        let Some(Arrived { own, from, body }) = self.packet else { return };
        let (opcode, length, remote) = match body {
            SrdBody::Send(_, part, _) => (WcOpcode::Send, part.length, None),
            SrdBody::Write(_, part, remote, _) => (WcOpcode::RdmaWrite, part.length, Some(remote)),
            SrdBody::ReadRequest(_, part, remote) => (WcOpcode::RdmaRead, part.length, Some(remote)),
            _ => return,
        };
        let Some(slot) = self.qps.get_mut(qp) else { return };
        let trouble = slot.io.trouble.get_or_insert_default();
        if trouble.refusals == MOST_REFUSALS {
            return;
        }
        trouble.refusals += 1;
        let heard = slot.io.counts.packets_received;
        let Some(facts) = self.facts(qp, own, from) else { return };
        let attempt = Attempt {
            opcode,
            wr_id: receive.map(|(wr_id, _)| wr_id),
            length: length.into(),
            remote: remote.map(|remote| RemoteBuffer { va: remote.va, rkey: remote.rkey }),
            room: receive.map(|(_, room)| room),
        };
        let failure = Failure { reason, attempt: Some(attempt), qp: facts, since: None };
        self.shared.diagnoses.conclude(failure, denied, heard, self.now);
    }

    /// Why a peer may not use a key.
    #[cold]
    pub(super) fn refuse_key(&mut self, qp: QpKey, rkey: Rkey, (addr, length): (u64, u64), needed: Access) {
        let Some(io) = self.qps.get(qp).map(|slot| &slot.io) else { return };
        let denial = self.memory.explain_remote(io.pd, io.qpn, rkey, addr, length, needed);
        let denied =
            denial.map(|denial| Denied::Key(KeyDenied { key: rkey.0, remote: true, addr, length, denial }));
        self.refuse(qp, Reason::RemoteMemory, denied, None);
    }

    /// Why the bytes of a request or a receive may not be used.
    #[cold]
    pub(super) fn local_denial(&self, qp: QpKey, data: &LocalData, write: bool) -> Option<Denied> {
        let pd = self.qps.get(qp)?.io.pd;
        let LocalData::Sges(list) = data else { return None };
        list.iter().find_map(|sge| {
            let length = sge.length.into();
            let denial = self.memory.explain_local(pd, sge.lkey, sge.addr, length, write)?;
            Some(Denied::Key(KeyDenied { key: sge.lkey.0, remote: false, addr: sge.addr, length, denial }))
        })
    }
}
