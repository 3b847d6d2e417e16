//! Two processes: this one, and a second instance of the same program that executes requests, sent as lines of JSON on
//! its standard input and output.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, TryRecvError, unbounded};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::failure::{Doing, Failure, Result};

/// How long the other process may take to answer before it counts as hung.
pub const PEER_TIMEOUT: Duration = Duration::from_secs(60);

/// The second process. It is killed when this is dropped before [`Peer::finish`].
pub struct Peer {
    child: Child,
    line: Line,
}

impl Peer {
    /// Starts this program again as `softrnic peer ROLE`, in a network namespace if one is given.
    pub fn spawn(role: &str, netns: Option<&str>) -> Result<Peer> {
        let program = std::env::current_exe().doing(|| "cannot find this program's own file".into())?;
        let mut command = match netns {
            None => Command::new(&program),
            Some(name) => {
                let mut command = Command::new("nsenter");
                command.arg(format!("--net=/run/netns/{name}")).arg(&program);
                command
            }
        };
        let mut child = command
            .args(["peer", role])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .doing(|| format!("cannot start {}", program.display()))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::new("the second process has no pipes"));
        };
        let line = Line::new(output, input, || {});
        Ok(Peer { child, line })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn line(&mut self) -> &mut Line {
        &mut self.line
    }

    /// Sends a request and waits for its answer.
    pub fn ask<T: DeserializeOwned>(&mut self, request: &impl Serialize) -> Result<T> {
        self.line.send(request)?;
        self.line.receive(PEER_TIMEOUT)
    }

    /// Waits for the other process, which has been told to end, and checks its exit status.
    pub fn finish(mut self) -> Result {
        match self.line.inbox.recv_timeout(PEER_TIMEOUT) {
            Err(RecvTimeoutError::Disconnected) => {}
            Err(RecvTimeoutError::Timeout) => return Err(Failure::new("the second process does not end")),
            Ok(_) => return Err(Failure::new("the second process ended with an unexpected message")),
        }
        let status = self.child.wait()?;
        if status.success() {
            return Ok(());
        }
        Err(Failure::new(format!("the second process ended with {status}")))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Neither does anything if it has ended and been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The line to the other process.
pub struct Line {
    output: Box<dyn Write + Send>,
    inbox: Receiver<String>,
    gone: Arc<AtomicBool>,
}

/// A message on the line.
#[derive(Serialize, Deserialize)]
enum Envelope<T> {
    Message(T),
    /// The other process gives up, for this reason.
    Failure(String),
}

impl Line {
    /// The second process's end of the line. When the first process goes away, this one ends too.
    pub fn to_parent() -> Line {
        Line::new(std::io::stdin(), std::io::stdout(), || std::process::exit(1))
    }

    fn new(
        input: impl Read + Send + 'static,
        output: impl Write + Send + 'static,
        at_end: impl FnOnce() + Send + 'static,
    ) -> Line {
        let (sender, inbox) = unbounded();
        let gone = Arc::new(AtomicBool::new(false));
        let flag = gone.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(input).lines() {
                let Ok(line) = line else { break };
                if sender.send(line).is_err() {
                    break;
                }
            }
            flag.store(true, Ordering::Release);
            at_end();
        });
        Line { output: Box::new(output), inbox, gone }
    }

    pub fn send(&mut self, message: &impl Serialize) -> Result {
        self.put(&Envelope::Message(message))
    }

    /// Tells the other process why this one gives up.
    pub fn fail(&mut self, failure: &Failure) -> Result {
        self.put(&Envelope::<()>::Failure(failure.message.clone()))
    }

    fn put(&mut self, envelope: &Envelope<impl Serialize>) -> Result {
        let mut text = serde_json::to_string(envelope)?;
        text.push('\n');
        self.output.write_all(text.as_bytes()).and_then(|()| self.output.flush()).map_err(|_| gone())
    }

    /// Waits for a message.
    pub fn receive<T: DeserializeOwned>(&self, timeout: Duration) -> Result<T> {
        match self.inbox.recv_timeout(timeout) {
            Ok(text) => open(&text),
            Err(RecvTimeoutError::Disconnected) => Err(gone()),
            Err(RecvTimeoutError::Timeout) => Err(Failure::new("the other process does not answer")),
        }
    }

    /// Waits for a message as long as the other process exists.
    pub fn wait<T: DeserializeOwned>(&self) -> Result<T> {
        self.inbox.recv().map_err(|_| gone()).and_then(|text| open(&text))
    }

    /// Takes a message if there is one.
    pub fn poll<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        match self.inbox.try_recv() {
            Ok(text) => open(&text).map(Some),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(gone()),
        }
    }

    /// Whether the other process still holds its end. Its last message may be unread.
    pub fn check(&self) -> Result {
        if !self.gone.load(Ordering::Acquire) {
            return Ok(());
        }
        // Its last words say more than its absence.
        match self.inbox.try_recv() {
            Ok(text) => open::<serde_json::Value>(&text).and_then(|_| Err(gone())),
            Err(_) => Err(gone()),
        }
    }
}

fn open<T: DeserializeOwned>(text: &str) -> Result<T> {
    match serde_json::from_str(text).doing(|| format!("the other process said {text:?}"))? {
        Envelope::Message(message) => Ok(message),
        Envelope::Failure(reason) => Err(Failure::new(reason)),
    }
}

fn gone() -> Failure {
    Failure::new("the other process has ended")
}
