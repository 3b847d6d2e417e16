//! The peer's agent, over TCP: a command a line, an answer a line.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use softrnic_wire::Gid;

/// The agent's source, in C for libibverbs.
pub const AGENT: &str = include_str!("agent.c");
/// The TCP port on which it listens.
pub const AGENT_PORT: u16 = 18791;

/// A command that waits in the agent does so for less.
const ANSWER: Duration = Duration::from_secs(30);
const CONNECT: Duration = Duration::from_secs(5);

/// What the agent said, or why it did not.
#[derive(Debug)]
pub enum AgentError {
    /// A verb failed there.
    Refused {
        /// The peer's error number.
        errno: i32,
        /// Which verb, and why.
        what: String,
    },
    /// The connection is gone, or what came is not the agent's language.
    Lost(String),
}

impl fmt::Display for AgentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AgentError::Refused { what, .. } => f.write_str(what),
            AgentError::Lost(what) => write!(f, "the agent is lost: {what}"),
        }
    }
}

impl std::error::Error for AgentError {}

impl From<io::Error> for AgentError {
    fn from(error: io::Error) -> AgentError {
        AgentError::Lost(error.to_string())
    }
}

/// The words `name=value` of an answer.
#[derive(Debug)]
pub struct Answer(HashMap<String, String>);

impl Answer {
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub fn number(&self, name: &str) -> Result<u64, AgentError> {
        let value = self.text(name).and_then(|value| value.parse().ok());
        value.ok_or_else(|| AgentError::Lost(format!("the answer has no number `{name}`")))
    }

    pub fn flag(&self, name: &str) -> bool {
        self.text(name) == Some("1")
    }
}

/// A connection with the agent. What was made through it lasts as long.
pub struct Agent {
    reader: BufReader<TcpStream>,
    /// What the peer's device is called.
    pub device: String,
    /// Whether that device has ATOMIC WRITE.
    pub atomic_write: bool,
    /// Whether that device has FLUSH.
    pub flush: bool,
}

impl Agent {
    /// Connects, and tells the agent that its queue pairs' peer is `own`.
    pub fn connect(agent: SocketAddr, own: IpAddr) -> Result<Agent, AgentError> {
        let stream = TcpStream::connect_timeout(&agent, CONNECT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER))?;
        let mut agent = Agent {
            reader: BufReader::new(stream),
            device: String::new(),
            atomic_write: false,
            flush: false,
        };
        let gid = std::net::Ipv6Addr::from(Gid::from(own).0);
        let hello = agent.ask(&format!("hello peer={gid}"))?;
        agent.device = hello.text("device").unwrap_or("?").to_owned();
        (agent.atomic_write, agent.flush) = (hello.flag("atomic_write"), hello.flag("flush"));
        Ok(agent)
    }

    /// Gives a command and takes the answer.
    pub fn ask(&mut self, command: &str) -> Result<Answer, AgentError> {
        self.reader.get_mut().write_all(format!("{command}\n").as_bytes())?;
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Err(AgentError::Lost("it closed the connection".into()));
        }
        match line.trim_end().split_once(' ').unwrap_or((line.trim_end(), "")) {
            ("ok", rest) => {
                let pairs = rest.split_whitespace().filter_map(|word| word.split_once('='));
                Ok(Answer(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()))
            }
            ("error", rest) => {
                let (errno, what) = rest.split_once(' ').unwrap_or((rest, ""));
                Err(AgentError::Refused { errno: errno.parse().unwrap_or(0), what: what.to_owned() })
            }
            _ => Err(AgentError::Lost(format!("it said `{}`", line.trim_end()))),
        }
    }
}
