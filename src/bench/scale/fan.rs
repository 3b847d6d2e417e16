//! Many QPs, or many senders.

use std::time::{Duration, Instant};

use clap::Args;
use softrnic_nic::verbs::WorkRequest;

use super::end::End;
use crate::options::{Timing, size};
use crate::process::{Child, Line, Result, cpu_time, limit_time};
use crate::stats::Stream;

/// RDMA WRITEs from one or several processes to one, each over one or several QPs
#[derive(Args)]
pub struct FanArgs {
    #[command(flatten)]
    timing: Timing,
    /// Sending processes
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    senders: u8,
    /// QPs of each sender, all of which are kept busy
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16384))]
    qps: u16,
    /// Bytes of a message
    #[arg(long, default_value = "65536", value_parser = size)]
    size: usize,
    /// The device of each process
    #[arg(long, default_value = "udp?rcvbuf=212992")]
    device: String,
}

/// WRITEs that a sender has outstanding, at least one on each QP.
const OUTSTANDING: usize = 64;
/// Completions of one poll.
const DONE: usize = 32;

pub fn run(args: &FanArgs) -> Result<Stream> {
    limit_time();
    let qps = usize::from(args.qps);
    let senders = (0..args.senders).map(|_| Child::fork(None, |line| send(args, line)));
    let mut senders = senders.collect::<Result<Vec<Child>>>()?;
    let cpu = cpu_time();
    let mut end = End::open(&args.device, args.size, 16, 1)?;
    for sender in &mut senders {
        end.add_qps(qps)?;
        end.connect(qps, &mut sender.line)?;
    }
    let start = Instant::now();
    for sender in &mut senders {
        sender.line.say(&[1])?;
    }
    let (mut messages, mut others) = (0, 0);
    for sender in &mut senders {
        let [sent, cpu] = sender.line.hear()?;
        messages += sent;
        others += cpu;
    }
    let elapsed = start.elapsed();
    let cpu = cpu_time() - cpu + Duration::from_nanos(others);
    for mut sender in senders {
        sender.line.stop()?;
        sender.finish()?;
    }
    Ok(Stream::new(messages, messages * args.size as u64, elapsed, cpu))
}

fn send(args: &FanArgs, mut line: Line) -> Result<()> {
    let qps = usize::from(args.qps);
    let each = (OUTSTANDING / qps).max(1);
    let mut end = End::open(&args.device, args.size, each, each * qps)?;
    end.add_qps(qps)?;
    end.connect(qps, &mut line)?;
    let (va, rkey) = end.remote;
    let post = |qp: usize| {
        let request = WorkRequest::write(va, rkey).sge(end.memory.sge(0, args.size)).id(qp as u64);
        end.qps[qp].post(request)
    };
    line.hear::<1>()?;
    let (time, cpu, start) = (args.timing.duration(), cpu_time(), Instant::now());
    for qp in (0..qps).flat_map(|qp| std::iter::repeat_n(qp, each)) {
        post(qp)?;
    }
    let (mut outstanding, mut messages) = (each * qps, 0_u64);
    while outstanding > 0 {
        let over = start.elapsed() >= time;
        let mut done = [0; DONE];
        let mut numbers = done.iter_mut();
        let found = end.poll(DONE, |qp| numbers.next().into_iter().for_each(|place| *place = qp as usize))?;
        messages += found as u64;
        outstanding -= found;
        if !over {
            for &qp in &done[..found] {
                post(qp)?;
                outstanding += 1;
            }
        }
    }
    line.say(&[messages, (cpu_time() - cpu).as_nanos() as u64])?;
    // The NIC stays until everyone is done.
    line.hear::<1>()?;
    Ok(())
}
