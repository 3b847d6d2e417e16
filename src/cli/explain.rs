//! `softrnic explain`: what happened in a capture, as text or as a web page.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use softrnic_inspect::explain::{Limits, Report, Severity, TextOptions, explain, write_text};
use softrnic_inspect::html::{Details, Page, PageLimits};
use softrnic_inspect::svg::write_svg;

use crate::capture_file::CaptureFile;
use crate::failure::{Doing, Failure, Result};
use crate::output::say;

const EXAMPLES: &str = "\
Examples:
  softrnic explain trace.pcap
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
    /// The capture, or - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Write a web page with ladder diagrams instead of text
    #[arg(long, value_name = "OUT.html")]
    html: Option<PathBuf>,
    /// Write the ladder diagrams as a picture instead of text
    #[arg(long, value_name = "OUT.svg", conflicts_with = "html")]
    svg: Option<PathBuf>,
    /// The most packets to draw in the picture
    #[arg(long, value_name = "COUNT", default_value_t = 200, requires = "svg")]
    rows: usize,
    /// Messages to list per QP pair
    #[arg(long, value_name = "COUNT", default_value_t = TextOptions::default().messages)]
    messages: usize,
    /// The most packets to follow
    #[arg(long, value_name = "COUNT", default_value_t = Limits::default().packets)]
    packets: usize,
}

pub fn run(args: ExplainArgs) -> Result {
    let mut file = CaptureFile::new(args.file);
    if args.html.is_some() {
        file.keep()?;
    }
    let report = {
        let (mut reader, mut progress) = file.open("reading")?;
        explain(&mut reader, Limits { packets: args.packets, ..Limits::default() }, |offset| {
            progress.at(offset)
        })
    };
    match (&args.html, &args.svg) {
        (Some(out), _) => write_page(&report, &file, out, args.messages)?,
        (None, Some(out)) => write_picture(&report, &file, out, args.rows)?,
        (None, None) => {
            let options = TextOptions { messages: args.messages };
            match write_text(&report, options, &mut BufWriter::new(io::stdout().lock())) {
                Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(141),
                written => written.doing(|| "cannot write the output".into())?,
            }
        }
    }
    if let Some(damage) = &report.summary.damage {
        return Err(Failure::new(format!("{}: {damage}", file.name())));
    }
    // The output has reported them; they are not a failure of this program.
    if report.faults().next().is_some() {
        std::process::exit(FAULTS);
    }
    Ok(())
}

fn write_page(report: &Report, file: &CaptureFile, out: &Path, messages: usize) -> Result {
    let title = file.name();
    let page = Page::new(report, &title, PageLimits { messages, ..PageLimits::default() });
    let details = {
        let (mut reader, mut progress) = file.open("looking fields up")?;
        Details::read(&mut reader, &page.wanted(), |offset| progress.at(offset))
    };
    let cannot = || format!("cannot write {}", out.display());
    let mut target = BufWriter::new(File::create(out).doing(cannot)?);
    page.write(&details, &mut target).doing(cannot)?;
    target.flush().doing(cannot)?;
    conclude(report, out);
    Ok(())
}

fn write_picture(report: &Report, file: &CaptureFile, out: &Path, rows: usize) -> Result {
    let cannot = || format!("cannot write {}", out.display());
    let mut target = BufWriter::new(File::create(out).doing(cannot)?);
    write_svg(report, &file.name(), rows, &mut target).doing(cannot)?;
    target.flush().doing(cannot)?;
    conclude(report, out);
    Ok(())
}

fn conclude(report: &Report, out: &Path) {
    let (errors, warnings) = (report.count(Severity::Error), report.count(Severity::Warning));
    say!("{}: {} QP pairs, {errors} errors, {warnings} warnings", out.display(), report.pairs.len());
}
