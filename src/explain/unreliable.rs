//! Unreliable connections: PSNs are checked, but nothing is answered or sent again.

use std::cmp::Ordering;

use super::assemble::Assembler;
use super::event::Mark;
use super::finding::Kind;
use super::stream::{Context, Lost, Segment, psn_of};
use super::words;

/// One direction of an unreliable connection.
#[derive(Debug)]
pub(crate) struct Unreliable {
    side: usize,
    next: Option<i64>,
    /// ICRCs and PSNs of the newest packets, to tell late ones from duplicates.
    recent: Vec<(i64, u32)>,
    pub assembler: Assembler,
}

const RECENT: usize = 32;

impl Unreliable {
    pub fn new(side: usize) -> Unreliable {
        Unreliable { side, next: None, recent: Vec::new(), assembler: Assembler::default() }
    }

    /// The next packet of this direction.
    pub fn packet(&mut self, ctx: &mut Context<'_>, index: u32) {
        let event = ctx.event(index);
        let next = self.next.unwrap_or(i64::from(event.psn().get()) + (1 << 32));
        let psn = next + i64::from(event.psn().distance_from(psn_of(next)));
        let name = ctx.names[self.side].clone();
        match psn.cmp(&next) {
            Ordering::Less => {
                let twice = self.recent.contains(&(psn, event.icrc));
                let (kind, mark, what) = match twice {
                    true => (Kind::Duplicate, Mark::Duplicate, "is here twice: the network duplicated it"),
                    false => (
                        Kind::Reordered,
                        Mark::Late,
                        "was overtaken by later packets, and is lost for its message",
                    ),
                };
                ctx.mark(index, mark);
                let text = format!(
                    "the {} of {name} with PSN {} {what}",
                    words::operation(event.operation),
                    event.psn()
                );
                ctx.report(kind, None, (event.psn(), event.psn()), &[index], text);
                return;
            }
            Ordering::Greater => {
                let (first, last) = (psn_of(next), psn_of(psn - 1));
                ctx.missing(Lost {
                    pair: ctx.pair,
                    from: self.side,
                    requests: true,
                    first,
                    last,
                    before: index,
                });
                let text = format!(
                    "{} of {name} are missing; an unreliable connection does not send them again, so their messages are lost",
                    words::psns(first, last)
                );
                ctx.report(Kind::UnreliableLoss, None, (first, last), &[index], text);
                self.assembler.interrupt();
            }
            Ordering::Equal => {}
        }
        self.next = Some(psn + 1);
        if self.recent.len() == RECENT {
            self.recent.remove(0);
        }
        self.recent.push((psn, event.icrc));
        self.assembler.take(ctx, self.side, &Segment::packet(psn, 1, event.operation, index));
    }
}
