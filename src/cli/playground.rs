//! `softrnic playground`: the page of docs/playground, on loopback.

use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use softrnic_stats::serve::{Answer, Limits, Server};
use softrnic_wire::Time;

use crate::failure::{Doing, Failure, Result};
use crate::output::say;

const EXAMPLES: &str = "\
Examples:
  softrnic playground                    then open the address that it prints
  softrnic playground --port 0           at a free port
  softrnic playground --page mine.html   a page from elsewhere";

/// Serve the playground to browsers on this machine: NICs in a page, stepped packet by packet
///
/// It does not open the browser, and answers only this machine. The page is one file, which also opens from disk. The
/// command looks for it where it is installed, and where `make playground` puts it.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct PlaygroundArgs {
    /// The TCP port; 0 for a free one
    #[arg(long, default_value_t = 4792)]
    port: u16,
    /// The page
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
}

/// However many browsers come, and however slow they are, one thread serves them, and this bounds its work.
const LIMITS: Limits = Limits {
    clients: 64,
    accepted: 16,
    bytes: 4 << 20,
    request: 16 << 10,
    timeout: Duration::from_secs(10),
    pace: Duration::from_millis(2),
};

/// Serves until the process ends.
pub fn run(args: PlaygroundArgs) -> Result {
    let path = match args.page {
        Some(page) => page,
        None => find()?,
    };
    let site = Site::new(fs::read(&path).doing(|| format!("cannot read {}", path.display()))?);
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, args.port)).map_err(|error| match error.kind() {
            ErrorKind::AddrInUse => Failure::new(format!(
                "port {} is taken by another program: choose one with --port, or --port 0 for a free one",
                args.port
            )),
            _ => Failure::new(format!("cannot listen on port {}: {error}", args.port)),
        })?;
    say!("the playground is at http://{}/", listener.local_addr()?);
    listener.set_nonblocking(true)?;
    let (never, _other_end) = UnixStream::pair()?;
    let begun = Instant::now();
    let now = || Time::ZERO + begun.elapsed();
    let mut server = Server::new(listener, LIMITS, |_| true, |request: &[u8], _| site.hear(request));
    loop {
        server.wait(now(), Duration::MAX, never.as_fd());
        server.round(now());
    }
}

/// Where it is installed, or where it has been built beside this command.
fn find() -> Result<PathBuf> {
    let command = std::env::current_exe().doing(|| "cannot find this command's own file".into())?;
    let above = command.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    let places =
        ["share/softrnic/playground.html", "playground/playground.html"].map(|place| above.join(place));
    places.iter().find(|place| place.is_file()).cloned().ok_or_else(|| {
        Failure::new(format!(
            "there is no page at {}: build it with `make playground`, or name one with --page",
            places[0].display()
        ))
    })
}

/// The answers to requests.
struct Site {
    page: Vec<u8>,
    /// The answer that has the page.
    whole: Arc<[u8]>,
}

impl Site {
    fn new(page: Vec<u8>) -> Site {
        let (head, body) = respond(b"GET / HTTP/1.1", &page);
        let whole = [head.as_bytes(), body].concat().into();
        Site { page, whole }
    }

    fn hear(&self, request: &[u8]) -> Answer {
        if !request.windows(4).any(|end| end == b"\r\n\r\n") {
            return Answer::More;
        }
        match respond(request, &self.page) {
            (_, body) if std::ptr::eq(body, self.page.as_slice()) => Answer::Say(Arc::clone(&self.whole)),
            (head, body) => Answer::Say([head.as_bytes(), body].concat().into()),
        }
    }
}

/// The head and the body of the answer.
fn respond<'a>(request: &[u8], page: &'a [u8]) -> (String, &'a [u8]) {
    let first = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = first.split(|byte| *byte == b' ');
    let [method, target] = [words.next(), words.next()].map(Option::unwrap_or_default);
    let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    let (status, body) = match (method, path) {
        (b"GET" | b"HEAD", b"/" | b"/index.html" | b"/playground.html") => ("200 OK", page),
        (b"GET" | b"HEAD", _) => ("404 Not Found", &b"There is one page, at /.\n"[..]),
        _ => ("405 Method Not Allowed", &b"There is one page, to be read with GET.\n"[..]),
    };
    let kind = if status == "200 OK" { "text/html" } else { "text/plain" };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {}\r\n{}Cache-Control: no-cache\r\n\
         X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
        body.len(),
        if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" }
    );
    (head, if method == b"HEAD" { b"" } else { body })
}
