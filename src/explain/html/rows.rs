//! Which packets the ladders draw.

use rustc_hash::{FxHashMap, FxHashSet};

use super::{PacketId, PageLimits};
use crate::{Kind, Lost, Mark, Pair, Report};

/// The rows of one pair, from top to bottom.
#[derive(Debug)]
pub(crate) struct Ladder {
    pub pair: usize,
    pub rows: Vec<Row>,
}

/// A row of a ladder.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Row {
    /// A packet, by its place in the pair's order.
    Packet { at: usize, id: PacketId },
    /// Packets that are missing, by index into the report's.
    Lost(usize),
    /// This many packets are not drawn.
    Skipped(usize),
}

/// Packets drawn before and after each remarkable one.
const AROUND: usize = 5;

impl Ladder {
    pub fn packets(&self) -> impl Iterator<Item = PacketId> {
        self.rows.iter().filter_map(|row| match row {
            Row::Packet { id, .. } => Some(*id),
            _ => None,
        })
    }
}

/// Spreads the rows over the pairs: those with the most severe and rarest faults first, none more than its fair share
/// while others go without.
pub(crate) fn choose(report: &Report, limits: PageLimits) -> Vec<Ladder> {
    let ranks = ranks(report);
    let mut faults = vec![usize::MAX; report.pairs.len()];
    for finding in report.faults() {
        if let Some(pair) = finding.pair {
            faults[pair] = faults[pair].min(ranks[&finding.kind]);
        }
    }
    let mut order: Vec<usize> = (0..report.pairs.len()).collect();
    order.sort_by_key(|pair| faults[*pair]);
    order.truncate(limits.ladders);
    order.sort_unstable();
    let shares = share(&order.iter().map(|p| report.pairs[*p].order.len()).collect::<Vec<_>>(), limits.rows);
    order.into_iter().zip(shares).map(|(pair, share)| ladder(report, pair, share)).collect()
}

/// The place of each kind of findings: the most severe first, then the rarest.
fn ranks(report: &Report) -> FxHashMap<Kind, usize> {
    report.kinds.iter().enumerate().map(|(rank, tally)| (tally.kind, rank)).collect()
}

/// Divides `total` so that small demands are met in full, and large ones get equal shares.
fn share(needs: &[usize], total: usize) -> Vec<usize> {
    let mut sorted: Vec<usize> = needs.to_vec();
    sorted.sort_unstable();
    let mut left = total;
    let mut level = usize::MAX;
    for (done, need) in sorted.iter().enumerate() {
        let equal = left / (sorted.len() - done);
        if *need > equal {
            level = equal;
            break;
        }
        left -= need;
    }
    needs.iter().map(|need| (*need).min(level)).collect()
}

fn ladder(report: &Report, number: usize, share: usize) -> Ladder {
    let pair = &report.pairs[number];
    let lost: Vec<usize> = (0..report.lost.len()).filter(|i| report.lost[*i].pair == number).collect();
    let drawn = drawn(report, number, pair, &lost, share);
    let mut rows = Vec::new();
    let mut skipped = 0;
    let mut lost = lost.into_iter().peekable();
    for (at, index) in pair.order.iter().enumerate() {
        let missing_here = |l: &Lost| l.before <= *index;
        if drawn[at] {
            if skipped > 0 {
                rows.push(Row::Skipped(skipped));
                skipped = 0;
            }
            while let Some(l) = lost.next_if(|l| missing_here(&report.lost[*l])) {
                rows.push(Row::Lost(l));
            }
            let event = &report.events[*index as usize];
            rows.push(Row::Packet { at, id: (event.number, event.psn().get()) });
        } else {
            while lost.next_if(|l| missing_here(&report.lost[*l])).is_some() {}
            skipped += 1;
        }
    }
    if skipped > 0 {
        rows.push(Row::Skipped(skipped));
    }
    Ladder { pair: number, rows }
}

/// Which packets to draw: all, or the remarkable with their neighbours, what the most severe and rarest findings name
/// before the others, and then the first.
fn drawn(report: &Report, number: usize, pair: &Pair, lost: &[usize], share: usize) -> Vec<bool> {
    let total = pair.order.len();
    if total <= share {
        return vec![true; total];
    }
    let ranks = ranks(report);
    let mut told = FxHashMap::<u32, usize>::default();
    for finding in report.findings_of(number) {
        let rank = ranks[&finding.kind];
        for packet in &finding.packets {
            let best = told.entry(*packet).or_insert(rank);
            *best = rank.min(*best);
        }
    }
    let gaps: FxHashSet<u32> = lost.iter().map(|l| report.lost[*l].before).collect();
    let mut drawn = vec![false; total];
    let mut left = share;
    let mut draw = |at: usize, left: &mut usize| {
        if *left > 0 && !drawn[at] {
            drawn[at] = true;
            *left -= 1;
        }
    };
    let mut remarkable = Vec::new();
    for (at, index) in pair.order.iter().enumerate() {
        let event = &report.events[*index as usize];
        match told.get(&event.number) {
            Some(rank) => remarkable.push((*rank, at)),
            None if event.mark != Mark::Plain || gaps.contains(index) => remarkable.push((usize::MAX, at)),
            None => {}
        }
    }
    remarkable.sort_unstable();
    for (_, at) in remarkable {
        for near in at.saturating_sub(AROUND)..(at + AROUND + 1).min(total) {
            draw(near, &mut left);
        }
    }
    for at in 0..total {
        draw(at, &mut left);
    }
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_demands_are_met_and_large_ones_share_the_rest() {
        assert_eq!(share(&[10, 1000, 20, 5000], 1000), [10, 485, 20, 485]);
        assert_eq!(share(&[10, 20], 1000), [10, 20]);
        assert_eq!(share(&[], 10), [0usize; 0]);
        assert_eq!(share(&[5, 5, 5], 2), [0, 0, 0]);
    }
}
