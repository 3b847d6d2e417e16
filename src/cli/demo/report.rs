//! The table at the end.

use std::time::Duration;

use super::client::{Pace, Taken};
use super::plan::Row;
use super::step::Step;
use crate::table::Table;
use crate::units;

/// What was measured of one row in one pass.
#[derive(Default)]
pub struct Figures {
    bytes: u64,
    elapsed: Duration,
    latencies: Vec<Duration>,
    retransmitted: u64,
}

impl Figures {
    pub fn add(&mut self, step: &Step, pace: Pace, taken: Taken) {
        self.retransmitted += taken.retransmitted;
        match pace {
            Pace::Together => {
                self.bytes += (step.count * step.size) as u64;
                self.elapsed += taken.elapsed;
            }
            Pace::OneByOne => self.latencies.extend(taken.latencies),
        }
    }

    fn bandwidth(&self) -> f64 {
        self.bytes as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    fn median(&self) -> Duration {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied().unwrap_or_default()
    }

    fn cells(&self) -> [String; 3] {
        [units::bandwidth(self.bandwidth()), units::duration(self.median()), self.retransmitted.to_string()]
    }
}

/// Passes side by side; they have the same rows.
pub fn table(passes: &[Vec<(Row, Figures)>]) -> Table {
    let titles = ["operation", "size", "bandwidth", "latency", "resent", "  bandwidth", "latency", "resent"];
    let mut table = Table::new(1, &titles).group(2, "undisturbed").group(5, "  with faults");
    let [first, second] = passes else { return table };
    for ((row, calm), (_, disturbed)) in first.iter().zip(second) {
        let size = match row.pieces {
            1 => units::size(row.size as u64),
            pieces => format!("{} in {pieces} SGEs", units::size(row.size as u64)),
        };
        let mut cells = vec![row.operation.name().to_owned(), size];
        cells.extend(calm.cells());
        cells.extend(disturbed.cells());
        table.row(cells);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::step::Operation;

    #[test]
    fn the_table_has_a_row_for_each_measurement() {
        let row = Row { operation: Operation::Write, size: 65536, pieces: 1 };
        let figures = || Figures {
            bytes: 2_000_000_000,
            elapsed: Duration::from_secs(1),
            latencies: [5, 100, 7].map(Duration::from_micros).to_vec(),
            retransmitted: 3,
        };
        let text = table(&[vec![(row, figures())], vec![(row, figures())]]).to_string();
        let last = text.lines().last().expect("a row");
        assert!(last.starts_with("RDMA WRITE"), "{text}");
        assert!(last.contains("64 KiB") && last.contains("2.00 GB/s") && last.contains("7.00 µs"), "{text}");
    }
}
