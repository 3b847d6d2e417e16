//! Findings as they are made: a limited number is kept, and all are counted.

use std::collections::hash_map::Entry;

use rustc_hash::{FxHashMap, FxHashSet};

use super::finding::{Finding, Kind, Severity};

/// All findings of one kind, in numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tally {
    /// The kind.
    pub kind: Kind,
    /// How many there are, those that the report leaves out included.
    pub count: u64,
    /// When the first and the last of them began, nanoseconds since 1970.
    pub times_ns: (u64, u64),
    /// How many began in each of [`Tally::SLICES`] equal parts of the capture's time.
    pub slices: [u64; Tally::SLICES],
}

impl Tally {
    /// Parts of the capture's time in which findings are counted.
    pub const SLICES: usize = 60;

    /// How bad they are.
    pub const fn severity(&self) -> Severity {
        self.kind.severity()
    }

    fn add(&mut self, other: &Tally) {
        self.count += other.count;
        self.times_ns = (self.times_ns.0.min(other.times_ns.0), self.times_ns.1.max(other.times_ns.1));
        for (slice, more) in self.slices.iter_mut().zip(other.slices) {
            *slice += more;
        }
    }
}

/// Collects findings; only a limited number of each kind and pair, since a broken peer breaks a rule with every packet.
#[derive(Debug)]
pub(crate) struct Log {
    findings: Vec<(Topic, Finding)>,
    tallies: FxHashMap<Topic, Tally>,
    /// When the capture begins and ends.
    span_ns: (u64, u64),
    /// Whether packets are missing of every pair, or of which.
    lossy: bool,
    incomplete: FxHashSet<usize>,
}

/// What is counted together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Topic {
    pair: Option<usize>,
    kind: Kind,
    /// Whether only packets that are not in the capture show it.
    by_absence: bool,
}

/// Pair, kind, and how many findings of that kind were left out there.
pub(crate) type LeftOut = (Option<usize>, Kind, u64);

/// What a log holds in the end.
pub(crate) struct Finished {
    /// In the order of time.
    pub findings: Vec<Finding>,
    pub more: Vec<LeftOut>,
    /// The most severe first, then the rarest.
    pub kinds: Vec<Tally>,
}

/// Findings of one kind that are kept for one pair.
const KEPT: u64 = 40;

impl Log {
    /// A log for a capture whose first and last packets have these times.
    pub fn new(span_ns: (u64, u64)) -> Log {
        Log {
            findings: Vec::new(),
            tallies: FxHashMap::default(),
            span_ns,
            lossy: false,
            incomplete: FxHashSet::default(),
        }
    }

    /// The capture lacks packets, nobody knows which.
    pub fn note_lossy(&mut self) {
        self.lossy = true;
    }

    /// The capture lacks packets of a pair.
    pub fn note_incomplete(&mut self, pair: usize) {
        self.incomplete.insert(pair);
    }

    pub fn add(&mut self, finding: Finding) {
        let by_absence = finding.kind.rests_on_absence();
        self.keep(Topic { pair: finding.pair, kind: finding.kind, by_absence }, finding);
    }

    /// Adds what the packets of the capture show by themselves.
    pub fn add_seen(&mut self, finding: Finding) {
        self.keep(Topic { pair: finding.pair, kind: finding.kind, by_absence: false }, finding);
    }

    fn keep(&mut self, topic: Topic, finding: Finding) {
        self.tally(topic, &finding);
        if self.tallies[&topic].count <= KEPT {
            self.findings.push((topic, finding));
        }
    }

    fn tally(&mut self, topic: Topic, finding: &Finding) {
        let (first, last) = self.span_ns;
        // A finding that no packet shows has no time of its own.
        let time_ns = finding.time_ns.clamp(first, last.max(first));
        let parts = u128::from(time_ns - first) * Tally::SLICES as u128;
        let slice = (parts / (u128::from(last.saturating_sub(first)) + 1)) as usize;
        let tally = self.tallies.entry(topic).or_insert_with(|| Tally {
            kind: finding.kind,
            count: 0,
            times_ns: (time_ns, time_ns),
            slices: [0; Tally::SLICES],
        });
        tally.count += 1;
        tally.times_ns = (tally.times_ns.0.min(time_ns), tally.times_ns.1.max(time_ns));
        tally.slices[slice] += 1;
    }

    pub fn finish(mut self) -> Finished {
        let (lossy, incomplete) = (self.lossy, &self.incomplete);
        let holds = |topic: &Topic| {
            let complete = !lossy && topic.pair.is_none_or(|pair| !incomplete.contains(&pair));
            complete || !topic.by_absence
        };
        self.tallies.retain(|topic, _| holds(topic));
        self.findings.retain(|(topic, _)| holds(topic));
        let mut findings: Vec<Finding> = self.findings.into_iter().map(|(_, finding)| finding).collect();
        findings.sort_by_key(|f| (f.time_ns, f.packets.first().copied(), f.kind));
        let mut more: FxHashMap<(Option<usize>, Kind), u64> = FxHashMap::default();
        let mut kinds: FxHashMap<Kind, Tally> = FxHashMap::default();
        for (topic, tally) in self.tallies {
            if tally.count > KEPT {
                *more.entry((topic.pair, topic.kind)).or_default() += tally.count - KEPT;
            }
            match kinds.entry(topic.kind) {
                Entry::Vacant(empty) => _ = empty.insert(tally),
                Entry::Occupied(mut sum) => sum.get_mut().add(&tally),
            }
        }
        let mut more: Vec<_> = more.into_iter().map(|((pair, kind), count)| (pair, kind, count)).collect();
        more.sort();
        let mut kinds: Vec<_> = kinds.into_values().collect();
        kinds.sort_by_key(|t| (std::cmp::Reverse(t.severity()), t.count, t.times_ns.0, t.kind));
        Finished { findings, more, kinds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(kind: Kind, time_ns: u64) -> Finding {
        Finding {
            kind,
            pair: Some(0),
            time_ns,
            psns: None,
            packets: vec![1],
            rule: None,
            text: String::new(),
        }
    }

    #[test]
    fn every_finding_is_counted_in_its_part_of_the_time() {
        let mut log = Log::new((1000, 1599));
        for time_ns in [1000, 1009, 1010, 1595, 1599] {
            log.add(finding(Kind::Timeout, time_ns));
        }
        let tally = log.finish().kinds.remove(0);
        assert_eq!((tally.count, tally.times_ns), (5, (1000, 1599)));
        assert_eq!((tally.slices[0], tally.slices[1], tally.slices[59]), (2, 1, 2));
        assert_eq!(tally.slices.iter().sum::<u64>(), 5);
    }

    #[test]
    fn times_outside_of_the_capture_count_at_its_ends() {
        for span in [(0, 0), (5, 5), (10, 4), (1, u64::MAX)] {
            let mut log = Log::new(span);
            log.add(finding(Kind::Timeout, 0));
            log.add(finding(Kind::Timeout, u64::MAX));
            let tally = log.finish().kinds.remove(0);
            assert_eq!(tally.slices.iter().sum::<u64>(), 2, "{span:?}");
            assert!(tally.times_ns.0 >= span.0, "{span:?}");
        }
    }

    #[test]
    fn the_most_severe_and_then_the_rarest_kind_comes_first() {
        let mut log = Log::new((0, 100));
        for time_ns in 0..100 {
            log.add(finding(Kind::RequestLost, time_ns));
        }
        log.add(finding(Kind::Cnp, 1));
        log.add(finding(Kind::Timeout, 2));
        log.add(finding(Kind::PsnJump, 3));
        log.add(finding(Kind::PsnJump, 4));
        log.add(finding(Kind::WrongMsn, 90));
        let finished = log.finish();
        let kinds: Vec<_> = finished.kinds.iter().map(|t| (t.kind, t.count)).collect();
        assert_eq!(
            kinds,
            [
                (Kind::WrongMsn, 1),
                (Kind::PsnJump, 2),
                (Kind::Timeout, 1),
                (Kind::RequestLost, 100),
                (Kind::Cnp, 1),
            ]
        );
        assert_eq!(finished.more, [(Some(0), Kind::RequestLost, 60)]);
    }
}
