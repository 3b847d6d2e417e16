//! One JSON object per packet and line. Every key is one of the names in `fields.rs`.

use super::fields::{FieldSink, Meaning, Value, describe};
use super::out::{Out, json_text};
use super::text::value_text;
use crate::capture::Record;
use crate::dissect::{Roce, Transport};

/// Appends a packet as one line. The time is a string, because nanoseconds since 1970 exceed what a JSON number can
/// safely hold.
pub(crate) fn write(out: &mut Vec<u8>, record: &Record<'_>, roce: &Roce<'_>) {
    out.text("{\"packet\":");
    out.dec(record.number);
    out.text(",\"time\":\"");
    out.dec(record.time_ns / 1_000_000_000);
    out.push(b'.');
    out.dec_zeros(record.time_ns % 1_000_000_000, 9);
    out.text("\",\"src\":\"");
    out.ip(roce.net.src());
    out.text("\",\"dst\":\"");
    out.ip(roce.net.dst());
    out.push(b'"');
    if let Transport::Packet(packet) = &roce.transport {
        out.text(",\"opcode\":\"");
        out.text(packet.body.opcode().name());
        out.push(b'"');
    }
    out.text(",\"layers\":{");
    let mut sink = JsonSink { out, in_layer: false, fresh: true, last: "" };
    describe(record, roce, &mut sink);
    if sink.in_layer {
        out.push(b'}');
    }
    out.text("}}\n");
}

struct JsonSink<'o> {
    out: &'o mut Vec<u8>,
    in_layer: bool,
    /// Whether no field has been written in this layer yet.
    fresh: bool,
    last: &'static str,
}

impl FieldSink for JsonSink<'_> {
    fn layer(&mut self, name: &'static str) {
        if self.in_layer {
            self.out.text("},");
        }
        self.in_layer = true;
        self.fresh = true;
        self.out.push(b'"');
        self.out.text(name);
        self.out.text("\":{");
    }

    fn field(&mut self, name: &'static str, value: Value<'_>) {
        if !self.fresh {
            self.out.push(b',');
        }
        self.fresh = false;
        self.last = name;
        self.out.push(b'"');
        self.out.text(name);
        self.out.text("\":");
        match value {
            Value::Dec(v) => self.out.dec(v),
            Value::Flag(v) => self.out.text(if v { "true" } else { "false" }),
            Value::Text(v) => {
                self.out.push(b'"');
                json_text(self.out, v);
                self.out.push(b'"');
            }
            other => {
                self.out.push(b'"');
                value_text(self.out, other);
                self.out.push(b'"');
            }
        }
    }

    /// Meanings become fields of their own: `rnr_timer_us`, `opcode_name`, `credits_count`.
    fn meaning(&mut self, meaning: Meaning<'_>) {
        self.out.text(",\"");
        self.out.text(self.last);
        match meaning {
            Meaning::Name(name) => {
                self.out.text("_name\":\"");
                json_text(self.out, name);
                self.out.push(b'"');
            }
            Meaning::Micros(us) => {
                self.out.text("_us\":");
                self.out.dec(us);
            }
            Meaning::Count(n, what) => {
                self.out.push(b'_');
                self.out.text(what);
                self.out.text("\":");
                self.out.dec(n);
            }
        }
    }
}
