//! How a NIC joins a fabric.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use softrnic_shm::pair::{Bells, Pair, Segment};

use crate::rendezvous::{self, Message, PeerMessage};

pub use crate::rendezvous::Place;

/// How long a fabric may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a NIC could not join a fabric.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum JoinError {
    /// There is no fabric of this name.
    NoFabric(String),
    /// It is another user's.
    OtherUser(String),
    /// It did not answer, or not as this version does.
    NoAnswer(String),
    /// It refused, and said why.
    Refused(String),
    /// Its time is slowed by this factor, and that of this process is not.
    Pace(String, u32),
    /// The system refused memory or a descriptor.
    System(i32),
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JoinError::NoFabric(name) => {
                write!(f, "there is no fabric named {name}: start one with `softrnic fabric up`")
            }
            JoinError::OtherUser(name) => write!(f, "the fabric {name} belongs to another user"),
            JoinError::NoAnswer(name) => {
                write!(f, "the fabric {name} does not answer, or is of another version")
            }
            JoinError::Pace(name, 1) => {
                write!(
                    f,
                    "the fabric {name} is not in slow motion, and this program is: its time has one pace only"
                )
            }
            JoinError::Pace(name, factor) => write!(
                f,
                "the fabric {name} is in slow motion, by a factor of {factor}: start programs by `softrnic fabric exec \
{name} HOST -- PROGRAM`, on x86-64"
            ),
            JoinError::Refused(why) => f.write_str(why),
            JoinError::System(errno) => {
                write!(f, "cannot share memory with the fabric: {}", Errno::from_raw_os_error(*errno))
            }
        }
    }
}

impl std::error::Error for JoinError {}

impl From<Errno> for JoinError {
    fn from(error: Errno) -> JoinError {
        JoinError::System(error.raw_os_error())
    }
}

impl From<std::io::Error> for JoinError {
    fn from(error: std::io::Error) -> JoinError {
        JoinError::System(error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error()))
    }
}

/// What a NIC has of a fabric that it has joined.
pub struct Joined {
    pub stream: OwnedFd,
    pub pair: Pair,
    pub place: Place,
}

/// Connects to a fabric.
pub fn connect(fabric: &str) -> Result<OwnedFd, JoinError> {
    rendezvous::connect(fabric).map_err(|error| match error {
        Errno::CONNREFUSED => JoinError::NoFabric(fabric.into()),
        Errno::PERM => JoinError::OtherUser(fabric.into()),
        Errno::AGAIN => JoinError::NoAnswer(fabric.into()),
        error => error.into(),
    })
}

/// Joins a fabric as a process of one of its hosts, and waits for the answer.
pub fn join(fabric: &str, host: &str, bells: &Bells) -> Result<Joined, JoinError> {
    let stream = connect(fabric)?;
    let segment = Segment::new()?;
    let [thread, caller] = bells.files();
    let copied = |file: std::os::fd::BorrowedFd<'_>| file.try_clone_to_owned();
    let files = [copied(segment.file())?, copied(thread)?, copied(caller)?];
    rendezvous::say(&stream, &Message::Join { host: host.into(), files })?;
    match wait_for_answer(&stream, ANSWER_TIMEOUT) {
        Some(Message::Welcome { place, files: [file, thread, caller] }) => {
            let pair = Pair::join(segment, &file, Bells::given(thread, caller))?;
            Ok(Joined { stream, pair, place })
        }
        Some(Message::Refusal(why)) => Err(JoinError::Refused(why)),
        _ => Err(JoinError::NoAnswer(fabric.into())),
    }
}

/// The next message of a stream, if there is one in time.
pub fn wait_for_answer(stream: &OwnedFd, timeout: Duration) -> Option<Message> {
    let end = Instant::now() + timeout;
    loop {
        match rendezvous::hear(stream) {
            PeerMessage::Message(message) => return Some(message),
            PeerMessage::Garbage | PeerMessage::End => return None,
            PeerMessage::Nothing => {}
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let _ = poll(&mut [PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN)], Some(&left));
    }
}
