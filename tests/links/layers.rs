//! Layers above sockets that segment.

use std::fs::File;
use std::time::Duration;

use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use softrnic_link::Link;
use softrnic_link::capture::{Capture, CaptureOptions};
use softrnic_link::fault::FaultLink;
use softrnic_link::testing::{Received, flow, receive, send};
use softrnic_udp::{UdpLink, UdpOptions};
use softrnic_wire::{Frame, IpFacts, Time};

const NOW: Time = Time::ZERO;

#[test]
fn on_a_segmenting_link_faults_leave_the_other_icrcs_good() {
    let mut a = FaultLink::new(
        UdpLink::open(UdpOptions::default()).unwrap(),
        &"seed=1,drop:psn=3,duplicate:psn=5,reorder:psn=7,delay=1us:psn=9".parse().expect("a specification"),
    );
    let mut b = UdpLink::open(UdpOptions::default()).unwrap();
    let to_b = flow(a.inner().address(), b.address());
    for psn in 0..20 {
        send(&mut a, NOW, &to_b, psn, 1024).unwrap();
    }
    a.flush(NOW);
    a.flush(NOW + Duration::from_secs(1));
    let got = receive(&mut b, 20);
    assert!(got.iter().all(|received| received.recovered_id() == Some(0)));
    assert_eq!(
        got.iter().map(Received::psn).collect::<Vec<_>>(),
        [0, 1, 2, 4, 5, 5, 6, 8, 10, 7, 11, 12, 13, 14, 15, 16, 17, 18, 19, 9]
    );
}

#[test]
fn segmented_runs_are_recorded_with_the_ids_of_the_wire_at_both_ends() {
    let path = std::env::temp_dir().join(format!("softrnic-segmented-{}.pcapng", std::process::id()));
    let capture = Capture::create(&path, CaptureOptions::default()).expect("a file");
    let mut a = capture.wrap(UdpLink::open(UdpOptions::default()).unwrap(), "a");
    let mut b = capture.wrap(UdpLink::open(UdpOptions { gro: false, ..UdpOptions::default() }).unwrap(), "b");
    let to_b = flow(a.inner().address(), b.inner().address());
    for psn in 0..10 {
        send(&mut a, NOW, &to_b, psn, 512).unwrap();
    }
    a.flush(NOW);
    assert_eq!(receive(&mut b, 10).len(), 10);
    drop((a, b, capture));
    for (interface, direction) in [(0, 2), (1, 1)] {
        let packets = packets(&path, interface);
        assert_eq!(packets.len(), 10);
        for (i, (flags, bytes)) in packets.iter().enumerate() {
            let frame = Frame::parse(bytes).expect("a whole frame");
            assert_eq!(flags & 3, direction);
            assert!(matches!(frame.header.ip.facts, IpFacts::V4 { id, .. } if usize::from(id) == i));
            let facts = softrnic_wire::UdpFacts::roce(frame.header.ip.facts, frame.header.src_port);
            assert!(softrnic_wire::verify(&facts, frame.transport));
        }
    }
    std::fs::remove_file(path).expect("the capture");
}

/// Flags and bytes of the packets of an interface.
fn packets(path: &std::path::Path, interface: u32) -> Vec<(u32, Vec<u8>)> {
    let mut reader = PcapNgReader::new(File::open(path).expect("the capture")).expect("pcapng");
    let mut found = Vec::new();
    while let Some(block) = reader.next_block() {
        let Block::EnhancedPacket(packet) = block.expect("a block").0 else { continue };
        if packet.interface_id != interface {
            continue;
        }
        let flags = packet.options.iter().find_map(|option| match option {
            EnhancedPacketOption::Flags(flags) => Some(*flags),
            _ => None,
        });
        found.push((flags.expect("flags"), packet.data.into_owned()));
    }
    found
}
