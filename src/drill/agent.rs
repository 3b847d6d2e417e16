//! The peer's agent, over TCP: a command a line, an answer a line.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use softrnic_wire::Gid;

use crate::timing::told;

/// The agent's source, in C for libibverbs: one file, so that one command compiles it on the peer.
pub const AGENT: &str = concat!(
    include_str!("agent/command.c"),
    include_str!("agent/device.c"),
    include_str!("agent/objects.c"),
    include_str!("agent/memory.c"),
    include_str!("agent/work.c"),
    include_str!("agent/main.c"),
);
/// The TCP port on which it listens.
pub const AGENT_PORT: u16 = 18791;

/// A command that waits in the agent does so for less.
const ANSWER: Duration = Duration::from_secs(30);
const CONNECT: Duration = Duration::from_secs(5);
/// No answer is longer: as long as the longest command that the agent takes.
const LONGEST: usize = 1 << 20;

/// What the agent said, or why it did not.
#[derive(Debug)]
#[non_exhaustive]
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

/// The words of an answer: `name=value`, or a list.
#[derive(Debug)]
pub struct Answer(String);

impl Answer {
    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.0.split_whitespace()
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.words().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
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
    stream: TcpStream,
    /// What its queue pairs are connected with.
    pub peer: Ipv6Addr,
    /// What the peer's device is called.
    pub device: String,
    /// Whether that device has ATOMIC WRITE.
    pub atomic_write: bool,
    /// Whether that device has FLUSH.
    pub flush: bool,
}

impl Agent {
    /// Connects, for queue pairs whose peer is `own`.
    pub fn connect(agent: SocketAddr, own: IpAddr) -> Result<Agent, AgentError> {
        let stream = TcpStream::connect_timeout(&agent, CONNECT)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(ANSWER))?;
        let peer = Ipv6Addr::from(Gid::from(own).0);
        let mut agent = Agent { stream, peer, device: String::new(), atomic_write: false, flush: false };
        let opened = agent.ask("open dev=0")?;
        agent.device = opened.text("device").unwrap_or("?").to_owned();
        (agent.atomic_write, agent.flush) = (opened.flag("atomic_write"), opened.flag("flush"));
        // One for all queue pairs: the script says in which order they complete.
        agent.ask("cq cq=0 depth=1024")?;
        Ok(agent)
    }

    /// Gives a command and takes the answer.
    pub fn ask(&mut self, command: &str) -> Result<Answer, AgentError> {
        let mut answers = self.ask_all(std::slice::from_ref(&command))?;
        answers.pop().unwrap_or_else(|| Err(lost("it has not answered")))
    }

    /// Gives commands all at once, so that the agent obeys one right behind the other, and takes the answers.
    pub fn ask_all(
        &mut self,
        commands: &[impl AsRef<str>],
    ) -> Result<Vec<Result<Answer, AgentError>>, AgentError> {
        let lines: String = commands.iter().flat_map(|command| [command.as_ref(), "\n"]).collect();
        self.stream.write_all(lines.as_bytes())?;
        let answers = read_lines(&mut self.stream, commands.len(), ANSWER)?;
        Ok(answers.lines().map(answer).collect())
    }
}

fn answer(line: &str) -> Result<Answer, AgentError> {
    match line.trim_end().split_once(' ').unwrap_or((line.trim_end(), "")) {
        ("ok", rest) => Ok(Answer(rest.to_owned())),
        ("error", rest) => {
            let (errno, what) = rest.split_once(' ').unwrap_or((rest, ""));
            Err(AgentError::Refused { errno: errno.parse().unwrap_or(0), what: what.to_owned() })
        }
        _ => Err(lost(format!("it said `{}`", start(line)))),
    }
}

fn lost(what: impl Into<String>) -> AgentError {
    AgentError::Lost(what.into())
}

/// As much of what somebody said as fits into a message.
fn start(line: &str) -> String {
    line.trim_end().chars().take(80).collect()
}

/// So many lines, and nothing behind them: an answer that never ends, or not in time, is none.
fn read_lines(stream: &mut TcpStream, count: usize, within: Duration) -> Result<String, AgentError> {
    let end = Instant::now() + within;
    let (mut lines, mut ended, mut chunk) = (Vec::new(), 0, [0; 4096]);
    while ended < count {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(lost(format!("it has not answered within {}", told(within))));
        }
        stream.set_read_timeout(Some(left))?;
        let read = match stream.read(&mut chunk) {
            Ok(0) => return Err(lost("it closed the connection")),
            Ok(read) => &chunk[..read],
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => continue,
            Err(error) => return Err(error.into()),
        };
        lines.extend_from_slice(read);
        ended += read.iter().filter(|byte| **byte == b'\n').count();
        if lines.len() > count * LONGEST {
            return Err(lost(format!("its answer is longer than {LONGEST} bytes")));
        }
    }
    if ended > count || !lines.ends_with(b"\n") {
        return Err(lost("it said more than it was asked"));
    }
    String::from_utf8(lines).map_err(|_| lost("its answer is not text"))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// What an agent is taken for that says this, and then nothing for as long as it is listened to.
    fn heard(said: Vec<u8>, count: usize) -> Result<String, AgentError> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let mut ours = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let (mut theirs, _) = listener.accept().expect("connected");
        std::thread::scope(|scope| {
            // The other side stops listening in the middle of what is too long.
            scope.spawn(move || theirs.write_all(&said).map(|()| theirs));
            let heard = read_lines(&mut ours, count, Duration::from_millis(300));
            drop(ours);
            heard
        })
    }

    #[test]
    fn only_a_line_of_bounded_length_and_time_is_an_answer() {
        assert_eq!(heard(b"ok a=1\n".to_vec(), 1).expect("a line"), "ok a=1\n");
        assert_eq!(heard(b"ok a=1\nok\n".to_vec(), 2).expect("two lines"), "ok a=1\nok\n");
        let why = |said: Vec<u8>| heard(said, 1).expect_err("no answer").to_string();
        assert!(why(b"ok\nok\n".to_vec()).contains("more than it was asked"));
        assert!(why(vec![b'x'; 2 * LONGEST]).contains("longer than"));
        assert!(why(vec![0xFF, b'\n']).contains("not text"));
    }

    #[test]
    fn an_agent_that_trickles_is_not_waited_for_without_end() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let mut ours = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let (mut theirs, _) = listener.accept().expect("connected");
        std::thread::scope(|scope| {
            scope.spawn(move || {
                while theirs.write_all(b"x").is_ok() {
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
            let why = read_lines(&mut ours, 1, Duration::from_millis(100)).expect_err("no line").to_string();
            assert!(why.contains("within 100.0 ms"), "{why}");
            drop(ours);
        });
    }
}
