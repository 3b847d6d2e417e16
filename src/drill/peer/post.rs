//! How the agent is told what to post.

use std::fmt::Write as _;

use softrnic_script::{Op, Request, Sge, Trouble};

use super::{Peer, Result};

impl Peer<'_> {
    /// The command that posts a request.
    pub(super) fn post_command(&self, qp: &str, request: &Request) -> Result<String> {
        let mut command = format!("post qp={} wr={}", self.id(qp)?, request.wr_id);
        let flag = |on: bool| u8::from(on);
        let (fence, solicited, signaled) =
            (flag(request.fence), flag(request.solicited), flag(request.signaled));
        let _ = write!(command, " fence={fence} solicited={solicited} signaled={signaled}");
        let _ = write!(command, " op={}{}", self.operation(request)?, sge_words(&request.sges));
        if let Some(srqn) = request.srqn {
            let _ = write!(command, " srqn={srqn}");
        }
        // The value of a bind is its tag.
        if let (Some(bytes), false) = (&request.inline, matches!(request.op, Op::Bind { .. })) {
            let _ = write!(command, " inline={}", hex(bytes));
        }
        Ok(command)
    }

    /// What is posted, with its own attributes.
    fn operation(&self, request: &Request) -> Result<String> {
        let with = |name: &str, imm: Option<u32>| match imm {
            Some(imm) => format!("{name}_imm imm={imm}"),
            None => name.to_owned(),
        };
        Ok(match request.op {
            Op::Send { imm: None, invalidate: Some(key) } => format!("send_inv rkey={key}"),
            Op::Send { imm, .. } => with("send", imm),
            Op::Write { va, rkey, imm } => format!("{} va={va} rkey={rkey}", with("write", imm)),
            Op::Read { va, rkey } => format!("read va={va} rkey={rkey}"),
            Op::CompareSwap { va, rkey, compare, swap } => {
                format!("cas va={va} rkey={rkey} compare={compare} swap={swap}")
            }
            Op::FetchAdd { va, rkey, add } => format!("faa va={va} rkey={rkey} add={add}"),
            Op::AtomicWrite { va, rkey } => format!("atomic_write va={va} rkey={rkey}"),
            Op::Flush { va, rkey, length, whole } => {
                format!("flush va={va} rkey={rkey} length={length} whole={}", u8::from(whole))
            }
            Op::Datagram { qpn, qkey, imm } => format!("{} dest={qpn} qkey={qkey}", with("send", imm)),
            Op::Invalidate { rkey } => format!("invalidate rkey={rkey}"),
            Op::FastRegister { .. } => {
                return Err(Trouble::NotApplicable("verbs of user space have no fast registration".into()));
            }
            Op::Bind { tag, .. } => {
                let window = request.named.window.as_deref().ok_or_else(|| {
                    Trouble::NotApplicable("verbs bind windows that exist, not keys".into())
                })?;
                let memory = request.named.memory.as_deref().unwrap_or_default();
                let zero = u8::from(self.zero_based.get(memory).copied().unwrap_or(false));
                format!("bind mw={} mr={} tag={tag} zero={zero}", self.id(window)?, self.id(memory)?)
            }
        })
    }
}

/// Bytes as the agent reads them.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Scatter/gather entries as the agent reads them.
pub(super) fn sge_words(sges: &[Sge]) -> String {
    let words: Vec<String> =
        sges.iter().map(|sge| format!("{}:{}:{}", sge.addr, sge.length, sge.lkey)).collect();
    if words.is_empty() { String::new() } else { format!(" sges={}", words.join(",")) }
}
