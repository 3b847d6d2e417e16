//! Prints a capture: `decode FILE [line|fields|json]`.

use std::error::Error;
use std::fs::File;
use std::io::{self, Write};

use softrnic_inspect::capture::Reader;
use softrnic_inspect::decode::{Form, Options, Peers, decode};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: decode FILE [line|fields|json]")?;
    let form = match args.next().as_deref() {
        Some("fields") => Form::Fields,
        Some("json") => Form::Json,
        _ => Form::Line,
    };
    let mut reader = Reader::new(File::open(path)?)?;
    let options = Options { form, threads: 2, ..Options::default() };
    let summary = decode(&mut reader, &mut io::stdout().lock(), &options, &mut Peers::new(), |_| {})?;
    writeln!(io::stderr(), "{summary}")?;
    Ok(())
}
