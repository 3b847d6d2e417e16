//! The files that programs expect in `/sys`, under a directory of our own.
//!
//! `SOFTRNIC_SYSFS` names that directory; libibverbs describes its devices there, and the preloaded interposer
//! redirects programs there that read `/sys/class/infiniband` themselves. Without the variable there is no tree.

use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use softrnic_nic::verbs::DeviceSpec;
use softrnic_sys::environment;

use crate::device::devices;
use crate::errno::Errno;
use crate::ffi_boundary::{OrMinusOne, Outcome, call, guard};

/// The root of our files, if there is one.
pub(crate) fn root() -> Option<PathBuf> {
    environment::path("SOFTRNIC_SYSFS")
}

/// Describes the devices of this process, once.
pub(crate) fn describe_all() {
    static DONE: OnceLock<()> = OnceLock::new();
    let Some(root) = root() else { return };
    DONE.get_or_init(|| {
        let specs: Vec<DeviceSpec> = devices().iter().map(|device| device.spec.clone()).collect();
        if let Err(error) = softrnic_nic::sysfs::describe(&root, &specs) {
            tracing::warn!(%error, root = %root.display(), "cannot describe the devices for sysfs readers");
        }
    });
}

/// A path for C that lives for ever.
pub(crate) struct StaticPath(CString);

impl Outcome for &'static StaticPath {
    type C = *const c_char;
    fn into_c(result: Result<Self, Errno>) -> *const c_char {
        result.map_or(std::ptr::null(), |path| path.0.as_ptr())
    }
}

/// The directory that contains `class/infiniband`: our tree, or the same answer as rdma-core's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    guard::<&'static StaticPath>(call!(ibv_get_sysfs_path), move || {
        static PATH: OnceLock<StaticPath> = OnceLock::new();
        Ok(PATH.get_or_init(|| {
            describe_all();
            let path = root().or_else(|| environment::path("SYSFS_PATH"));
            let path = path.unwrap_or_else(|| "/sys".into());
            StaticPath(CString::new(path.as_os_str().as_bytes()).unwrap_or_else(|_| c"/sys".to_owned()))
        }))
    })
}

/// Reads `dir/file` into a buffer, without the newline at its end. Returns the length, or -1.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_read_sysfs_file(
    dir: *const c_char,
    file: *const c_char,
    buf: *mut c_char,
    size: usize,
) -> c_int {
    guard::<OrMinusOne>(call!(ibv_read_sysfs_file, dir, file, buf, size), move || {
        if dir.is_null() || file.is_null() || buf.is_null() || size == 0 {
            return Err(Errno::invalid("dir, file or buf is null, or size is 0"));
        }
        // SAFETY: not null, so C strings that the application keeps for the call.
        let (dir, file) = unsafe { (CStr::from_ptr(dir), CStr::from_ptr(file)) };
        let file = file.to_bytes();
        let file = OsStr::from_bytes(file.strip_prefix(b"/").unwrap_or(file));
        let path = Path::new(OsStr::from_bytes(dir.to_bytes())).join(file);
        let mut text = Vec::new();
        std::fs::File::open(path)?.take(size as u64).read_to_end(&mut text)?;
        if text.last() == Some(&b'\n') {
            text.pop();
        }
        // SAFETY: `buf` has room for `size` bytes, and no more than that were read.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), buf, text.len()) };
        if text.len() < size {
            // SAFETY: within the `size` bytes that the application has there (`ibv_read_sysfs_file`).
            unsafe { *buf.add(text.len()) = 0 };
        }
        Ok(OrMinusOne(text.len() as i32))
    })
}

#[cfg(test)]
mod tests;
