//! The thread that writes the file.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption, InterfaceTsResolution,
};
use pcap_file::pcapng::blocks::interface_statistics::{InterfaceStatisticsBlock, InterfaceStatisticsOption};
use pcap_file::pcapng::blocks::opt_common::CommonOption;
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::pcapng::{PcapNgWriteError, PcapNgWriter};
use pcap_file::{DataLink, Endianness};

use super::frame::{self, Meta};
use super::queue::{Batch, Interface, Queue, Work};

/// More than the longest frame.
const SNAP_LEN: u32 = 262_144;

/// `epb_flags`: direction in the lowest two bits, kind of destination in the next three.
const INBOUND: u32 = 0b01;
const OUTBOUND: u32 = 0b10;
const UNICAST: u32 = 0b001 << 2;
const MULTICAST: u32 = 0b010 << 2;

/// Writes what `queue` brings until it says that the file ends.
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
    /// Nothing can be written any more; the interfaces' losses are still counted.
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

    /// Whoever asked for the file shall not believe that it is complete.
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
    pcapng: PcapNgWriter<W>,
    interfaces: Vec<WrittenInterface>,
    frame: Vec<u8>,
    repeatable: bool,
    started: Option<Duration>,
    last: Duration,
}

struct WrittenInterface {
    interface: Interface,
    written: u64,
}

impl<W: Write> CaptureWriter<W> {
    fn new(output: W, repeatable: bool) -> Result<CaptureWriter<W>, String> {
        let application = concat!("SoftRNIC ", env!("CARGO_PKG_VERSION"));
        let section = SectionHeaderBlock {
            endianness: Endianness::native(),
            options: vec![SectionHeaderOption::UserApplication(application.into())],
            ..SectionHeaderBlock::default()
        };
        let pcapng = PcapNgWriter::with_section_header(output, section).map_err(cause)?;
        let started = (!repeatable).then(wall_clock);
        let (interfaces, frame, last) = (Vec::new(), Vec::new(), Duration::ZERO);
        Ok(CaptureWriter { pcapng, interfaces, frame, repeatable, started, last })
    }

    /// On an error, says how many of the batch's packets are surely in the file.
    fn write(&mut self, batch: &Batch, last: bool) -> Result<(), (String, usize)> {
        for interface in &batch.interfaces {
            self.describe(interface).map_err(|e| (e, 0))?;
        }
        let mut bytes = batch.bytes.as_slice();
        for record in &batch.records {
            let (datagram, rest) = bytes.split_at_checked(record.len).unwrap_or((bytes, &[]));
            bytes = rest;
            // What the buffer still held is lost as well, so none of the batch counts as written.
            self.packet(&record.meta, datagram, record.lost_before).map_err(|e| (e, 0))?;
        }
        if last {
            self.statistics().map_err(|e| (e, batch.records.len()))?;
        }
        self.pcapng.get_mut().flush().map_err(|e| (e.to_string(), 0))
    }

    fn describe(&mut self, interface: &Interface) -> Result<(), String> {
        let block = InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            snaplen: SNAP_LEN,
            options: vec![
                InterfaceDescriptionOption::IfName(Cow::Borrowed(&interface.name)),
                InterfaceDescriptionOption::IfDescription(Cow::Borrowed(&interface.description)),
                InterfaceDescriptionOption::IfTsResol(InterfaceTsResolution::NANO),
            ],
        };
        self.pcapng.write_pcapng_block(block).map_err(cause)?;
        self.interfaces.push(WrittenInterface { interface: interface.clone(), written: 0 });
        Ok(())
    }

    fn packet(&mut self, meta: &Meta, bytes: &[u8], lost_before: u64) -> Result<(), String> {
        frame::build(meta, bytes, &mut self.frame);
        self.last = Duration::from_nanos(meta.time);
        self.started.get_or_insert(self.last);
        let group = self.frame.first().is_some_and(|byte| byte & 1 != 0);
        let flags = if meta.outbound { OUTBOUND } else { INBOUND } | if group { MULTICAST } else { UNICAST };
        let mut options = vec![EnhancedPacketOption::Flags(flags)];
        if lost_before > 0 {
            options.push(EnhancedPacketOption::DropCount(lost_before));
        }
        let block = EnhancedPacketBlock {
            interface_id: meta.interface,
            timestamp: Duration::from_nanos(meta.time),
            original_len: self.frame.len() as u32,
            data: Cow::Borrowed(&self.frame),
            options,
        };
        self.pcapng.write_pcapng_block(block).map_err(cause)?;
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
            let block = InterfaceStatisticsBlock {
                interface_id: index as u32,
                timestamp: now,
                options: vec![
                    InterfaceStatisticsOption::IsbStartTime(started),
                    InterfaceStatisticsOption::IsbEndTime(now),
                    InterfaceStatisticsOption::IsbIfRecv(written + lost),
                    InterfaceStatisticsOption::IsbIfDrop(lost),
                    InterfaceStatisticsOption::Common(CommonOption::Comment(comment.into())),
                ],
            };
            self.pcapng.write_pcapng_block(block).map_err(cause)?;
        }
        Ok(())
    }
}

/// The error itself says only that there was one while writing.
fn cause(error: PcapNgWriteError) -> String {
    match error {
        PcapNgWriteError::Io(error) => error.to_string(),
        error => error.to_string(),
    }
}

fn wall_clock() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
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
