//! The passes of the demo. Each checks everything once with one pair of NICs, and measures with another.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::client::{Connection, Pace};
use super::plan::{self, Row};
use super::report::Figures;
use super::step::Step;
use crate::failure::{Doing, Result};
use crate::output::say;
use crate::pair::Peer;
use crate::progress::Progress;
use crate::table::GOOD;

/// The largest path MTU.
const MAX_MTU: usize = 4096;

/// What the passes share.
pub struct Passes<'a> {
    peer: &'a mut Peer,
    devices: &'a [String; 2],
    seed: u64,
    pub moved: Moved,
}

/// What was moved and checked.
#[derive(Clone, Copy, Default)]
pub struct Moved {
    pub messages: u64,
    pub bytes: u64,
}

impl<'a> Passes<'a> {
    pub fn new(peer: &'a mut Peer, devices: &'a [String; 2], seed: u64) -> Passes<'a> {
        Passes { peer, devices, seed, moved: Moved::default() }
    }

    /// One pass: first everything once, captured to `pcap`, which a pass with faults continues. Then the rows of the
    /// table, for `time`, without a capture.
    pub fn run(
        &mut self,
        fault: Option<&str>,
        pcap: Option<&Path>,
        time: Duration,
    ) -> Result<Vec<(Row, Figures)>> {
        match (fault, pcap) {
            (Some(fault), Some(pcap)) => {
                say!("Pass 2: faults at both NICs, {fault}");
                let part = part_of(pcap);
                let checked = self.check(Some(fault), Some(&part));
                // Even if the pass failed: the packets show why.
                append(&part, pcap).doing(|| format!("cannot write {}", pcap.display()))?;
                checked?;
            }
            (Some(fault), None) => {
                say!("Pass 2: faults at both NICs, {fault}");
                self.check(Some(fault), None)?;
            }
            (None, pcap) => self.check(None, pcap)?,
        }
        self.measure(fault, time)
    }

    /// Every operation at every size.
    fn check(&mut self, fault: Option<&str>, pcap: Option<&Path>) -> Result {
        let pcap = pcap.map(|path| path.to_string_lossy().into_owned());
        let (memory, server) = (plan::memory(MAX_MTU), self.peer.id());
        let mut connection = Connection::open(self.peer, self.devices, fault, pcap.as_deref(), memory)?;
        if fault.is_none() {
            say!("  client, process {:>7}: {}", std::process::id(), connection.mode());
            say!("  server, process {server:>7}: {}", connection.server_mode);
            say!("Pass 1: no faults");
        }
        let mtu = connection.mtu();
        let (apart, rows): (Vec<_>, Vec<_>) =
            plan::checks(mtu).into_iter().partition(|row| plan::misleads_tshark(row, mtu));
        let mut progress = Progress::new(rows.len() + apart.len());
        check_rows(&mut connection, &rows, self.seed, &mut self.moved, &mut progress)?;
        connection.close()?;
        let mut connection = Connection::open(self.peer, self.devices, fault, None, memory)?;
        check_rows(&mut connection, &apart, self.seed, &mut self.moved, &mut progress)?;
        drop(progress);
        say!("  {} operations and sizes: {GOOD}correct at both ends{GOOD:#}", rows.len() + apart.len());
        connection.close()
    }

    fn measure(&mut self, fault: Option<&str>, time: Duration) -> Result<Vec<(Row, Figures)>> {
        let mut connection = Connection::open(self.peer, self.devices, fault, None, plan::memory(MAX_MTU))?;
        let rows = plan::measured(connection.mtu());
        let budget = time / (2 * rows.len() as u32);
        let mut progress = Progress::new(rows.len());
        let mut measured = Vec::new();
        for row in rows {
            progress.next(&row.together(0).describe());
            let mut figures = Figures::default();
            for pace in [Pace::Together, Pace::OneByOne] {
                let start = Instant::now();
                let mut seed = self.seed;
                while start.elapsed() < budget || seed == self.seed {
                    let step = match pace {
                        Pace::Together => row.together(seed),
                        Pace::OneByOne => row.one_by_one(seed),
                    };
                    let taken = connection.run(&step, pace)?;
                    self.moved.add(&step);
                    figures.add(&step, pace, taken);
                    seed = seed.wrapping_add(1);
                }
            }
            measured.push((row, figures));
        }
        drop(progress);
        connection.close()?;
        Ok(measured)
    }
}

fn check_rows(
    connection: &mut Connection<'_>,
    rows: &[Row],
    seed: u64,
    moved: &mut Moved,
    progress: &mut Progress,
) -> Result {
    for row in rows {
        let step = row.few(seed);
        progress.next(&step.describe());
        connection.run(&step, Pace::Together)?;
        moved.add(&step);
    }
    Ok(())
}

impl Moved {
    fn add(&mut self, step: &Step) {
        self.messages += step.count as u64;
        self.bytes += (step.count * step.size) as u64;
    }
}

/// Where the packets of the second pass are stored until they are appended to those of the first.
fn part_of(pcap: &Path) -> PathBuf {
    let mut name = pcap.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    pcap.with_file_name(name)
}

/// Files of the pcapng format may follow each other in one file, as sections.
fn append(part: &Path, whole: &Path) -> std::io::Result<()> {
    if !part.exists() {
        return Ok(());
    }
    let mut file = std::fs::OpenOptions::new().append(true).open(whole)?;
    std::io::copy(&mut std::fs::File::open(part)?, &mut file)?;
    std::fs::remove_file(part)
}
