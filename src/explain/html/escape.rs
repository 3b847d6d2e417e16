//! Text inside HTML and inside scripts.

use softrnic_inspect::decode::writing::{Out, json_text};

/// Appends text as element content or attribute value.
pub(crate) fn html(out: &mut Vec<u8>, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'&' => out.text("&amp;"),
            b'<' => out.text("&lt;"),
            b'>' => out.text("&gt;"),
            b'"' => out.text("&quot;"),
            b'\'' => out.text("&#39;"),
            _ => out.push(byte),
        }
    }
}

/// Appends text as a JSON string that may stand inside a script element.
pub(crate) fn json(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        json_text(out, &rest[..at]);
        out.text("\\u003c");
        rest = &rest[at + 1..];
    }
    json_text(out, rest);
    out.push(b'"');
}
