//! `softrnic drill`: packet scripts against a RoCEv2 peer.

mod page;
mod report;

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};
use softrnic_drill::{AGENT, AGENT_PORT, Judgement, Known, Lab, Options, Verdict};
use softrnic_script::{Script, suite};

use crate::failure::{Doing, Failure, Result};
use crate::output::{say, write_bytes};
use crate::progress::Progress;
use crate::table::Table;
use crate::units;

const EXAMPLES: &str = "\
Examples:
  softrnic drill --list                                   the scripts, and the rule that each tests
  softrnic drill --agent > agent.c                        the program that runs on the peer, with its compile line
  softrnic drill --peer 10.0.0.5 duplicates naks          two scripts
  softrnic drill --peer 10.0.0.5 --all --known rxe-6.1    all, with the known deviations of a kernel as notes
  softrnic drill --peer 10.0.0.5 ./mine.txt               a script of your own
  softrnic drill --peer 10.0.0.5 --all --junit drill.xml --html drill.html

A stock rdma_cm server on the peer, and no agent: on the peer, and here,
  rping -s -P -a 10.0.0.5
  softrnic drill --peer 10.0.0.5 --server 7174 --all

Without hardware: in another shell, with the agent compiled as agent,
  softrnic run --device 'udp:127.0.0.2?early=off' -- ./agent
  softrnic drill --peer 127.0.0.2 --all

Exit status: 0 if every script conforms, is not applicable, or deviates in a known way; 3 if one deviates or it cannot be
told, as when the agent is lost midway; 1 if nothing could be played, 2 for wrong arguments.";

/// Exit status if the peer does not conform.
const DEVIATES: i32 = 3;

/// Play packet scripts against a RoCEv2 peer, and judge it
///
/// Each script is a conversation, packet by packet, that tests a rule of the specification. This command plays one side
/// of it. On the peer, a small agent creates queue pairs and posts what the script says, or a stock rdma_cm server
/// accepts connections; --list shows what each script needs.
#[derive(Args)]
#[command(after_help = EXAMPLES, group(ArgGroup::new("what").required(true).multiple(true).args(["scripts", "all", "list", "agent"])))]
pub struct DrillArgs {
    /// Names of scripts that ship with the command, or files
    #[arg(value_name = "SCRIPT")]
    scripts: Vec<String>,
    /// The peer's address: that of its device, where its agent listens too
    #[arg(long, value_name = "ADDRESS", required_unless_present_any = ["list", "agent"])]
    peer: Option<IpAddr>,
    /// The agent's TCP port [default: 18791, unless there is a server]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// The port of a stock rdma_cm server on the peer, such as rping; the peer then needs no agent
    #[arg(long, value_name = "PORT")]
    server: Option<u16>,
    /// The address of this side [default: the one from which this machine reaches the peer]
    #[arg(long, value_name = "ADDRESS")]
    local: Option<IpAddr>,
    /// A second address of this side, for the scripts in which a stranger sends packets
    #[arg(long, value_name = "ADDRESS")]
    stranger: Option<IpAddr>,
    /// Send to a SoftRNIC process of this machine through shared memory instead of sockets
    #[arg(long)]
    shm: bool,
    /// Play every script that ships with the command
    #[arg(long)]
    all: bool,
    /// List the scripts that ship with the command
    #[arg(long, conflicts_with_all = ["scripts", "all", "agent"])]
    list: bool,
    /// Print the agent, a C program for libibverbs
    #[arg(long, conflicts_with_all = ["scripts", "all"])]
    agent: bool,
    /// Known deviations: rxe-6.1, rxe-7.2, or a file
    #[arg(long, value_name = "NAME")]
    known: Option<String>,
    /// How many more attempts must show a deviation before it counts
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    repeats: usize,
    /// Directory for captures: one for each script, and one for each deviation
    #[arg(long, value_name = "FOLDER", default_value = "drill-captures")]
    captures: PathBuf,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Also write the result as JUnit XML
    #[arg(long, value_name = "OUT.xml")]
    junit: Option<PathBuf>,
    /// Also write a web page with the ladder of each deviation
    #[arg(long, value_name = "OUT.html")]
    html: Option<PathBuf>,
}

pub fn run(args: DrillArgs) -> Result {
    if args.agent {
        write_bytes(AGENT.as_bytes());
        return Ok(());
    }
    if args.list {
        return list(args.json);
    }
    let Some(peer) = args.peer else { return Err(Failure::usage("no peer was named (--peer)")) };
    let scripts = chosen(&args)?;
    let known = known(args.known.as_deref())?;
    std::fs::create_dir_all(&args.captures).doing(|| format!("cannot create {}", args.captures.display()))?;
    let mut lab = Lab::open(Options {
        peer,
        agent: args.port.or((args.server.is_none()).then_some(AGENT_PORT)),
        server: args.server,
        own: args.local,
        stranger: args.stranger,
        shared_memory: args.shm,
        captures: Some(args.captures.clone()),
        repeats: args.repeats,
    })?;
    anstream::eprintln!(
        "Sends only from {} to {} ({}), at most {} packets a case. A packet that has not come after {} counts as absent.",
        lab.own(),
        peer,
        judged(&lab, args.server),
        Lab::most_packets(),
        units::duration(lab.settle()),
    );
    let judgements = judge(&mut lab, &scripts, &known, args.json)?;
    if args.json {
        say!("{}", report::json(&judgements, &known, peer, &judged(&lab, args.server))?);
    } else {
        report::summary(&judgements, &known);
    }
    if let Some(lost) = lab.lost() {
        anstream::eprintln!("softrnic: the rest was not played: {lost}");
    }
    if let Some(path) = &args.junit {
        write_file(path, report::junit(&judgements).as_bytes())?;
    }
    if let Some(path) = &args.html {
        let peer = format!("{peer}, {}", judged(&lab, args.server));
        let page = page::page(&judgements, &crate::web_page::Origin::now(peer), &scripts)?;
        write_file(path, &page)?;
    }
    let bad = |judgement: &Judgement| match judgement.verdict() {
        Verdict::Deviates => !judgement.is_known(),
        verdict => verdict == Verdict::CannotTell,
    };
    // The output has reported them; they are not a failure of this program.
    if judgements.iter().any(bad) {
        std::process::exit(DEVIATES);
    }
    Ok(())
}

/// What is judged: a device by its agent's name for it, or whatever a server uses.
fn judged(lab: &Lab, server: Option<u16>) -> String {
    let device = lab.device().map(|device| format!("device {device}"));
    let server = server.map(|port| format!("the server on port {port}"));
    [device, server].into_iter().flatten().collect::<Vec<_>>().join(" and ")
}

/// Judges script after script; the table grows meanwhile.
fn judge(lab: &mut Lab, scripts: &[Script], known: &Known, json: bool) -> Result<Vec<Judgement>> {
    let mut judgements = Vec::new();
    let mut table = (!json).then(|| report::Growing::new(scripts));
    let mut progress = Progress::new(scripts.len());
    for script in scripts {
        progress.next(&script.name);
        let judgement = lab.judge(script, known)?;
        progress.hide();
        if let Some(table) = &mut table {
            table.row(&judgement);
        }
        judgements.push(judgement);
    }
    Ok(judgements)
}

fn write_file(path: &Path, bytes: &[u8]) -> Result {
    std::fs::write(path, bytes).doing(|| format!("cannot write {}", path.display()))
}

fn list(json: bool) -> Result {
    if json {
        say!("{}", report::list(&suite())?);
        return Ok(());
    }
    let mut table = Table::new(4, &["script", "needs", "rules", "shows"]);
    for script in suite() {
        let needs = script.needs().name().to_owned();
        table.row(vec![script.name, needs, script.rules, script.title]);
    }
    crate::output::write(format_args!("{table}"));
    Ok(())
}

/// The scripts that the arguments name.
fn chosen(args: &DrillArgs) -> Result<Vec<Script>> {
    let mut scripts = if args.all { suite() } else { Vec::new() };
    for name in &args.scripts {
        let script = match suite().into_iter().find(|script| script.name == *name) {
            Some(script) => script,
            None => read(name)?,
        };
        // Before the first packet is sent.
        script.cases()?;
        scripts.push(script);
    }
    Ok(scripts)
}

fn read(name: &str) -> Result<Script> {
    let path = Path::new(name);
    if !path.exists() {
        let message = format!(
            "{name} is neither a script that ships with the command nor a file; --list shows the scripts"
        );
        return Err(Failure::usage(message));
    }
    let text = std::fs::read_to_string(path).doing(|| format!("cannot read {name}"))?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Script::new(stem, text))
}

fn known(name: Option<&str>) -> Result<Known> {
    let Some(name) = name else { return Ok(Known::default()) };
    let text = match Known::named(name) {
        Some(text) => text.to_owned(),
        None => std::fs::read_to_string(name).doing(|| {
            let shipped: Vec<_> = Known::shipped().collect();
            format!("{name} is neither {} nor a file that can be read", shipped.join(" nor "))
        })?,
    };
    Known::parse(&text).doing(|| name.to_owned())
}
