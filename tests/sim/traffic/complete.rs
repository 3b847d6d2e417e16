//! Checks completions: each comes once, in order, with the right status, after its bytes.

use softrnic_engine::{Cqe, CqeExtra};
use softrnic_transport::{QpType, Status, WcOpcode};

use super::endpoint::{Effect, Endpoint, Message, Posted, Receive, total};
use super::window::Phase;
use super::{Event, Traffic};
use crate::arena::Span;
use crate::rng::pattern;

impl Traffic {
    /// Takes every completion there is. A message's receive completes before its ACK leaves, so receives are
    /// looked at first.
    pub(super) fn poll(&mut self) {
        let mut sends = Vec::new();
        for node in 0..self.world.nodes.len() {
            for cq in self.sites[node].cqs.clone() {
                while let Some(cqe) = self.world.nodes[node].cqs.get_mut(&cq).and_then(|ring| ring.pop()) {
                    match cqe.opcode.is_receive() {
                        true => self.complete(node, cqe),
                        false => sends.push((node, cqe)),
                    }
                }
            }
        }
        sends.into_iter().for_each(|(node, cqe)| self.complete(node, cqe));
    }

    fn complete(&mut self, node: usize, cqe: Cqe) {
        let Some(&(index, side)) = self.by_qpn.get(&(node, cqe.qpn)) else {
            panic!("a completion of a QP that is gone: {cqe:?}");
        };
        let mut ends = self.connections[index].ends.take().expect("an open connection");
        assert!(!ends[side].gone, "a completion of a QP that was reset or destroyed: {cqe:?}");
        if cqe.opcode.is_receive() {
            self.complete_receive(index, side, &mut ends[side], cqe);
        } else {
            self.complete_send(index, side, &mut ends, cqe);
        }
        self.connections[index].ends = Some(ends);
    }

    fn complete_send(&mut self, index: usize, side: usize, ends: &mut [Endpoint; 2], cqe: Cqe) {
        loop {
            let posted = ends[side].outstanding.pop_front();
            let posted =
                posted.unwrap_or_else(|| panic!("a completion of nothing that is outstanding: {cqe:?}"));
            if posted.wr_id == cqe.wr_id {
                assert_eq!(cqe.opcode, posted.opcode, "{cqe:?}");
                return self.judge_send(index, side, ends, posted, cqe);
            }
            // A later completion stands for earlier unsignaled requests, if they succeeded.
            assert!(!posted.signaled, "{} has not completed, but {cqe:?}", posted.wr_id);
            assert_eq!(ends[side].send_error, None, "{} was not flushed, but {cqe:?}", posted.wr_id);
            self.succeed(side, ends, posted);
        }
    }

    fn judge_send(&mut self, index: usize, side: usize, ends: &mut [Endpoint; 2], posted: Posted, cqe: Cqe) {
        let end = &mut ends[side];
        if cqe.status == Status::Success {
            assert!(posted.signaled, "reported, though unsignaled: {cqe:?}");
            assert_eq!(end.send_error, None, "success after an error: {cqe:?}");
            assert_eq!(posted.must_fail, None, "success of what must fail: {cqe:?}");
            assert_eq!(cqe.byte_len, posted.length, "{cqe:?}");
            self.summary.sends += 1;
            return self.succeed(side, ends, posted);
        }
        let connection = &self.connections[index];
        let plan = connection.plan;
        match end.send_error {
            Some(first) => assert_eq!(cqe.status, Status::Flushed, "after {first:?}: {cqe:?}"),
            None => {
                let expected = match cqe.status {
                    Status::Flushed => connection.disturbed || !plan.robust,
                    Status::RetryExceeded => connection.disturbed || !plan.robust,
                    Status::RnrRetryExceeded => !plan.robust && plan.agreement.rnr_retry < 7,
                    status => posted.must_fail == Some(status),
                };
                assert!(expected, "{cqe:?} for {:?} of {plan:?}", posted.effect);
                self.summary.failures += 1;
                end.send_error = Some(cqe.status);
            }
        }
        let (node, peer) = (end.node, ends[1 - side].node);
        let limbo = self.abandon(node, peer, posted);
        ends[side].limbo.extend(limbo);
    }

    /// A request has succeeded: its effect is there, complete.
    pub(super) fn succeed(&mut self, side: usize, ends: &mut [Endpoint; 2], posted: Posted) {
        let (node, peer) = (ends[side].node, ends[1 - side].node);
        match posted.effect {
            Effect::None => {}
            Effect::Bind { key } => {
                if let Some(window) = &mut ends[side].window {
                    (window.key, window.phase) = (key, Phase::Bound);
                }
            }
            Effect::Unbind => {
                if let Some(window) = &mut ends[side].window {
                    window.phase = Phase::Free;
                }
            }
            Effect::WindowWrite { id } => {
                if let Some(window) = &mut ends[1 - side].window {
                    let arena = &mut self.world.nodes[peer].arena;
                    arena.settle(window.span, &pattern(id, window.span.len), "what a window shows");
                    window.phase = Phase::Bound;
                    self.summary.windows += 1;
                }
            }
            Effect::Write { target, id } => {
                let is_awaited = |message: &Message| message.written == Some(target);
                // UC: it may arrive later, in part, or never. Immediate data: the receiver has yet to look at it.
                if ends[side].service == QpType::Uc || ends[1 - side].incoming.iter().any(is_awaited) {
                    ends[side].limbo.push(target);
                } else {
                    let arena = &mut self.world.nodes[peer].arena;
                    arena.settle(target, &pattern(id, target.len), "the target of a WRITE");
                    arena.give_back(target);
                }
            }
            Effect::Read { source, id, kept } => {
                let bytes = pattern(id, source.len);
                let sink = if kept.is_empty() { &posted.local } else { &kept };
                self.settle(node, sink, &bytes, "what a READ has brought");
                self.world.nodes[peer].arena.give_back(source);
            }
            Effect::Word { index, original } => {
                ends[side].words[index].values.pop_front();
                if let Some(original) = original {
                    self.settle(node, &posted.local, &original.to_ne_bytes(), "the former value of a word");
                }
            }
            Effect::Shared => {
                let bytes: Vec<u8> =
                    posted.local.iter().flat_map(|&span| self.world.nodes[node].arena.read(span)).collect();
                let word = &mut self.sites[peer].word;
                let original = u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
                assert!(word.seen.insert(original), "two additions have found {original}");
                word.added += 1;
            }
        }
        self.give_back(node, posted.local);
    }

    /// A request whose fate is not known. Returns memory of the peer that may still be written.
    pub(super) fn abandon(&mut self, node: usize, peer: usize, posted: Posted) -> Option<Span> {
        let mut limbo = None;
        match posted.effect {
            Effect::None | Effect::Word { .. } => {}
            Effect::Bind { .. } | Effect::Unbind | Effect::WindowWrite { .. } => {}
            Effect::Write { target, .. } => limbo = Some(target),
            Effect::Read { source, kept, .. } => {
                kept.into_iter().for_each(|span| self.world.nodes[node].arena.settle_unknown(span));
                self.world.nodes[peer].arena.give_back(source);
            }
            Effect::Shared => self.sites[peer].word.unsure += 1,
        }
        self.give_back(node, posted.local);
        limbo
    }

    fn settle(&mut self, node: usize, spans: &[Span], bytes: &[u8], what: &str) {
        let mut rest = bytes;
        for &span in spans {
            let (part, more) = rest.split_at(span.len);
            self.world.nodes[node].arena.settle(span, part, what);
            rest = more;
        }
        assert!(rest.is_empty());
    }

    fn complete_receive(&mut self, index: usize, side: usize, end: &mut Endpoint, cqe: Cqe) {
        let plan = self.connections[index].plan;
        let node = end.node;
        let which = usize::from(end.service == QpType::XrcTarget);
        let receive = if end.qp.receives.is_some() {
            let receive = end.receives.pop_front();
            let receive = receive.unwrap_or_else(|| panic!("a receive that was not posted: {cqe:?}"));
            assert_eq!(receive.wr_id, cqe.wr_id, "receives complete in order: {cqe:?}");
            receive
        } else {
            let receive = self.shared(node, which).posted.remove(&cqe.wr_id);
            receive.unwrap_or_else(|| panic!("a receive that was not posted: {cqe:?}"))
        };
        if cqe.status == Status::Success {
            assert_eq!(end.receive_error, None, "success after an error: {cqe:?}");
            self.summary.receives += 1;
            match end.service {
                QpType::Uc | QpType::Ud => self.unreliable_receive(end, &receive, cqe),
                _ => {
                    let message = end.incoming.pop_front();
                    let message = message.unwrap_or_else(|| panic!("a message that nobody sent: {cqe:?}"));
                    self.check_message(node, &receive, cqe, message);
                    if let (Some(_), Some(window)) = (message.invalidates, &mut end.window) {
                        window.phase = Phase::Free;
                    }
                }
            }
        } else {
            let disturbed = self.connections[index].disturbed || !plan.robust;
            assert!(disturbed, "{cqe:?} on {plan:?}");
            let expected = match end.receive_error {
                Some(_) => cqe.status == Status::Flushed,
                None => {
                    matches!(cqe.status, Status::Flushed | Status::LocalLength | Status::RemoteInvalidRequest)
                }
            };
            assert!(expected, "{cqe:?} after {:?}", end.receive_error);
            end.receive_error.get_or_insert(cqe.status);
            if end.qp.receives.is_none() {
                end.receive_error = Some(cqe.status);
            }
        }
        self.give_back(node, receive.buffer);
        if end.qp.receives.is_none() {
            self.refill_soon(node, which);
        } else if cqe.status == Status::Success {
            self.soon(300, Event::Receive(index, side));
        }
    }

    /// What was received is the message, and nothing behind it has changed.
    fn check_message(&mut self, node: usize, receive: &Receive, cqe: Cqe, message: Message) {
        assert_eq!(cqe.byte_len as usize, message.len, "{cqe:?} of {message:?}");
        assert_eq!(cqe.extra, extra(&message), "{cqe:?} of {message:?}");
        let bytes = pattern(message.id, message.len);
        match message.written {
            Some(target) => {
                assert_eq!(cqe.opcode, WcOpcode::RecvRdmaWithImm, "{cqe:?}");
                let found = self.world.nodes[node].arena.read(target);
                assert_eq!(found.len(), bytes.len());
                assert!(found == bytes, "the bytes of a WRITE with immediate data are not there: {cqe:?}");
            }
            None => {
                assert_eq!(cqe.opcode, WcOpcode::Recv, "{cqe:?}");
                let found = self.contents(node, &receive.buffer);
                assert!(
                    found[..message.len] == bytes[..],
                    "another message than was sent: {cqe:?} {message:?} {:?} for {:?}",
                    &found[..found.len().min(32)],
                    &bytes[..message.len.min(32)]
                );
            }
        }
    }

    /// The bytes of a buffer.
    pub(super) fn contents(&self, node: usize, buffer: &[Span]) -> Vec<u8> {
        let arena = &self.world.nodes[node].arena;
        let mut bytes = Vec::with_capacity(total(buffer));
        buffer.iter().for_each(|&span| bytes.extend(arena.read(span)));
        bytes
    }
}

/// What a message's completion says besides.
pub(super) fn extra(message: &Message) -> CqeExtra {
    match (message.imm, message.invalidates) {
        (Some(imm), _) => CqeExtra::Imm(imm),
        (None, Some(rkey)) => CqeExtra::Invalidated(rkey),
        (None, None) => CqeExtra::None,
    }
}
