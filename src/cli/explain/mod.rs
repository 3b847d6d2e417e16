//! `softrnic explain`: what happened in a capture, as text, as JSON or as a web page.

mod json;

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use softrnic_explain::html::{Details, Page, PageLimits};
use softrnic_explain::svg::write_svg;
use softrnic_explain::{Limits, Report, Severity, TextOptions, explain, write_text};
use softrnic_inspect::capture::Merge;

use crate::capture_file::{CaptureFile, ReadProgress};
use crate::failure::{Doing, Failure, Result};
use crate::output::say;
use crate::units::count;

const EXAMPLES: &str = "\
Examples:
  softrnic explain trace.pcap
  softrnic explain client.pcapng server.pcapng
  softrnic explain --json trace.pcapng | jq -r '.findings[].text'
  softrnic explain --html story.html trace.pcapng
  softrnic explain --svg ladder.svg trace.pcapng
  ssh host tcpdump -w - -c 10000 udp port 4791 | softrnic explain -

Exit status: 0 if no fault was found, 1 if the capture could not be read, 2 for wrong arguments, 3 if faults were found.";

/// Exit status if faults were found.
const FAULTS: i32 = 3;

/// Explain what happened between the QPs of a capture
///
/// Follows each QP pair from the packets alone: messages and what acknowledged them, losses, NAKs, RNR waits, timeouts,
/// duplicates, replays, connection handshakes, congestion, and violations of the specification with the rule's name.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ExplainArgs {
    /// The capture, or - for standard input; several captures are merged by time
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Write a web page with ladder diagrams instead of text
    #[arg(long, value_name = "OUT.html")]
    html: Option<PathBuf>,
    /// Write the ladder diagrams as a picture instead of text
    #[arg(long, value_name = "OUT.svg", conflicts_with = "html")]
    svg: Option<PathBuf>,
    /// Write JSON instead of text
    #[arg(long, conflicts_with_all = ["html", "svg"])]
    json: bool,
    /// Maximum number of packets to draw in the picture
    #[arg(long, value_name = "COUNT", default_value_t = 200, requires = "svg")]
    rows: usize,
    /// Number of messages to list per QP pair
    #[arg(long, value_name = "COUNT", default_value_t = TextOptions::default().messages)]
    messages: usize,
    /// Maximum number of packets to follow
    #[arg(long, value_name = "COUNT", default_value_t = Limits::default().packets)]
    packets: usize,
}

pub fn run(args: ExplainArgs) -> Result {
    let mut files = Captures(args.files.into_iter().map(CaptureFile::new).collect());
    if files.0.iter().filter(|file| file.is_stdin()).count() > 1 {
        return Err(Failure::new("standard input can be read only once"));
    }
    if args.html.is_some() {
        files.0.iter_mut().try_for_each(CaptureFile::keep)?;
    }
    let (report, damaged) = {
        let (mut captures, mut progress) = files.open("reading")?;
        let limits = Limits { packets: args.packets, ..Limits::default() };
        let report = explain(&mut captures, limits, |offset| progress.at(offset));
        (report, captures.damaged())
    };
    match (&args.html, &args.svg) {
        (Some(out), _) => write_page(&report, &files, out, args.messages)?,
        (None, Some(out)) => write_picture(&report, &files, out, args.rows)?,
        (None, None) => {
            let mut out = BufWriter::new(io::stdout().lock());
            let written = match args.json {
                true => writeln!(out, "{}", json::report(&report, args.messages)),
                false => write_text(&report, TextOptions { messages: args.messages }, &mut out),
            };
            match written.and_then(|()| out.flush()) {
                Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(141),
                written => written.doing(|| "cannot write the output".into())?,
            }
        }
    }
    if let Some(damage) = &report.summary.damage {
        let file = damaged.map_or_else(|| files.name(), |index| files.0[index].name());
        return Err(Failure::new(format!("{file}: {damage}")));
    }
    // The output has reported them; they are not a failure of this program.
    if report.faults().next().is_some() {
        std::process::exit(FAULTS);
    }
    Ok(())
}

/// What is read, in the order of time.
struct Captures(Vec<CaptureFile>);

impl Captures {
    fn name(&self) -> String {
        self.0.iter().map(CaptureFile::name).collect::<Vec<_>>().join(", ")
    }

    fn open(&self, what: &'static str) -> Result<(Merge<Box<dyn Read>>, ReadProgress)> {
        let mut readers = Vec::new();
        let mut size = 0;
        for file in &self.0 {
            let (reader, bytes) = file.reader()?;
            readers.push(reader);
            size += bytes;
        }
        Ok((Merge::new(readers), ReadProgress::new(what, size)))
    }
}

fn write_page(report: &Report, files: &Captures, out: &Path, messages: usize) -> Result {
    let title = files.name();
    let page = Page::new(report, &title, PageLimits { messages, ..PageLimits::default() });
    let details = {
        let (mut reader, mut progress) = files.open("looking fields up")?;
        Details::read(&mut reader, &page.wanted(), |offset| progress.at(offset))
    };
    let cannot = || format!("cannot write {}", out.display());
    let mut target = BufWriter::new(File::create(out).doing(cannot)?);
    page.write(&details, &mut target).doing(cannot)?;
    target.flush().doing(cannot)?;
    conclude(report, out);
    Ok(())
}

fn write_picture(report: &Report, files: &Captures, out: &Path, rows: usize) -> Result {
    let cannot = || format!("cannot write {}", out.display());
    let mut target = BufWriter::new(File::create(out).doing(cannot)?);
    write_svg(report, &files.name(), rows, &mut target).doing(cannot)?;
    target.flush().doing(cannot)?;
    conclude(report, out);
    Ok(())
}

fn conclude(report: &Report, out: &Path) {
    let counts = [
        count(report.pairs.len() as u64, "QP pair"),
        count(report.count(Severity::Error), "error"),
        count(report.count(Severity::Warning), "warning"),
    ];
    say!("{}: {}", out.display(), counts.join(", "));
}
