//! What goes over the pipes of a worker.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// What the worker is told.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Make an end of a connection: [`Answer::Made`].
    Make {
        name: String,
        #[serde(default)]
        shape: Shape,
    },
    /// Connect it.
    Connect {
        name: String,
        peer: Coordinates,
        #[serde(default)]
        path: Path,
    },
    /// Send back what arrives at it, until stopped: [`Notice::Finished`].
    Echo { name: String },
    /// Drive traffic from it, until stopped or done: [`Notice::Finished`].
    Drive { name: String, plan: Plan },
    /// Let what is under way end.
    Stop { name: String },
    /// Describe its QP: [`Answer::Text`].
    Query { name: String },
    /// Destroy it.
    Drop { name: String },
    /// Say how the device is: [`Answer::Seen`].
    Look,
}

/// What an end is made of.
#[derive(Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Shape {
    pub gid_index: usize,
    /// Messages under way at a time.
    pub slots: usize,
    /// The largest message, in bytes.
    pub size: usize,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape { gid_index: 0, slots: 8, size: 64 << 10 }
    }
}

/// Where an end is.
#[derive(Clone, Serialize, Deserialize)]
pub struct Coordinates {
    pub gid: IpAddr,
    pub qpn: u32,
    pub psn: u32,
    pub va: u64,
    pub rkey: u32,
    pub slots: usize,
    pub size: usize,
}

/// How ends are connected.
#[derive(Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Path {
    pub gid_index: usize,
    /// In bytes; the device's largest, when 0.
    pub mtu: u32,
    /// One second for each try, unless told otherwise: machines may be slow.
    pub timeout: u8,
    pub retry_cnt: u8,
}

impl Default for Path {
    fn default() -> Path {
        Path { gid_index: 0, mtu: 0, timeout: 18, retry_cnt: 7 }
    }
}

/// What to drive.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub seed: u64,
    /// Operations to draw from; a name that is there twice is drawn twice as often.
    pub operations: Vec<Operation>,
    /// After so many, if not stopped before.
    #[serde(default)]
    pub messages: Option<u64>,
    /// Wait for completions by events instead of polling.
    #[serde(default)]
    pub events: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    Send,
    SendImm,
    Write,
    WriteImm,
    Read,
    FetchAdd,
    CompareSwap,
}

/// What the worker answers.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Opened(Device),
    Made(Coordinates),
    Done,
    Seen(State),
    Text(String),
    Error(String),
}

/// What happens by itself.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Notice {
    /// An asynchronous event.
    Event { kind: String, source: String },
    /// Traffic has ended, and all of it was right.
    Finished { name: String, finished: Finished },
    /// Something was wrong.
    Failed { name: String, problem: String },
}

/// How traffic ended.
#[derive(Default, Serialize)]
pub struct Finished {
    /// Messages that were checked, by operation.
    pub messages: BTreeMap<Operation, u64>,
    pub bytes: u64,
    /// The first completion in error, if there was one.
    pub error: Option<String>,
    /// Work requests that were flushed after it.
    pub flushed: u64,
}

/// A device as it was opened.
#[derive(Serialize)]
pub struct Device {
    pub mode: String,
    pub address: IpAddr,
    #[serde(flatten)]
    pub port: Port,
}

/// Its port.
#[derive(Serialize)]
pub struct Port {
    pub state: String,
    pub active_mtu: u32,
    /// By index, those that are there.
    pub gids: BTreeMap<usize, IpAddr>,
}

/// How a device is.
#[derive(Serialize)]
pub struct State {
    #[serde(flatten)]
    pub port: Port,
    pub counters: BTreeMap<&'static str, u64>,
    /// Where all packet memory is, for links that share it with the kernel.
    pub memory: Option<Memory>,
}

/// See `FrameAudit`.
#[derive(Serialize)]
pub struct Memory {
    pub exact: bool,
    pub quiet: bool,
    pub text: String,
}

/// Writes one line.
pub fn say(message: &impl Serialize) {
    let mut line =
        serde_json::to_string(message).unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"));
    line.push('\n');
    let mut output = std::io::stdout().lock();
    // If this fails, the reader is gone, and then standard input ends as well.
    let _ = output.write_all(line.as_bytes()).and_then(|()| output.flush());
}
