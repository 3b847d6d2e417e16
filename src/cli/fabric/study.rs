//! `softrnic fabric study`: whole NICs on a modelled network, in virtual time.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use softrnic_study::{Description, PortResult, Report, Sampling, Study, charts, page, pause_tree};

use super::seeds;
use crate::failure::{Doing, Failure, Result};
use crate::output::say;
use crate::progress::Progress;
use crate::table::{BAD, HEADING, Table};
use crate::web_page::Origin;

const EXAMPLES: &str = "\
Examples:
  softrnic fabric study examples/fabric/incast.toml
  softrnic fabric study clos.toml --csv results      results/flows.csv and results/ports.csv
  softrnic fabric study clos.toml --json | jq .summary
  softrnic fabric study clos.toml --seeds 20         the same with 20 seeds, side by side
  softrnic fabric study clos.toml --pcap clos.pcapng && softrnic explain clos.pcapng    where packets were lost

Exit status: 0 if all flows ended, 1 if the file is wrong or a flow failed or did not end, 2 for wrong arguments.";

/// Samples of a page or picture, at least.
const SAMPLES: usize = 300;
/// The ports with the most to tell that are listed.
const PORTS: usize = 12;
/// Lines of the tree of pauses.
const BRANCHES: usize = 20;

/// Run flows between NICs on a modelled network, in virtual time
///
/// The NICs are complete: the engine that programs run on, with its packets, retransmission and DCQCN. The network is a
/// model of links, switches, ECN, PFC and ECMP. The same file and seed give the same result.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct StudyArgs {
    /// The description
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,
    /// Use this seed instead of the file's
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Run so many seeds, from that one on, on all processors
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10_000),
        conflicts_with_all = ["csv", "html", "svg", "pcap"])]
    seeds: Option<u32>,
    /// Write flows.csv, ports.csv and, if the description has `sample`, flow_series.csv and port_series.csv into this directory
    #[arg(long, value_name = "DIRECTORY")]
    csv: Option<PathBuf>,
    /// Write a page with plots of goodput, queues and completion times
    #[arg(long, value_name = "FILE.html")]
    html: Option<PathBuf>,
    /// Write goodput.svg and queues.svg into this directory
    #[arg(long, value_name = "DIRECTORY")]
    svg: Option<PathBuf>,
    /// Record what leaves by each port, as an interface each, with the reasons of losses and the marks
    #[arg(long, value_name = "FILE.pcapng")]
    pcap: Option<PathBuf>,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: StudyArgs) -> Result {
    let text = fs::read_to_string(&args.file).doing(|| format!("cannot read {}", args.file.display()))?;
    let directory = args.file.parent().unwrap_or(Path::new("."));
    let mut description = Description::read(&text, directory).doing(|| args.file.display().to_string())?;
    description.seed = args.seed.unwrap_or(description.seed);
    if let Some(count) = args.seeds {
        return seeds::run(&description, count, args.json);
    }
    if (args.html.is_some() || args.svg.is_some()) && description.sampling == Sampling::Off {
        description.sampling = Sampling::AtLeast(SAMPLES);
    }
    let begun = Instant::now();
    let mut study = Study::described(&description)?;
    let capture = args.pcap.as_deref().map(super::capture).transpose()?;
    if let Some(capture) = &capture {
        study.capture(capture);
    }
    let mut progress = Progress::new(description.flows.len());
    let mut ended = 0;
    study.play(&description, |study| {
        while ended < study.flows().len() - study.running() {
            ended += 1;
            progress.next(&format!("flows, {:.3} ms", study.now().as_secs_f64() * 1e3));
        }
    })?;
    drop(progress);
    if let Some(capture) = capture {
        super::finish(&capture)?;
    }
    let report = study.report();
    if let Some(directory) = &args.csv {
        write(directory, "flows.csv", &report.flows_csv())?;
        write(directory, "ports.csv", &report.ports_csv())?;
        if !report.samples.is_empty() {
            write(directory, "flow_series.csv", &report.flow_series_csv())?;
            write(directory, "port_series.csv", &report.port_series_csv())?;
        }
    }
    if let Some(path) = &args.html {
        let name = args.file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let page = page::page(&report, study.deadlock().as_deref(), &Origin::now(name));
        fs::write(path, page).doing(|| format!("cannot write {}", path.display()))?;
    }
    if let Some(directory) = &args.svg {
        for (name, chart) in
            [("goodput.svg", charts::goodput(&report)), ("queues.svg", charts::queues(&report))]
        {
            if let Some(chart) = chart {
                write(directory, name, &chart.document(page::STYLE))?;
            }
        }
    }
    if args.json {
        let json = serde_json::json!({ "summary": report.summary(), "report": report, "deadlock": study.deadlock() });
        say!("{json}");
    } else {
        print(&report, begun.elapsed().as_secs_f64());
        if let Some(ports) = study.deadlock() {
            say!("\n{BAD}Deadlock:{BAD:#} these queues pause each other in a circle: {}", ports.join(" -> "));
        }
    }
    let missing = report.flows.iter().filter(|flow| flow.fct_ns.is_none()).count();
    match missing {
        0 => Ok(()),
        _ => Err(Failure::new(format!("{missing} of {} flows failed", report.flows.len()))),
    }
}

fn write(directory: &Path, name: &str, text: &str) -> Result {
    fs::create_dir_all(directory).doing(|| format!("cannot make {}", directory.display()))?;
    let path = directory.join(name);
    fs::write(&path, text).doing(|| format!("cannot write {}", path.display()))
}

fn print(report: &Report, seconds: f64) {
    say!("{HEADING}Flow completion times{HEADING:#}, in microseconds");
    let mut table = Table::new(0, &["flows", "ended", "min", "p50", "p95", "p99", "max"]);
    let ended = report.flows.iter().filter(|flow| flow.fct_ns.is_some()).count();
    let mut row = vec![report.flows.len().to_string(), ended.to_string()];
    match report.summary() {
        Some(times) => row.extend(
            [times.min, times.p50, times.p95, times.p99, times.max]
                .map(|nanos| format!("{:.1}", nanos / 1e3)),
        ),
        None => row.extend(std::iter::repeat_n("–".to_owned(), 5)),
    }
    table.row(row);
    say!("{table}");
    for flow in report.flows.iter().filter(|flow| flow.error.is_some()).take(PORTS) {
        let error = flow.error.as_deref().unwrap_or_default();
        say!("  flow {} from {} to {} failed: {error}", flow.flow, flow.src, flow.dst);
    }

    let telling = |port: &&PortResult| {
        port.marked + port.dropped + port.lost_damaged + port.lost_down + port.faults + port.pauses_received
            > 0
    };
    let mut ports: Vec<&PortResult> = report.ports.iter().filter(telling).collect();
    ports.sort_by_key(|port| std::cmp::Reverse((port.dropped + port.lost_down, port.queue_peak)));
    if !ports.is_empty() {
        say!("\n{HEADING}Ports{HEADING:#} that marked, lost or were paused: {}", ports.len());
        let titles = [
            "port",
            "frames",
            "marked",
            "dropped",
            "damaged",
            "down",
            "faults",
            "pauses",
            "paused us",
            "longest queue B",
        ];
        let mut table = Table::new(1, &titles);
        for port in ports.iter().take(PORTS) {
            let [frames, _bytes, others @ ..] = port.counts();
            let mut row = vec![port.port.clone()];
            row.push(frames.to_string());
            row.extend(others.iter().map(u64::to_string));
            row.push(format!("{:.1}", port.paused_ns / 1e3));
            row.push(port.queue_peak.to_string());
            table.row(row);
        }
        say!("{table}");
    }
    let branches = pause_tree(report);
    if !branches.is_empty() {
        say!("\n{HEADING}Who paused whom{HEADING:#}");
        for branch in branches.iter().take(BRANCHES) {
            say!("{}{}", "  ".repeat(branch.depth), branch.text);
        }
        if branches.len() > BRANCHES {
            say!("… {} more lines; --html has all", branches.len() - BRANCHES);
        }
    }
    let repeated = report.counters.get("retransmitted_pkts").copied().unwrap_or(0);
    say!(
        "\n{:.3} ms of virtual time, {repeated} packets sent again; {} frames times links in {seconds:.1} s",
        report.end_ns / 1e6,
        report.hops
    );
}
