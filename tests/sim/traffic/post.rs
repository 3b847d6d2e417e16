//! When sends are posted.

use softrnic_transport::QpState;

use super::{Event, Traffic};

impl Traffic {
    /// An end posts a few sends, and decides when it posts the next.
    pub(super) fn post_sends(&mut self, index: usize, side: usize) {
        let plan = self.connections[index].plan;
        let Some(mut ends) = self.connections[index].ends.take() else { return };
        let (node, key) = (ends[side].node, ends[side].qp.key);
        let ready = !ends[side].gone && self.world.nodes[node].state(key) == QpState::Rts;
        let mut count = self.rng.between(1, 8);
        let budget = ends[side].budget;
        while ready && count > 0 && ends[side].budget > 0 && ends[side].can_send() {
            count -= 1;
            let window = if self.rng.chance(0.15) { self.window_operation(side, &mut ends) } else { None };
            let drafts = match window {
                Some(draft) => Some(vec![draft]),
                None => self.draft(index, side, &mut ends[side]),
            };
            let Some(drafts) = drafts else { break };
            for draft in drafts {
                ends[1 - side].incoming.extend(draft.message);
                self.push(index, side, &mut ends[side], draft);
            }
            // Some doorbells are rung late, for several posts at once.
            if self.rng.chance(0.5) {
                self.world.nodes[node].engine.on_doorbell(self.world.now, key.index());
            }
        }
        if ready {
            self.world.nodes[node].engine.on_doorbell(self.world.now, key.index());
        }
        let end = &ends[side];
        let again = end.budget > 0 && !end.doomed && !end.has_failed() && !end.gone;
        // An endpoint that could post nothing looks again less often.
        let pause = if end.budget < budget { plan.pause_us } else { plan.pause_us.max(100) };
        self.connections[index].ends = Some(ends);
        if again {
            self.soon(pause, Event::Post(index, side));
        }
    }
}
