//! A study as plots.

use softrnic_page::chart::{Axis, Chart, HUES, Line};

use crate::result::{Report, Sample};

/// The share of flows that have ended within a time; `None` if none has.
pub fn completion_times(report: &Report) -> Option<Chart> {
    let mut times: Vec<f64> = report.flows.iter().filter_map(|flow| flow.fct_ns).collect();
    times.sort_by(f64::total_cmp);
    let longest = *times.last()?;
    let share = |number: usize| 100.0 * number as f64 / report.flows.len() as f64;
    let mut points = vec![(0.0, 0.0)];
    for (number, time) in times.iter().enumerate() {
        points.push((time / 1e3, share(number)));
        points.push((time / 1e3, share(number + 1)));
    }
    let x = Axis { title: "us from the post to the last completion", high: longest / 1e3 };
    let y = Axis { title: "% of flows", high: 100.0 };
    Some(Chart { x, y, lines: vec![Line { name: "flows that have ended".into(), points }] })
}

fn time_axis(samples: &[Sample]) -> Axis {
    Axis { title: "us", high: samples.last().map_or(0.0, |sample| sample.time_ns / 1e3) }
}

/// What receivers got between samples, in Gb/s: of all flows, and of each if they are few. Needs samples.
pub fn goodput(report: &Report) -> Option<Chart> {
    if report.samples.len() < 2 {
        return None;
    }
    let rate = |bytes: fn(&Sample, usize) -> u64, flow: usize| -> Vec<(f64, f64)> {
        let pairs = report.samples.windows(2);
        pairs
            .map(|pair| {
                let bits = 8.0 * (bytes(&pair[1], flow) - bytes(&pair[0], flow)) as f64;
                (pair[1].time_ns / 1e3, bits / (pair[1].time_ns - pair[0].time_ns))
            })
            .collect()
    };
    let mut lines =
        vec![Line { name: "all flows".into(), points: rate(|sample, _| sample.delivered.iter().sum(), 0) }];
    if report.flows.len() < HUES {
        lines.extend(report.flows.iter().map(|flow| Line {
            name: format!("flow {}: {} to {}", flow.flow, flow.src, flow.dst),
            points: rate(|sample, flow| sample.delivered[flow], flow.flow),
        }));
    }
    let high = lines[0].points.iter().map(|point| point.1).fold(0.0, f64::max);
    Some(Chart { x: time_axis(&report.samples), y: Axis { title: "Gb/s", high }, lines })
}

/// The longest egress queues over time. Needs samples.
pub fn queues(report: &Report) -> Option<Chart> {
    if report.samples.len() < 2 {
        return None;
    }
    let mut longest: Vec<usize> = (0..report.ports.len()).collect();
    longest.sort_by_key(|&port| std::cmp::Reverse(report.ports[port].queue_peak));
    longest.truncate(HUES);
    longest.retain(|&port| report.samples.iter().any(|sample| sample.queued[port] > 0));
    let lines: Vec<Line> = longest
        .iter()
        .map(|&port| Line {
            name: report.ports[port].port.clone(),
            points: report
                .samples
                .iter()
                .map(|at| (at.time_ns / 1e3, at.queued[port] as f64 / 1e3))
                .collect(),
        })
        .collect();
    let high = lines.iter().flat_map(|line| &line.points).map(|point| point.1).fold(0.0, f64::max);
    Some(Chart { x: time_axis(&report.samples), y: Axis { title: "kB", high }, lines })
}
