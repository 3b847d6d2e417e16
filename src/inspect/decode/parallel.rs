//! Decoding with helpers: one thread finds the records, others print them to text, and the first writes
//! the texts out in order.

use std::io::{self, Read, Write};
use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::clock::Clock;
use super::{Options, Printer, Summary};
use crate::capture::{Batch, Reader};
use crate::decode::Peers;
use crate::dissect::Dissector;

/// Batches that each helper has waiting.
const QUEUE: usize = 2;

/// Records, and what became of them.
struct Work {
    clock: Clock,
    batch: Batch,
    text: Vec<u8>,
    summary: Summary,
}

impl Work {
    /// Takes records up; false when there will be no more.
    fn fill<R: Read>(&mut self, reader: &mut Reader<R>, clock: &mut Clock) -> bool {
        self.text.clear();
        self.summary = Summary::default();
        let more = match reader.next_batch(&mut self.batch) {
            Ok(more) => more,
            Err(error) => {
                self.summary.damage = Some(error);
                false
            }
        };
        if let Some(first) = self.batch.records().next() {
            clock.see(first.time_ns);
        }
        self.clock = *clock;
        more
    }

    fn print(&mut self, dissector: &mut Dissector, printer: &mut Printer<'_>, peers: &Peers) {
        let Work { clock, batch, text, summary } = self;
        for record in batch.records() {
            let dissection = dissector.dissect(&record);
            printer.print(text, clock, summary, &record, &dissection, peers);
        }
    }
}

/// A helper's two ends: batches go in, and come out in the same order.
struct Helper {
    todo: Sender<Box<Work>>,
    done: Receiver<Box<Work>>,
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
                let (todo, work) = bounded::<Box<Work>>(QUEUE);
                let (finished, done) = bounded(QUEUE);
                scope.spawn(move || help(options, &work, &finished));
                Helper { todo, done }
            })
            .collect();
        let mut summary = Summary::default();
        let mut spare: Vec<Box<Work>> = Vec::new();
        let (mut given, mut taken) = (0, 0);
        let mut more = true;
        while more || taken < given {
            if more && given - taken < QUEUE * helpers.len() {
                let mut batch = spare.pop().unwrap_or_else(|| {
                    Box::new(Work {
                        clock,
                        batch: Batch::new(),
                        text: Vec::new(),
                        summary: Summary::default(),
                    })
                });
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

fn help(options: &Options, work: &Receiver<Box<Work>>, finished: &Sender<Box<Work>>) {
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
