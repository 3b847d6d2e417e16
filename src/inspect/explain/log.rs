//! Findings as they are made: a limited number is kept, and all are counted.

use rustc_hash::FxHashMap;

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
}

/// Collects findings; only a limited number of each kind and pair, since a broken peer breaks a rule with every packet.
#[derive(Debug)]
pub(crate) struct Log {
    findings: Vec<Finding>,
    counts: FxHashMap<(Option<usize>, Kind), u64>,
    tallies: FxHashMap<Kind, Tally>,
    /// When the capture begins and ends.
    span_ns: (u64, u64),
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
        Log { findings: Vec::new(), counts: FxHashMap::default(), tallies: FxHashMap::default(), span_ns }
    }

    pub fn add(&mut self, finding: Finding) {
        self.tally(&finding);
        let count = self.counts.entry((finding.pair, finding.kind)).or_default();
        *count += 1;
        if *count <= KEPT {
            self.findings.push(finding);
        }
    }

    fn tally(&mut self, finding: &Finding) {
        let (first, last) = self.span_ns;
        // A finding that no packet shows has no time of its own.
        let time_ns = finding.time_ns.clamp(first, last.max(first));
        let parts = u128::from(time_ns - first) * Tally::SLICES as u128;
        let slice = (parts / (u128::from(last.saturating_sub(first)) + 1)) as usize;
        let tally = self.tallies.entry(finding.kind).or_insert_with(|| Tally {
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
        self.findings.sort_by_key(|f| (f.time_ns, f.packets.first().copied(), f.kind));
        let mut more: Vec<_> = self
            .counts
            .into_iter()
            .filter(|(_, count)| *count > KEPT)
            .map(|((pair, kind), count)| (pair, kind, count - KEPT))
            .collect();
        more.sort();
        let mut kinds: Vec<_> = self.tallies.into_values().collect();
        kinds.sort_by_key(|t| (std::cmp::Reverse(t.severity()), t.count, t.times_ns.0, t.kind));
        Finished { findings: self.findings, more, kinds }
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
