//! `softrnic-count`: a fixed transfer between two NICs on one thread, to count its instructions.
//!
//! Everything that is random is always the same, so two runs of one program differ only by what was changed in it.
//! `tools/count-instructions` runs it under callgrind.

use std::process::ExitCode;

use softrnic_bench::{Duo, Work};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [operation, size, warm, count] = arguments.as_slice() else { return usage() };
    let (Ok(size), Ok(warm), Ok(count)) = (size.parse(), warm.parse(), count.parse()) else { return usage() };
    let work = match operation.as_str() {
        "write" => Work::Write(size),
        "send" => Work::Send(size),
        "read" => Work::Read(size),
        _ => return usage(),
    };
    let mut duo = Duo::new();
    duo.transfer(work, warm);
    let before = duo.packets();
    counted(&mut duo, work, count);
    println!("{}", duo.packets() - before);
    ExitCode::SUCCESS
}

/// Callgrind counts inside of this function only.
#[inline(never)]
fn counted(duo: &mut Duo, work: Work, count: usize) {
    duo.transfer(work, count);
}

fn usage() -> ExitCode {
    eprintln!(
        "usage: softrnic-count write|send|read SIZE WARM-UP COUNT    prints how many packets COUNT took"
    );
    ExitCode::from(2)
}
