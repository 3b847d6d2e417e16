//! A process of the tests of real interfaces. It opens one device, and then does what it is told, one JSON command a
//! line, on standard input. Each command has one answer on standard output, in order; what happens by itself comes in
//! between as notices.
//!
//! Its QPs either echo or drive traffic; the side that drives checks every byte, so that what it reports as done was
//! correct at both ends.

#![forbid(unsafe_code)]

mod drive;
mod echo;
mod end;
mod message;
mod report;
mod wait;

use std::collections::HashMap;
use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use softrnic_nic::verbs::{Context, DeviceSpec};

use end::End;
use message::{Answer, Command, Finished, Notice, say};

type Problem = Box<dyn std::error::Error>;

fn main() {
    if let Err(problem) = run() {
        say(&Answer::Error(problem.to_string()));
        std::process::exit(1);
    }
}

fn run() -> Result<(), Problem> {
    let spec: DeviceSpec = match std::env::args().nth(1) {
        Some(text) => text.parse()?,
        None => return Err("usage: softrnic-xdp-worker DEVICE".into()),
    };
    let fault = std::env::var("SOFTRNIC_FAULT").ok().map(|text| text.parse()).transpose();
    let spec = DeviceSpec { fault: fault.map_err(|error| format!("{error}"))?, ..spec };
    let context = Context::open(&spec)?;
    say(&Answer::Opened(report::device(&context)?));
    let events = context.clone();
    std::thread::spawn(move || {
        while let Ok(event) = events.async_event() {
            say(&Notice::Event { kind: format!("{:?}", event.kind), source: report::source(&event) });
        }
    });
    let mut worker = Worker { context, ends: HashMap::new() };
    for line in std::io::stdin().lock().lines() {
        let command: Command = serde_json::from_str(&line?)?;
        let answer = worker.obey(command).unwrap_or_else(|problem| Answer::Error(problem.to_string()));
        say(&answer);
    }
    Ok(())
}

struct Worker {
    context: Context,
    ends: HashMap<String, Busy>,
}

/// An end of a connection, and what it is told to do.
struct Busy {
    end: Arc<End>,
    stop: Arc<AtomicBool>,
}

impl Worker {
    fn obey(&mut self, command: Command) -> Result<Answer, Problem> {
        match command {
            Command::Make { name, shape } => {
                let end = Arc::new(End::make(&self.context, &shape)?);
                let made = end.coordinates(&self.context, shape.gid_index)?;
                self.ends.insert(name, Busy { end, stop: Arc::default() });
                Ok(Answer::Made(made))
            }
            Command::Connect { name, peer, path } => {
                self.busy(&name)?.end.connect(&peer, &path)?;
                Ok(Answer::Done)
            }
            Command::Echo { name } => {
                let Busy { end, stop } = self.busy(&name)?;
                let (end, stop) = (end.clone(), stop.clone());
                echo::prepare(&end)?;
                std::thread::spawn(move || finish(name, echo::run(&end, &stop)));
                Ok(Answer::Done)
            }
            Command::Drive { name, plan } => {
                let Busy { end, stop } = self.busy(&name)?;
                let (end, stop) = (end.clone(), stop.clone());
                std::thread::spawn(move || finish(name, drive::run(&end, &plan, &stop)));
                Ok(Answer::Done)
            }
            Command::Stop { name } => {
                self.busy(&name)?.stop.store(true, Ordering::Relaxed);
                Ok(Answer::Done)
            }
            Command::Query { name } => {
                let qp = &self.busy(&name)?.end.qp;
                Ok(Answer::Text(format!("{:?}, {:?}", qp.query()?, qp.address())))
            }
            Command::Drop { name } => {
                self.ends.remove(&name).ok_or("no such end")?;
                Ok(Answer::Done)
            }
            Command::Look => Ok(Answer::Seen(report::state(&self.context)?)),
        }
    }

    fn busy(&self, name: &str) -> Result<&Busy, Problem> {
        self.ends.get(name).ok_or_else(|| format!("no end is called {name}").into())
    }
}

/// Tells how traffic ended.
fn finish(name: String, outcome: Result<Finished, Problem>) {
    match outcome {
        Ok(finished) => say(&Notice::Finished { name, finished }),
        Err(problem) => say(&Notice::Failed { name, problem: problem.to_string() }),
    }
}
