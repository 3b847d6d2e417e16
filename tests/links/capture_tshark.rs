//! What a capture holds, as an independent dissector reads it.

use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use softrnic_link::capture::{Capture, CaptureOptions};
use softrnic_link::{Flow, Link};
use softrnic_udp::{UdpLink, UdpOptions};
use softrnic_wire::{Body, Bth, Headers, ICRC_LEN, Op, Pad, Psn, Qpn, SendTail, Time, seal};

#[test]
fn tshark_finds_nothing_wrong_with_a_capture() {
    let path = std::env::temp_dir().join(format!("softrnic-tshark-{}.pcapng", std::process::id()));
    write(&path);
    let checks = ["-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"];
    let fields = ["ip.id", "ip.dsfield", "udp.srcport", "infiniband.bth.opcode", "infiniband.bth.psn"];
    let fields = fields.iter().flat_map(|field| ["-e", field]);
    let run = |filter: &str| {
        let mut tshark = Command::new("tshark");
        tshark.args(["-n", "-r"]).arg(&path).args(checks).args(["-Y", filter, "-T", "fields"]);
        let output = tshark.args(fields.clone()).output()?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok::<_, std::io::Error>(
            String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect::<Vec<_>>(),
        )
    };
    let all = match run("infiniband") {
        Ok(all) => all,
        Err(e) if std::env::var_os("CI").is_none() => return eprintln!("SKIPPED: tshark is needed: {e}"),
        Err(e) => panic!("no tshark: {e}"),
    };
    // The kernel counts the sends, and on through the segments of each.
    let first = all.first().and_then(|line| u16::from_str_radix(line.get(2..6)?, 16).ok()).expect("an ID");
    let id = |i: u16| first.wrapping_add(if i < 5 { i } else { i - 4 });
    let sent: Vec<String> = (0..9).map(|i| format!("0x{:04x}\t0x08\t49443\t4\t{i}", id(i))).collect();
    assert_eq!(all, [sent.clone(), sent].concat());
    let wrong = run("_ws.malformed || _ws.expert.severity >= \"Warning\" || ip.checksum.status == \"Bad\" \
                     || udp.checksum.status == \"Bad\"");
    assert_eq!(wrong.expect("it worked before"), Vec::<String>::new());
    let directions = run("frame.packet_flags_direction == 1 || frame.packet_flags_direction == 2");
    assert_eq!(directions.expect("it worked before").len(), 18);
    std::fs::remove_file(&path).expect("the file of the test");
}

/// Nine datagrams in runs of five and four, seen by sender and receiver.
fn write(path: &Path) {
    let capture = Capture::create(path, CaptureOptions::default()).expect("a file");
    let open = || UdpLink::open(UdpOptions::default()).expect("a free loopback address");
    let (a, b) = (open(), open());
    let (src, dst): (IpAddr, IpAddr) = (a.address(), b.address());
    let (mut a, mut b) = (capture.wrap(a, "softrnic0"), capture.wrap(b, "softrnic1"));
    let flow = Flow { src, dst, sport: 0xC123, slot: None, tos: 8, ttl: 64 };
    let payload = 513;
    for psn in 0..9 {
        if psn == 5 {
            a.flush(Time::ZERO);
        }
        let mut bth = Bth::new(Qpn::new(0x11), Psn::new(psn));
        bth.pad = Pad::for_payload(payload);
        let headers = Headers { bth, body: Body::Rc(Op::SendOnly(SendTail::Plain)) };
        let slot = a.reserve(Time::ZERO, &flow, headers.transport_len(payload)).expect("room");
        let at = headers.emit(slot.bytes);
        let end = slot.bytes.len() - ICRC_LEN;
        slot.bytes[at..end].fill(0);
        seal(&slot.facts, slot.bytes);
        a.commit(Time::ZERO);
    }
    a.flush(Time::ZERO);
    let mut got = 0;
    let deadline = std::time::Instant::now() + Duration::from_secs(2);
    while got < 9 && std::time::Instant::now() < deadline {
        b.receive(Time::ZERO, 64, &mut |_| got += 1);
    }
    assert_eq!(got, 9);
}
