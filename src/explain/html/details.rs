//! All fields of the packets that are drawn, read from the capture in a second pass.

use rustc_hash::FxHashMap;

use softrnic_inspect::capture::Source;
use softrnic_inspect::decode::writing::{Out, meaning_text, value_text};
use softrnic_inspect::decode::{FieldSink, Meaning, Value, describe};
use softrnic_inspect::dissect::Dissector;

/// A packet of the capture: record number and PSN, since a record may hold several packets.
pub type PacketId = (u32, u32);

/// Fields by packet.
#[derive(Debug, Default)]
pub struct Details {
    by_packet: FxHashMap<PacketId, String>,
}

impl Details {
    /// None.
    pub fn none() -> Details {
        Details::default()
    }

    /// Reads the fields of the packets `wanted`, which are in rising order, up to the last of them.
    /// Damage ends the reading.
    pub fn read(reader: &mut impl Source, wanted: &[PacketId], mut progress: impl FnMut(u64)) -> Details {
        let mut details = Details::default();
        let mut dissector = Dissector::new();
        let mut left = wanted;
        let mut records = 0u64;
        while let Some((next, _)) = left.first().copied() {
            let Ok(Some(record)) = reader.next_record() else { break };
            records += 1;
            if record.number == u64::from(next) {
                let here = left.iter().take_while(|(number, _)| *number == next).count();
                let (now, later) = left.split_at(here);
                left = later;
                dissector.dissect(&record).for_each(|roce| {
                    let id = (next, roce.bth().map_or(0, |bth| bth.psn().get()));
                    if now.contains(&id) {
                        let mut sink = Lines::default();
                        describe(&record, roce, &mut sink);
                        details.by_packet.insert(id, String::from_utf8_lossy(&sink.text).into_owned());
                    }
                });
            }
            if records.is_multiple_of(4096) {
                progress(reader.consumed());
            }
        }
        details
    }

    pub(super) fn of(&self, packet: PacketId) -> Option<&str> {
        self.by_packet.get(&packet).map(String::as_str)
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
