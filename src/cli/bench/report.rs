//! The results of a sweep.

use std::time::Duration;

use serde::Serialize;

use super::Operation;
use super::latency::Percentiles;
use crate::output::{self, say};
use crate::table::{QUIET, Table};
use crate::units;

/// One operation at one size.
#[derive(Serialize)]
pub struct Point {
    pub operation: Operation,
    /// Bytes of a message.
    pub size: usize,
    /// `None` if it was not to be measured.
    pub bytes_per_second: Option<f64>,
    pub messages_per_second: Option<f64>,
    /// Packets that were retransmitted meanwhile.
    pub retransmitted: Option<u64>,
    /// `None` also for an empty WRITE, whose arrival nobody can see.
    pub latency_us: Option<Percentiles>,
}

#[derive(Serialize)]
pub struct Report {
    /// The modes that the links of both processes obtained.
    pub modes: [String; 2],
    /// Path MTU in bytes.
    pub mtu: usize,
    /// How long each measurement took.
    pub seconds: f64,
    pub points: Vec<Point>,
}

impl Report {
    pub fn print(&self) {
        say!("{QUIET}{}\n{}\npath MTU {}{QUIET:#}\n", self.modes[0], self.modes[1], self.mtu);
        output::write(format_args!("{}", self.table()));
        say!("{QUIET}Latency: half of a round trip for SEND and WRITE, a whole one for READ.{QUIET:#}");
    }

    fn table(&self) -> Table {
        let titles = ["operation", "size", "bandwidth", "messages", "resent", "50 %", "99 %", "99.9 %"];
        let mut table = Table::new(1, &titles).group(5, "latency");
        for point in &self.points {
            let or_dash = |figure: Option<String>| figure.unwrap_or_else(|| "–".into());
            let micros = |of: fn(&Percentiles) -> f64| {
                let nanos = point.latency_us.as_ref().map(|latency| (of(latency) * 1e3) as u64);
                or_dash(nanos.map(|nanos| units::duration(Duration::from_nanos(nanos))))
            };
            table.row(vec![
                point.operation.name().into(),
                units::size(point.size as u64),
                or_dash(point.bytes_per_second.map(units::bandwidth)),
                or_dash(point.messages_per_second.map(units::rate)),
                or_dash(point.retransmitted.map(|packets| packets.to_string())),
                micros(|latency| latency.p50),
                micros(|latency| latency.p99),
                micros(|latency| latency.p99_9),
            ]);
        }
        table
    }
}
