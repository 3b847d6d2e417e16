//! `softrnic bench --compare`: the NIC against bare sockets, in one run and in turns, so that what else the machine
//! does meets all of them.

use std::time::Duration;

use anstream::eprintln;
use serde::Serialize;

use super::Operation;
use super::latency::{Percentiles, median};
use super::measure::Bench;
use super::sockets;
use crate::failure::{Failure, Result};
use crate::output::say;
use crate::progress::Progress;
use crate::table::{BAD, GOOD, HEADING, QUIET, Table};
use crate::units;

/// Bytes of the WRITEs and of the SENDs that are compared.
pub const WRITE_SIZE: usize = 64 << 10;
pub const SEND_SIZE: usize = 8;

/// What is to be reached.
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

#[derive(Serialize)]
struct Comparison<'a> {
    modes: &'a [String; 2],
    rounds: &'a [Round],
    bandwidth_ratio: f64,
    latency_ratio: f64,
    bars: Bars,
    reached: bool,
}

pub fn run(mut bench: Bench<'_>, rounds: usize, time: Duration, bars: Bars, json: bool) -> Result {
    let mut progress = Progress::new(4 * rounds);
    let mut done = Vec::new();
    for _ in 0..rounds {
        progress.next("TCP stream");
        let tcp = sockets::tcp_stream(bench.peer, time)?;
        progress.next("RDMA WRITE");
        let write = bench.stream(Operation::Write, WRITE_SIZE, time)?;
        progress.next("UDP ping-pong");
        let udp = sockets::udp_ping_pong(bench.peer, time)?;
        progress.next("SEND ping-pong");
        let send = bench.latency(Operation::Send, SEND_SIZE, time)?;
        let (Some(udp), Some(send)) = (udp, send) else {
            return Err(Failure::new("not one round trip in the time given"));
        };
        done.push(Round {
            tcp_bandwidth: tcp.bandwidth(),
            write_bandwidth: write.bandwidth(),
            write_retransmitted: write.retransmitted,
            udp_latency: udp,
            send_latency: send,
        });
    }
    drop(progress);

    let of = |figure: fn(&Round) -> f64| median(&done.iter().map(figure).collect::<Vec<_>>());
    let bandwidth_ratio = of(|round| round.write_bandwidth / round.tcp_bandwidth);
    let latency_ratio = of(|round| round.send_latency.p50 / round.udp_latency.p50);
    let enough = bars.bandwidth.is_none_or(|bar| bandwidth_ratio >= bar);
    let quick = bars.latency.is_none_or(|bar| latency_ratio <= bar);
    if json {
        let comparison = Comparison {
            modes: &bench.modes,
            rounds: &done,
            bandwidth_ratio,
            latency_ratio,
            bars,
            reached: enough && quick,
        };
        say!("{}", serde_json::to_string_pretty(&comparison)?);
    } else {
        say!("{QUIET}{}\n{}{QUIET:#}\n", bench.modes[0], bench.modes[1]);
        say!("{}", table(&done));
        let verdict = |reached| if reached { GOOD } else { BAD };
        let (style, bar) = (verdict(enough), bars.bandwidth.map(|bar| format!(" (at least {bar} wanted)")));
        say!(
            "64 KiB WRITE has {style}{bandwidth_ratio:.2} ×{style:#} the bandwidth of one TCP stream{}",
            bar.unwrap_or_default()
        );
        let (style, bar) = (verdict(quick), bars.latency.map(|bar| format!(" (at most {bar} wanted)")));
        say!(
            "8-byte SEND has {style}{latency_ratio:.2} ×{style:#} the latency of a UDP datagram{}",
            bar.unwrap_or_default()
        );
        say!(
            "{QUIET}Medians of {} rounds; latency is one way, half of the median round trip.{QUIET:#}",
            done.len()
        );
    }
    if enough && quick {
        return Ok(());
    }
    if json {
        eprintln!("{HEADING}bandwidth {bandwidth_ratio:.2}, latency {latency_ratio:.2}{HEADING:#}");
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
