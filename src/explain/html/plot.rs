//! Points of the PSN-over-time plots, reduced to what a screen can show.

use rustc_hash::FxHashSet;

use crate::{Event, Mark, Report};
use softrnic_wire::{Psn, Syndrome};

/// A point of a plot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Point {
    /// Nanoseconds since the capture began.
    pub time_ns: u64,
    /// Distance from the plot's first PSN.
    pub psn: i64,
    pub class: Class,
    pub number: u32,
}

/// The kind of a point. The page's script uses its position in this list.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Class {
    Request,
    Resent,
    Answer,
    Refusal,
    Lost,
}

/// The plot of one side's requests.
#[derive(Debug, Default)]
pub(super) struct Plot {
    pub base: Psn,
    pub points: Vec<Point>,
    /// Points left out: they coincide with others, or there were too many.
    pub left_out: usize,
}

/// Size of the grid to which points are reduced.
const COLUMNS: u64 = 1200;
const LINES: i64 = 300;

/// The plots of both sides of a pair.
pub(super) fn plots(report: &Report, pair: usize, limit: usize) -> [Plot; 2] {
    [0, 1].map(|side| plot(report, pair, side, limit))
}

fn plot(report: &Report, pair: usize, side: usize, limit: usize) -> Plot {
    let own = report.pairs[pair].flows;
    let asks = |from: usize, event: &Event| match event.operation {
        _ if !own.contains(&Some(event.flow)) => false,
        op if op.is_request() => from == side,
        _ => from != side,
    };
    let start = report.times_ns.0;
    let mut base = None;
    let mut all = Vec::new();
    for (from, event) in report.packets_of(pair).filter(|(from, e)| asks(*from, e) && !e.bad_icrc()) {
        let base = *base.get_or_insert(event.psn());
        let class = match (from == side, event.mark, event.syndrome()) {
            (true, Mark::Resent, _) => Class::Resent,
            (true, ..) => Class::Request,
            (false, _, Some(Syndrome::Nak(_) | Syndrome::RnrNak(_) | Syndrome::Reserved(_))) => {
                Class::Refusal
            }
            (false, ..) => Class::Answer,
        };
        let psn = i64::from(event.psn().distance_from(base));
        all.push(Point { time_ns: event.time_ns.saturating_sub(start), psn, class, number: event.number });
    }
    let Some(base) = base else { return Plot::default() };
    for lost in report.lost.iter().filter(|l| l.pair == pair && (l.from == side) == l.requests) {
        let before = &report.events[lost.before as usize];
        let psn = i64::from(lost.first.distance_from(base));
        let time_ns = before.time_ns.saturating_sub(start);
        all.push(Point { time_ns, psn, class: Class::Lost, number: before.number });
    }
    thin(base, all, limit)
}

/// Keeps one point of a class per cell. Rare classes stay, whatever the limit.
fn thin(base: Psn, all: Vec<Point>, limit: usize) -> Plot {
    let range = |of: &dyn Fn(&Point) -> i64| {
        let low = all.iter().map(of).min().unwrap_or(0);
        (low, (all.iter().map(of).max().unwrap_or(0) - low).max(1))
    };
    let (first_ns, span_ns) = range(&|p| p.time_ns as i64);
    let (low, height) = range(&|p| p.psn);
    let total = all.len();
    let mut cells = FxHashSet::default();
    let mut points: Vec<Point> = all
        .into_iter()
        .filter(|p| {
            let column = (p.time_ns as i64 - first_ns) as u128 * u128::from(COLUMNS) / span_ns as u128;
            let line = i128::from(p.psn - low) * i128::from(LINES) / i128::from(height);
            cells.insert((column, line, p.class))
        })
        .collect();
    if points.len() > limit {
        let rare = |p: &Point| !matches!(p.class, Class::Request | Class::Answer);
        let step = points.len().div_ceil(limit.max(1));
        let mut at = 0;
        points.retain(|p| {
            at += 1;
            rare(p) || at % step == 0
        });
        points.truncate(2 * limit);
    }
    Plot { base, left_out: total - points.len(), points }
}
