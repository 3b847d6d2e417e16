//! How long the NIC is held while another thread makes and frees what is large.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use softrnic_nic::verbs::{Access, Context, DeviceSpec, Pd, QpOptions};

use crate::options::Timing;
use crate::process::{Result, limit_time};

/// The longest that a thread waits for a NIC while another makes and frees large things on it
#[derive(Args)]
pub struct HoldsArgs {
    #[command(flatten)]
    timing: Timing,
    /// Bytes that are registered
    #[arg(long, default_value_t = 512 << 20)]
    bytes: usize,
    /// Places of the queues that are made
    #[arg(long, default_value_t = 1 << 16)]
    depth: usize,
    /// Regions that are made one after the other, while tables grow
    #[arg(long, default_value_t = 1 << 18)]
    regions: usize,
    /// How often all of that is done in the seconds, and the regions are made
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..))]
    times: u32,
    /// The device
    #[arg(long, default_value = "udp")]
    device: String,
}

/// What a thread waits at most for a NIC. It also waits where the machine gives its processor to others: so much it waits
/// when the work is on a NIC of its own.
#[derive(Serialize)]
pub struct Holds {
    /// While memory is registered, and CQs and QPs are made, changed and freed.
    objects: Longest,
    /// The same on another NIC.
    objects_apart: Longest,
    /// While many regions are made.
    regions: Longest,
    /// The same on another NIC.
    regions_apart: Longest,
    /// The processor time of the one that took longest to be made or ended: what the NIC does in a hold is a part of it,
    /// and no other program is.
    region: Longest,
    /// How often memory was registered on the first NIC.
    rounds: u64,
}

/// The longest of each time, in microseconds.
#[derive(Serialize)]
struct Longest {
    least: f64,
    median: f64,
    most: f64,
}

impl Longest {
    fn new(mut waits: Vec<Duration>) -> Option<Longest> {
        waits.sort_unstable();
        let (least, median, most) = (waits.first()?, waits.get(waits.len() / 2)?, waits.last()?);
        Some(Longest { least: micros(*least), median: micros(*median), most: micros(*most) })
    }
}

pub fn run(args: &HoldsArgs) -> Result<Holds> {
    limit_time();
    let open = |name: &str| -> Result<Context> {
        Ok(Context::open(&DeviceSpec { name: name.into(), ..args.device.parse()? })?)
    };
    let (near, apart) = (open("near")?, open("apart")?);
    let rounds = AtomicU64::new(0);
    let mut region = Vec::new();
    let (mut objects, mut objects_apart) = (Vec::new(), Vec::new());
    let (mut regions, mut regions_apart) = (Vec::new(), Vec::new());
    for _ in 0..args.times {
        for (on, objects, regions) in
            [(&near, &mut objects, &mut regions), (&apart, &mut objects_apart, &mut regions_apart)]
        {
            let (wait, ()) = wait_beside(&near, on, |pd, on| make_objects(args, pd, on, &rounds))?;
            objects.push(wait);
            let (wait, longest) = wait_beside(&near, on, |pd, _| make_regions(args, pd))?;
            regions.push(wait);
            region.push(longest);
        }
    }
    let waits = |waits| Longest::new(waits).ok_or("--times is at least 1");
    Ok(Holds {
        objects: waits(objects)?,
        objects_apart: waits(objects_apart)?,
        regions: waits(regions)?,
        regions_apart: waits(regions_apart)?,
        region: waits(region)?,
        rounds: rounds.into_inner(),
    })
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// The longest that a call that takes the NIC `near` takes while another thread does `work` on the NIC `on`, and what comes
/// of that.
fn wait_beside<T: Send>(
    near: &Context,
    on: &Context,
    work: impl FnOnce(&Arc<Pd>, &Context) -> Result<T> + Send,
) -> Result<(Duration, T)> {
    let pd = on.alloc_pd()?;
    let over = AtomicBool::new(false);
    let (worst, done) = std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let result = work(&pd, on).map_err(|error| error.to_string());
            over.store(true, Ordering::Release);
            result
        });
        let mut worst = Duration::ZERO;
        while !over.load(Ordering::Acquire) {
            let before = Instant::now();
            let looked = near.gid(0);
            worst = worst.max(before.elapsed());
            black_box(looked).map_err(|error| error.to_string())?;
        }
        let done = worker.join().map_err(|_| "the worker panicked".to_owned())??;
        Ok::<_, String>((worst, done))
    })?;
    Ok((worst, done))
}

fn make_objects(args: &HoldsArgs, pd: &Arc<Pd>, on: &Context, rounds: &AtomicU64) -> Result<()> {
    let until = Instant::now() + args.timing.duration() / args.times;
    while Instant::now() < until {
        drop(pd.register(vec![0; args.bytes], Access::LOCAL_WRITE)?);
        let cq = on.create_cq(args.depth, None)?;
        cq.resize(2 * args.depth)?;
        let options = QpOptions { max_send_wr: args.depth, max_recv_wr: args.depth, ..QpOptions::default() };
        drop(pd.create_rc_qp(&cq, &cq, options)?);
        rounds.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Returns the longest processor time that one took.
fn make_regions(args: &HoldsArgs, pd: &Arc<Pd>) -> Result<Duration> {
    let mut worst = Duration::ZERO;
    let mut timed = |before: Duration| worst = worst.max(thread_time().saturating_sub(before));
    let mut made = Vec::with_capacity(args.regions);
    for _ in 0..args.regions {
        let before = thread_time();
        let region = pd.alloc_null_mr()?;
        timed(before);
        made.push(region);
    }
    for region in made {
        let before = thread_time();
        drop(region);
        timed(before);
    }
    Ok(worst)
}

/// The processor time of this thread.
fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
