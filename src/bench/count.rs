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
    let transfer: &dyn Fn(&mut Duo, usize) = match operation.as_str() {
        "write" => &|duo, count| duo.transfer(Work::Write(size), count),
        "send" => &|duo, count| duo.transfer(Work::Send(size), count),
        "read" => &|duo, count| duo.transfer(Work::Read(size), count),
        "ping" => &|duo, count| duo.ping(size, count),
        _ => return usage(),
    };
    let mut duo = Duo::new();
    transfer(&mut duo, warm);
    let before = duo.packets();
    counted(&mut duo, transfer, count);
    println!("{}", duo.packets() - before);
    ExitCode::SUCCESS
}

/// Callgrind counts inside of this function only.
#[inline(never)]
fn counted(duo: &mut Duo, transfer: &dyn Fn(&mut Duo, usize), count: usize) {
    transfer(duo, count);
}

fn usage() -> ExitCode {
    eprintln!(
        "usage: softrnic-count write|send|read|ping SIZE WARM-UP COUNT    prints how many packets COUNT took"
    );
    ExitCode::from(2)
}
