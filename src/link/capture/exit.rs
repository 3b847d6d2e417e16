//! Finishing captures when the process exits.

use std::path::Path;
use std::sync::{Arc, Mutex, Once, Weak};
use std::time::Duration;

use super::queue::Queue;

/// How long finishing a capture may delay the exit of a process without anything being written.
pub(super) const FINISH_TIMEOUT: Duration = Duration::from_secs(2);

/// Finishes the file of `queue` when the process exits without dropping its links, as C programs do. `name` is what to
/// call it.
pub(super) fn finish_at_exit(name: &Path, queue: &Arc<Queue>) {
    static REGISTER: Once = Once::new();
    REGISTER.call_once(|| {
        // SAFETY: a function that does not unwind, in a program or library that is never unloaded. (Should registration
        // fail, files end without statistics, as after a crash.)
        unsafe { libc::atexit(finish_all) };
    });
    let mut open = OPEN.lock().unwrap_or_else(|e| e.into_inner());
    open.retain(|(_, queue)| queue.strong_count() > 0);
    let late =
        format!("softrnic: {}: the last packets are missing: writing them took too long\n", name.display());
    open.push((late, Arc::downgrade(queue)));
}

/// The captures that are open, and what to say of each that does not end.
static OPEN: Mutex<Vec<(String, Weak<Queue>)>> = Mutex::new(Vec::new());

extern "C" fn finish_all() {
    // If another thread holds the lock now, it will never release it.
    let Ok(open) = OPEN.try_lock() else { return };
    for (late, queue) in open.iter() {
        let Some(queue) = queue.upgrade().filter(|queue| queue.is_ours()) else { continue };
        if !queue.finish(FINISH_TIMEOUT) {
            // Not by the library: this may be a signal handler that has interrupted a use of it.
            let _ = rustix::io::write(rustix::stdio::stderr(), late.as_bytes());
        }
    }
}
