//! Memory windows of type 2: bound by one end, written through by the other, ended by either.

use softrnic_engine::LocalData;
use softrnic_memory::{Access, BindSpec, MwType};
use softrnic_transport::{LocalOp, QpType, RemoteBuffer, SendOp, SendTail};
use softrnic_wire::Rkey;

use super::Traffic;
use super::endpoint::{Effect, Endpoint, Message};
use super::operation::Draft;
use crate::arena::Span;

/// Bytes that a window shows.
const SHOWN: usize = 700;

/// A window and the memory that it shows, both of one end.
pub struct Window {
    /// Its present key.
    pub key: Rkey,
    /// What it shows.
    pub span: Span,
    /// Whether it can be used.
    pub phase: Phase,
}

/// How far a window is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// It shows nothing.
    Free,
    /// Something that changes or uses it is outstanding.
    Busy,
    /// The peer may use it.
    Bound,
}

impl Traffic {
    /// Gives an end of a reliable connection a window.
    pub(super) fn add_window(&mut self, end: &mut Endpoint) {
        let node = &mut self.world.nodes[end.node];
        if end.service != QpType::Rc {
            return;
        }
        let Some(span) = node.arena.take(SHOWN, 1) else { return };
        let key = node.engine.memory().alloc_mw(node.pd, MwType::Type2).expect("a window");
        end.window = Some(Window { key, span, phase: Phase::Free });
    }

    pub(super) fn remove_window(&mut self, end: &Endpoint) {
        if let Some(window) = &end.window {
            let node = &mut self.world.nodes[end.node];
            node.engine.memory().dealloc_mw(window.key).expect("deallocated");
            node.arena.give_back(window.span);
        }
    }

    /// A request that binds, uses or ends a window, if one can be posted now.
    pub(super) fn window_operation(&mut self, side: usize, ends: &mut [Endpoint; 2]) -> Option<Draft> {
        let (own, peer) = (ends[side].window.as_ref()?.phase, ends[1 - side].window.as_ref()?.phase);
        match (own, peer) {
            (Phase::Free, _) => self.bind(&mut ends[side]),
            (_, Phase::Bound) => self.use_window(side, ends),
            (Phase::Bound, _) if self.rng.chance(0.3) => {
                let window = ends[side].window.as_mut()?;
                window.phase = Phase::Busy;
                let op = SendOp::Local(LocalOp::Invalidate(window.key));
                Some(Draft::new(op, (LocalData::empty(), Vec::new()), 0, Effect::Unbind))
            }
            _ => None,
        }
    }

    fn bind(&mut self, end: &mut Endpoint) -> Option<Draft> {
        let node = &self.world.nodes[end.node];
        let window = end.window.as_mut()?;
        let sge = node.sge(window.span, 0);
        let tag = self.rng.next() as u8;
        let spec = BindSpec {
            mw: window.key,
            tag,
            mr: sge.lkey,
            addr: sge.addr,
            length: sge.length.into(),
            access: Access::REMOTE_WRITE | Access::REMOTE_READ,
        };
        window.phase = Phase::Busy;
        let key = Rkey(window.key.0 & !0xFF | u32::from(tag));
        let (op, data) = (SendOp::Local(LocalOp::BindWindow), LocalData::Bind(Box::new(spec)));
        Some(Draft::new(op, (data, Vec::new()), 0, Effect::Bind { key }))
    }

    /// Writes all that the peer's window shows, or ends the window with a SEND.
    fn use_window(&mut self, side: usize, ends: &mut [Endpoint; 2]) -> Option<Draft> {
        let writes = self.rng.chance(0.6);
        let len = if writes { SHOWN } else { 8 };
        let (local, id) = self.source(ends[side].node, len)?;
        let peer = ends[1 - side].node;
        let window = ends[1 - side].window.as_mut()?;
        window.phase = Phase::Busy;
        if !writes {
            let op = SendOp::Send(SendTail::Inv(window.key));
            let mut draft = Draft::new(op, local, len, Effect::None);
            let invalidates = Some(window.key);
            draft.message = Some(Message { id, len, written: None, imm: None, invalidates });
            return Some(draft);
        }
        self.world.nodes[peer].arena.expose(window.span);
        let va = self.world.nodes[peer].sge(window.span, 0).addr;
        let op = SendOp::Write { remote: RemoteBuffer { va, rkey: window.key }, imm: None };
        Some(Draft::new(op, local, len, Effect::WindowWrite { id }))
    }
}
