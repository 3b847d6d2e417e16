//! What clients ask of a device: a line of text.

/// The request for a snapshot.
const SNAPSHOT: &str = "stats";

/// The request for a snapshot with the objects of the device.
const CLOSE_SNAPSHOT: &str = "stats closely";

/// The request that the NICs of peers are asked about the queue pairs that wait for them, and for what they have said so far.
const ASKING_SNAPSHOT: &str = "stats asking peers";

/// How much a snapshot shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detail {
    /// Counters, queue pairs, peers and connections.
    Usual,
    /// All objects besides.
    Close,
    /// What is known of queue pairs that wait, and the NICs of their peers are asked.
    Asking,
}

impl Detail {
    pub(super) const fn request(self) -> &'static str {
        match self {
            Detail::Usual => SNAPSHOT,
            Detail::Close => CLOSE_SNAPSHOT,
            Detail::Asking => ASKING_SNAPSHOT,
        }
    }
}

/// What commands to the port begin with.
pub(super) const LINK: &str = "link ";

/// What a client has sent.
pub(super) enum Request<'a> {
    /// The line is not complete.
    Unfinished,
    /// It is a request of another version.
    Unknown,
    Snapshot(Detail),
    /// A command to the port.
    Link(&'a str),
}

impl Request<'_> {
    pub(super) fn parse(text: &[u8]) -> Request<'_> {
        let Some(line) =
            text.split_inclusive(|byte| *byte == b'\n').next().and_then(|line| line.strip_suffix(b"\n"))
        else {
            return Request::Unfinished;
        };
        match str::from_utf8(line) {
            Ok(SNAPSHOT) => Request::Snapshot(Detail::Usual),
            Ok(CLOSE_SNAPSHOT) => Request::Snapshot(Detail::Close),
            Ok(ASKING_SNAPSHOT) => Request::Snapshot(Detail::Asking),
            Ok(line) => line.strip_prefix(LINK).map_or(Request::Unknown, Request::Link),
            Err(_) => Request::Unknown,
        }
    }
}
