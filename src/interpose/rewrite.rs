//! Decides which path replaces a path.

use std::ffi::{CStr, c_char, c_int};

const VERBS_CLASS: &[u8] = b"/class/infiniband_verbs/";
const MISC_CLASS: &[u8] = b"/class/misc/";
const CONNECTION_MANAGER: &[u8] = b"rdma_cm";

/// Buffer for a rewritten path, zero-terminated.
pub struct Buffer([u8; libc::PATH_MAX as usize]);

impl Buffer {
    pub const fn new() -> Buffer {
        Buffer([0; libc::PATH_MAX as usize])
    }

    /// Joins parts to a C string; `None` if they do not fit.
    fn join(&mut self, parts: &[&[u8]]) -> Option<&CStr> {
        let mut end = 0;
        for part in parts {
            self.0.get_mut(end..end + part.len())?.copy_from_slice(part);
            end += part.len();
        }
        *self.0.get_mut(end)? = 0;
        CStr::from_bytes_until_nul(&self.0).ok()
    }
}

/// What replaces a path.
pub enum Stand<'a> {
    /// Nothing, in nearly all cases.
    Itself,
    /// Another path.
    Path(&'a CStr),
    /// The connection manager, which can be opened; to all other calls it is a device that every user may open.
    ConnectionManager,
}

impl Stand<'_> {
    /// The path to use instead of `path`.
    pub fn path(&self, path: *const c_char) -> *const c_char {
        match self {
            Stand::Itself => path,
            Stand::Path(other) => other.as_ptr(),
            Stand::ConnectionManager => ANY_DEVICE.as_ptr(),
        }
    }
}

const ANY_DEVICE: &CStr = c"/dev/null";

/// What replaces `path`, which is relative to the directory `base`.
///
/// # Safety
/// `path` is null or a C string.
pub unsafe fn rewrite(base: c_int, path: *const c_char, buffer: &mut Buffer) -> Stand<'_> {
    if path.is_null() {
        return Stand::Itself;
    }
    // SAFETY: not null, so a C string, as the caller promises.
    let text = unsafe { CStr::from_ptr(path) }.to_bytes();
    let mut absolute = Buffer::new();
    let text = match text.first() {
        Some(b'/') => text,
        _ => match absolute.resolve(base, text) {
            Some(resolved) => resolved,
            None => return Stand::Itself,
        },
    };
    let Some(target) = target(text) else { return Stand::Itself };
    // A program with more privileges than the user that started it does not trust the environment (as in
    // `softrnic_nic::environment`). SAFETY: reads a number that the process was given when it started; takes no
    // pointers.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return Stand::Itself;
    }
    // SAFETY: the name is a C string. As everywhere in C, the program must not change its environment at the same time.
    let root = unsafe { libc::getenv(c"SOFTRNIC_SYSFS".as_ptr()) };
    if root.is_null() {
        return Stand::Itself;
    }
    // SAFETY: not null, so a C string of the environment, which stays as long as the program leaves it unchanged.
    let root = unsafe { CStr::from_ptr(root) }.to_bytes();
    if root.is_empty() {
        return Stand::Itself;
    }
    match target {
        Target::Sysfs(rest) => buffer.join(&[root, rest]).map_or(Stand::Itself, Stand::Path),
        Target::Device(CONNECTION_MANAGER) => match buffer.join(&[root, MISC_CLASS, CONNECTION_MANAGER]) {
            Some(entry) if exists(entry) => Stand::ConnectionManager,
            _ => Stand::Itself,
        },
        Target::Device(name) => match buffer.join(&[root, VERBS_CLASS, name]) {
            Some(entry) if exists(entry) => Stand::Path(ANY_DEVICE),
            _ => Stand::Itself,
        },
    }
}

/// Part of every relative path that matters here.
const SIGN: &[u8] = b"infiniband";

impl Buffer {
    /// The absolute path of a relative one that may matter here.
    fn resolve(&mut self, base: c_int, path: &[u8]) -> Option<&[u8]> {
        if !path.windows(SIGN.len()).any(|part| part == SIGN) {
            return None;
        }
        let path = path.strip_prefix(b"./").unwrap_or(path);
        let mut directory = [0; 32];
        // Longer paths are none that are rewritten.
        let length = directory_path(base, &mut directory)?;
        Some(self.join(&[directory.get(..length)?, b"/", path])?.to_bytes())
    }
}

/// The path of a directory, with symbolic links resolved. Asks the kernel directly: `readlink` is one of the functions
/// replaced here.
fn directory_path(base: c_int, into: &mut [u8; 32]) -> Option<usize> {
    let mut link = [0; 32];
    let link: &CStr = if base == libc::AT_FDCWD {
        c"/proc/self/cwd"
    } else {
        const PREFIX: &[u8] = b"/proc/self/fd/";
        link[..PREFIX.len()].copy_from_slice(PREFIX);
        let mut number = u32::try_from(base).ok()?;
        let digits = number.checked_ilog10().unwrap_or(0) as usize + 1;
        for at in (PREFIX.len()..PREFIX.len() + digits).rev() {
            link[at] = b'0' + (number % 10) as u8;
            number /= 10;
        }
        CStr::from_bytes_until_nul(&link).ok()?
    };
    // SAFETY: `link` is a C string, `into` has the size given, and both live through the call.
    let length = unsafe {
        libc::syscall(libc::SYS_readlinkat, libc::AT_FDCWD, link.as_ptr(), into.as_mut_ptr(), into.len())
    };
    usize::try_from(length).ok().filter(|length| *length < into.len())
}

/// What a path names, if it matters here.
#[derive(PartialEq, Eq, Debug)]
enum Target<'a> {
    /// In sysfs; the part from `/class` on.
    Sysfs(&'a [u8]),
    /// A device node.
    Device(&'a [u8]),
}

fn target(path: &[u8]) -> Option<Target<'_>> {
    if let Some(rest) = path.strip_prefix(b"/sys") {
        let after = rest.strip_prefix(b"/class/infiniband")?;
        let after = after.strip_prefix(b"_verbs").unwrap_or(after);
        return matches!(after.first(), None | Some(b'/')).then_some(Target::Sysfs(rest));
    }
    let name = path.strip_prefix(b"/dev/infiniband/")?;
    (!name.is_empty() && !name.contains(&b'/')).then_some(Target::Device(name))
}

/// Whether the file exists. Asks the kernel directly: `access` is one of the functions replaced here.
fn exists(path: &CStr) -> bool {
    // SAFETY: the path is a C string, which lives through the call.
    unsafe { libc::syscall(libc::SYS_faccessat, libc::AT_FDCWD, path.as_ptr(), libc::F_OK) == 0 }
}

#[cfg(test)]
mod tests;
