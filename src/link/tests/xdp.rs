//! The `xdp` link between network namespaces.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use softrnic_link::Link;
use softrnic_link::xdp::{AttachChoice, AttachMode, BusyPoll, XdpLink, XdpOptions};

use support::traffic::{echo, exchange, flow};
use support::{Namespace, Pair, can_run, join};

/// Runs `work` on host `a` with a link, while host `b` echoes with another.
fn against_echo(
    a: &Namespace,
    a_interface: &str,
    b: &Namespace,
    b_interface: &str,
    options: &XdpOptions,
    work: impl FnOnce(&mut XdpLink) + Send,
) {
    let stop = AtomicBool::new(false);
    let (ready, is_ready) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let echoing = scope.spawn(|| {
            b.enter_here(|| {
                let mut link = XdpLink::open(b_interface, options).expect("link of b");
                ready.send(()).expect("listener");
                echo(&mut link, &stop);
                settle(&mut link);
            });
        });
        if is_ready.recv().is_ok() {
            let worked = scope.spawn(|| {
                a.enter_here(|| {
                    let mut link = XdpLink::open(a_interface, options).expect("link of a");
                    work(&mut link);
                    settle(&mut link);
                });
            });
            let worked = worked.join();
            stop.store(true, Ordering::Relaxed);
            worked.expect("host a");
        }
        echoing.join().expect("host b");
    });
}

/// Waits until nothing is on its way, and checks that no packet memory was lost.
fn settle(link: &mut XdpLink) {
    support::wait_for("packet memory to come back", || {
        link.flush(support::now());
        link.receive(support::now(), usize::MAX, &mut |_| {});
        let audit = link.audit();
        assert!(audit.is_exact(), "{audit:?}");
        audit.is_quiet()
    });
}

#[test]
fn ipv4_and_ipv6_frames_pass_both_ways_at_mtu_1500() {
    if !can_run("ipv4_and_ipv6_frames_pass_both_ways_at_mtu_1500") {
        return;
    }
    let pair = Pair::new(1500, 1);
    against_echo(&pair.a, "eth0", &pair.b, "eth0", &XdpOptions::default(), |link| {
        println!("{}", link.capabilities().mode);
        assert_eq!(link.mode().attach, AttachMode::Native);
        assert!(!link.mode().multi_buffer, "frames fit in one chunk");
        assert_eq!(link.capabilities().max_datagram, 1472);
        exchange(link, &flow("10.0.0.1", "10.0.0.2"), &[16, 17, 300, 1472], 2000);
        exchange(link, &flow("fd00::1", "fd00::2"), &[16, 17, 300, 1452], 2000);
    });
}

#[test]
fn frames_of_several_chunks_pass_both_ways_at_mtu_4500() {
    if !can_run("frames_of_several_chunks_pass_both_ways_at_mtu_4500") {
        return;
    }
    let pair = Pair::new(4500, 1);
    for chunk_size in [4096, 2048] {
        let options = XdpOptions { chunk_size, ..XdpOptions::default() };
        against_echo(&pair.a, "eth0", &pair.b, "eth0", &options, |link| {
            println!("{}", link.capabilities().mode);
            assert!(link.mode().multi_buffer);
            let lens = [16, 1500, 3798, 3799, 3800, 4054, 4055, 4112, 4128, 4472];
            exchange(link, &flow("10.0.0.1", "10.0.0.2"), &lens, 4000);
            exchange(link, &flow("fd00::1", "fd00::2"), &lens[..9], 4000);
        });
    }
}
