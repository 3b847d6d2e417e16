//! Decoding with helpers: one thread reads records into batches, others print them to text, and the
//! first writes the texts out in order.

use std::io::{self, Read, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use super::clock::Clock;
use super::{Options, Printer, Summary};
use crate::capture::{LinkType, Reader, Record};
use crate::decode::Peers;
use crate::dissect::Dissector;

/// A batch holds about this many bytes of frames.
const BATCH: usize = 1 << 20;
/// And no more records than this, so that small ones do not make long texts.
const BATCH_RECORDS: usize = 8192;
/// Batches that each helper has waiting.
const QUEUE: usize = 2;

/// Records copied out of the reader, and what became of them.
struct Batch {
    clock: Clock,
    data: Vec<u8>,
    records: Vec<Copied>,
    text: Vec<u8>,
    summary: Summary,
}

/// A record whose bytes end at `end` of the batch's data, where the next one's begin.
struct Copied {
    number: u64,
    time_ns: u64,
    link: LinkType,
    interface: u32,
    wire_len: u32,
    offset: u64,
    end: usize,
}

impl Batch {
    fn new(clock: Clock) -> Batch {
        Batch {
            clock,
            data: Vec::with_capacity(BATCH + (64 << 10)),
            records: Vec::with_capacity(BATCH_RECORDS),
            text: Vec::new(),
            summary: Summary::default(),
        }
    }

    /// Takes records up; false when there are no more.
    fn fill<R: Read>(&mut self, reader: &mut Reader<R>, clock: &mut Clock) -> bool {
        self.data.clear();
        self.records.clear();
        self.text.clear();
        self.summary = Summary::default();
        while self.data.len() < BATCH && self.records.len() < BATCH_RECORDS {
            match reader.next() {
                Ok(Some(r)) => {
                    clock.see(r.time_ns);
                    self.data.extend_from_slice(r.data);
                    self.records.push(Copied {
                        number: r.number,
                        time_ns: r.time_ns,
                        link: r.link,
                        interface: r.interface,
                        wire_len: r.wire_len,
                        offset: r.offset,
                        end: self.data.len(),
                    });
                }
                Ok(None) => break,
                Err(error) => {
                    self.summary.damage = Some(error);
                    break;
                }
            }
        }
        self.clock = *clock;
        self.data.len() >= BATCH || self.records.len() >= BATCH_RECORDS
    }

    fn print(&mut self, dissector: &mut Dissector, printer: &mut Printer<'_>, peers: &Peers) {
        let mut begin = 0;
        for r in &self.records {
            let record = Record {
                number: r.number,
                time_ns: r.time_ns,
                link: r.link,
                interface: r.interface,
                wire_len: r.wire_len,
                data: &self.data[begin..r.end],
                offset: r.offset,
            };
            begin = r.end;
            let dissection = dissector.dissect(&record);
            printer.print(&mut self.text, &mut self.clock, &mut self.summary, &record, &dissection, peers);
        }
    }
}

/// A helper's two ends: batches go in, and come out in the same order.
struct Helper {
    todo: SyncSender<Box<Batch>>,
    done: Receiver<Box<Batch>>,
}

/// [`super::decode`], for options that look at every packet by itself.
pub(super) fn decode<R: Read, W: Write>(
    reader: &mut Reader<R>,
    out: &mut W,
    options: &Options,
    mut clock: Clock,
    progress: &mut dyn FnMut(u64),
) -> io::Result<Summary> {
    thread::scope(|scope| {
        let helpers: Vec<Helper> = (0..options.threads)
            .map(|_| {
                let (todo, work) = sync_channel::<Box<Batch>>(QUEUE);
                let (finished, done) = sync_channel(QUEUE);
                scope.spawn(move || help(options, &work, &finished));
                Helper { todo, done }
            })
            .collect();
        let mut summary = Summary::default();
        let mut spare: Vec<Box<Batch>> = Vec::new();
        let (mut given, mut taken) = (0, 0);
        let mut more = true;
        while more || taken < given {
            if more && given - taken < QUEUE * helpers.len() {
                let mut batch = spare.pop().unwrap_or_else(|| Box::new(Batch::new(clock)));
                more = batch.fill(reader, &mut clock);
                progress(reader.offset());
                let helper = &helpers[given % helpers.len()];
                helper.todo.send(batch).map_err(|_| io::ErrorKind::BrokenPipe)?;
                given += 1;
            } else {
                let helper = &helpers[taken % helpers.len()];
                // A helper ends only with its channel, or with a panic that the scope passes on.
                let batch = helper.done.recv().map_err(|_| io::ErrorKind::BrokenPipe)?;
                taken += 1;
                out.write_all(&batch.text)?;
                summary.add(&batch.summary);
                summary.damage = summary.damage.or(batch.summary.damage);
                spare.push(batch);
            }
        }
        out.flush()?;
        Ok(summary)
    })
}

fn help(options: &Options, work: &Receiver<Box<Batch>>, finished: &SyncSender<Box<Batch>>) {
    let mut dissector = Dissector::new();
    let mut printer = Printer::new(options);
    let peers = Peers::new();
    for mut batch in work {
        batch.print(&mut dissector, &mut printer, &peers);
        if finished.send(batch).is_err() {
            return;
        }
    }
}
