//! Copying memory, which is what all of this would cost if there were no network.

use std::hint::black_box;
use std::time::{Duration, Instant};

use clap::Args;

use crate::options::{Timing, size};
use crate::process::{Result, cpu_time, limit_time};
use crate::stats::Stream;

/// memcpy between two buffers of one size
#[derive(Args)]
pub struct MemoryArgs {
    #[command(flatten)]
    timing: Timing,
    /// Bytes of a copy
    #[arg(long, default_value = "65536", value_parser = size)]
    size: usize,
}

/// Bytes copied between looks at the clock.
const BATCH: usize = 1 << 20;

pub fn run(args: &MemoryArgs) -> Result<Stream> {
    limit_time();
    let from = vec![1_u8; args.size];
    let mut to = vec![0_u8; args.size];
    let batch = BATCH.div_ceil(args.size) as u64;
    let (cpu, start) = (cpu_time(), Instant::now());
    let mut copies = 0;
    let elapsed: Duration = loop {
        for _ in 0..batch {
            black_box(&mut to).copy_from_slice(black_box(&from));
        }
        copies += batch;
        let elapsed = start.elapsed();
        if elapsed >= args.timing.duration() {
            break elapsed;
        }
    };
    Ok(Stream::new(copies, copies * args.size as u64, elapsed, cpu_time() - cpu))
}
