//! How fast decoding is next to merely reading: `speed [MEGABYTES [PAYLOAD]]`.
//!
//! Makes a capture of that size, reads it with the least a pcap reader can do, and decodes it to a
//! line per packet, in turn and three times each. Besides the times, which other work on the machine
//! stretches, it tells the processor time that each took.

use std::error::Error;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use softrnic_inspect::capture::Reader;
use softrnic_inspect::decode::{Options, Peers, decode};
use softrnic_wire::*;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let megabytes: u64 = args.next().map_or(Ok(1024), |a| a.parse())?;
    let payload: usize = args.next().map_or(Ok(1024), |a| a.parse())?;
    let path = std::env::temp_dir().join(format!("softrnic-speed-{}.pcap", std::process::id()));
    let records = write_capture(&path, megabytes << 20, payload)?;
    let options = Options { threads: 2, ..Options::default() };
    let mut best = [Duration::MAX; 2];
    let mut work = [f64::MAX; 2];
    for _ in 0..3 {
        let (start, before) = (Instant::now(), processor_seconds()?);
        assert_eq!(read_only(&path)?, records);
        best[0] = best[0].min(start.elapsed());
        work[0] = work[0].min(processor_seconds()? - before);
        let (start, before) = (Instant::now(), processor_seconds()?);
        let mut reader = Reader::new(File::open(&path)?)?;
        let mut sink = BufWriter::new(File::create("/dev/null")?);
        let summary = decode(&mut reader, &mut sink, &options, &mut Peers::new(), |_| {})?;
        assert_eq!((summary.shown, summary.bad_icrc), (records, 0));
        best[1] = best[1].min(start.elapsed());
        work[1] = work[1].min(processor_seconds()? - before);
    }
    std::fs::remove_file(&path)?;
    let [read, decode] = best.map(|t| t.as_secs_f64());
    writeln!(
        io::stdout(),
        "{records} packets of {payload} bytes: read {:.2} GB/s, decoded {:.2} GB/s, ratio {:.2}; \
         processor time {:.2} s and {:.2} s ({:.0} ns a packet)",
        megabytes as f64 / 1024.0 / read,
        megabytes as f64 / 1024.0 / decode,
        read / decode,
        work[0],
        work[1],
        work[1] * 1e9 / records as f64,
    )?;
    Ok(())
}

/// What this process has used so far, in user and kernel mode, from the hundredths that Linux counts.
fn processor_seconds() -> Result<f64, Box<dyn Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after_name = stat.rsplit(')').next().ok_or("no process name")?;
    let ticks = after_name.split_whitespace().skip(11).take(2);
    Ok(ticks.map(str::parse::<f64>).sum::<Result<f64, _>>()? / 100.0)
}

/// Header, length, skip: no less can be done to know where records are.
fn read_only(path: &Path) -> io::Result<u64> {
    let mut file = BufReader::with_capacity(1 << 20, File::open(path)?);
    let mut header = [0; 24];
    file.read_exact(&mut header)?;
    let (mut records, mut data) = (0, vec![0; 1 << 16]);
    while file.read_exact(&mut header[..16]).is_ok() {
        let len = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
        file.read_exact(&mut data[..len])?;
        records += 1;
    }
    Ok(records)
}

fn write_capture(path: &Path, size: u64, payload: usize) -> io::Result<u64> {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    file.write_all(&[0x4D, 0x3C, 0xB2, 0xA1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0])?;
    let mut written = 24;
    let mut records = 0;
    let data = vec![0x5A; payload];
    while written < size {
        let psn = Psn::new(records as u32);
        let (there, op, payload) = match records % 4 {
            0 => (true, Op::SendOnly(SendTail::Plain), &data[..]),
            1 => (
                true,
                Op::WriteOnly(Reth { va: 0x7F00 + records, rkey: Rkey(7), dma_len: payload as u32 }, None),
                &data[..],
            ),
            2 => (true, Op::SendOnly(SendTail::Imm(Imm([1, 2, 3, 4]))), &data[..]),
            _ => (false, Op::Acknowledge(Aeth::ack(Msn::new(records as u32))), &data[..0]),
        };
        let frame = frame(there, psn, op, payload);
        for word in [records as u32 / 1000, records as u32 % 1000, frame.len() as u32, frame.len() as u32] {
            file.write_all(&word.to_le_bytes())?;
        }
        file.write_all(&frame)?;
        written += 16 + frame.len() as u64;
        records += 1;
    }
    file.flush()?;
    Ok(records)
}

fn frame(there: bool, psn: Psn, op: Op, payload: &[u8]) -> Vec<u8> {
    let (a, b) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let (src, dst, qpn) = if there { (a, b, 0x22) } else { (b, a, 0x11) };
    let header = FrameHeader {
        eth: EthHeader::default(),
        ip: IpHeader { facts: IpFacts::v4(src, dst), tos: 2, ttl: 64, flow_label: 0 },
        src_port: 0xC123,
        dst_port: ROCE_UDP_PORT,
    };
    let bth = Bth { pad: Pad::for_payload(payload.len()), ack_req: there, ..Bth::new(Qpn::new(qpn), psn) };
    let headers = Headers { bth, body: Body::Rc(op) };
    let len = headers.transport_len(payload.len());
    let mut bytes = vec![0; header.wire_len() + len];
    let at = header.emit(&mut bytes, len);
    let n = headers.emit(&mut bytes[at..]);
    bytes[at + n..at + n + payload.len()].copy_from_slice(payload);
    seal(&header.facts(), &mut bytes[at..]);
    bytes
}
