//! `softrnic top`: the NICs of the user's running processes, live.

mod screen;
mod view;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use clap::Args;
use softrnic_stats::Look;

use crate::failure::Result;
use crate::output::write;
use crate::stats::Selection;
use screen::{Key, Screen};
use view::{Line, Scroll};

const EXAMPLES: &str = "\
Examples:
  softrnic top
  softrnic top -d 0.5 --pid 1234
  softrnic top --once | grep ERR

Keys: q quits, the arrow and page keys scroll, space looks at once.

The window is shared by all QPs to the same peer address. A QP's resent packets and RNR NAKs are those since it was
made; rates are those since the look before.";

/// Watch the NICs of your running processes
///
/// Shows their QPs with state, PSNs, window, bytes in flight, resent packets, RNR NAKs and rates, and the counters of
/// retransmissions and drops. If standard output is not a terminal, it takes two snapshots and prints once.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct TopArgs {
    #[command(flatten)]
    selection: Selection,
    /// Seconds between updates
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = parse_delay)]
    delay: Duration,
    /// Print once as plain text, after one delay, and exit
    #[arg(long)]
    once: bool,
}

fn parse_delay(text: &str) -> std::result::Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("not a number of seconds from 0.1 to 3600".into()),
    }
}

pub fn run(args: TopArgs) -> Result {
    match args.once || !std::io::stdout().is_terminal() {
        true => once(&args),
        false => live(&args),
    }
}

fn once(args: &TopArgs) -> Result {
    let before = args.selection.look()?;
    std::thread::sleep(args.delay);
    let now = args.selection.look()?;
    for Line { style, text } in view::lines(Some(&before), &now, &args.selection.nothing()) {
        write(format_args!("{style}{text}{style:#}\n"));
    }
    Ok(())
}

fn live(args: &TopArgs) -> Result {
    let mut before: Option<Look> = None;
    let mut now = args.selection.look()?;
    let mut scroll = Scroll::default();
    let mut screen = Screen::enter()?;
    loop {
        let lines = view::lines(before.as_ref(), &now, &args.selection.nothing());
        let due = Instant::now() + args.delay;
        loop {
            let (columns, rows) = screen.size()?;
            screen.draw(&scroll.visible(&lines, rows), columns)?;
            match screen.key(due)? {
                None | Some(Key::Refresh) => break,
                Some(Key::Quit) => return Ok(()),
                Some(Key::Scroll(by)) => scroll.by(by, lines.len(), rows),
                Some(Key::Redraw) => {}
            }
        }
        before = Some(std::mem::replace(&mut now, args.selection.look()?));
    }
}
