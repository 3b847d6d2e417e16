//! `softrnic decode`: the packets of a capture, one line each or field by field.

use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::thread::available_parallelism;

use clap::{Args, ValueEnum};
use softrnic_inspect::decode::{
    AddressPattern, Filter, Form, OpcodePattern, Options, Peers, Qpn, TimeForm, decode, learn_peers,
    parse_qpn,
};

use crate::capture_file::CaptureFile;
use crate::failure::{Failure, Result};

const EXAMPLES: &str = "\
Examples:
  softrnic decode trace.pcap
  softrnic decode -v --opcode 'NAK*' --opcode 'RNR NAK' trace.pcapng
  softrnic decode --qp 0x11 --addr 10.0.0.0/24 --json trace.pcap | jq .layers.bth.psn
  tcpdump -i eth0 -U -w - udp port 4791 | softrnic decode -

Exit status: 0 if the capture could be read to its end, 1 if not, 2 for wrong arguments.";

/// More threads than this are not faster.
const THREADS: usize = 4;

/// Print the RoCE packets of a capture
///
/// Reads pcap and pcapng with Ethernet, raw IP and Linux cooked frames, verifies the ICRC of every packet, and counts
/// the packets that are not RoCE. The summary goes to standard error.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct DecodeArgs {
    /// The capture, or - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print all headers, field by field
    #[arg(short, long, conflicts_with = "json")]
    verbose: bool,
    /// Print one JSON object per packet, one per line
    #[arg(long)]
    json: bool,
    /// Print only packets to or from this QP, decimal or 0x…; can be repeated
    #[arg(long, value_name = "QPN", value_parser = parse_qpn)]
    qp: Vec<Qpn>,
    /// Print only this opcode: a number, or a name such as 'RDMA READ*', 'NAK*', 'CM REQ'; can be repeated
    #[arg(long, value_name = "OPCODE")]
    opcode: Vec<OpcodePattern>,
    /// Print only packets to or from this address or prefix; can be repeated
    #[arg(long, value_name = "ADDRESS")]
    addr: Vec<AddressPattern>,
    /// What the time column shows
    #[arg(long, value_enum, default_value = "relative")]
    time: Time,
    /// Stop after this many packets
    #[arg(short = 'n', long, value_name = "COUNT")]
    count: Option<u64>,
    /// Print no summary
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Time {
    /// Seconds since the first packet
    Relative,
    /// Seconds since the previous packet
    Delta,
    /// Date and time of day
    Utc,
    /// Seconds since 1970
    Epoch,
}

impl From<Time> for TimeForm {
    fn from(time: Time) -> TimeForm {
        match time {
            Time::Relative => TimeForm::Relative,
            Time::Delta => TimeForm::Delta,
            Time::Utc => TimeForm::Utc,
            Time::Epoch => TimeForm::Epoch,
        }
    }
}

pub fn run(args: DecodeArgs) -> Result {
    let file = CaptureFile::new(args.file);
    // Packets that arrive live are printed as they come.
    let threads = match file.is_stdin() {
        true => 0,
        false => available_parallelism().map_or(1, usize::from).min(THREADS),
    };
    let options = Options {
        form: match (args.verbose, args.json) {
            (true, _) => Form::Fields,
            (_, true) => Form::Json,
            _ => Form::Line,
        },
        time: args.time.into(),
        filter: Filter { qps: args.qp, opcodes: args.opcode, addresses: args.addr },
        limit: args.count,
        threads,
    };
    let mut peers = Peers::new();
    if !options.filter.qps.is_empty() && !file.is_stdin() {
        // Packets name only the QP they go to: a first pass learns the senders.
        let (mut reader, mut progress) = file.open("finding the peers of each QP")?;
        peers = learn_peers(&mut reader, |offset| progress.at(offset));
    }
    let (mut reader, mut progress) = file.open("decoding")?;
    let mut out = io::stdout().lock();
    let summary = decode(&mut reader, &mut out, &options, &mut peers, |offset| progress.at(offset));
    drop(progress);
    let summary = match summary {
        Ok(summary) => summary,
        // The reader has closed the pipe.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(141),
        Err(error) => return Err(Failure::new(format!("cannot write the output: {error}"))),
    };
    let damage = summary.damage;
    if !args.quiet {
        let counts = softrnic_inspect::decode::Summary { damage: None, ..summary };
        writeln!(io::stderr(), "{counts}")?;
    }
    match damage {
        Some(damage) => Err(Failure::new(format!("{}: {damage}", file.name()))),
        None => Ok(()),
    }
}
