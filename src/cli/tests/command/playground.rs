//! `softrnic playground`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::support::{command, directory, kill, softrnic};

const PAGE: &str = "<!DOCTYPE html><title>page</title>";

struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start() -> Server {
        let page = directory("playground").join("page.html");
        std::fs::write(&page, PAGE).expect("written");
        let mut process = command(&["playground", "--port", "0", "--page", page.to_str().expect("text")])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the command starts");
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("a line");
        let address =
            line.trim().strip_prefix("the playground is at http://").and_then(|rest| rest.strip_suffix('/'));
        let address = address.unwrap_or_else(|| panic!("{line}")).to_owned();
        assert!(address.starts_with("127.0.0.1:"), "{address}");
        Server { process, address }
    }

    fn ask(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("connected");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
        stream.write_all(request.as_bytes()).expect("written");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // `timeout` passes it on to the command.
        kill("-TERM", self.process.id().to_string());
        let _ = self.process.wait();
    }
}

#[test]
fn it_serves_the_page_and_nothing_else() {
    let server = Server::start();
    // One that asks nothing keeps nobody waiting.
    let _silent = TcpStream::connect(&server.address).expect("connected");
    let good = server.ask("GET /?from=a-link HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(good.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n"), "{good}");
    assert!(good.ends_with(&format!("\r\n\r\n{PAGE}")), "{good}");
    let head = server.ask("HEAD / HTTP/1.1\r\n\r\n");
    assert!(
        head.contains(&format!("Content-Length: {}\r\n", PAGE.len())) && head.ends_with("\r\n\r\n"),
        "{head}"
    );
    for (request, status) in [
        ("GET /../../etc/passwd HTTP/1.1\r\n\r\n", "404"),
        ("POST / HTTP/1.1\r\n\r\n", "405"),
        ("\u{7f}\r\n\r\n", "405"),
    ] {
        let answer = server.ask(request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer}");
    }
    // Too long for a request: it is not answered, and the next one is.
    assert_eq!(server.ask(&"x".repeat(16 << 10 | 1)).len(), 0);
    assert!(server.ask("GET / HTTP/1.1\r\n\r\n").ends_with(PAGE));
}

#[test]
fn many_slow_clients_take_no_threads_and_delay_no_others() {
    let server = Server::start();
    let slow: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut stream = TcpStream::connect(&server.address).expect("connected");
            stream.write_all(b"GET / HTT").expect("written");
            stream
        })
        .collect();
    assert!(server.ask("GET / HTTP/1.1\r\n\r\n").ends_with(PAGE));
    // The command is a child of `timeout`.
    let of = |process: &str, what: &str| {
        std::fs::read_to_string(format!("/proc/{process}/{what}")).expect("it runs").trim().to_owned()
    };
    let timeout = server.process.id().to_string();
    let command = of(&timeout, &format!("task/{timeout}/children"));
    let status = of(&command, "status");
    let threads = status.lines().find_map(|line| line.strip_prefix("Threads:")).expect("a count");
    assert_eq!(threads.trim(), "1");
    drop(slow);
}

#[test]
fn a_taken_port_and_a_missing_page_are_reported() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("known").port().to_string();
    let page = directory("playground-taken").join("page.html");
    std::fs::write(&page, PAGE).expect("written");
    let page = page.to_str().expect("text");
    let told = softrnic(&["playground", "--port", &port, "--page", page]).expect(1);
    told.says(&format!("port {port} is taken by another program: choose one with --port"));
    softrnic(&["playground", "--page", "/nowhere/page.html"])
        .expect(1)
        .says("cannot read /nowhere/page.html");
    softrnic(&["playground", "--port", "70000"]).expect(2).says("--port");
}
