//! What a program receives.

use crate::number::{DONE, ERROR, flag};
use crate::request::{HEADER, Request, aligned};

/// No datagram is longer, as in the kernel: programs read into buffers of a page.
pub const LONGEST: usize = 3776;

/// Why a request is not answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// An attribute is missing or wrong, or there is no such device.
    Invalid,
    /// There is no such object.
    Missing,
    /// It is about what SoftRNIC does not have, or would change something.
    Unsupported,
}

impl Refusal {
    /// Linux: `EINVAL`, `ENOENT`, `EOPNOTSUPP`.
    fn errno(self) -> i32 {
        match self {
            Refusal::Invalid => 22,
            Refusal::Missing => 2,
            Refusal::Unsupported => 95,
        }
    }
}

/// Attributes one behind the other.
#[derive(Clone, Default, Debug)]
pub struct Attributes(Vec<u8>);

impl Attributes {
    pub fn u8(&mut self, kind: u16, value: u8) {
        self.put(kind, &[value]);
    }

    pub fn u32(&mut self, kind: u16, value: u32) {
        self.put(kind, &value.to_ne_bytes());
    }

    pub fn u64(&mut self, kind: u16, value: u64) {
        self.put(kind, &value.to_ne_bytes());
    }

    pub fn text(&mut self, kind: u16, text: &str) {
        self.put(kind, &[text.as_bytes(), &[0]].concat());
    }

    pub fn put(&mut self, kind: u16, value: &[u8]) {
        // What is shown of a process is bounded (`softrnic_stats`), so this cuts nothing.
        let value = &value[..value.len().min(LONGEST)];
        let length = (4 + value.len()) as u16;
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(aligned(self.0.len()), 0);
    }

    /// An attribute with others inside.
    pub fn nest(&mut self, kind: u16, inside: &Attributes) {
        const NESTED: u16 = 0x8000;
        self.put(kind | NESTED, &inside.0);
    }

    pub fn append(&mut self, others: &Attributes) {
        self.0.extend(&others.0);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The datagrams that answer a program.
pub struct Replies {
    /// The number of the program's socket.
    port: u32,
    pub datagrams: Vec<Vec<u8>>,
}

impl Replies {
    pub fn new(port: u32) -> Replies {
        Replies { port, datagrams: Vec::new() }
    }

    /// A message in answer to a request.
    pub fn message(&mut self, request: &Request<'_>, attributes: &Attributes) {
        let flags = if request.is_dump() { flag::MULTI } else { 0 };
        self.push(request.kind, flags, request.sequence, &attributes.0);
    }

    /// A table, in as many messages as it takes. Each begins with `head`, and its entries are in `table`.
    pub fn table(
        &mut self,
        request: &Request<'_>,
        head: &Attributes,
        (table, entry): (u16, u16),
        entries: impl IntoIterator<Item = Attributes>,
    ) {
        let mut inside = Attributes::default();
        let mut tell = |inside: &mut Attributes| {
            let mut attributes = head.clone();
            attributes.nest(table, &std::mem::take(inside));
            self.message(request, &attributes);
        };
        for each in entries {
            if HEADER + head.len() + inside.len() + each.len() + 8 > LONGEST && inside.len() > 0 {
                tell(&mut inside);
            }
            inside.nest(entry, &each);
        }
        if inside.len() > 0 {
            tell(&mut inside);
        }
    }

    /// What ends the answer to a request.
    pub fn end(&mut self, request: &Request<'_>, outcome: Result<(), Refusal>) {
        let errno = outcome.err().map_or(0, |refusal| -refusal.errno());
        if request.is_dump() {
            self.push(DONE, flag::MULTI, request.sequence, &errno.to_ne_bytes());
        } else if request.wants_ack() || errno != 0 {
            let what = [&errno.to_ne_bytes()[..], &request.head].concat();
            self.push(ERROR, flag::CAPPED, request.sequence, &what);
        }
    }

    pub fn push(&mut self, kind: u16, flags: u16, sequence: u32, content: &[u8]) {
        let length = HEADER + content.len();
        let mut datagram = Vec::with_capacity(length);
        datagram.extend((length as u32).to_ne_bytes());
        datagram.extend(kind.to_ne_bytes());
        datagram.extend(flags.to_ne_bytes());
        datagram.extend(sequence.to_ne_bytes());
        datagram.extend(self.port.to_ne_bytes());
        datagram.extend(content);
        self.datagrams.push(datagram);
    }
}
