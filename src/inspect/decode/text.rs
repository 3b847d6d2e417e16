//! All fields of a packet as indented text.

use super::clock::{self, Clock};
use super::fields::{FieldSink, Meaning, Value, describe};
use super::names::millis;
use super::out::Out;
use crate::capture::Record;
use crate::dissect::Roce;

/// Appends a packet, header by header, and an empty line.
pub(crate) fn write(out: &mut Vec<u8>, clock: &mut Clock, record: &Record<'_>, roce: &Roce<'_>) {
    out.text("packet ");
    out.dec(record.number);
    out.text(" at ");
    clock.write(out, record.time_ns);
    out.text(" (");
    clock::utc(out, record.time_ns);
    out.text(")\n");
    describe(record, roce, &mut TextSink { out });
    out.text("\n\n");
}

struct TextSink<'o> {
    out: &'o mut Vec<u8>,
}

const NAME_WIDTH: usize = 20;

impl FieldSink for TextSink<'_> {
    fn layer(&mut self, name: &'static str) {
        if self.out.last() != Some(&b'\n') {
            self.out.push(b'\n');
        }
        self.out.text("  ");
        self.out.text(name);
    }

    fn field(&mut self, name: &'static str, value: Value<'_>) {
        self.out.text("\n    ");
        let from = self.out.len();
        self.out.text(name);
        self.out.pad_from(from, NAME_WIDTH);
        self.out.push(b' ');
        value_text(self.out, value);
    }

    fn meaning(&mut self, meaning: Meaning<'_>) {
        self.out.text(" (");
        meaning_text(self.out, meaning);
        self.out.push(b')');
    }
}

/// A value as people read it.
pub fn value_text(out: &mut Vec<u8>, value: Value<'_>) {
    use std::io::Write as _;
    match value {
        Value::Dec(v) => out.dec(v),
        Value::Hex(v, digits) => out.hex(v, digits),
        Value::Flag(v) => out.push(if v { b'1' } else { b'0' }),
        Value::Text(v) => out.text(v),
        // Writing to a Vec cannot fail.
        Value::Mac(v) => drop(write!(out, "{v}")),
        Value::Ip(v) => out.ip(v),
        Value::Gid(v) => drop(write!(out, "{v}")),
        Value::Bytes(v) => out.hex_bytes(v),
    }
}

/// A meaning in words.
pub fn meaning_text(out: &mut Vec<u8>, meaning: Meaning<'_>) {
    match meaning {
        Meaning::Name(name) => out.text(name),
        Meaning::Micros(us) => millis(out, us),
        Meaning::Count(n, what) => {
            out.dec(n);
            out.push(b' ');
            out.text(what);
        }
    }
}
