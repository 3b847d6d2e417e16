//! `softrnic playground`: the page of docs/playground, on loopback.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use clap::Args;

use crate::failure::{Doing, Failure, Result};
use crate::output::say;

const EXAMPLES: &str = "\
Examples:
  softrnic playground                    then open the address that it prints
  softrnic playground --port 0           at a free port
  softrnic playground --page mine.html   a page from elsewhere";

/// Serve the playground to browsers on this machine: NICs in a page, stepped packet by packet
///
/// It opens nothing by itself, and answers nobody but this machine. The page is one file that also opens from disk. It is
/// looked for where it is installed, and where `make playground` leaves it.
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

/// The longest request that is read.
const MAX_REQUEST: usize = 16 << 10;
/// How long a browser may take to ask, or to take in a part of the page.
const PATIENCE: Duration = Duration::from_secs(10);

/// Serves until the process ends.
pub fn run(args: PlaygroundArgs) -> Result {
    let path = match args.page {
        Some(page) => page,
        None => find()?,
    };
    let page: Arc<[u8]> = fs::read(&path).doing(|| format!("cannot read {}", path.display()))?.into();
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, args.port)).map_err(|error| match error.kind() {
            ErrorKind::AddrInUse => Failure::new(format!(
                "port {} is taken by another program: choose one with --port, or --port 0 for a free one",
                args.port
            )),
            _ => Failure::new(format!("cannot listen on port {}: {error}", args.port)),
        })?;
    say!("the playground is at http://{}/", listener.local_addr()?);
    for browser in listener.incoming().flatten() {
        let page = Arc::clone(&page);
        // A browser that is not served asks again.
        drop(thread::Builder::new().spawn(move || answer(browser, &page)));
    }
    Ok(())
}

/// Where it is installed, or where it has been built beside this command.
fn find() -> Result<PathBuf> {
    let command = std::env::current_exe().doing(|| "cannot tell where this command is".into())?;
    let above = command.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    let places =
        ["share/softrnic/playground.html", "playground/playground.html"].map(|place| above.join(place));
    places.iter().find(|place| place.is_file()).cloned().ok_or_else(|| {
        Failure::new(format!(
            "the page is not at {}: build it with `make playground`, or name it with --page",
            places[0].display()
        ))
    })
}

/// One request; what goes wrong with it concerns nobody else.
fn answer(mut browser: TcpStream, page: &[u8]) {
    let _ = browser.set_read_timeout(Some(PATIENCE)).and(browser.set_write_timeout(Some(PATIENCE)));
    let mut request = Vec::new();
    let mut piece = [0; 2048];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        match browser.read(&mut piece) {
            Ok(count) if count > 0 && request.len() < MAX_REQUEST => {
                request.extend_from_slice(&piece[..count])
            }
            _ => return,
        }
    }
    let (head, body) = respond(&request, page);
    let _ = browser.write_all(head.as_bytes()).and_then(|()| browser.write_all(body));
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
