//! The thread that writes the file.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use super::frame::{self, Meta};
use super::pcapng::{PcapNg, Statistics};
use super::queue::{Batch, Interface, Queue, Work};

/// `epb_flags`: direction in the lowest two bits, kind of destination in the next three.
const INBOUND: u32 = 0b01;
const OUTBOUND: u32 = 0b10;
const UNICAST: u32 = 0b001 << 2;
const MULTICAST: u32 = 0b010 << 2;

/// Writes what is in `queue` until the file is to end.
pub(super) fn run(file: File, path: &Path, queue: &Queue, repeatable: bool) {
    let mut output = Output::Broken(Vec::new());
    match CaptureWriter::new(BufWriter::with_capacity(1 << 18, file), repeatable) {
        Ok(writer) => output = Output::Open(Box::new(writer)),
        Err(e) => queue.fail(e),
    }
    let mut done = None;
    loop {
        let (batch, last) = match queue.take(done.take()) {
            Work::Write(batch) => (batch, false),
            Work::Finish(batch) => (batch, true),
        };
        if let Err(e) = output.write(&batch, last) {
            queue.fail(e);
        }
        if last {
            output.tell_losses(path, queue.error());
            queue.finished();
            return;
        }
        done = Some(batch);
    }
}

enum Output {
    Open(Box<CaptureWriter<BufWriter<File>>>),
    /// Writing has failed; the interfaces' losses are still counted.
    Broken(Vec<Interface>),
}

impl Output {
    fn write(&mut self, batch: &Batch, last: bool) -> Result<(), String> {
        match self {
            Output::Open(writer) => {
                let Err((error, written)) = writer.write(batch, last) else { return Ok(()) };
                let interfaces = std::mem::take(&mut writer.interfaces);
                *self = Output::Broken(interfaces.into_iter().map(|i| i.interface).collect());
                self.count_lost(batch, written);
                Err(error)
            }
            Output::Broken(interfaces) => {
                interfaces.extend(batch.interfaces.iter().cloned());
                self.count_lost(batch, 0);
                Ok(())
            }
        }
    }

    /// The user must not believe that the file is complete.
    fn tell_losses(&self, path: &Path, error: Option<String>) {
        let lost = |interface: &Interface| interface.lost.load(Ordering::Relaxed);
        let lost: u64 = match self {
            Output::Open(writer) => writer.interfaces.iter().map(|one| lost(&one.interface)).sum(),
            Output::Broken(interfaces) => interfaces.iter().map(lost).sum(),
        };
        if lost > 0 || error.is_some() {
            let why = error.unwrap_or_else(|| "the capture could not keep up".into());
            let path = path.display();
            // A program without standard error is not told.
            let _ =
                writeln!(std::io::stderr(), "softrnic: {path}: {lost} packets could not be written: {why}");
        }
    }

    fn count_lost(&self, batch: &Batch, written: usize) {
        let Output::Broken(interfaces) = self else { return };
        for record in &batch.records[written..] {
            if let Some(interface) = interfaces.get(record.meta.interface as usize) {
                interface.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

struct CaptureWriter<W: Write> {
    file: PcapNg<W>,
    interfaces: Vec<WrittenInterface>,
    frame: Vec<u8>,
    repeatable: bool,
    /// In nanoseconds since 1970, as is `last`, the time of the last packet.
    started: Option<u64>,
    last: u64,
}

struct WrittenInterface {
    interface: Interface,
    written: u64,
}

impl<W: Write> CaptureWriter<W> {
    fn new(output: W, repeatable: bool) -> Result<CaptureWriter<W>, String> {
        let application = concat!("SoftRNIC ", env!("CARGO_PKG_VERSION"));
        let file = PcapNg::new(output, application).map_err(cause)?;
        let started = (!repeatable).then(wall_clock);
        Ok(CaptureWriter { file, interfaces: Vec::new(), frame: Vec::new(), repeatable, started, last: 0 })
    }

    /// On an error, also returns how many of the batch's packets are certainly in the file.
    fn write(&mut self, batch: &Batch, last: bool) -> Result<(), (String, usize)> {
        for interface in &batch.interfaces {
            self.describe(interface).map_err(|e| (e, 0))?;
        }
        let mut bytes = batch.bytes.as_slice();
        for record in &batch.records {
            let (datagram, rest) = bytes.split_at_checked(record.len).unwrap_or((bytes, &[]));
            bytes = rest;
            // What the buffer still held is lost too, so none of the batch counts as written.
            self.packet(&record.meta, datagram, record.lost_before).map_err(|e| (e, 0))?;
        }
        if last {
            self.statistics().map_err(|e| (e, batch.records.len()))?;
        }
        self.file.flush().map_err(|e| (cause(e), 0))
    }

    fn describe(&mut self, interface: &Interface) -> Result<(), String> {
        self.file.interface(&interface.name, &interface.description).map_err(cause)?;
        self.interfaces.push(WrittenInterface { interface: interface.clone(), written: 0 });
        Ok(())
    }

    fn packet(&mut self, meta: &Meta, bytes: &[u8], lost_before: u64) -> Result<(), String> {
        frame::build(meta, bytes, &mut self.frame);
        self.last = meta.time;
        self.started.get_or_insert(self.last);
        let group = self.frame.first().is_some_and(|byte| byte & 1 != 0);
        let flags = if meta.outbound { OUTBOUND } else { INBOUND } | if group { MULTICAST } else { UNICAST };
        let CaptureWriter { file, frame, .. } = self;
        file.packet(meta.interface, meta.time, flags, lost_before, frame).map_err(cause)?;
        if let Some(interface) = self.interfaces.get_mut(meta.interface as usize) {
            interface.written += 1;
        }
        Ok(())
    }

    /// Ends the file with what each interface carried and what is missing.
    fn statistics(&mut self) -> Result<(), String> {
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
            self.file.statistics(index as u32, &statistics).map_err(cause)?;
        }
        Ok(())
    }
}

fn cause(error: io::Error) -> String {
    error.to_string()
}

fn wall_clock() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_buffer_takes_first_is_reported_with_its_cause() {
        let full = File::options().write(true).open("/dev/full").expect("there is one");
        let error = CaptureWriter::new(full, true).err().expect("it is full");
        assert!(error.contains("No space left on device"), "{error}");
    }
}
