//! Clients that look at a running device: over its socket, and over HTTP. They come, ask, read or do not, and go, in
//! virtual time. Whatever they do, a round is bounded, and no client stays without making progress. And what another
//! process says about itself becomes metrics that can be read.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicU32, Ordering};

use crossbeam_channel::{Receiver, Sender, unbounded};
use softrnic_stats::metrics::{self, Page, exposition};
use softrnic_stats::serve::{Answer, Limits, Round, Server};
use softrnic_stats::{Cached, LIMITS, Look, Snapshot, is_ours};
use softrnic_wire::Time;

use super::Choices;

/// The first choice is which server is asked.
pub fn looks(data: &[u8]) {
    let mut choices = Choices(data);
    match choices.byte() % 3 {
        0 => crowd(&mut choices, LIMITS, &mut Socket::default()),
        1 => crowd(&mut choices, metrics::LIMITS, &mut Http::new()),
        _ => claims(choices.0),
    }
}

/// A server.
trait Answers {
    fn hear(&mut self, request: &[u8], now: Time) -> Answer;

    /// What it waits for has come.
    fn find(&mut self, _: u8) {}

    /// What a client has read so far can be the start of an answer.
    fn check(&self, answer: &[u8]);
}

#[derive(Default)]
struct Socket {
    cached: Cached,
    taken: u32,
}

/// More than a socket holds at once.
const LONG: usize = 300_000;

impl Answers for Socket {
    fn hear(&mut self, _: &[u8], now: Time) -> Answer {
        self.cached.get(now, || {
            self.taken += 1;
            // Now and then there is none.
            (!self.taken.is_multiple_of(5)).then(|| vec![b'x'; LONG])
        })
    }

    fn check(&self, answer: &[u8]) {
        assert!(answer.len() <= LONG && answer.iter().all(|byte| *byte == b'x'));
    }
}

struct Http {
    page: Page,
    asked: Receiver<()>,
    finds: Sender<Result<Look, String>>,
}

impl Http {
    fn new() -> Http {
        let (asks, asked) = unbounded();
        let (finds, found) = unbounded();
        Http { page: Page::new(asks, found), asked, finds }
    }
}

impl Answers for Http {
    fn hear(&mut self, request: &[u8], now: Time) -> Answer {
        self.page.hear(request, now)
    }

    fn find(&mut self, what: u8) {
        if self.asked.try_recv().is_ok() {
            let found = if what & 1 == 0 { Ok(Look::default()) } else { Err("no directory".into()) };
            let _ = self.finds.send(found);
        }
    }

    fn check(&self, answer: &[u8]) {
        let start = b"HTTP/1.1 ";
        let common = answer.len().min(start.len());
        assert_eq!(answer[..common], start[..common]);
    }
}

/// Requests, of which clients may send parts.
const REQUESTS: [&[u8]; 8] = [
    b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
    b"HEAD /metrics HTTP/1.0\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"POST /metrics HTTP/1.1\r\n\r\n",
    b"GET /metrics?a=b HTTP/2\r\n\r\n",
    b"GET  HTTP/1.1\r\n\r\n",
    b"\r\n\r\n",
    &[0; 3000],
];

struct Client {
    stream: UnixStream,
    answer: Vec<u8>,
}

fn crowd(choices: &mut Choices<'_>, limits: Limits, answers: &mut dyn Answers) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("softrnic-looks-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let address = SocketAddr::from_abstract_name(name).expect("a name");
    let listener = UnixListener::bind_addr(&address).expect("free");
    listener.set_nonblocking(true).expect("set");
    let answers = std::cell::RefCell::new(answers);
    let mut server =
        Server::new(listener, limits, is_ours, |request: &[u8], now| answers.borrow_mut().hear(request, now));
    let mut clients: Vec<Client> = Vec::new();
    let mut now = Time::ZERO;
    for _ in 0..300 {
        if choices.is_empty() {
            break;
        }
        let which = choices.byte();
        let chosen = usize::from(which >> 3).checked_rem(clients.len());
        match (which & 7, chosen) {
            // As many as the listener queues wait to be accepted at most.
            (0 | 1, _) if clients.len() < 100 => {
                let stream = UnixStream::connect_addr(&address).expect("room");
                stream.set_nonblocking(true).expect("set");
                clients.push(Client { stream, answer: Vec::new() });
            }
            (2, Some(chosen)) => {
                let request = choices.pick(&REQUESTS);
                let len = usize::from(choices.byte()).min(request.len());
                let part = if choices.byte() & 1 == 0 { request } else { &request[..len] };
                let _ = clients[chosen].stream.write(part);
            }
            (3, Some(chosen)) => clients[chosen].read(1 << (choices.byte() % 20)),
            (4, Some(chosen)) => match choices.byte() & 1 {
                0 => drop(clients.swap_remove(chosen)),
                _ => _ = clients[chosen].stream.shutdown(Shutdown::Write),
            },
            (5, _) => answers.borrow_mut().find(choices.byte()),
            (6, _) => now += limits.timeout / u32::from(choices.byte() % 8 + 1),
            _ => {
                now += limits.pace;
                bounded(server.round(now), &limits, server.clients());
                assert_eq!(server.round(now), Round::default(), "a round keeps its distance");
            }
        }
    }
    // No client does anything any longer: first all are let in, then all are gone.
    for _ in 0..2 + 100 / limits.accepted {
        now += limits.pace;
        bounded(server.round(now), &limits, server.clients());
    }
    for _ in 0..3 {
        now += limits.timeout;
        bounded(server.round(now), &limits, server.clients());
    }
    assert_eq!(server.clients(), 0);
    for mut client in clients {
        client.read(usize::MAX);
        answers.borrow().check(&client.answer);
    }
}

impl Client {
    fn read(&mut self, most: usize) {
        let mut piece = [0; 4096];
        let mut left = most;
        while left > 0 {
            let room = left.min(piece.len());
            match self.stream.read(&mut piece[..room]) {
                Ok(len) if len > 0 => {
                    self.answer.extend(&piece[..len]);
                    left -= len;
                }
                _ => return,
            }
        }
    }
}

fn bounded(round: Round, limits: &Limits, clients: usize) {
    assert!(round.accepted <= limits.accepted && round.written <= limits.bytes, "{round:?}");
    assert!(clients <= limits.clients, "{clients}");
}

/// What a process says of its device, which is anything at all.
fn claims(text: &[u8]) {
    let Ok(snapshot) = Snapshot::read(text) else { return };
    let page = exposition(&Look { snapshots: vec![snapshot], ..Look::default() });
    for line in page.lines() {
        assert!(
            line.starts_with("# HELP softrnic_") || line.starts_with("# TYPE softrnic_") || is_sample(line),
            "{line}"
        );
    }
}

/// `name{label="text",…} number`, or without labels.
fn is_sample(line: &str) -> bool {
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let Some((sample, value)) = line.rsplit_once(' ') else { return false };
    if value.parse::<u64>().is_err() {
        return false;
    }
    let Some((name, mut labels)) = sample.split_once('{') else { return is_name(sample) };
    while let Some((label, rest)) = labels.split_once("=\"") {
        let mut escaped = false;
        let end = rest.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        let Some(end) = end.filter(|_| is_name(label)) else { return false };
        match rest[end + 1..].strip_prefix(',') {
            Some(more) => labels = more,
            None => return is_name(name) && &rest[end + 1..] == "}",
        }
    }
    false
}
