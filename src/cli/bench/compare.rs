//! `softrnic bench --compare`: the NIC against bare sockets, alternating in one run, so that other load on the machine
//! affects all of them.

use std::time::Duration;

use anstream::eprintln;
use serde::Serialize;

use super::Operation;
use super::latency::{Percentiles, median};
use super::measure::Bench;
use super::sockets;
use crate::failure::{Failure, Result};
use crate::output::say;
use crate::pair::Peer;
use crate::progress::Progress;
use crate::table::{BAD, GOOD, HEADING, QUIET, Table};
use crate::units;

/// Bytes of the WRITEs and of the SENDs that are compared.
pub const WRITE_SIZE: usize = 64 << 10;
pub const SEND_SIZE: usize = 8;

/// The required ratios.
#[derive(Clone, Copy, Default, Serialize)]
pub struct Bars {
    /// WRITE over TCP, at least.
    pub bandwidth: Option<f64>,
    /// SEND over UDP, at most.
    pub latency: Option<f64>,
}

#[derive(Serialize)]
struct Round {
    /// Bytes per second.
    tcp_bandwidth: f64,
    write_bandwidth: f64,
    write_retransmitted: u64,
    /// One way.
    udp_latency: Percentiles,
    send_latency: Percentiles,
}

/// A pair of NICs, and how it compared.
#[derive(Serialize)]
struct Compared<'a> {
    #[serde(skip)]
    devices: &'a [String; 2],
    modes: [String; 2],
    rounds: Vec<Round>,
    bandwidth_ratio: f64,
    latency_ratio: f64,
}

impl<'a> Compared<'a> {
    fn new(devices: &'a [String; 2]) -> Compared<'a> {
        let modes = Default::default();
        Compared { devices, modes, rounds: Vec::new(), bandwidth_ratio: f64::NAN, latency_ratio: f64::NAN }
    }

    fn take(&mut self, peer: &mut Peer, time: Duration, progress: &mut Progress) -> Result {
        progress.next("TCP stream");
        let tcp = sockets::tcp_stream(peer, time)?;
        let mut bench = Bench::open(peer, self.devices, WRITE_SIZE)?;
        progress.next("RDMA WRITE");
        let write = bench.stream(Operation::Write, WRITE_SIZE, time)?;
        progress.next("UDP ping-pong");
        let udp = sockets::udp_ping_pong(bench.peer, time)?;
        progress.next("SEND ping-pong");
        let send = bench.latency(Operation::Send, SEND_SIZE, time)?;
        let (Some(udp), Some(send)) = (udp, send) else {
            return Err(Failure::new("not one round trip in the time given"));
        };
        self.modes = bench.modes;
        self.rounds.push(Round {
            tcp_bandwidth: tcp.bandwidth(),
            write_bandwidth: write.bandwidth(),
            write_retransmitted: write.retransmitted,
            udp_latency: udp,
            send_latency: send,
        });
        let of = |figure: fn(&Round) -> f64| median(&self.rounds.iter().map(figure).collect::<Vec<_>>());
        self.bandwidth_ratio = of(|round| round.write_bandwidth / round.tcp_bandwidth);
        self.latency_ratio = of(|round| round.send_latency.p50 / round.udp_latency.p50);
        Ok(())
    }

    fn print(&self, bars: &Bars) {
        say!("{QUIET}{}\n{}{QUIET:#}\n", self.modes[0], self.modes[1]);
        say!("{}", table(&self.rounds));
        let verdict = |reached| if reached { GOOD } else { BAD };
        let (style, ratio) = (verdict(bars.enough(self)), self.bandwidth_ratio);
        let bar = bars.bandwidth.map(|bar| format!(" (at least {bar} wanted)")).unwrap_or_default();
        say!("64 KiB WRITE has {style}{ratio:.2} ×{style:#} the bandwidth of one TCP stream{bar}");
        let (style, ratio) = (verdict(bars.quick(self)), self.latency_ratio);
        let bar = bars.latency.map(|bar| format!(" (at most {bar} wanted)")).unwrap_or_default();
        say!("8-byte SEND has {style}{ratio:.2} ×{style:#} the latency of a UDP datagram{bar}");
    }
}

impl Bars {
    fn enough(&self, compared: &Compared<'_>) -> bool {
        self.bandwidth.is_none_or(|bar| compared.bandwidth_ratio >= bar)
    }

    fn quick(&self, compared: &Compared<'_>) -> bool {
        self.latency.is_none_or(|bar| compared.latency_ratio <= bar)
    }
}

#[derive(Serialize)]
struct Comparison<'a> {
    /// What the bars are for.
    #[serde(flatten)]
    judged: &'a Compared<'a>,
    bars: Bars,
    reached: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    shared_memory: Option<&'a Compared<'a>>,
}

/// Compares the NICs of `devices`, which the bars are for, and those of `shared`, which use shared memory.
pub fn run(
    peer: &mut Peer,
    devices: &[String; 2],
    shared: Option<&[String; 2]>,
    rounds: usize,
    time: Duration,
    bars: Bars,
    json: bool,
) -> Result {
    let mut judged = Compared::new(devices);
    let mut shared = shared.map(Compared::new);
    let mut progress = Progress::new(rounds * if shared.is_some() { 8 } else { 4 });
    for _ in 0..rounds {
        for compared in [Some(&mut judged), shared.as_mut()].into_iter().flatten() {
            compared.take(peer, time, &mut progress)?;
        }
    }
    drop(progress);

    let (enough, quick) = (bars.enough(&judged), bars.quick(&judged));
    if json {
        let (reached, shared_memory) = (enough && quick, shared.as_ref());
        let comparison = Comparison { judged: &judged, bars, reached, shared_memory };
        say!("{}", serde_json::to_string_pretty(&comparison)?);
        if !reached {
            let Compared { bandwidth_ratio, latency_ratio, .. } = judged;
            eprintln!("{HEADING}bandwidth {bandwidth_ratio:.2}, latency {latency_ratio:.2}{HEADING:#}");
        }
    } else {
        judged.print(&bars);
        if let Some(shared) = &shared {
            say!("");
            shared.print(&Bars::default());
        }
        say!(
            "{QUIET}Medians of {rounds} rounds; latency is one way, half of the median round trip.{QUIET:#}"
        );
    }
    if enough && quick {
        return Ok(());
    }
    Err(Failure::new(match (enough, quick) {
        (false, false) => "neither the bandwidth nor the latency reaches its bar",
        (false, true) => "the bandwidth does not reach its bar",
        _ => "the latency does not reach its bar",
    }))
}

fn table(rounds: &[Round]) -> Table {
    let titles = ["round", "TCP", "WRITE 64 KiB", "resent", "ratio", "UDP", "SEND 8 B", "ratio"];
    let mut table = Table::new(1, &titles).group(1, "bandwidth").group(5, "latency");
    let micros = |value: f64| units::duration(Duration::from_nanos((value * 1e3) as u64));
    for (number, round) in (1..).zip(rounds) {
        table.row(vec![
            format!("{number}"),
            units::bandwidth(round.tcp_bandwidth),
            units::bandwidth(round.write_bandwidth),
            round.write_retransmitted.to_string(),
            format!("{:.2}", round.write_bandwidth / round.tcp_bandwidth),
            micros(round.udp_latency.p50),
            micros(round.send_latency.p50),
            format!("{:.2}", round.send_latency.p50 / round.udp_latency.p50),
        ]);
    }
    table
}
