//! How a NIC and a fabric find each other, and what they say by the stream between them.
//!
//! A fabric has an abstract name, so its scope is the network namespace. Any user can take any name, so both sides look
//! whether the other one is of the same user.

use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use softrnic_link::ProcessSlot;
use softrnic_sys::Credentials;
use softrnic_sys::unix::{self, Received};
use softrnic_wire::ServiceId;

/// The longest name of a fabric.
pub const MAX_NAME: usize = 31;
/// The longest message.
const MAX_MESSAGE: usize = 4096;
const MAGIC: &[u8; 4] = b"fab3";
const BACKLOG: i32 = 128;

/// What is said, in either direction.
#[derive(Debug)]
pub enum Message {
    /// A NIC wants to join as a process of a host: a segment and two bells come with it.
    Join {
        /// The host's name.
        host: String,
        /// Descriptors of the segment, and of the bells of a thread and of a caller.
        files: [OwnedFd; 3],
    },
    /// It may: likewise.
    Welcome {
        /// Where it is.
        place: Place,
        /// The fabric's.
        files: [OwnedFd; 3],
    },
    /// It may not, or a command cannot be done: why, as a sentence.
    Refusal(String),
    /// Requests for a service go to this NIC from now on.
    Serve(ServiceId),
    /// They do not any more.
    StopServing(ServiceId),
    /// Whether requests for a service go to this NIC.
    Served(bool),
    /// The NIC wants the packets of a group.
    JoinGroup(Ipv4Addr),
    /// It does not any more.
    LeaveGroup(Ipv4Addr),
    /// To the NIC: whether a cable of its host is up.
    Carrier(bool),
    /// A command of `softrnic fabric ctl`.
    Command(String),
    /// A part of the answer to a command.
    Answer(String),
    /// There is no more of it.
    Done,
}

/// Where a NIC is in a fabric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The host's address.
    pub address: Ipv4Addr,
    /// The slot of it that is this process's.
    pub slot: ProcessSlot,
    /// The IP MTU of the host's cable.
    pub ip_mtu: u16,
    /// Processes of the host, this one included.
    pub processes: u16,
    /// A cable of the host is up.
    pub is_up: bool,
    /// The address of the fabric's first host, and how many hosts follow each other from there on.
    pub first: Ipv4Addr,
    /// Hosts of the fabric.
    pub hosts: u32,
    /// By how much the fabric's time is slowed.
    pub slow: u32,
}

/// Whether a text can be the name of a fabric.
pub fn is_name(text: &str) -> bool {
    (1..=MAX_NAME).contains(&text.len())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
}

fn name_of(fabric: &str) -> String {
    format!("softrnic/fabric/{fabric}")
}

/// Takes the name of a fabric.
///
/// # Errors
/// `ADDRINUSE` if there is such a fabric.
pub fn listen(fabric: &str) -> Result<OwnedFd, Errno> {
    unix::listen(&name_of(fabric), BACKLOG)
}

/// A stream to a fabric.
///
/// # Errors
/// `CONNREFUSED` if there is none, `PERM` if it is another user's.
pub fn connect(fabric: &str) -> Result<OwnedFd, Errno> {
    let stream = unix::connect(&name_of(fabric))?;
    if is_same_user(&stream) { Ok(stream) } else { Err(Errno::PERM) }
}

/// Whether the other side is a process of this user.
pub fn is_same_user(stream: &OwnedFd) -> bool {
    Credentials::of_peer(stream).is_ok_and(Credentials::are_ours)
}

/// What came by a stream.
#[derive(Debug)]
pub enum PeerMessage {
    /// Nothing yet.
    Nothing,
    /// A message.
    Message(Message),
    /// What is no message.
    Garbage,
    /// The other side has ended.
    End,
}

/// Says something. A message that does not fit is lost, and the stream is of no use then.
///
/// # Errors
/// The other side has ended, or does not read.
pub fn say(stream: &OwnedFd, message: &Message) -> Result<(), Errno> {
    let mut bytes = MAGIC.to_vec();
    let mut files: Vec<BorrowedFd<'_>> = Vec::new();
    let text = |bytes: &mut Vec<u8>, kind: u8, text: &str| {
        bytes.push(kind);
        bytes.extend(text.as_bytes().iter().take(MAX_MESSAGE - 8));
    };
    match message {
        Message::Join { host, files: passed } => {
            text(&mut bytes, b'J', host);
            files.extend(passed.iter().map(AsFd::as_fd));
        }
        Message::Welcome { place, files: passed } => {
            bytes.push(b'W');
            bytes.extend(place.address.octets());
            bytes.push(place.slot.number() as u8);
            bytes.extend(place.ip_mtu.to_ne_bytes());
            bytes.extend(place.processes.to_ne_bytes());
            bytes.extend(place.first.octets());
            bytes.extend(place.hosts.to_ne_bytes());
            bytes.push(place.is_up.into());
            bytes.extend(place.slow.to_ne_bytes());
            files.extend(passed.iter().map(AsFd::as_fd));
        }
        Message::Refusal(why) => text(&mut bytes, b'N', why),
        Message::Command(command) => text(&mut bytes, b'C', command),
        Message::Answer(answer) => text(&mut bytes, b'A', answer),
        Message::Done => bytes.push(b'D'),
        Message::Serve(service) | Message::StopServing(service) => {
            bytes.push(if matches!(message, Message::Serve(_)) { b'S' } else { b's' });
            bytes.extend(service.0.to_ne_bytes());
        }
        Message::Served(yes) => bytes.extend([b'Y', u8::from(*yes)]),
        Message::Carrier(up) => bytes.extend([b'U', u8::from(*up)]),
        Message::JoinGroup(group) | Message::LeaveGroup(group) => {
            bytes.push(if matches!(message, Message::JoinGroup(_)) { b'G' } else { b'g' });
            bytes.extend(group.octets());
        }
    }
    unix::send(stream, &bytes, &files).map(drop)
}

/// A long answer, which is said in as many messages as it takes.
#[derive(Debug)]
pub struct Answer {
    text: String,
    /// Bytes of it that have been said.
    said: usize,
}

impl Answer {
    /// An answer of which nothing has been said yet.
    pub fn new(text: String) -> Answer {
        Answer { text, said: 0 }
    }

    /// Says as much as the other side takes. Returns whether that was all.
    ///
    /// # Errors
    /// The other side has ended.
    pub fn go_on(&mut self, stream: &OwnedFd) -> Result<bool, Errno> {
        loop {
            let rest = &self.text[self.said..];
            let mut len = rest.len().min(MAX_MESSAGE - 8);
            while !rest.is_char_boundary(len) {
                len -= 1;
            }
            let message = match len {
                0 => Message::Done,
                _ => Message::Answer(rest[..len].to_owned()),
            };
            match say(stream, &message) {
                Ok(()) if len == 0 => return Ok(true),
                Ok(()) => self.said += len,
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }
}

/// What the other side has said, without waiting for it.
pub fn hear(stream: &OwnedFd) -> PeerMessage {
    let mut bytes = [0; MAX_MESSAGE + 1];
    let Received { len, descriptors, .. } = match unix::receive(stream, &mut bytes) {
        Ok(received) => received,
        Err(Errno::AGAIN | Errno::INTR) => return PeerMessage::Nothing,
        Err(_) => return PeerMessage::End,
    };
    if len == 0 {
        return PeerMessage::End;
    }
    let message = bytes[..len].strip_prefix(MAGIC.as_slice()).filter(|_| len <= MAX_MESSAGE);
    message.and_then(|message| read(message, descriptors)).map_or(PeerMessage::Garbage, PeerMessage::Message)
}

fn read(bytes: &[u8], descriptors: Vec<OwnedFd>) -> Option<Message> {
    let (&kind, body) = bytes.split_first()?;
    let text = || String::from_utf8(body.to_vec()).ok();
    let service = || Some(ServiceId(u64::from_ne_bytes(body.try_into().ok()?)));
    let group = || Some(Ipv4Addr::from(<[u8; 4]>::try_from(body).ok()?)).filter(Ipv4Addr::is_multicast);
    Some(match kind {
        b'J' => Message::Join { host: text()?, files: descriptors.try_into().ok()? },
        b'W' => {
            let body: [u8; 22] = body.try_into().ok()?;
            let four = |at: usize| [body[at], body[at + 1], body[at + 2], body[at + 3]];
            let place = Place {
                address: four(0).into(),
                slot: ProcessSlot::new(body[4].into())?,
                ip_mtu: u16::from_ne_bytes([body[5], body[6]]),
                processes: u16::from_ne_bytes([body[7], body[8]]),
                first: four(9).into(),
                hosts: u32::from_ne_bytes(four(13)),
                is_up: body[17] != 0,
                slow: u32::from_ne_bytes(four(18)),
            };
            Message::Welcome { place, files: descriptors.try_into().ok()? }
        }
        b'N' => Message::Refusal(text()?),
        b'C' => Message::Command(text()?),
        b'A' => Message::Answer(text()?),
        b'D' => Message::Done,
        b'S' => Message::Serve(service()?),
        b's' => Message::StopServing(service()?),
        b'Y' => Message::Served(*body.first()? != 0),
        b'U' => Message::Carrier(*body.first()? != 0),
        b'G' => Message::JoinGroup(group()?),
        b'g' => Message::LeaveGroup(group()?),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn streams(of: &str) -> (OwnedFd, OwnedFd) {
        let name = format!("{of}-{}", std::process::id());
        let listener = listen(&name).expect("a name that is free");
        let stream = connect(&name).expect("a fabric");
        (stream, unix::accept(&listener).expect("a stream"))
    }

    #[test]
    fn messages_are_heard_as_they_are_said() {
        let (ours, theirs) = streams("messages");
        let service = ServiceId(0x0106_1234);
        for message in [
            Message::Refusal("no".into()),
            Message::Serve(service),
            Message::StopServing(service),
            Message::Served(true),
            Message::Carrier(false),
            Message::JoinGroup(Ipv4Addr::new(239, 1, 2, 3)),
            Message::LeaveGroup(Ipv4Addr::new(239, 1, 2, 3)),
            Message::Command("show".into()),
            Message::Done,
        ] {
            say(&ours, &message).expect("room");
            match hear(&theirs) {
                PeerMessage::Message(heard) => assert_eq!(format!("{heard:?}"), format!("{message:?}")),
                other => panic!("{other:?} instead of {message:?}"),
            }
        }
        assert!(matches!(hear(&theirs), PeerMessage::Nothing));
        unix::send(&ours, b"fab0", &[]).expect("room");
        assert!(matches!(hear(&theirs), PeerMessage::Garbage));
        drop(ours);
        assert!(matches!(hear(&theirs), PeerMessage::End));
    }

    #[test]
    fn a_long_answer_arrives_whole_when_it_is_read() {
        let (ours, theirs) = streams("answer");
        let long = "\u{2192} ".repeat(500_000);
        let mut answer = Answer::new(long.clone());
        assert_eq!(answer.go_on(&ours), Ok(false), "it does not fit");
        let mut got = String::new();
        loop {
            match hear(&theirs) {
                PeerMessage::Message(Message::Answer(part)) => got += &part,
                PeerMessage::Message(Message::Done) => break,
                PeerMessage::Nothing => drop(answer.go_on(&ours).expect("it is read")),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(got, long);
        drop(theirs);
        assert_eq!(Answer::new("late".into()).go_on(&ours), Err(Errno::PIPE));
    }

    #[test]
    fn names_are_short_and_plain() {
        assert!(is_name("clos") && is_name("a.b-c_9"));
        assert!(!is_name("") && !is_name("a/b") && !is_name("a b") && !is_name(&"a".repeat(32)));
    }
}
