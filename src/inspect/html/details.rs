//! All fields of the packets that are drawn, read from the capture in a second pass.

use std::io::Read;

use rustc_hash::FxHashMap;

use crate::capture::Reader;
use crate::decode::{FieldSink, Meaning, Out, Value, describe, meaning_text, value_text};
use crate::dissect::Dissector;

/// Fields by record number.
#[derive(Debug, Default)]
pub struct Details {
    by_number: FxHashMap<u32, String>,
}

impl Details {
    /// None.
    pub fn none() -> Details {
        Details::default()
    }

    /// Reads the fields of the records `wanted`, which are in rising order, up to the last of them.
    /// Damage ends the reading.
    pub fn read<R: Read>(reader: &mut Reader<R>, wanted: &[u32], mut progress: impl FnMut(u64)) -> Details {
        let mut details = Details::default();
        let mut dissector = Dissector::new();
        let mut wanted = wanted.iter().copied().peekable();
        let mut records = 0u64;
        while let Some(next) = wanted.peek().copied() {
            let Ok(Some(record)) = reader.next() else { break };
            records += 1;
            if record.number == u64::from(next) {
                wanted.next();
                let mut sink = Lines::default();
                dissector.dissect(&record).for_each(|roce| describe(&record, roce, &mut sink));
                details.by_number.insert(next, String::from_utf8_lossy(&sink.text).into_owned());
            }
            if records.is_multiple_of(4096) {
                progress(reader.offset());
            }
        }
        details
    }

    pub(super) fn of(&self, number: u32) -> Option<&str> {
        self.by_number.get(&number).map(String::as_str)
    }
}

/// A line for each field, `name value`; a line for each layer, which begins with a hash.
#[derive(Default)]
struct Lines {
    text: Vec<u8>,
}

impl FieldSink for Lines {
    fn layer(&mut self, name: &'static str) {
        if !self.text.is_empty() {
            self.text.push(b'\n');
        }
        self.text.push(b'#');
        self.text.text(name);
    }

    fn field(&mut self, name: &'static str, value: Value<'_>) {
        self.text.push(b'\n');
        self.text.text(name);
        self.text.push(b' ');
        value_text(&mut self.text, value);
    }

    fn meaning(&mut self, meaning: Meaning<'_>) {
        self.text.text(" (");
        meaning_text(&mut self.text, meaning);
        self.text.push(b')');
    }
}
