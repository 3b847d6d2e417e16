//! `softrnic fabric study --seeds`: one study with several seeds, as many at once as there are processors.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use serde_json::json;
use softrnic_study::{Description, Error, Report, Study};

use crate::failure::{Failure, Result};
use crate::output::say;
use crate::progress::Progress;
use crate::table::{HEADING, Table};

/// Something that a run has to tell.
enum News {
    FlowEnded,
    Ended(u64, std::result::Result<Box<Report>, Error>),
}

pub fn run(description: &Description, count: u32, as_json: bool) -> Result {
    let first = description.seed;
    let next = AtomicU64::new(0);
    let (teller, news) = mpsc::channel();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut reports = std::thread::scope(|scope| {
        for _ in 0..processors.min(count as usize) {
            let (next, teller) = (&next, teller.clone());
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= u64::from(count) {
                        return;
                    }
                    let seed = first.wrapping_add(number);
                    let played = play(&Description { seed, ..description.clone() }, &teller);
                    // Nobody listens any more if another has failed.
                    if teller.send(News::Ended(seed, played.map(Box::new))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(teller);
        let mut progress = Progress::new(description.flows.len() * count as usize);
        let mut reports = Vec::new();
        for news in news {
            match news {
                News::FlowEnded => progress.next("flows"),
                News::Ended(seed, played) => reports.push((seed, played?)),
            }
        }
        Ok::<_, Failure>(reports)
    })?;
    reports.sort_by_key(|(seed, _)| *seed);
    if as_json {
        let runs = reports
            .iter()
            .map(|(seed, report)| json!({ "seed": seed, "summary": report.summary(), "report": report }));
        say!("{}", json!(runs.collect::<Vec<_>>()));
    } else {
        print(&reports);
    }
    let missing =
        reports.iter().flat_map(|(_, report)| &report.flows).filter(|flow| flow.fct_ns.is_none()).count();
    match missing {
        0 => Ok(()),
        _ => Err(Failure::new(format!("{missing} flows failed"))),
    }
}

fn play(description: &Description, teller: &mpsc::Sender<News>) -> std::result::Result<Report, Error> {
    let mut study = Study::described(description)?;
    let mut ended = 0;
    study.play(description, |study| {
        while ended < study.flows().len() - study.running() {
            ended += 1;
            let _ = teller.send(News::FlowEnded);
        }
    })?;
    Ok(study.report())
}

fn print(reports: &[(u64, Box<Report>)]) {
    say!("{HEADING}Flow completion times by seed{HEADING:#}, in microseconds");
    let titles = ["seed", "flows", "ended", "min", "p50", "p95", "p99", "max", "marked", "pauses", "dropped"];
    let mut table = Table::new(0, &titles);
    for (seed, report) in reports {
        let ended = report.flows.iter().filter(|flow| flow.fct_ns.is_some()).count();
        let mut row = vec![seed.to_string(), report.flows.len().to_string(), ended.to_string()];
        match report.summary() {
            Some(times) => row.extend(
                [times.min, times.p50, times.p95, times.p99, times.max]
                    .map(|nanos| format!("{:.1}", nanos / 1e3)),
            ),
            None => row.extend(std::iter::repeat_n("–".to_owned(), 5)),
        }
        let ports = &report.ports;
        let sums = [
            ports.iter().map(|port| port.marked).sum::<u64>(),
            ports.iter().map(|port| port.pauses_received).sum(),
            ports.iter().map(|port| port.dropped).sum(),
        ];
        row.extend(sums.map(|sum| sum.to_string()));
        table.row(row);
    }
    say!("{table}");
}
