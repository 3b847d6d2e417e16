//! How long the NIC is held while another thread makes and frees what is large.

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
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

/// What a thread waits at most for a NIC.
#[derive(Serialize)]
pub struct Holds {
    /// While memory is registered, and CQs and QPs are made, changed and freed.
    objects: Waits,
    /// The same on another NIC.
    objects_apart: Waits,
    /// While many regions are made.
    regions: Waits,
    /// The same on another NIC.
    regions_apart: Waits,
    /// The processor time of the one that took longest to be made or ended: what the NIC does in a hold is a part of it,
    /// and no other program is.
    region: Longest,
    /// How often memory was registered on the first NIC.
    rounds: u64,
}

/// How long the longest calls took that need the NIC.
#[derive(Serialize)]
struct Waits {
    /// From their begin to their end.
    call: Longest,
    /// Without the time for which the thread would have run and the kernel had no processor for it: so long, at most, was
    /// the NIC held by others.
    hold: Longest,
}

/// A call that took long, and what it took without waiting for a processor.
#[derive(Clone, Copy, Default)]
struct Wait {
    call: Duration,
    hold: Duration,
}

impl Waits {
    fn new(waits: &[Wait]) -> Option<Waits> {
        let of = |part: fn(&Wait) -> Duration| Longest::new(waits.iter().map(part).collect());
        Some(Waits { call: of(|wait| wait.call)?, hold: of(|wait| wait.hold)? })
    }
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
    let none = "--times is at least 1";
    let waits = |waits: Vec<Wait>| Waits::new(&waits).ok_or(none);
    Ok(Holds {
        objects: waits(objects)?,
        objects_apart: waits(objects_apart)?,
        regions: waits(regions)?,
        regions_apart: waits(regions_apart)?,
        region: Longest::new(region).ok_or(none)?,
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
) -> Result<(Wait, T)> {
    let pd = on.alloc_pd()?;
    let processor = ProcessorWait::of_this_thread()?;
    let over = AtomicBool::new(false);
    let (worst, done) = std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let result = work(&pd, on).map_err(|error| error.to_string());
            over.store(true, Ordering::Release);
            result
        });
        let mut worst = Wait::default();
        while !over.load(Ordering::Acquire) {
            let asked = Instant::now();
            let waited = processor.so_far()?;
            let before = Instant::now();
            let looked = near.gid(0);
            let after = Instant::now();
            black_box(looked).map_err(|error| error.to_string())?;
            let call = after - before;
            worst.call = worst.call.max(call);
            if call > worst.hold {
                let waited = processor.so_far()? - waited;
                // It may have waited while it asked, which is not the call's.
                let outside = before - asked + after.elapsed();
                worst.hold = worst.hold.max(call.saturating_sub(waited.saturating_sub(outside)));
            }
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

/// How long a thread has waited for a processor since it began, as the kernel counts it (proc_pid_schedstat(5)).
struct ProcessorWait(File);

impl ProcessorWait {
    fn of_this_thread() -> Result<ProcessorWait> {
        Ok(ProcessorWait(File::open("/proc/thread-self/schedstat")?))
    }

    fn so_far(&self) -> std::result::Result<Duration, String> {
        let mut text = [0; 64];
        let len = self.0.read_at(&mut text, 0).map_err(|error| error.to_string())?;
        let second = str::from_utf8(&text[..len]).ok().and_then(|text| text.split_ascii_whitespace().nth(1));
        let nanos = second.and_then(|word| word.parse().ok()).ok_or("schedstat has no second number")?;
        Ok(Duration::from_nanos(nanos))
    }
}

/// The processor time of this thread.
fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
