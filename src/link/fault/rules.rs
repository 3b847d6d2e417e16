//! Which rule applies to a datagram.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use softrnic_wire::{Mad, Opcode, Operation, Psn, Transport};

use super::{Action, Direction, FaultSpec, FaultTally, OpcodeSet, Rule, notes};
use crate::rng::Rng;

/// The rules of a spec, with their random numbers and counts.
pub struct Rules {
    rules: Vec<ActiveRule>,
    pub(super) noise: Rng,
    pub(super) tally: FaultTally,
}

struct ActiveRule {
    rule: Rule,
    note: Arc<str>,
    rng: Rng,
    matched: u64,
}

impl Rules {
    /// Rules that have seen nothing yet.
    pub fn new(spec: &FaultSpec) -> Rules {
        let active = |(index, rule): (usize, &Rule)| ActiveRule {
            rule: rule.clone(),
            note: notes::text(index + 1, rule),
            rng: Rng::stream(spec.seed, &(index as u64).to_le_bytes()),
            matched: 0,
        };
        Rules {
            rules: spec.rules.iter().enumerate().map(active).collect(),
            noise: Rng::stream(spec.seed, b"noise"),
            tally: FaultTally::new(spec),
        }
    }

    pub(super) fn any(&self, direction: Direction) -> bool {
        self.rules.iter().any(|active| active.rule.direction.is_none_or(|known| known == direction))
    }

    /// What happens to this datagram, and the note about that. Every rule counts and draws, even after one has decided,
    /// so that rules do not affect each other. `age` is how long they have been in force, `peer` whom it is from or to.
    pub fn decide(
        &mut self,
        age: Duration,
        direction: Direction,
        peer: IpAddr,
        bytes: &[u8],
    ) -> Option<(Action, Arc<str>)> {
        let mut decision = None;
        for (index, active) in self.rules.iter_mut().enumerate() {
            if active.rule.direction.is_some_and(|known| known != direction) {
                continue;
            }
            let applies = active.rule.is_about(age, peer) && active.applies(bytes);
            self.tally.count(index, applies);
            if applies {
                decision = decision.or(Some(index));
            }
        }
        let ActiveRule { rule, note, .. } = &self.rules[decision?];
        (rule.action != Action::Delay(Duration::ZERO)).then(|| (rule.action, Arc::clone(note)))
    }

    /// Damages a datagram that is to be corrupt.
    pub fn corrupt(&mut self, bytes: &mut [u8]) {
        self.noise.corrupt(bytes);
    }
}

impl ActiveRule {
    fn applies(&mut self, bytes: &[u8]) -> bool {
        let Rule { opcodes, qpn, psn, rate, nth, .. } = &self.rule;
        if (opcodes.is_some() || qpn.is_some() || psn.is_some()) && !is_selected(&self.rule, bytes) {
            return false;
        }
        self.matched += 1;
        if nth.as_ref().is_some_and(|nth| !nth.contains(&self.matched)) {
            return false;
        }
        rate.is_none_or(|rate| self.rng.chance(rate))
    }
}

/// Whether the datagram has the rule's opcode, QPN and PSN. Looks only at the BTH, and at the MAD at its fixed offset
/// in connection management messages, so that datagrams that no parser accepts are found too.
fn is_selected(rule: &Rule, bytes: &[u8]) -> bool {
    let Some([opcode, _, _, _, _, q0, q1, q2, _, p0, p1, p2]) = bytes.first_chunk() else { return false };
    let qpn = u32::from_be_bytes([0, *q0, *q1, *q2]);
    let psn = Psn::new(u32::from_be_bytes([0, *p0, *p1, *p2]));
    rule.opcodes.as_ref().is_none_or(|opcodes| {
        opcodes.contains(*opcode) || opcodes.has_messages() && is_message_of(opcodes, bytes)
    }) && rule.qpn.is_none_or(|wanted| wanted.get() == qpn)
        && rule.psn.is_none_or(|(first, last)| {
            // Counted from the start of the range, which may wrap.
            let offset = |psn: Psn| psn.get().wrapping_sub(first.get()) & 0xFF_FFFF;
            offset(psn) <= offset(last)
        })
}

/// Whether a datagram carries one of these connection management messages.
fn is_message_of(opcodes: &OpcodeSet, bytes: &[u8]) -> bool {
    let Some(opcode) = bytes.first().and_then(|byte| Opcode::from_byte(*byte)) else { return false };
    let Some((headers, payload)) = bytes.split_at_checked(opcode.headers_len()) else { return false };
    (opcode.transport(), opcode.operation()) == (Transport::Ud, Operation::SendOnly)
        && headers[5..8] == [0, 0, 1]
        && Mad::read(payload)
            .is_some_and(|mad| mad.is_cm_send() && opcodes.contains_message(mad.attribute_id))
}
