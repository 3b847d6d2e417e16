//! The files that programs expect in `/sys`, under a directory of our own.
//!
//! `SOFTRNIC_SYSFS` names that directory; libibverbs describes its devices there, and the preloaded interposer
//! redirects programs there that read `/sys/class/infiniband` themselves. Without the variable there is no tree.

use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

pub(crate) use softrnic_nic::sysfs::root;
use softrnic_nic::verbs::DeviceSpec;
use softrnic_sys::environment;

use crate::device::devices;
use crate::errno::Errno;
use crate::ffi_boundary::{OrMinusOne, Outcome, call, guard};

/// Describes the devices of this process, once.
pub(crate) fn describe_all() {
    static DONE: OnceLock<()> = OnceLock::new();
    let Some(root) = root() else { return };
    DONE.get_or_init(|| {
        tell_interposer();
        let specs: Vec<DeviceSpec> = devices().iter().map(|device| device.spec.clone()).collect();
        if let Err(error) = softrnic_nic::sysfs::describe(&root, &specs) {
            tracing::warn!(%error, root = %root.display(), "cannot describe the devices for sysfs readers");
        }
    });
}

type DirectoryOf = unsafe extern "C" fn(*const u8, usize, *mut u8, usize) -> usize;

/// Tells the preloaded interposer, if there is one, who knows where the devices of this process are described.
fn tell_interposer() {
    // SAFETY: the name is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"softrnic_interpose_describe_by".as_ptr()) };
    if found.is_null() {
        return;
    }
    // SAFETY: the function of that name has this type (`interpose/rewrite/described.rs`); preloaded libraries stay.
    unsafe {
        std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn(DirectoryOf)>(found)(directory_of)
    };
}

/// Writes the path of the directory that describes a device of this process; returns its length, or 0 if that is the
/// one in the tree. It takes no lock and no memory, since it is called wherever a program opens a file.
///
/// # Safety
/// The name has `length` bytes, and there is room for `size` bytes.
unsafe extern "C" fn directory_of(name: *const u8, length: usize, into: *mut u8, size: usize) -> usize {
    // SAFETY: as the caller promises.
    let (name, into) =
        unsafe { (std::slice::from_raw_parts(name, length), std::slice::from_raw_parts_mut(into, size)) };
    let Some(path) = softrnic_nic::sysfs::directory_of(name) else { return 0 };
    let path = path.as_os_str().as_bytes();
    let Some(room) = into.get_mut(..path.len()) else { return 0 };
    room.copy_from_slice(path);
    path.len()
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
