//! `softrnic run --report`: what went wrong, when the program ends.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use softrnic_diagnosis::Diagnosis;
use softrnic_nic::device::Process;
use softrnic_stats::{FailedQp, Report, UnpolledCq, is_drop};
use softrnic_sys::Uncancelled;
use softrnic_sys::environment::path;

use crate::cq::CqObject;
use crate::registry::registry;

/// Failures that are told one by one, and queues.
const MOST: usize = 64;

/// Whether there will be a report.
static ON: AtomicBool = AtomicBool::new(false);
/// Where it goes: a file, or standard error.
static TO: OnceLock<Option<PathBuf>> = OnceLock::new();
/// The process that it is of. Children have none.
static OF: OnceLock<Process> = OnceLock::new();
static SO_FAR: Mutex<Option<Report>> = Mutex::new(None);

/// Whether there will be a report.
pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Begins, if the environment says so: `SOFTRNIC_REPORT` is a file, or `-`.
pub(crate) fn start() {
    let Some(to) = path("SOFTRNIC_REPORT").filter(|_| !is_on()) else { return };
    let _ = OF.set(Process::current());
    let _ = TO.set((to.as_os_str() != "-").then(|| crate::check::named(to)));
    ON.store(true, Ordering::Relaxed);
}

/// A QP has failed. Called by the thread that drives the NIC, which holds it.
pub(crate) fn failed(diagnosis: &Diagnosis) {
    let mut so_far = SO_FAR.lock().unwrap_or_else(PoisonError::into_inner);
    let report = so_far.get_or_insert_default();
    report.failures += 1;
    if report.failed_qps.len() < MOST {
        report.failed_qps.push(FailedQp {
            qpn: diagnosis.failure.qp.qpn.get(),
            vendor_err: diagnosis.code().get().into(),
            why: diagnosis.to_string(),
        });
    }
}

/// A CQ is destroyed.
pub(crate) fn destroys(cq: &CqObject) {
    if is_on()
        && let Some(unpolled) = unpolled(cq)
    {
        add(SO_FAR.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default(), unpolled);
    }
}

fn add(report: &mut Report, unpolled: UnpolledCq) {
    report.never_polled += 1;
    if report.unpolled.len() < MOST {
        report.unpolled.push(unpolled);
    }
}

fn unpolled(cq: &CqObject) -> Option<UnpolledCq> {
    let completions = cq.nic.waiting();
    (completions > 0 && !cq.nic.was_polled()).then(|| UnpolledCq { entries: cq.nic.depth(), completions })
}

fn finish() -> Report {
    let mut report = SO_FAR.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default();
    report.pid = std::process::id();
    report.program = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let kept: Vec<_> = registry().kept.values().cloned().collect();
    for context in kept {
        let counted = context.statistics().unwrap_or_default();
        let dropped = counted.into_iter().filter(|(name, count)| *count > 0 && is_drop(name));
        let dropped: std::collections::BTreeMap<_, _> =
            dropped.map(|(name, count)| (name.to_owned(), count)).collect();
        if !dropped.is_empty() {
            report.dropped.insert(context.device().name().to_owned(), dropped);
        }
    }
    let (left, cqs) = registry().objects.left();
    report.left = left;
    // SAFETY: looks a name up among those of the process.
    if !unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"rdma_create_id".as_ptr()) }.is_null() {
        // librdmacm opens each device once, and keeps it.
        report.left.remove("ibv_context");
    }
    for cq in cqs {
        // SAFETY: in the table of live objects as a CQ. The program has ended, and destroys nothing any longer.
        let cq = unsafe { &*std::ptr::with_exposed_provenance::<CqObject>(cq) };
        unpolled(cq).into_iter().for_each(|unpolled| add(&mut report, unpolled));
    }
    report
}

/// The process ends, and its own handlers and destructors have run.
extern "C" fn at_exit() {
    if !is_on() || OF.get() != Some(&Process::current()) {
        return;
    }
    let _uncancelled = Uncancelled::new();
    let report = finish();
    let Some(file) = TO.get().and_then(Option::as_ref) else {
        eprint!("{report}");
        return;
    };
    let text = serde_json::to_string_pretty(&report).unwrap_or_default();
    if let Err(error) = std::fs::write(file, text + "\n") {
        eprintln!("softrnic: cannot write {}: {error}", file.display());
    }
}

/// Runs after the destructors of the program, and of every library that uses this one.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;
