//! Answers requests, one a line, as the page's WebAssembly does: to compare with it.

use std::io::{BufRead, stdin};

fn main() -> std::io::Result<()> {
    let mut session = softrnic_playground::Session::default();
    for line in stdin().lock().lines() {
        println!("{}", session.call(line?.as_bytes()));
    }
    Ok(())
}
