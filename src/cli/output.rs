//! Standard output. Colours are taken away where it is no terminal.

use std::fmt;
use std::io::{ErrorKind, Write};

/// Prints a line.
macro_rules! say {
    ($($text:tt)*) => { $crate::output::write(format_args!("{}\n", format_args!($($text)*))) };
}
pub(crate) use say;

/// Prints text as it is.
pub fn write(text: fmt::Arguments<'_>) {
    let mut stdout = anstream::stdout();
    end_unless(stdout.write_fmt(text).and_then(|()| stdout.flush()));
}

/// Prints bytes as they are.
pub fn write_bytes(bytes: &[u8]) {
    let mut stdout = std::io::stdout();
    end_unless(stdout.write_all(bytes).and_then(|()| stdout.flush()));
}

/// A reader who has seen enough ends this process without a word; anything else that keeps the output from arriving
/// is an error.
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
