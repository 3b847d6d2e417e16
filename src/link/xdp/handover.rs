//! Handing a [`Grant`] from a privileged process to another one, over a Unix socket.
//!
//! The application names the interface in one line. The helper answers with `granted` and the description, one
//! fact a line, the descriptors travelling along; or with `refused` and a reason; and closes.

use std::io::{self, BufRead, BufReader, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::str::FromStr;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

use super::grant::{Grant, GrantDescription};
use super::options::{AttachChoice, AttachMode, XdpError, XdpOptions};
use crate::host::Host;

/// The most descriptors that one message carries (`SCM_MAX_FD`).
const MAX_DESCRIPTORS: usize = 253;
/// Longer than any request or answer that makes sense, in bytes.
const MAX_TEXT: usize = 16 << 10;
/// How long the helper may take: drivers that reset their hardware to attach a program need seconds.
const PATIENCE: Duration = Duration::from_secs(30);

impl Grant {
    /// Asks the helper that listens on `socket` (a path, or `@` and an abstract name) for `interface`.
    ///
    /// # Errors
    /// [`XdpError::Grant`]: nobody listens, the helper refuses, or what it grants is not what `options` insist on.
    pub fn request(socket: &str, interface: &str, options: &XdpOptions) -> Result<Grant, XdpError> {
        let failed = |reason: String| XdpError::Grant { socket: socket.to_owned(), reason };
        let answer = ask(socket, interface).map_err(|error| failed(error.to_string()))?;
        let (description, descriptors) = answer.map_err(failed)?;
        let description = parse(&description).ok_or_else(|| failed("the answer makes no sense".into()))?;
        check(&description, interface, options).map_err(failed)?;
        Grant::from_descriptors(description, descriptors)
    }
}

/// A request for a grant, as the helper sees it.
pub struct GrantRequest {
    stream: UnixStream,
    interface: String,
}

impl GrantRequest {
    /// Reads what the application that has connected wants.
    ///
    /// # Errors
    /// It says nothing in time, or nothing that makes sense.
    pub fn read(stream: UnixStream) -> io::Result<GrantRequest> {
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.set_write_timeout(Some(Duration::from_secs(2)))?;
        let mut line = String::new();
        BufReader::new((&stream).take(MAX_TEXT as u64)).read_line(&mut line)?;
        let interface = line.strip_suffix('\n').and_then(|line| line.strip_prefix("grant "));
        let interface = interface.ok_or(io::ErrorKind::InvalidData)?.to_owned();
        Ok(GrantRequest { stream, interface })
    }

    /// The interface that is asked for.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Hands the grant over; this process keeps none of its descriptors.
    ///
    /// # Errors
    /// The application has gone away, or has too little room for descriptors.
    pub fn grant(self, grant: Grant) -> io::Result<()> {
        let (description, descriptors) = grant.into_descriptors();
        let text = describe(&description);
        let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !ancillary.push(SendAncillaryMessage::ScmRights(&borrowed)) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "more queues than can be granted"));
        }
        let bytes = [IoSlice::new(text.as_bytes())];
        let sent = rustix::net::sendmsg(&self.stream, &bytes, &mut ancillary, SendFlags::NOSIGNAL)?;
        (&self.stream).write_all(&text.as_bytes()[sent..])
    }

    /// Says no.
    ///
    /// # Errors
    /// The application has gone away.
    pub fn refuse(self, reason: &str) -> io::Result<()> {
        (&self.stream).write_all(format!("refused\n{reason}").as_bytes())
    }
}

/// The helper's answer: description and descriptors, or why not.
type Answer = Result<(String, Vec<OwnedFd>), String>;

fn ask(socket: &str, interface: &str) -> io::Result<Answer> {
    if interface.contains('\n') {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut stream = match socket.strip_prefix('@') {
        Some(name) => UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        None => UnixStream::connect(socket)?,
    };
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(format!("grant {interface}\n").as_bytes())?;
    let mut text = Vec::new();
    let mut descriptors = Vec::new();
    while receive(&stream, &mut text, &mut descriptors)? > 0 {
        if text.len() > MAX_TEXT {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    let text = String::from_utf8(text).map_err(|_| io::ErrorKind::InvalidData)?;
    match text.split_once('\n') {
        Some(("granted", description)) => Ok(Ok((description.to_owned(), descriptors))),
        Some(("refused", reason)) => Ok(Err(reason.to_owned())),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "it does not answer as a helper does")),
    }
}

fn receive(stream: &UnixStream, text: &mut Vec<u8>, descriptors: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; 1024];
    let message = rustix::net::recvmsg(
        stream,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    for received in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = received {
            descriptors.extend(rights);
        }
    }
    if message.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::other("too many open files"));
    }
    text.extend_from_slice(&bytes[..message.bytes]);
    Ok(message.bytes)
}

fn describe(description: &GrantDescription) -> String {
    let GrantDescription { ifindex, interface, attach, frags, busy_poll, queues, refused } = description;
    let attach = match attach {
        AttachMode::Native => "native",
        AttachMode::Skb => "skb",
    };
    let queues: Vec<String> = queues.iter().map(u32::to_string).collect();
    let queues = queues.join(" ");
    let mut text = format!(
        "granted\nifindex {ifindex}\ninterface {interface}\nattach {attach}\nfrags {frags}\n\
         busy_poll {busy_poll}\nqueues {queues}\n"
    );
    for reason in refused {
        text.push_str(&format!("refused {}\n", reason.replace('\n', " ")));
    }
    text
}

fn parse(text: &str) -> Option<GrantDescription> {
    let mut lines = text.lines();
    let mut fact = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
    Some(GrantDescription {
        ifindex: u32::from_str(fact("ifindex")?).ok()?,
        interface: fact("interface")?.to_owned(),
        attach: match fact("attach")? {
            "native" => AttachMode::Native,
            "skb" => AttachMode::Skb,
            _ => return None,
        },
        frags: fact("frags")?.parse().ok()?,
        busy_poll: fact("busy_poll")?.parse().ok()?,
        queues: fact("queues")?.split(' ').map(u32::from_str).collect::<Result<_, _>>().ok()?,
        refused: lines.map(|line| line.strip_prefix("refused ").map(str::to_owned)).collect::<Option<_>>()?,
    })
}

/// What the helper chose must be what was asked for, and where we are.
fn check(granted: &GrantDescription, interface: &str, options: &XdpOptions) -> Result<(), String> {
    let host = Host::open().map_err(|error| format!("the machine's interfaces cannot be read: {error}"))?;
    let here = host.interface(granted.ifindex).is_some_and(|found| found.name == granted.interface);
    if granted.interface != interface || !here {
        return Err(format!(
            "it is for {} in another network namespace, not for {interface} here",
            granted.interface
        ));
    }
    match (options.attach, granted.attach) {
        (AttachChoice::Native, AttachMode::Skb) => {
            return Err("native XDP is wanted, but it is for SKB mode".into());
        }
        (AttachChoice::Skb, AttachMode::Native) => {
            return Err("SKB mode is wanted, but it is for native XDP".into());
        }
        _ => {}
    }
    if !options.queues.is_empty() && options.queues != granted.queues {
        return Err(format!("queues {:?} are wanted, but it is for {:?}", options.queues, granted.queues));
    }
    if options.busy_poll.is_some() && !granted.busy_poll {
        return Err("busy polling is wanted, but it is without".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_survives_the_way() {
        let description = GrantDescription {
            ifindex: 7,
            interface: "eth0".into(),
            attach: AttachMode::Skb,
            frags: true,
            busy_poll: false,
            queues: vec![0, 3],
            refused: vec![
                "native XDP: the driver does not take it (os error 95)".into(),
                "two\nlines".into(),
            ],
        };
        let text = describe(&description);
        let mut back = parse(text.strip_prefix("granted\n").expect("granted")).expect("a description");
        assert_eq!(back.refused.pop().as_deref(), Some("two lines"));
        back.refused.push("two\nlines".into());
        assert_eq!(back, description);
    }

    #[test]
    fn what_is_no_description_is_refused() {
        for text in
            ["", "ifindex 1\n", "ifindex x\ninterface a\nattach skb\nfrags true\nbusy_poll true\nqueues 0\n"]
        {
            assert_eq!(parse(text), None);
        }
    }

    #[test]
    fn a_refusal_and_nonsense_are_told_apart() {
        let answer = |reply: &'static [u8]| {
            let name = format!("@softrnic-handover-test-{}-{}", std::process::id(), reply.len());
            let address = SocketAddr::from_abstract_name(name.trim_start_matches('@')).expect("a name");
            let listener = std::os::unix::net::UnixListener::bind_addr(&address).expect("binds");
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let (stream, _) = listener.accept().expect("accepts");
                    let request = GrantRequest::read(stream).expect("a request");
                    assert_eq!(request.interface(), "eth9");
                    (&request.stream).write_all(reply).expect("writes");
                });
                let granted = Grant::request(&name, "eth9", &XdpOptions::default());
                granted.err().expect("nothing was granted").to_string()
            })
        };
        assert!(answer(b"refused\nnot for you").ends_with(": not for you"));
        assert!(answer(b"HTTP/1.1 400 Bad Request\n").contains("does not answer as a helper does"));
        assert!(answer(b"granted\nifindex 1\n").ends_with("makes no sense"));
    }

    #[test]
    fn nobody_there_is_an_error() {
        let error =
            Grant::request("/nowhere/at/all", "eth0", &XdpOptions::default()).err().expect("an error");
        assert!(error.to_string().starts_with("no grant from /nowhere/at/all: No such file"));
    }
}
