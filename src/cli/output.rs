//! Standard output. Colours are removed if it is not a terminal.

use std::fmt;
use std::io::{ErrorKind, Write};

/// Prints a line.
macro_rules! say {
    ($($text:tt)*) => { $crate::output::write(format_args!("{}\n", format_args!($($text)*))) };
}
pub(crate) use say;

/// Prints text unchanged.
pub fn write(text: fmt::Arguments<'_>) {
    let mut stdout = anstream::stdout();
    end_unless(stdout.write_fmt(text).and_then(|()| stdout.flush()));
}

/// Prints bytes unchanged.
pub fn write_bytes(bytes: &[u8]) {
    let mut stdout = std::io::stdout();
    end_unless(stdout.write_all(bytes).and_then(|()| stdout.flush()));
}

/// If the reader has closed the pipe, this process ends silently; any other failure to write is an error.
fn end_unless(written: std::io::Result<()>) {
    match written {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(141),
        Err(error) => {
            anstream::eprintln!("softrnic: error: cannot write the output: {error}");
            std::process::exit(1)
        }
    }
}
