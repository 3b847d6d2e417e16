//! What programs expect to find in `/sys`, kept under a directory of our own.
//!
//! `SOFTRNIC_SYSFS` names that directory; libibverbs describes its devices there, and the preloaded interposer
//! leads programs to it that look at `/sys/class/infiniband` by themselves. Processes share it, so it says only
//! what is true for all of them. Without the variable there is no tree.

use std::ffi::{CStr, CString, OsStr, c_char};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::errno::Errno;
use crate::guard::{OrMinusOne, Outcome, export};

/// A device, as sysfs shows it.
pub(crate) struct Entry<'a> {
    /// Name of the device, `softrnic0`.
    pub name: &'a str,
    /// Name of its device node, `uverbs0`.
    pub node: &'a str,
    /// Network interface of the addresses.
    pub interface: &'a str,
    /// How many GIDs are described; their addresses are each process's own.
    pub gids: usize,
}

/// The root that our files are under, if there is one.
pub(crate) fn root() -> Option<PathBuf> {
    std::env::var_os("SOFTRNIC_SYSFS").filter(|root| !root.is_empty()).map(PathBuf::from)
}

/// Describes a device, unless another process has done so already.
pub(crate) fn describe(entry: &Entry<'_>) {
    let Some(root) = root() else { return };
    if let Err(error) = write_tree(&root, entry) {
        tracing::warn!(%error, root = %root.display(), "cannot describe {} for sysfs readers", entry.name);
    }
}

fn write_tree(root: &Path, entry: &Entry<'_>) -> std::io::Result<()> {
    let class = root.join("class/infiniband");
    let verbs = root.join("class/infiniband_verbs").join(entry.node);
    std::fs::create_dir_all(&class)?;
    std::fs::create_dir_all(&verbs)?;
    std::fs::write(verbs.join("ibdev"), format!("{}\n", entry.name))?;
    std::fs::write(verbs.join("abi_version"), "1\n")?;
    let device = class.join(entry.name);
    if device.exists() {
        return Ok(());
    }
    // Made under another name and renamed: readers see all of it or nothing.
    let draft = class.join(format!(".{}.{}", entry.name, std::process::id()));
    let port = draft.join("ports/1");
    std::fs::create_dir_all(port.join("gid_attrs/types"))?;
    std::fs::create_dir_all(port.join("gid_attrs/ndevs"))?;
    std::fs::create_dir_all(port.join("pkeys"))?;
    std::fs::create_dir_all(draft.join("device/net").join(entry.interface))?;
    for (file, text) in [
        ("node_type", "1: CA\n"),
        ("node_desc", "SoftRNIC\n"),
        ("ports/1/state", "4: ACTIVE\n"),
        ("ports/1/phys_state", "5: LinkUp\n"),
        ("ports/1/link_layer", "Ethernet\n"),
        ("ports/1/pkeys/0", "0xffff\n"),
        ("ports/1/lid", "0x0\n"),
    ] {
        std::fs::write(draft.join(file), text)?;
    }
    for index in 0..entry.gids {
        std::fs::write(port.join(format!("gid_attrs/types/{index}")), "RoCE v2\n")?;
        std::fs::write(port.join(format!("gid_attrs/ndevs/{index}")), format!("{}\n", entry.interface))?;
    }
    match std::fs::rename(&draft, &device) {
        // Another process was faster.
        Err(_) if device.exists() => std::fs::remove_dir_all(&draft),
        done => done,
    }
}

/// A path for C that lives for ever.
pub(crate) struct StaticPath(CString);

impl Outcome for &'static StaticPath {
    type C = *const c_char;
    fn into_c(result: Result<Self, Errno>) -> *const c_char {
        result.map_or(std::ptr::null(), |path| path.0.as_ptr())
    }
}

export! {
    /// The directory that has `class/infiniband`: our tree, or whatever rdma-core would say.
    fn ibv_get_sysfs_path() -> &'static StaticPath {
        static PATH: OnceLock<StaticPath> = OnceLock::new();
        Ok(PATH.get_or_init(|| {
            crate::device::describe_all();
            let path = root().or_else(|| std::env::var_os("SYSFS_PATH").map(PathBuf::from));
            let path = path.unwrap_or_else(|| "/sys".into());
            StaticPath(CString::new(path.as_os_str().as_bytes()).unwrap_or_else(|_| c"/sys".to_owned()))
        }))
    }

    /// Reads `dir/file` into a buffer, without the newline at its end. Returns the length, or -1.
    fn ibv_read_sysfs_file(dir: *const c_char, file: *const c_char, buf: *mut c_char, size: usize) -> OrMinusOne {
        if dir.is_null() || file.is_null() || buf.is_null() || size == 0 {
            return Err(Errno::INVAL);
        }
        // SAFETY: not null, so C strings of the caller's.
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
            // SAFETY: within `size` bytes.
            unsafe { *buf.add(text.len()) = 0 };
        }
        Ok(OrMinusOne(text.len() as i32))
    }
}

#[cfg(test)]
mod tests;
