//! What a NIC costs that does nothing.

use clap::Args;
use serde::Serialize;
use softrnic_nic::verbs::WorkRequest;

use super::end::End;
use crate::options::Timing;
use crate::process::{Child, Line, Result, cpu_time, limit_time};

/// Processor time of two processes with an open device and connected QPs that nobody uses
#[derive(Args)]
pub struct IdleArgs {
    #[command(flatten)]
    timing: Timing,
    /// QPs in each process
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    qps: u16,
    /// The device of each process
    #[arg(long, default_value = "udp")]
    device: String,
}

/// Share of one processor, 0 to 1.
#[derive(Serialize)]
pub struct Idle {
    /// Of the process that sent something before.
    sender: f64,
    /// Of the process that was written to.
    receiver: f64,
}

pub fn run(args: &IdleArgs) -> Result<Idle> {
    limit_time();
    let mut child = Child::fork(None, |line| rest(args, line))?;
    let mut end = End::open(&args.device, 4096, 16, 16)?;
    end.add_qps(args.qps.into())?;
    end.connect(args.qps.into(), &mut child.line)?;
    // Used once, so that what follows work is seen too.
    let (va, rkey) = end.remote;
    for qp in &end.qps {
        qp.post(WorkRequest::write(va, rkey).sge(end.memory.sge(0, 4096)))?;
        while end.poll(1, drop)? == 0 {}
    }
    child.line.say(&[1])?;
    let sender = idle(args);
    let [receiver] = child.line.hear()?;
    child.line.stop()?;
    child.finish()?;
    Ok(Idle { sender, receiver: f64::from_bits(receiver) })
}

fn rest(args: &IdleArgs, mut line: Line) -> Result<()> {
    let mut end = End::open(&args.device, 4096, 16, 16)?;
    end.add_qps(args.qps.into())?;
    end.connect(args.qps.into(), &mut line)?;
    line.hear::<1>()?;
    let share = idle(args);
    line.say(&[share.to_bits()])?;
    line.hear::<1>()?;
    Ok(())
}

fn idle(args: &IdleArgs) -> f64 {
    let time = args.timing.duration();
    let before = cpu_time();
    std::thread::sleep(time);
    (cpu_time() - before).as_secs_f64() / time.as_secs_f64()
}
