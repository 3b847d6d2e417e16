//! The numbers over HTTP, for Prometheus: one short answer per connection.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Selection, prometheus};
use crate::failure::{Doing, Result};
use crate::output::say;

/// How long one who asks may take to do so, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest request that is read, in bytes.
const MAX_REQUEST: usize = 8 << 10;

/// Who is answered at the same time; the others are turned away.
const AT_ONCE: usize = 16;

/// Serves until the process ends.
pub fn serve(address: SocketAddr, selection: &Selection) -> Result {
    let listener = TcpListener::bind(address).doing(|| format!("cannot listen on {address}"))?;
    say!("metrics at http://{}/metrics", listener.local_addr()?);
    let slots = Arc::new(());
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            // One who went away before being answered, or too many open files: others may have more luck.
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {
                continue;
            }
            Err(_) => {
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        if Arc::strong_count(&slots) > AT_ONCE {
            continue;
        }
        let (slot, selection) = (Arc::clone(&slots), selection.clone());
        // Without a thread this one is not answered, and will ask again.
        let _ = std::thread::Builder::new().spawn(move || {
            let _ = answer(stream, &selection);
            drop(slot);
        });
    }
}

struct Response {
    status: &'static str,
    headers: &'static str,
    body: String,
}

impl Response {
    fn error(status: &'static str, headers: &'static str) -> Response {
        Response { status, headers, body: format!("{status}\n") }
    }
}

fn answer(mut stream: TcpStream, selection: &Selection) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let request = read_request(&mut stream, deadline)?;
    let first = request.split(|byte| *byte == b'\r' || *byte == b'\n').next().unwrap_or_default();
    let mut words = first.split(|byte| *byte == b' ');
    let [method, target, version] = [words.next(), words.next(), words.next()].map(Option::unwrap_or_default);
    let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    let response = match (method, path) {
        _ if !version.starts_with(b"HTTP/1.") || words.next().is_some() => {
            Response::error("400 Bad Request", "")
        }
        (b"GET" | b"HEAD", b"/metrics") => match selection.look() {
            Ok(look) => Response {
                status: "200 OK",
                headers: "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n",
                body: prometheus::exposition(&look),
            },
            Err(failure) => Response {
                status: "500 Internal Server Error",
                headers: "",
                body: format!("{}\n", failure.message),
            },
        },
        (b"GET" | b"HEAD", b"/") => {
            Response { status: "200 OK", headers: "", body: "The metrics are at /metrics.\n".into() }
        }
        (b"GET" | b"HEAD", _) => Response::error("404 Not Found", ""),
        _ => Response::error("405 Method Not Allowed", "Allow: GET, HEAD\r\n"),
    };
    let Response { status, headers, body } = response;
    let len = body.len();
    let mut text =
        format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {len}\r\nConnection: close\r\n\r\n");
    if method != b"HEAD" {
        text.push_str(&body);
    }
    write_until(&mut stream, text.as_bytes(), Instant::now() + PATIENCE)
}

/// Reads up to the empty line.
fn read_request(stream: &mut TcpStream, deadline: Instant) -> io::Result<Vec<u8>> {
    let mut request = Vec::new();
    let mut part = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        stream.set_read_timeout(Some(left(deadline)?))?;
        let len = stream.read(&mut part)?;
        if len == 0 || request.len() + len > MAX_REQUEST {
            break;
        }
        request.extend_from_slice(&part[..len]);
    }
    Ok(request)
}

fn write_until(stream: &mut TcpStream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        let len = stream.write(bytes)?;
        bytes = &bytes[len..];
    }
    Ok(())
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}
