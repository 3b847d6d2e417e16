//! Devices of this process that have changed: the verbs library knows where they are described now.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use super::{Buffer, Stand};

/// Writes the path of the directory that describes the device of a name; returns its length, or 0.
type DirectoryOf = unsafe extern "C" fn(*const u8, usize, *mut u8, usize) -> usize;

static DIRECTORY_OF: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Called by the verbs library (`ibverbs/sysfs.rs`) before it describes its devices.
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn softrnic_interpose_describe_by(directory_of: DirectoryOf) {
    DIRECTORY_OF.store(directory_of as *mut c_void, Ordering::Release);
}

/// The device that a path below the class begins with, and the rest.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    path.split_at(path.iter().take_while(|byte| **byte != b'/').count())
}

/// Writes the directory of the device that `path`, below the class, begins with; returns its length, or 0 if that is
/// the one in the tree.
pub(super) fn length(path: &[u8], buffer: &mut Buffer) -> usize {
    let known = DIRECTORY_OF.load(Ordering::Acquire);
    if known.is_null() {
        return 0;
    }
    let (name, _) = split(path);
    // SAFETY: what was stored is such a function, of a library that stays; the name and the buffer have these sizes.
    unsafe {
        let directory_of = std::mem::transmute::<*mut c_void, DirectoryOf>(known);
        directory_of(name.as_ptr(), name.len(), buffer.0.as_mut_ptr(), buffer.0.len())
    }
}

/// Whether a path is that of a link to a description.
pub(super) fn begins_at(path: &CStr) -> bool {
    let mut text = [0_u8; 64];
    // SAFETY: `path` is a C string, the text has the size given, and both live through the call.
    let length = unsafe {
        libc::syscall(libc::SYS_readlinkat, libc::AT_FDCWD, path.as_ptr(), text.as_mut_ptr(), text.len())
    };
    let text = usize::try_from(length).ok().and_then(|length| text.get(..length)).unwrap_or_default();
    text.windows(DESCRIBED.len()).any(|part| part == DESCRIBED)
}

/// Part of such a link (`nic/sysfs.rs`).
const DESCRIBED: &[u8] = b"/described/";

/// What follows the class in the path of a device below `devices`, as in `virtual/infiniband/NAME/ports`.
pub(super) fn below(path: &[u8]) -> Option<&[u8]> {
    const CLASS: &[u8] = b"/infiniband/";
    let at = path.windows(CLASS.len()).position(|part| part == CLASS)?;
    path.get(at + CLASS.len()..)
}

/// What stands for `path`, below the class, if it is not in the tree.
pub(super) fn stand<'a>(path: &[u8], buffer: &'a mut Buffer) -> Option<Stand<'a>> {
    let length = length(path, buffer);
    let (_, rest) = split(path);
    if length == 0 {
        return None;
    }
    buffer.append(length, &[rest]).map(Stand::File)
}
