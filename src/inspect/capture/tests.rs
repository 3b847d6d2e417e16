use super::*;

fn pcap(magic: u32, little: bool, link: u32, frames: &[(u32, u32, &[u8], u32)]) -> Vec<u8> {
    let word = |v: u32| if little { v.to_le_bytes() } else { v.to_be_bytes() };
    let half = |v: u16| if little { v.to_le_bytes() } else { v.to_be_bytes() };
    let mut file = Vec::new();
    file.extend(word(magic));
    file.extend(half(2));
    file.extend(half(4));
    file.extend([0; 8]);
    file.extend(word(65_535));
    file.extend(word(link));
    for (seconds, fraction, data, wire_len) in frames {
        for value in [*seconds, *fraction, data.len() as u32, *wire_len] {
            file.extend(word(value));
        }
        if magic == 0xA1B2_CD34 {
            file.extend([0; 8]);
        }
        file.extend(*data);
    }
    file
}

/// A pcapng block with its two lengths.
fn block(little: bool, kind: u32, body: &[u8]) -> Vec<u8> {
    let word = |v: u32| if little { v.to_le_bytes() } else { v.to_be_bytes() };
    let mut body = body.to_vec();
    body.resize(body.len().next_multiple_of(4), 0);
    let len = word(body.len() as u32 + 12);
    [&word(kind)[..], &len, &body, &len].concat()
}

fn section(little: bool) -> Vec<u8> {
    let mark: u32 = 0x1A2B_3C4D;
    let mark = if little { mark.to_le_bytes() } else { mark.to_be_bytes() };
    block(little, 0x0A0D_0D0A, &[&mark[..], &[0; 12]].concat())
}

fn interface(little: bool, link: u16, options: &[(u16, &[u8])]) -> Vec<u8> {
    let half = |v: u16| if little { v.to_le_bytes() } else { v.to_be_bytes() };
    let mut body = [&half(link)[..], &[0; 6]].concat();
    for (code, value) in options {
        body.extend(half(*code));
        body.extend(half(value.len() as u16));
        body.extend(*value);
        body.resize(body.len().next_multiple_of(4), 0);
    }
    block(little, 1, &body)
}

fn enhanced(little: bool, interface: u32, ticks: u64, data: &[u8], wire_len: u32) -> Vec<u8> {
    let word = |v: u32| if little { v.to_le_bytes() } else { v.to_be_bytes() };
    let mut body = Vec::new();
    for value in [interface, (ticks >> 32) as u32, ticks as u32, data.len() as u32, wire_len] {
        body.extend(word(value));
    }
    body.extend(data);
    block(little, 6, &body)
}

/// Number, time, link, captured bytes, wire length of each record, or the error.
type Read = Result<Vec<(u64, LinkType, Vec<u8>, u32)>, CaptureError>;

fn read_all(file: &[u8]) -> Read {
    // A source that gives little at a time.
    struct Drip<'a>(&'a [u8]);
    impl std::io::Read for Drip<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let n = self.0.len().min(buffer.len()).min(7);
            buffer[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }
    let mut reader = Reader::new(Drip(file))?;
    let mut records = Vec::new();
    while let Some(r) = reader.next()? {
        assert_eq!(r.number, records.len() as u64 + 1);
        records.push((r.time_ns, r.link, r.data.to_vec(), r.wire_len));
    }
    assert_eq!(reader.offset(), file.len() as u64);
    Ok(records)
}

#[test]
fn pcap_of_both_byte_orders_and_clocks() {
    for (magic, tick) in [(0xA1B2_C3D4, 1000), (0xA1B2_3C4D, 1), (0xA1B2_CD34, 1000)] {
        for little in [true, false] {
            let file = pcap(magic, little, 1, &[(5, 7, b"abc", 3), (6, 8, b"", 100)]);
            let expected = vec![
                (5_000_000_000 + 7 * tick, LinkType::Ethernet, b"abc".to_vec(), 3),
                (6_000_000_000 + 8 * tick, LinkType::Ethernet, vec![], 100),
            ];
            assert_eq!(read_all(&file), Ok(expected), "{magic:#x} little endian {little}");
        }
    }
}

#[test]
fn pcap_link_type_with_fcs_bits() {
    let file = pcap(0xA1B2_C3D4, true, 0x2400_0071, &[(0, 0, b"x", 1)]);
    assert_eq!(read_all(&file).unwrap()[0].1, LinkType::LinuxSll);
}

#[test]
fn pcapng_sections_interfaces_and_clocks() {
    for little in [true, false] {
        let offset = 100i64;
        let offset = if little { offset.to_le_bytes() } else { offset.to_be_bytes() };
        let file = [
            section(little),
            interface(little, 1, &[]),
            interface(little, 101, &[(2, b"eth0"), (9, &[9]), (14, &offset)]),
            interface(little, 276, &[(9, &[0x80 | 10])]),
            block(little, 0x0BAD, b"unknown blocks are passed over"),
            enhanced(little, 0, 2_000_001, b"micro", 5),
            enhanced(little, 1, 2_000_000_001, b"nano", 4),
            enhanced(little, 2, 2048 + 512, b"binary", 6),
            // The other byte order, and interfaces counted from 0 again.
            section(!little),
            interface(!little, 113, &[]),
            enhanced(!little, 0, 1, b"next", 400),
        ]
        .concat();
        let expected = vec![
            (2_000_001_000, LinkType::Ethernet, b"micro".to_vec(), 5),
            (102_000_000_001, LinkType::RawIp, b"nano".to_vec(), 4),
            (2_500_000_000, LinkType::LinuxSll2, b"binary".to_vec(), 6),
            (1000, LinkType::LinuxSll, b"next".to_vec(), 400),
        ];
        assert_eq!(read_all(&file), Ok(expected));
    }
}

#[test]
fn pcapng_simple_and_obsolete_packets() {
    let simple = block(true, 3, &[&9u32.to_le_bytes()[..], b"simple 90"].concat());
    let obsolete = [0u16.to_le_bytes(), 7u16.to_le_bytes()].concat();
    let words = [0u32, 5, 3, 30].iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>();
    let obsolete = block(true, 2, &[&obsolete[..], &words, b"old"].concat());
    let file = [section(true), interface(true, 1, &[]), simple, obsolete].concat();
    let expected = vec![
        (0, LinkType::Ethernet, b"simple 90".to_vec(), 9),
        (5000, LinkType::Ethernet, b"old".to_vec(), 30),
    ];
    assert_eq!(read_all(&file), Ok(expected));
}

#[test]
fn pcapng_statistics_report_drops() {
    let dropped = |n: u64| {
        let mut body = [0u32.to_le_bytes(), [0; 4], [0; 4]].concat();
        body.extend([5, 0, 8, 0]);
        body.extend(n.to_le_bytes());
        block(true, 5, &body)
    };
    let file = [
        section(true),
        interface(true, 1, &[]),
        dropped(3),
        dropped(17),
        section(true),
        interface(true, 1, &[]),
        dropped(5),
    ];
    let file = file.concat();
    let mut reader = Reader::new(&file[..]).unwrap();
    assert_eq!(reader.next(), Ok(None));
    assert_eq!(reader.dropped_by_capture(), 22);
}

#[test]
fn files_that_are_not_captures_are_named() {
    let message = |file: &[u8]| read_all(file).unwrap_err().to_string();
    assert_eq!(message(b""), "the capture is empty");
    assert_eq!(message(b"GIF89a.."), "this is neither pcap nor pcapng: it begins with 47 49 46 38");
    assert!(message(&[0x1F, 0x8B, 8, 0]).contains("compressed with gzip"));
    assert!(message(&[0x28, 0xB5, 0x2F, 0xFD]).contains("compressed with zstd"));
    assert!(message(b"ab").contains("first four bytes"));
    assert!(message(&[0xD4, 0xC3, 0xB2, 0xA1, 2]).contains("file header"));
    let mut version = pcap(0xA1B2_C3D4, true, 1, &[]);
    version[4] = 9;
    assert_eq!(message(&version), "pcap version 9 is not known (only 2 is), at byte 4");
}

#[test]
fn damage_is_named_with_its_place() {
    let whole = pcap(0xA1B2_C3D4, true, 1, &[(0, 0, b"abcd", 4), (1, 0, b"efgh", 4)]);
    for cut in whole.len() - 19..whole.len() {
        let error = read_all(&whole[..cut]).unwrap_err();
        assert_eq!((error.offset, matches!(error.fault, CaptureFault::CutShort(_))), (44, true), "{cut}");
    }
    let mut long = whole.clone();
    long[44 + 8..44 + 12].copy_from_slice(&(MAX_RECORD + 1).to_le_bytes());
    assert_eq!(read_all(&long), Err(CaptureFault::RecordTooLong(MAX_RECORD + 1).at(44)));

    let start = [section(true), interface(true, 1, &[])].concat();
    let fails = |packet: Vec<u8>| read_all(&[start.clone(), packet].concat()).unwrap_err();
    let at = start.len() as u64;
    assert_eq!(fails(enhanced(true, 3, 0, b"x", 1)), CaptureFault::UnknownInterface(3).at(at));
    let mut ends = enhanced(true, 0, 0, b"x", 1);
    *ends.last_mut().unwrap() ^= 1;
    assert!(matches!(fails(ends).fault, CaptureFault::BlockEnds(36, _)));
    let mut inside = enhanced(true, 0, 0, b"x", 1);
    inside[20] = 200;
    assert_eq!(fails(inside), CaptureFault::BlockLength(36).at(at));
    assert_eq!(fails(vec![6, 0, 0, 0, 13, 0, 0, 0]), CaptureFault::BlockLength(13).at(at));
    assert_eq!(fails(block(true, 1, b"")), CaptureFault::BlockLength(12).at(at));
    let mut mark = section(true);
    mark[8] = 0;
    assert!(matches!(fails(mark).fault, CaptureFault::ByteOrder(_)));
}

#[test]
fn a_source_that_fails_is_named() {
    struct Failing(bool);
    impl std::io::Read for Failing {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            if std::mem::replace(&mut self.0, true) {
                return Err(std::io::ErrorKind::PermissionDenied.into());
            }
            let header = pcap(0xA1B2_C3D4, true, 1, &[]);
            buffer[..header.len()].copy_from_slice(&header);
            Ok(header.len())
        }
    }
    let mut reader = Reader::new(Failing(false)).unwrap();
    let error = reader.next().unwrap_err();
    assert_eq!(error, CaptureFault::Io(std::io::ErrorKind::PermissionDenied).at(24));
}

#[test]
fn records_longer_than_the_window_are_read() {
    let long = vec![7; 3 << 20];
    let file = pcap(0xA1B2_C3D4, true, 1, &[(0, 0, b"a", 1), (0, 0, &long, 3 << 20), (0, 0, b"b", 1)]);
    let mut reader = Reader::new(&file[..]).unwrap();
    let mut lengths = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        lengths.push(record.data.len());
    }
    assert_eq!(lengths, [1, 3 << 20, 1]);
}

#[test]
fn the_first_comment_of_a_packet_is_read_in_batches_too() {
    for little in [true, false] {
        let half = |v: u16| if little { v.to_le_bytes() } else { v.to_be_bytes() };
        let option = |code: u16, value: &[u8]| {
            let padding = vec![0; value.len().next_multiple_of(4) - value.len()];
            [&half(code)[..], &half(value.len() as u16), value, &padding].concat()
        };
        let outbound = if little { 2u32.to_le_bytes() } else { 2u32.to_be_bytes() };
        let options =
            [option(1, b"fault"), option(1, b"another"), option(2, &outbound), option(0, b"")].concat();
        let mut packet = enhanced(little, 0, 1, b"frame678", 8);
        let body = packet.split_off(packet.len() - 4);
        let plain = [&packet[..], &body].concat();
        let commented = block(little, 6, &[&packet[8..], &options].concat());
        let file = [section(little), interface(little, 1, &[]), plain.clone(), commented, plain].concat();

        let mut reader = Reader::new(&file[..]).expect("a section");
        let mut comments = Vec::new();
        while let Some(record) = reader.next().expect("whole") {
            assert_eq!(record.direction, (!record.comment.is_empty()).then_some(Direction::Outbound));
            comments.push(record.comment.to_vec());
        }
        assert_eq!(comments, [&b""[..], b"fault", b""]);

        let mut reader = Reader::new(&file[..]).expect("a section");
        let (mut batch, mut again) = (Batch::new(), Vec::new());
        while reader.next_batch(&mut batch).expect("whole") {
            again.extend(batch.records().map(|record| (record.data.to_vec(), record.comment.to_vec())));
        }
        assert_eq!(
            again,
            comments.into_iter().map(|comment| (b"frame678".to_vec(), comment)).collect::<Vec<_>>()
        );
    }
}
