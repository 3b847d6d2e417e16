//! Requests, and the form of the answers.

/// What the bytes of a request say so far.
#[derive(Debug)]
pub enum Request {
    /// The empty line has not arrived yet.
    Unfinished,
    Metrics,
    Index,
    Refused(Response),
}

impl Request {
    pub fn parse(bytes: &[u8]) -> Request {
        if !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
            return Request::Unfinished;
        }
        let first = bytes.split(|byte| *byte == b'\r' || *byte == b'\n').next().unwrap_or_default();
        let mut words = first.split(|byte| *byte == b' ');
        let [method, target, version] =
            [words.next(), words.next(), words.next()].map(Option::unwrap_or_default);
        if !version.starts_with(b"HTTP/1.") || words.next().is_some() {
            return Request::Refused(Response::error("400 Bad Request", ""));
        }
        if method != b"GET" && method != b"HEAD" {
            return Request::Refused(Response::error("405 Method Not Allowed", "Allow: GET, HEAD\r\n"));
        }
        match target.split(|byte| *byte == b'?').next().unwrap_or_default() {
            b"/metrics" => Request::Metrics,
            b"/" => Request::Index,
            _ => Request::Refused(Response::error("404 Not Found", "")),
        }
    }
}

#[derive(Debug)]
pub struct Response {
    status: &'static str,
    headers: &'static str,
    body: String,
}

impl Response {
    pub fn metrics(body: String) -> Response {
        let headers = "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n";
        Response { status: "200 OK", headers, body }
    }

    pub fn index() -> Response {
        Response { status: "200 OK", headers: "", body: "The metrics are at /metrics.\n".into() }
    }

    pub fn failed(problem: &str) -> Response {
        Response { status: "500 Internal Server Error", headers: "", body: format!("{problem}\n") }
    }

    fn error(status: &'static str, headers: &'static str) -> Response {
        Response { status, headers, body: format!("{status}\n") }
    }

    pub fn bytes(&self, head_only: bool) -> Vec<u8> {
        let Response { status, headers, body } = self;
        let len = body.len();
        let mut text =
            format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {len}\r\nConnection: close\r\n\r\n");
        if !head_only {
            text.push_str(body);
        }
        text.into_bytes()
    }
}
