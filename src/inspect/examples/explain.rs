//! Explains a capture: `explain FILE`.

use std::error::Error;
use std::fs::File;
use std::io;

use softrnic_inspect::capture::Reader;
use softrnic_inspect::explain::{Limits, TextOptions, explain, write_text};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: explain FILE")?;
    let mut reader = Reader::new(File::open(path)?)?;
    let report = explain(&mut reader, Limits::default(), |_| {});
    write_text(&report, TextOptions::default(), &mut io::stdout().lock())?;
    Ok(())
}
