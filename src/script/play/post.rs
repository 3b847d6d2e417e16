//! Work requests, with the numbers that their names stand for.

use super::{Player, Result};
use crate::pattern::pattern;
use crate::statement::{Kind, Post, Value};
use crate::target::{Op, Posted, Request};

impl Player<'_> {
    pub(super) fn request(&self, told: &Post) -> Result<Request> {
        let value = |field, value: &Option<Value>| match value {
            Some(value) => self.names.value(field, value),
            None => Ok(0),
        };
        let va = value("va", &told.to)?;
        let rkey = value("key", &told.key)? as u32;
        let srqn = match &told.srq {
            Some(srq) => Some(self.names.value("srq", srq)? as u32),
            None => None,
        };
        let (imm, first, second) = (told.imm, told.first, told.second);
        let op = match told.kind {
            Kind::Send => Op::Send { imm, invalidate: told.invalidate },
            Kind::Write => Op::Write { va, rkey, imm },
            Kind::Read => Op::Read { va, rkey },
            Kind::CompareSwap => Op::CompareSwap { va, rkey, compare: first, swap: second },
            Kind::FetchAdd => Op::FetchAdd { va, rkey, add: second },
            Kind::AtomicWrite => Op::AtomicWrite { va, rkey },
            Kind::Flush => Op::Flush { va, rkey, length: first as u32, whole: told.whole },
            Kind::Datagram => {
                let qpn = if second == 0 { self.names.qp(&told.qp)?.peer } else { second as u32 };
                Op::Datagram { qpn, qkey: first as u32, imm }
            }
            Kind::Invalidate => Op::Invalidate { rkey },
            Kind::FastRegister => Op::FastRegister { lkey: rkey, new_key: rkey & !0xFF | first as u32 },
            Kind::Bind => Op::Bind { window: rkey, tag: first as u8 },
        };
        let window = match &told.key {
            Some(Value::Name { name, .. }) => Some(name.clone()),
            _ => None,
        };
        Ok(Request {
            wr_id: told.wr,
            op,
            sges: told.pieces.iter().map(|piece| self.names.sge(piece)).collect::<Result<_>>()?,
            inline: told.inline.map(|(id, len)| pattern(id, len)),
            srqn,
            fence: told.fence,
            solicited: told.solicited,
            signaled: told.signaled,
            named: Posted { memory: told.pieces.first().map(|piece| piece.place.memory.clone()), window },
        })
    }
}
