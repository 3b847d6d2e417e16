//! Packets as `softrnic-inspect` reads them.

use std::io::Cursor;

use serde::Serialize;
use softrnic_explain::html::{Details, Page, PageLimits};
use softrnic_explain::{Limits, explain as explain_capture};
use softrnic_inspect::capture::{LinkType, Reader, Record};
use softrnic_inspect::decode::{FieldSink, Meaning, Value, describe};
use softrnic_inspect::dissect::Dissector;
use softrnic_link::sim::Flight;
use softrnic_wire::{ICRC_LEN, Time};

use crate::layout;

/// A packet that has left a NIC.
#[derive(Clone, Debug, Serialize)]
pub struct Packet {
    /// Its number in this world.
    pub id: usize,
    /// NIC from which it came.
    pub from: usize,
    /// NIC to which it goes.
    pub to: usize,
    /// When it left, in nanoseconds.
    #[serde(serialize_with = "nanos")]
    pub sent: Time,
    /// When it arrives, or was lost.
    #[serde(serialize_with = "nanos")]
    pub at: Time,
    /// What has become of it.
    pub fate: Fate,
    /// Name of its opcode, or of a message of the connection manager.
    pub opcode: String,
    /// Whether it is a message of the connection manager.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub message: bool,
    /// Its PSN.
    pub psn: u32,
    /// Bytes from the IP header on.
    pub length: usize,
    /// What an answer says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// Whether it is marked: congestion experienced.
    pub ce: bool,
    /// The packet that it is a copy of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy_of: Option<usize>,
    /// What has been done to it by hand.
    pub done: Vec<&'static str>,
    /// The number that the fabric gave it.
    #[serde(skip)]
    pub number: u64,
    /// From the IP header on.
    #[serde(skip)]
    pub bytes: Vec<u8>,
}

/// What becomes of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Fate {
    Flying,
    Arrived,
    Lost,
}

impl Packet {
    /// One that is under way between two NICs since `now`.
    pub fn new(
        id: usize,
        flight: &Flight,
        (from, to): (usize, usize),
        now: Time,
        copy_of: Option<usize>,
    ) -> Packet {
        let mut packet = Packet {
            id,
            from,
            to,
            sent: now,
            at: flight.at,
            fate: Fate::Flying,
            opcode: String::new(),
            message: false,
            psn: 0,
            length: 0,
            answer: None,
            ce: false,
            copy_of,
            done: Vec::new(),
            number: flight.number,
            bytes: Vec::new(),
        };
        packet.read(&flight.packet);
        packet
    }

    /// Takes what is shown of it from its bytes.
    pub fn read(&mut self, bytes: &[u8]) {
        self.bytes = bytes.to_vec();
        self.length = bytes.len();
        let layers = layers(bytes);
        let field = |layer: &str, name: &str| {
            let layer = layers.iter().find(|one| one.name == layer)?;
            layer.fields.iter().find(|field| field.name == name)
        };
        let meaning = |layer, name| field(layer, name).and_then(|field| field.meaning.clone());
        let value = |layer, name| field(layer, name).map(|field| field.value.clone());
        let opcode = meaning("bth", "opcode").unwrap_or_else(|| "not RoCE".into());
        // Of a message to QP 1, its name says more than that it is a datagram.
        self.message = value("cm", "message").or_else(|| value("softrnic", "message")).is_some();
        let between_softrnics = value("softrnic", "message").map(|kind| format!("SoftRNIC {kind}"));
        self.opcode = value("cm", "message").or(between_softrnics).unwrap_or(opcode);
        self.psn = value("bth", "psn").and_then(|psn| psn.parse().ok()).unwrap_or(0);
        self.ce = value("ipv4", "ecn").is_some_and(|ecn| ecn == "3");
        let code = meaning("aeth", "nak_code").or_else(|| meaning("aeth", "rnr_timer"));
        self.answer = meaning("aeth", "syndrome").map(|kind| match code {
            Some(code) => format!("{kind}: {code}"),
            None => kind,
        });
    }

    /// What an answer says, to be appended.
    pub fn note(&self) -> String {
        self.answer.as_ref().map_or(String::new(), |answer| format!(" ({answer})"))
    }
}

/// A header, or another part of a packet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Layer {
    /// Its name.
    pub name: &'static str,
    /// Its first byte.
    pub start: usize,
    /// Its bytes.
    pub len: usize,
    /// Its fields, in order.
    pub fields: Vec<Field>,
}

/// A field of a header.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// What the value means.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meaning: Option<String>,
    /// First bit in the packet, and number of bits; absent for what is nowhere in the bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bits: Option<(usize, usize)>,
}

/// The layers of a packet, from the IP header on.
pub fn layers(bytes: &[u8]) -> Vec<Layer> {
    let record = Record {
        number: 1,
        time_ns: 0,
        link: LinkType::RawIp,
        interface: 0,
        direction: None,
        wire_len: bytes.len() as u32,
        data: bytes,
        comment: &[],
        offset: 0,
        header_len: 0,
    };
    let mut sink = Layers { layers: Vec::new(), message: None, length: bytes.len() };
    Dissector::new().dissect(&record).for_each(|roce| describe(&record, roce, &mut sink));
    sink.layers.retain(|layer| layer.name != "frame");
    sink.layers
}

struct Layers {
    layers: Vec<Layer>,
    message: Option<layout::Message>,
    length: usize,
}

impl FieldSink for Layers {
    fn layer(&mut self, name: &'static str) {
        let behind = self.layers.last().map_or(0, |last| last.start + last.len);
        let icrc = self.length.saturating_sub(ICRC_LEN);
        let (start, len) = match name {
            "frame" => (0, 0),
            "icrc" => (icrc, ICRC_LEN),
            // What has no fixed length reaches to the ICRC.
            _ => (behind, layout::header_len(name).unwrap_or(icrc.saturating_sub(behind))),
        };
        self.layers.push(Layer { name, start, len, fields: Vec::new() });
    }

    fn field(&mut self, name: &'static str, value: Value<'_>) {
        let Some(layer) = self.layers.last_mut() else { return };
        if let ("cm", "message", Value::Text(message)) = (layer.name, name, &value) {
            self.message = layout::message(message);
            layer.len = self.message.map_or(layer.len, |message| message.len);
        }
        let bits = match (layer.name, name) {
            ("payload" | "private_data", "data" | "first_bytes") => Some((0, layer.len * 8)),
            ("cm", name) => self.message.and_then(|message| message.bits(name)),
            (layer, name) => layout::bits(layer, name),
        };
        let bits = bits.map(|(first, count)| (layer.start * 8 + first, count));
        let value = match value {
            Value::Dec(v) => v.to_string(),
            Value::Hex(v, digits) => format!("0x{v:0digits$x}"),
            Value::Flag(v) => u8::from(v).to_string(),
            Value::Text(v) => v.to_string(),
            Value::Mac(v) => v.to_string(),
            Value::Ip(v) => v.to_string(),
            Value::Gid(v) => v.to_string(),
            Value::Bytes(v) => v.iter().map(|byte| format!("{byte:02x}")).collect(),
        };
        layer.fields.push(Field { name, value, meaning: None, bits });
    }

    fn meaning(&mut self, meaning: Meaning<'_>) {
        let field = self.layers.last_mut().and_then(|layer| layer.fields.last_mut());
        if let Some(field) = field {
            field.meaning = Some(match meaning {
                Meaning::Name(name) => name.to_string(),
                Meaning::Micros(us) => format!("{} ms", us as f64 / 1000.0),
                Meaning::Count(n, what) => format!("{n} {what}"),
            });
        }
    }
}

/// The page that explains a capture, or a sentence about why there is none.
pub fn explain(capture: &[u8]) -> String {
    let read = || Reader::new(Cursor::new(capture));
    let (mut first, mut second) = match (read(), read()) {
        (Ok(first), Ok(second)) => (first, second),
        (Err(error), _) | (_, Err(error)) => return error.to_string(),
    };
    let report = explain_capture(&mut first, Limits::default(), |_| ());
    let page = Page::new(&report, "capture", PageLimits::default());
    let details = Details::read(&mut second, &page.wanted(), |_| ());
    let mut out = Vec::new();
    match page.write(&details, &mut out) {
        Ok(()) => String::from_utf8_lossy(&out).into_owned(),
        Err(error) => error.to_string(),
    }
}

fn nanos<S: serde::Serializer>(time: &Time, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(time.as_nanos())
}
