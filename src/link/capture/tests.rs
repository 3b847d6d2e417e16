//! Captures of simulated links, read back.
//!
//! Over 600 lines: all tests read their files by the same few functions.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::AtomicU32;
use std::time::Instant;

use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::blocks::interface_statistics::InterfaceStatisticsOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use rustix::event::{PollFd, PollFlags, Timespec};
use softrnic_wire::{Frame, MacAddr, Packet};

use super::*;
use crate::fault::FaultLink;
use crate::sim::{self, Fabric, SimLink, SimOptions};
use crate::testing::{Unsealed, drain, flow, packet_len, send};

const NOW: Time = Time::ZERO;
const EPOCH: Duration = Duration::from_nanos(1_700_000_000_123_456_789);
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// A file that goes away with the test, if that passes.
struct TempFile(PathBuf);

impl TempFile {
    fn new() -> TempFile {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("softrnic-capture-{}-{number}.pcapng", std::process::id());
        TempFile(std::env::temp_dir().join(name))
    }

    fn capture(&self) -> Capture {
        Capture::create(&self.0, CaptureOptions { epoch: Some(EPOCH), ..CaptureOptions::default() }).unwrap()
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::fs::remove_file(&self.0);
        }
    }
}

#[derive(Debug, Default)]
struct Contents {
    interfaces: Vec<(String, String)>,
    packets: Vec<Captured>,
    /// Received, dropped, comment.
    statistics: Vec<(u64, u64, String)>,
}

#[derive(Debug)]
struct Captured {
    interface: u32,
    time: Duration,
    flags: u32,
    drops: u64,
    comment: String,
    wire_len: usize,
    frame: Vec<u8>,
}

impl Captured {
    fn frame(&self) -> Frame<'_> {
        Frame::parse(&self.frame).expect("a whole frame")
    }

    fn psn(&self) -> u32 {
        Packet::parse(self.frame().transport).unwrap().bth.psn.get()
    }

    fn icrc_ok(&self) -> bool {
        softrnic_wire::verify(&self.frame().facts(), self.frame().transport)
    }

    fn is_outbound(&self) -> bool {
        self.flags & 0b11 == 0b10
    }
}

fn read(path: &Path) -> Contents {
    read_from(File::open(path).unwrap())
}

fn read_from(source: impl io::Read) -> Contents {
    let mut reader = PcapNgReader::new(source).unwrap();
    let mut contents = Contents::default();
    while let Some(block) = reader.next_block() {
        match block.unwrap().0 {
            Block::InterfaceDescription(block) => {
                assert_eq!(block.linktype, pcap_file::DataLink::ETHERNET);
                let (mut name, mut description) = (String::new(), String::new());
                for option in &block.options {
                    match option {
                        InterfaceDescriptionOption::IfName(text) => name = text.to_string(),
                        InterfaceDescriptionOption::IfDescription(text) => description = text.to_string(),
                        _ => {}
                    }
                }
                contents.interfaces.push((name, description));
            }
            Block::EnhancedPacket(block) => {
                let (mut flags, mut drops, mut comment) = (0, 0, String::new());
                for option in &block.options {
                    match option {
                        EnhancedPacketOption::Flags(value) => flags = *value,
                        EnhancedPacketOption::DropCount(count) => drops = *count,
                        EnhancedPacketOption::Common(CommonOption::Comment(text)) => {
                            comment = text.to_string();
                        }
                        other => panic!("{other:?}"),
                    }
                }
                let (interface, time) = (block.interface_id, block.timestamp);
                let (wire_len, frame) = (block.original_len as usize, block.data.to_vec());
                let packet = Captured { interface, time, flags, drops, comment, wire_len, frame };
                contents.packets.push(packet);
            }
            Block::InterfaceStatistics(block) => {
                let (mut received, mut dropped, mut comment) = (0, 0, String::new());
                for option in &block.options {
                    match option {
                        InterfaceStatisticsOption::IsbIfRecv(count) => received = *count,
                        InterfaceStatisticsOption::IsbIfDrop(count) => dropped = *count,
                        InterfaceStatisticsOption::Common(CommonOption::Comment(text)) => {
                            comment = text.to_string();
                        }
                        _ => {}
                    }
                }
                contents.statistics.push((received, dropped, comment));
            }
            other => panic!("{other:?}"),
        }
    }
    contents
}

use pcap_file::pcapng::blocks::opt_common::CommonOption;

fn ip(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

fn sim_pair(options: SimOptions) -> (SimLink, SimLink) {
    let fabric = Fabric::new(0);
    fabric.set_default_path(sim::Path { delay: Duration::ZERO, ..sim::Path::default() });
    (fabric.attach(ip(1), options).unwrap(), fabric.attach(ip(2), options).unwrap())
}

/// The sum of a header or datagram whose checksum is right is all ones.
fn ones_complement_sum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0_u32;
    for part in parts {
        for word in part.chunks(2) {
            sum += u32::from(u16::from_be_bytes([word[0], *word.get(1).unwrap_or(&0)]));
        }
    }
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum as u16
}

#[test]
fn both_directions_are_recorded_with_complete_headers() {
    let file = TempFile::new();
    let (a, b) = sim_pair(SimOptions { sees_ip_header: true, counts_ids: true, ..SimOptions::default() });
    let mut a = file.capture().wrap(a, "softrnic0");
    let mut b = b;
    let to_b = Flow { sport: 0xC123, tos: 0x6A, ttl: 17, ..flow(ip(1), ip(2)) };
    send(&mut a, NOW, &to_b, 5, 101).unwrap();
    a.flush(NOW);
    let later = Time::from_nanos(1_000_001);
    assert_eq!(drain(&mut b, later).len(), 1);
    send(&mut b, later, &flow(ip(2), ip(1)), 6, 0).unwrap();
    b.flush(later);
    assert_eq!(drain(&mut a, later)[0].psn(), 6);
    assert_eq!(a.counters().capture_lost, 0);
    assert!(a.capabilities().mode.contains(", captured to /"));
    drop(a);

    let contents = read(&file.0);
    assert_eq!(contents.interfaces, [("softrnic0".to_owned(), "sim 10.0.0.1".to_owned())]);
    assert_eq!(contents.statistics, [(2, 0, "All 2 datagrams were captured.".to_owned())]);
    let [sent, received] = contents.packets.as_slice() else { panic!("{contents:?}") };
    assert_eq!((sent.interface, sent.flags, sent.drops), (0, 0b00110, 0));
    assert_eq!((received.interface, received.flags, received.drops), (0, 0b00101, 0));
    assert_eq!(sent.time, EPOCH);
    assert_eq!(received.time, EPOCH + Duration::from_nanos(1_000_001));
    for packet in [sent, received] {
        let frame = packet.frame();
        assert!(frame.ip_checksum_ok() && packet.icrc_ok());
        let ip_bytes = frame.ip_bytes();
        let pseudo = [0, 17, ip_bytes[24], ip_bytes[25]];
        assert_eq!(ones_complement_sum(&[&ip_bytes[12..20], &pseudo, &ip_bytes[20..]]), 0xFFFF);
        assert_ne!(frame.udp_checksum, 0);
    }
    let header = sent.frame().header;
    assert_eq!((header.ip.tos, header.ip.ttl, header.src_port, header.dst_port), (0x6A, 17, 0xC123, 4791));
    assert_eq!(header.eth.src, MacAddr([2, 0, 10, 0, 0, 1]));
    assert_eq!(header.eth.dst, MacAddr([2, 0, 10, 0, 0, 2]));
    assert_eq!(sent.frame().transport.len(), packet_len(101));
    assert_eq!(received.frame().header.eth.src, header.eth.dst);
}

/// Peers in the same memory leave ICRCs out, and readers of the file are to find them right.
#[test]
fn what_came_without_an_icrc_has_one_in_the_file() {
    for snap_len in [None, Some(90)] {
        let file = TempFile::new();
        let options = CaptureOptions { snap_len, ..CaptureOptions::default() };
        let capture = Capture::create(&file.0, options).unwrap();
        let (a, b) = sim_pair(SimOptions { sees_ip_header: true, counts_ids: true, ..SimOptions::default() });
        let mut a = capture.wrap(Unsealed::new(a), "a");
        let mut b = capture.wrap(Unsealed::new(b), "b");
        assert!(a.inner().keeps_icrcs);
        for (psn, payload) in [(1, 0), (2, 1), (3, 1000)] {
            send(&mut a, NOW, &flow(ip(1), ip(2)), psn, payload).unwrap();
        }
        a.flush(NOW);
        let got = drain(&mut b, NOW);
        assert!(got.len() == 3 && got.iter().all(|one| !one.has_icrc), "the capture changes nothing");
        drop((a, b, capture));
        let packets = read(&file.0).packets;
        assert_eq!(packets.len(), 6);
        for packet in packets.iter().filter(|packet| packet.frame.len() == packet.wire_len) {
            assert!(packet.icrc_ok() && packet.frame().ip_checksum_ok());
        }
        assert_eq!(packets.iter().any(|packet| packet.frame.len() < packet.wire_len), snap_len.is_some());
    }
}

#[test]
fn ipv6_and_groups_get_headers_too() {
    let file = TempFile::new();
    let capture = file.capture();
    let fabric = Fabric::new(0);
    let (first, second): (IpAddr, IpAddr) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
    let group: IpAddr = "ff12::1234:5678".parse().unwrap();
    let mut a = fabric.attach(first, SimOptions::default()).unwrap();
    let mut b = capture.wrap(fabric.attach(second, SimOptions::default()).unwrap(), "v6");
    b.join(group).unwrap();
    send(&mut a, NOW, &Flow { tos: 0x12, ttl: 3, ..flow(first, second) }, 1, 33).unwrap();
    send(&mut a, NOW, &flow(first, group), 2, 34).unwrap();
    a.flush(NOW);
    assert_eq!(drain(&mut b, Time::from_nanos(1 << 30)).len(), 2);
    drop((b, capture));
    let contents = read(&file.0);
    assert_eq!(contents.packets.iter().map(Captured::psn).collect::<Vec<_>>(), [1, 2]);
    for packet in &contents.packets {
        assert!(packet.icrc_ok());
        let ip_bytes = packet.frame().ip_bytes();
        let pseudo = [0, 17, ip_bytes[44], ip_bytes[45]];
        assert_eq!(ones_complement_sum(&[&ip_bytes[8..40], &pseudo, &ip_bytes[40..]]), 0xFFFF);
    }
    let header = contents.packets[0].frame().header;
    assert_eq!((header.ip.tos, header.ip.ttl), (0x12, 3));
    assert_eq!(contents.packets[0].flags, 0b00101);
    assert_eq!(contents.packets[1].flags, 0b01001);
    assert_eq!(contents.packets[1].frame().header.eth.dst, MacAddr([0x33, 0x33, 0x12, 0x34, 0x56, 0x78]));
    let v4_group = frame::mac_of("239.129.2.3".parse().unwrap());
    assert_eq!(v4_group, MacAddr([0x01, 0x00, 0x5E, 0x01, 0x02, 0x03]));
}

#[test]
fn below_faults_only_packets_that_leave_are_recorded() {
    let file = TempFile::new();
    let (a, _b) = sim_pair(SimOptions::default());
    let spec = "drop:psn=1,corrupt:psn=2,duplicate:psn=3".parse().unwrap();
    let mut a = FaultLink::new(file.capture().wrap(a, "softrnic0"), &spec);
    for psn in 0..5 {
        send(&mut a, NOW, &flow(ip(1), ip(2)), psn, 64).unwrap();
    }
    a.flush(NOW);
    assert_eq!(a.capabilities().segments, 1);
    drop(a);
    let contents = read(&file.0);
    let good: Vec<u32> = contents.packets.iter().filter(|p| p.icrc_ok()).map(Captured::psn).collect();
    assert_eq!(good, [0, 3, 3, 4]);
    assert_eq!(contents.packets.len(), 5);
}

#[test]
fn a_fault_leaves_a_comment_at_its_packet() {
    let file = TempFile::new();
    let (a, b) = sim_pair(SimOptions::default());
    let spec = "drop:psn=1,corrupt:psn=2,duplicate:psn=3,delay=1us:psn=4,drop:dir=rx:nth=2".parse().unwrap();
    let notes = FaultNotes::default();
    let below = file.capture().wrap(a, "softrnic0").with_notes(notes.clone());
    let (mut a, mut b) = (FaultLink::new(below, &spec).with_notes(notes), b);
    for psn in 0..6 {
        send(&mut a, NOW, &flow(ip(1), ip(2)), psn, 64).unwrap();
    }
    a.flush(NOW);
    let later = Time::from_nanos(1_000_000);
    a.flush(later);
    assert_eq!(drain(&mut b, later).len(), 6, "five, and one of them twice");
    for psn in 0..3 {
        send(&mut b, later, &flow(ip(2), ip(1)), psn, 64).unwrap();
    }
    b.flush(later);
    assert_eq!(drain(&mut a, later).iter().map(|got| got.psn()).collect::<Vec<_>>(), [0, 2]);
    drop(a);
    let contents = read(&file.0);
    let notes: Vec<(u32, bool, &str)> =
        contents.packets.iter().map(|p| (p.psn(), p.is_outbound(), p.comment.as_str())).collect();
    assert_eq!(
        notes,
        [
            (0, true, ""),
            (1, true, "fault: dropped by rule 1, drop:psn=1"),
            (2, true, "fault: corrupted by rule 2, corrupt:psn=2"),
            (3, true, ""),
            (3, true, "fault: duplicated by rule 3, duplicate:psn=3"),
            (5, true, ""),
            (4, true, "fault: delayed by rule 4, delay=1us:psn=4"),
            (0, false, ""),
            (1, false, "fault: dropped by rule 5, drop:dir=rx:nth=2"),
            (2, false, ""),
        ]
    );
}

#[test]
fn long_packets_are_cut_to_the_snap_length() {
    let file = TempFile::new();
    let options = CaptureOptions { snap_len: Some(96), epoch: Some(EPOCH), ..CaptureOptions::default() };
    let (a, _b) = sim_pair(SimOptions { sees_ip_header: true, ..SimOptions::default() });
    let mut a = Capture::create(&file.0, options).unwrap().wrap(a, "softrnic0");
    for (psn, len) in [(0, 1024), (1, 4)] {
        send(&mut a, NOW, &flow(ip(1), ip(2)), psn, len).unwrap();
    }
    a.flush(NOW);
    drop(a);
    let contents = read(&file.0);
    let [long, short] = contents.packets.as_slice() else { panic!("{contents:?}") };
    assert_eq!((long.frame.len(), long.wire_len), (96, 14 + 20 + 8 + packet_len(1024)));
    assert_eq!(short.frame.len(), short.wire_len);
    assert!(short.icrc_ok());
    // The lengths are those of the packet; a checksum that cannot be computed is 0.
    assert_eq!(u16::from_be_bytes([long.frame[16], long.frame[17]]) as usize, long.wire_len - 14);
    assert_eq!(long.frame[40..42], [0, 0]);
}

#[test]
fn a_ring_keeps_the_last_files_and_each_can_be_read_alone() {
    let folder = std::env::temp_dir().join(format!("softrnic-ring-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let ring = Some(Ring { file_bytes: 20_000, files: Some(3) });
    let options = CaptureOptions { ring, epoch: Some(EPOCH), ..CaptureOptions::default() };
    let (a, _b) = sim_pair(SimOptions::default());
    let mut a = Capture::create(folder.join("x.pcapng"), options).unwrap().wrap(a, "softrnic0");
    for psn in 0..200 {
        send(&mut a, NOW, &flow(ip(1), ip(2)), psn, 1000).unwrap();
        a.flush(NOW);
    }
    drop(a);
    let mut names: Vec<PathBuf> = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    names.sort();
    assert_eq!(names.len(), 3, "{names:?}");
    let files: Vec<Contents> = names.iter().map(|name| read(name)).collect();
    let psns: Vec<u32> = files.iter().flat_map(|file| &file.packets).map(Captured::psn).collect();
    assert_eq!(psns, (psns[0]..200).collect::<Vec<_>>(), "without a gap, to the last");
    assert!((30..=60).contains(&psns.len()), "{}", psns.len());
    for (name, file) in names.iter().zip(&files) {
        assert_eq!((file.interfaces.len(), file.statistics.len()), (1, 1), "{name:?}");
        assert!(std::fs::metadata(name).unwrap().len() < 20_000 + 2000, "{name:?}");
    }
    assert_eq!(names[2], folder.join(format!("x_{:05}.pcapng", names_before(&names[2]))));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// The number in the name of a ring's file.
fn names_before(path: &Path) -> u32 {
    let stem = path.file_stem().unwrap().to_str().unwrap();
    stem.rsplit_once('_').unwrap().1.parse().unwrap()
}

/// A pipe, whose reader decides how fast the file is.
fn pipe() -> (TempFile, File) {
    use std::os::unix::fs::OpenOptionsExt;
    let pipe = TempFile::new();
    let name = std::ffi::CString::new(pipe.0.to_str().unwrap()).unwrap();
    // SAFETY: a C string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let reader = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&pipe.0).unwrap();
    let blocking = rustix::fs::fcntl_getfl(&reader).unwrap() - rustix::fs::OFlags::NONBLOCK;
    rustix::fs::fcntl_setfl(&reader, blocking).unwrap();
    (pipe, reader)
}

/// A link that is recorded in a pipe, and its other end.
fn recorded_in(pipe: &TempFile, queue_bytes: usize) -> (Capture, CaptureLink<SimLink>, SimLink) {
    let options = CaptureOptions { queue_bytes, epoch: Some(EPOCH), ..CaptureOptions::default() };
    let capture = Capture::create(&pipe.0, options).unwrap();
    let (a, b) = sim_pair(SimOptions { transmit_buffer: usize::MAX, ..SimOptions::default() });
    let a = capture.wrap(a, "softrnic0");
    (capture, a, b)
}

#[test]
fn while_the_file_cannot_keep_up_the_link_pauses_and_nothing_is_lost() {
    let (pipe, mut reader) = pipe();
    let (capture, mut a, mut b) = recorded_in(&pipe, 64 << 10);
    let to_b = flow(ip(1), ip(2));
    let mut now = NOW;
    let mut sent = fill(&mut a, &to_b, &pipe);
    a.flush(now);
    assert!(a.is_blocked());
    send(&mut b, now, &flow(ip(2), ip(1)), 7, 64).unwrap();
    b.flush(now);
    assert_eq!(a.receive(now, 64, &mut |_| panic!("what cannot be recorded waits below")), Overrun::Paused);
    assert_eq!(a.poll_timeout(), Some(now + RETRY));
    assert!(!a.watch(Sleeper::Thread), "nothing to do until then");

    let reading = std::thread::spawn(move || {
        let mut all = Vec::new();
        io::Read::read_to_end(&mut reader, &mut all).unwrap();
        all
    });
    let deadline = Instant::now() + FLUSH_TIMEOUT;
    let (last, mut received) = (sent + 100, 0);
    while sent < last || received == 0 {
        assert!(Instant::now() < deadline, "{sent} of {last}, {received}");
        now += RETRY;
        a.receive(now, 64, &mut |_| received += 1);
        if sent < last && send(&mut a, now, &to_b, sent, 4096).is_ok() {
            sent += 1;
            a.flush(now);
        }
    }
    assert_eq!(a.counters().capture_lost, 0);
    drop((a, capture));
    let contents = read_from(reading.join().unwrap().as_slice());
    let (out, into): (Vec<_>, Vec<_>) = contents.packets.iter().partition(|p| p.is_outbound());
    assert_eq!(out.iter().map(|p| p.psn()).collect::<Vec<_>>(), (0..last).collect::<Vec<_>>());
    assert_eq!(into.iter().map(|p| p.psn()).collect::<Vec<_>>(), [7]);
}

/// Sends until nothing passes any more, because nobody reads: the pipe fills, then the batch that is being written, then
/// the queue. Returns the next PSN.
fn fill(link: &mut impl Link, to: &Flow, pipe: &TempFile) -> u32 {
    let writer = File::options().write(true).open(&pipe.0).unwrap();
    let mut sent = 0;
    loop {
        let mut room = [PollFd::new(&writer, PollFlags::OUT)];
        let is_pipe_full = rustix::event::poll(&mut room, Some(&Timespec::default())).unwrap() == 0;
        match send(link, NOW, to, sent, 4096) {
            Ok(()) => sent += 1,
            Err(error) => {
                assert_eq!(error, TxError::Full);
                if is_pipe_full {
                    return sent;
                }
                std::thread::yield_now();
            }
        }
        assert!(sent < 10_000);
    }
}

/// Peers give up on a NIC that is silent for too long, however much of the queue the file takes meanwhile.
#[test]
fn a_paused_link_goes_on_when_a_part_of_the_queue_is_written() {
    const QUEUE: usize = 4 << 20;
    let (pipe, mut reader) = pipe();
    let (capture, mut a, _b) = recorded_in(&pipe, QUEUE);
    let to_b = flow(ip(1), ip(2));
    let sent = fill(&mut a, &to_b, &pipe);
    let (deadline, mut read) = (Instant::now() + FLUSH_TIMEOUT, vec![0; QUEUE / 4]);
    io::Read::read_exact(&mut reader, &mut read).unwrap();
    while send(&mut a, NOW, &to_b, sent, 4096).is_err() {
        assert!(Instant::now() < deadline, "a quarter of the queue is written");
        std::thread::yield_now();
    }
    let reading = std::thread::spawn(move || io::copy(&mut reader, &mut io::sink()));
    drop((a, capture));
    reading.join().unwrap().unwrap();
}

#[test]
fn while_the_link_is_paused_it_is_asked_ever_less_often() {
    let (pipe, mut reader) = pipe();
    let (capture, mut a, _b) = recorded_in(&pipe, 64 << 10);
    fill(&mut a, &flow(ip(1), ip(2)), &pipe);
    let (mut now, mut looks) = (NOW, 0);
    while now < NOW + Duration::from_millis(500) {
        assert_eq!(a.receive(now, 64, &mut |_| ()), Overrun::Paused);
        let next = a.poll_timeout().unwrap();
        assert!(next > now && next <= now + LONGEST_RETRY);
        (now, looks) = (next, looks + 1);
    }
    assert!((100..150).contains(&looks), "{looks}");
    let reading = std::thread::spawn(move || io::copy(&mut reader, &mut io::sink()));
    drop((a, capture));
    reading.join().unwrap().unwrap();
}

#[test]
fn a_caller_that_may_wait_for_the_file_waits() {
    let (pipe, mut reader) = pipe();
    let options = CaptureOptions {
        queue_bytes: 64 << 10,
        when_full: WhenFull::Wait,
        epoch: Some(EPOCH),
        ..CaptureOptions::default()
    };
    let capture = Capture::create(&pipe.0, options).unwrap();
    let sending = std::thread::spawn(move || {
        let (a, _b) = sim_pair(SimOptions { transmit_buffer: usize::MAX, ..SimOptions::default() });
        let mut a = capture.wrap(a, "softrnic0");
        for psn in 0..300 {
            send(&mut a, NOW, &flow(ip(1), ip(2)), psn, 4096).unwrap();
        }
    });
    let mut all = Vec::new();
    io::Read::read_to_end(&mut reader, &mut all).unwrap();
    sending.join().unwrap();
    let psns: Vec<u32> = read_from(all.as_slice()).packets.iter().map(Captured::psn).collect();
    assert_eq!(psns, (0..300).collect::<Vec<_>>());
}

#[test]
fn the_file_is_readable_while_it_is_written() {
    let file = TempFile::new();
    let (a, _b) = sim_pair(SimOptions::default());
    let mut a = file.capture().wrap(a, "softrnic0");
    for round in 1..=3 {
        send(&mut a, NOW, &flow(ip(1), ip(2)), round, 64).unwrap();
        a.flush(NOW);
        assert!(a.capture().flush(FLUSH_TIMEOUT));
        assert_eq!(read(&file.0).packets.len(), round as usize);
    }
    // Without asking it takes a few milliseconds.
    send(&mut a, NOW, &flow(ip(1), ip(2)), 4, 64).unwrap();
    let deadline = Instant::now() + FLUSH_TIMEOUT;
    while std::fs::metadata(&file.0).unwrap().len() == 0 || read(&file.0).packets.len() < 4 {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
}

#[test]
fn packets_lost_by_a_full_queue_are_counted_everywhere() {
    let file = TempFile::new();
    let options = CaptureOptions {
        queue_bytes: 64 << 10,
        when_full: WhenFull::Lose,
        epoch: Some(EPOCH),
        repeatable: true,
        ..CaptureOptions::default()
    };
    let capture = Capture::create(&file.0, options).unwrap();
    let (a, _b) = sim_pair(SimOptions { transmit_buffer: usize::MAX, ..SimOptions::default() });
    let mut a = capture.wrap(a, "softrnic0");
    let mut sent = 0;
    // The writer needs longer for a frame than we do, so that the queue fills in the end.
    while a.counters().capture_lost == 0 {
        send(&mut a, NOW, &flow(ip(1), ip(2)), sent, 4096).unwrap();
        sent += 1;
        assert!(sent < 1_000_000);
    }
    assert!(capture.flush(FLUSH_TIMEOUT));
    let lost = a.counters().capture_lost;
    send(&mut a, NOW, &flow(ip(1), ip(2)), sent, 64).unwrap();
    assert_eq!(a.counters().capture_lost, lost);
    drop((a, capture));
    let contents = read(&file.0);
    assert_eq!(contents.packets.len() as u64 + lost, u64::from(sent) + 1);
    assert_eq!(contents.packets.iter().map(|p| p.drops).sum::<u64>(), lost);
    let (received, dropped, comment) = &contents.statistics[0];
    assert_eq!((*received, *dropped), (u64::from(sent) + 1, lost));
    assert!(comment.starts_with(&format!("{lost} datagrams are missing")), "{comment}");
}

#[test]
fn a_file_that_cannot_be_written_is_reported_and_counted() {
    let capture = Capture::create("/dev/full", CaptureOptions::default()).unwrap();
    let (a, mut b) = sim_pair(SimOptions::default());
    let mut a = capture.wrap(a, "softrnic0");
    send(&mut a, NOW, &flow(ip(1), ip(2)), 1, 64).unwrap();
    a.flush(NOW);
    assert!(!capture.flush(FLUSH_TIMEOUT));
    assert!(capture.error().unwrap().contains("space"), "{:?}", capture.error());
    send(&mut a, NOW, &flow(ip(1), ip(2)), 2, 64).unwrap();
    a.flush(NOW);
    assert_eq!(drain(&mut b, Time::from_nanos(1 << 30)).len(), 2);
    drop(capture);
    let deadline = Instant::now() + FLUSH_TIMEOUT;
    while a.counters().capture_lost < 2 {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
    assert!(Capture::create("/nonexistent/x.pcapng", CaptureOptions::default()).is_err());
}

#[test]
fn the_path_may_name_the_process() {
    assert_eq!(
        expand(Path::new("/tmp/x-%p.pcapng")),
        PathBuf::from(format!("/tmp/x-{}.pcapng", std::process::id()))
    );
    assert_eq!(expand(Path::new("/tmp/x.pcapng")), PathBuf::from("/tmp/x.pcapng"));
}

#[test]
fn the_clock_of_the_machine_sets_the_times_when_nothing_else_does() {
    let file = TempFile::new();
    let (a, _b) = sim_pair(SimOptions::default());
    let mut a = Capture::create(&file.0, CaptureOptions::default()).unwrap().wrap(a, "softrnic0");
    let before = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    for nanos in [5_000_000_000, 5_000_000_777] {
        send(&mut a, Time::from_nanos(nanos), &flow(ip(1), ip(2)), 0, 64).unwrap();
    }
    let after = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    drop(a);
    let times: Vec<Duration> = read(&file.0).packets.iter().map(|p| p.time).collect();
    assert!(before <= times[0] && times[0] <= after);
    assert_eq!(times[1] - times[0], Duration::from_nanos(777));
}

#[test]
fn a_capture_is_private_and_overwrites_no_other_file() {
    use std::os::unix::fs::{MetadataExt, symlink};
    let (file, link, second) = (TempFile::new(), TempFile::new(), TempFile::new());
    drop(file.capture());
    assert_eq!(std::fs::metadata(&file.0).unwrap().mode() & 0o777, 0o600);

    std::fs::write(&file.0, "dear").unwrap();
    symlink(&file.0, &link.0).unwrap();
    std::fs::hard_link(&file.0, &second.0).unwrap();
    for planted in [&link, &second] {
        let refused = Capture::create(&planted.0, CaptureOptions::default()).err().expect("refused");
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied, "{refused}");
    }
    assert_eq!(std::fs::read(&file.0).unwrap(), b"dear");
}

#[test]
fn a_capture_waits_for_no_pipe_and_shows_nothing_to_others() {
    let (pipe, foreign) = (TempFile::new(), TempFile::new());
    let name = std::ffi::CString::new(pipe.0.to_str().unwrap()).unwrap();
    // SAFETY: a C string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let refused = Capture::create(&pipe.0, CaptureOptions::default()).err().expect("nobody reads it");
    assert_eq!(refused.kind(), io::ErrorKind::NotConnected, "{refused}");

    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: to give a file away takes root");
    }
    std::fs::write(&foreign.0, "").unwrap();
    std::os::unix::fs::chown(&foreign.0, Some(65534), None).unwrap();
    let refused = Capture::create(&foreign.0, CaptureOptions::default()).err().expect("another user's");
    assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied, "{refused}");
}
