//! The thread that writes the file.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use super::CaptureOptions;
use super::files::Files;
use super::frame;
use super::pcapng::{Blocks, PacketInfo, Statistics};
use super::queue::{Batch, Interface, Queue, Record, Work};

/// How many bytes go to the system at a time, at least. They are whole blocks, so that what a process leaves behind that
/// is killed, or meets a full disk, is a file that ends with a whole packet.
const CHUNK: usize = 1 << 18;

/// `epb_flags`: direction in the lowest two bits, kind of destination in the next three.
const INBOUND: u32 = 0b01;
const OUTBOUND: u32 = 0b10;
const UNICAST: u32 = 0b001 << 2;
const MULTICAST: u32 = 0b010 << 2;

/// Writes what is in `queue` until the file is to end.
pub(super) fn run(file: File, files: Files, queue: &Queue, options: &CaptureOptions) {
    let _failing = FailOnPanic(queue);
    let mut writer = CaptureWriter::new(file, files, options);
    let mut done = None;
    loop {
        let (batch, last) = match queue.take(done.take()) {
            Work::Write(batch) => (batch, false),
            Work::Finish(batch) => (batch, true),
        };
        writer.write(&batch, last, queue);
        if last {
            writer.tell_losses(queue.error());
            queue.finished();
            return;
        }
        done = Some(batch);
    }
}

/// Nobody may wait for a writer that has died.
struct FailOnPanic<'a>(&'a Queue);

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail("the thread that writes it has failed".into());
        }
    }
}

struct CaptureWriter {
    /// `None` once writing has failed.
    file: Option<File>,
    files: Files,
    /// Bytes in the file, all of them whole blocks.
    written: u64,
    blocks: Blocks,
    interfaces: Vec<WrittenInterface>,
    snap_len: Option<u32>,
    repeatable: bool,
    /// In nanoseconds since 1970, as is `last`, the time of the last packet.
    started: Option<u64>,
    last: u64,
}

struct WrittenInterface {
    interface: Interface,
    written: u64,
}

impl CaptureWriter {
    fn new(file: File, files: Files, options: &CaptureOptions) -> CaptureWriter {
        let mut blocks = Blocks::default();
        blocks.section(APPLICATION);
        CaptureWriter {
            file: Some(file),
            files,
            written: 0,
            blocks,
            interfaces: Vec::new(),
            snap_len: options.snap_len,
            repeatable: options.repeatable,
            started: (!options.repeatable).then(wall_clock),
            last: 0,
        }
    }

    /// Writes a batch, as far as that is possible; what the file lacks is counted.
    fn write(&mut self, batch: &Batch, last: bool, queue: &Queue) {
        for interface in &batch.interfaces {
            self.blocks.interface(&interface.name, &interface.description, self.snap_len);
            self.interfaces.push(WrittenInterface { interface: interface.clone(), written: 0 });
        }
        let mut safe = 0;
        if self.file.is_some()
            && let Err(error) = self.try_write(batch, last, queue, &mut safe)
        {
            self.give_up(&error, queue);
        }
        if self.file.is_none() {
            for record in &batch.records[safe..] {
                if let Some(lacking) = self.interfaces.get(record.meta.interface as usize) {
                    lacking.interface.lost.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// `safe` is how many records of the batch the file has for certain.
    fn try_write(&mut self, batch: &Batch, last: bool, queue: &Queue, safe: &mut usize) -> io::Result<()> {
        let mut bytes = batch.bytes.as_slice();
        for (index, record) in batch.records.iter().enumerate() {
            let (kept, rest) = bytes.split_at_checked(record.kept).unwrap_or((bytes, &[]));
            bytes = rest;
            self.packet(record, kept);
            let is_full = self.files.is_full(self.written + self.blocks.bytes().len() as u64);
            if is_full {
                self.statistics();
            }
            if is_full || self.blocks.bytes().len() >= CHUNK {
                self.write_out(queue)?;
                *safe = index + 1;
            }
            if is_full {
                self.next_file()?;
            }
        }
        if last {
            self.statistics();
        }
        self.write_out(queue)?;
        *safe = batch.records.len();
        Ok(())
    }

    fn packet(&mut self, record: &Record, kept: &[u8]) {
        let meta = &record.meta;
        self.last = meta.time;
        self.started.get_or_insert(self.last);
        let direction = if meta.outbound { OUTBOUND } else { INBOUND };
        let destination = if meta.given.is_group(kept) { MULTICAST } else { UNICAST };
        let info = PacketInfo {
            interface: meta.interface,
            time: meta.time,
            flags: direction | destination,
            dropped: record.lost_before,
            comment: record.note.as_deref(),
        };
        self.blocks.packet(&info, self.snap_len, |output| frame::build(meta, kept, output));
        if let Some(interface) = self.interfaces.get_mut(meta.interface as usize) {
            interface.written += 1;
        }
    }

    /// Hands the blocks to the system.
    fn write_out(&mut self, queue: &Queue) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.write_all(self.blocks.bytes())?;
        self.written += self.blocks.bytes().len() as u64;
        self.blocks.clear();
        queue.wrote();
        Ok(())
    }

    fn next_file(&mut self) -> io::Result<()> {
        self.file = Some(self.files.next()?);
        self.written = 0;
        self.blocks.section(APPLICATION);
        for WrittenInterface { interface, .. } in &self.interfaces {
            self.blocks.interface(&interface.name, &interface.description, self.snap_len);
        }
        Ok(())
    }

    /// Ends a file with what each interface has carried so far and what is missing.
    fn statistics(&mut self) {
        let now = if self.repeatable { self.last } else { wall_clock() };
        let started = self.started.unwrap_or(now);
        for (index, WrittenInterface { interface, written }) in self.interfaces.iter().enumerate() {
            let lost = interface.lost.load(Ordering::Relaxed);
            let comment = match lost {
                0 => format!("All {written} datagrams were captured."),
                _ => format!("{lost} datagrams are missing: the capture could not keep up."),
            };
            let (received, dropped, comment) = (written + lost, lost, comment.as_str());
            let statistics = Statistics { started, ended: now, received, dropped, comment };
            self.blocks.statistics(index as u32, &statistics);
        }
    }

    /// The file cannot be written. It keeps the whole blocks that it has, and the program goes on without a capture:
    /// the user is told at once.
    fn give_up(&mut self, error: &io::Error, queue: &Queue) {
        if let Some(file) = self.file.take()
            && file.metadata().is_ok_and(|metadata| metadata.is_file())
        {
            // Best effort: readers cope with a block that is cut short.
            let _ = file.set_len(self.written);
        }
        queue.fail(error.to_string());
        tell(
            self.files.current(),
            &format!("the capture ends here, and the program continues without it: {error}"),
        );
    }

    /// The user must not believe that the file is complete.
    fn tell_losses(&self, error: Option<String>) {
        let lost: u64 = self.interfaces.iter().map(|one| one.interface.lost.load(Ordering::Relaxed)).sum();
        if lost > 0 || error.is_some() {
            let why = error.unwrap_or_else(|| "the capture could not keep up".into());
            tell(self.files.current(), &format!("{lost} packets could not be written: {why}"));
        }
    }
}

/// A program without standard error is not told.
fn tell(path: &Path, what: &str) {
    let _ = writeln!(io::stderr(), "softrnic: {}: {what}", path.display());
}

const APPLICATION: &str = concat!("SoftRNIC ", env!("CARGO_PKG_VERSION"));

fn wall_clock() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
