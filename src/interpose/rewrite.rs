//! Decides what replaces a path.

use std::ffi::{CStr, c_char, c_int};

mod described;

/// Part of every path that matters here, and of few others: one or the other.
const SIGNS: [&[u8]; 2] = [b"infiniband", b"/pci"];

/// Whether a path may be one of ours. Most are not, and the stack may be small: this needs next to none of it, and
/// [`rewrite`] is called in a function of its own.
///
/// # Safety
/// `path` is null or a C string.
#[inline]
pub unsafe fn may_be_ours(path: *const c_char) -> bool {
    if path.is_null() {
        return false;
    }
    // SAFETY: not null, so a C string, as the caller promises.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    SIGNS.iter().any(|sign| path.windows(sign.len()).any(|part| part == *sign))
}

/// Buffer for a rewritten path, zero-terminated.
pub struct Buffer([u8; libc::PATH_MAX as usize]);

impl Buffer {
    pub const fn new() -> Buffer {
        Buffer([0; libc::PATH_MAX as usize])
    }

    /// Joins parts to a C string; `None` if they do not fit.
    fn join(&mut self, parts: &[&[u8]]) -> Option<&CStr> {
        self.append(0, parts)
    }

    /// The same, after what is there already.
    fn append(&mut self, mut end: usize, parts: &[&[u8]]) -> Option<&CStr> {
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
    /// Nothing.
    Itself,
    /// This file, which may not exist: the path is in sysfs.
    File(&'a CStr),
    /// A device that every user may open: the path is one of our devices.
    Device,
    /// The connection manager, which can be opened; to all other calls it is such a device too.
    ConnectionManager,
}

const ANY_DEVICE: &CStr = c"/dev/null";
const SYSFS: &CStr = c"/sys";

impl Stand<'_> {
    /// The path to use instead of `path`.
    pub fn path(&self, path: *const c_char) -> *const c_char {
        match self {
            Stand::Itself => path,
            Stand::File(file) => file.as_ptr(),
            Stand::Device | Stand::ConnectionManager => ANY_DEVICE.as_ptr(),
        }
    }

    /// The path to use for a question about its file system.
    pub fn file_system(&self, path: *const c_char) -> *const c_char {
        match self {
            Stand::File(file) if exists(file) => SYSFS.as_ptr(),
            _ => self.path(path),
        }
    }

    /// The error of opening it with these flags, where the kernel refuses that.
    pub fn refuses_to_open(&self, flags: c_int) -> Option<c_int> {
        let writes = flags & (libc::O_ACCMODE | libc::O_TRUNC) != 0;
        match self {
            Stand::File(file) if exists(file) => writes.then_some(libc::EACCES),
            Stand::File(_) => (flags & libc::O_CREAT != 0).then_some(libc::EACCES),
            _ => None,
        }
    }

    /// The error of a change to it; `None` if it is none of ours. As in sysfs, nothing can be changed, by root either.
    pub fn refuses(&self, change: Change) -> Option<c_int> {
        let exists = match self {
            Stand::Itself => return None,
            Stand::File(file) => exists(file),
            Stand::Device | Stand::ConnectionManager => true,
        };
        Some(match change {
            Change::New if exists => libc::EEXIST,
            Change::New | Change::Entry if exists || change == Change::New => no_right_to_entries(),
            Change::Attribute if exists => libc::EPERM,
            Change::Content if exists => libc::EACCES,
            Change::OtherFileSystem if exists => libc::EXDEV,
            _ => libc::ENOENT,
        })
    }
}

/// What a call would change of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It would come to be.
    New,
    /// It would be removed, or get another name.
    Entry,
    /// Its owner, mode, times or extended attributes.
    Attribute,
    Content,
    /// It would be linked or renamed to a place outside, or the reverse.
    OtherFileSystem,
}

/// The directories of sysfs can only be written by root, and then have no such operation.
fn no_right_to_entries() -> c_int {
    // SAFETY: takes no arguments.
    if unsafe { libc::geteuid() } == 0 { libc::EPERM } else { libc::EACCES }
}

/// What replaces `path`, which is relative to the directory `base`.
///
/// # Safety
/// `path` is a C string.
pub unsafe fn rewrite(base: c_int, path: *const c_char, buffer: &mut Buffer) -> Stand<'_> {
    // SAFETY: a C string, as the caller promises.
    let text = unsafe { CStr::from_ptr(path) }.to_bytes();
    let mut directory = [0; 32];
    let start = match text.first() {
        Some(b'/') => match root().and_then(|root| within(root, text)) {
            // Programs also get paths there, from libibverbs.
            Some(rest) => return described::stand(rest, buffer).unwrap_or(Stand::Itself),
            None => Some(0),
        },
        // Nothing that matters here is relative to a directory with a longer path.
        _ => directory_path(base, &mut directory),
    };
    let Some(target) = start.and_then(|length| target(directory.get(..length)?, text)) else {
        return Stand::Itself;
    };
    let Some(root) = root() else { return Stand::Itself };
    match target {
        Target::Sysfs { class, rest: b"" } => {
            buffer.join(&[root, b"/class/", class]).map_or(Stand::Itself, Stand::File)
        }
        Target::Sysfs { class: INFINIBAND, rest } if described::length(rest, buffer) > 0 => {
            described::stand(rest, buffer).unwrap_or(Stand::Itself)
        }
        Target::Sysfs { class, rest } => {
            buffer.join(&[root, b"/class/", class, b"/", rest]).map_or(Stand::Itself, Stand::File)
        }
        Target::Tree { directory, rest } => {
            if let Some(device) =
                described::below(rest).filter(|device| described::length(device, buffer) > 0)
            {
                return described::stand(device, buffer).unwrap_or(Stand::Itself);
            }
            let file = buffer.join(&[root, b"/", directory, b"/", rest]).filter(|file| exists(file));
            let Some((length, begins)) = file.map(|file| (file.count_bytes(), described::begins_at(file)))
            else {
                return Stand::Itself;
            };
            // To the program, that is a directory and no link.
            let end: &[u8] = if begins { b"/." } else { b"" };
            buffer.append(length, &[end]).map_or(Stand::Itself, Stand::File)
        }
        Target::Device(b"rdma_cm") => match buffer.join(&[root, b"/class/misc/rdma_cm"]) {
            Some(entry) if exists(entry) => Stand::ConnectionManager,
            _ => Stand::Itself,
        },
        Target::Device(name) => match buffer.join(&[root, b"/class/infiniband_verbs/", name]) {
            Some(entry) if exists(entry) => Stand::Device,
            _ => Stand::Itself,
        },
    }
}

/// The class of the devices.
const INFINIBAND: &[u8] = b"infiniband";

/// What follows the class of the devices in a path below `root`.
fn within<'a>(root: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    path.strip_prefix(root)?.strip_prefix(b"/class/infiniband/")
}

/// Whether this program is to see our devices.
pub fn is_on() -> bool {
    root().is_some()
}

/// The directory that `SOFTRNIC_SYSFS` names.
fn root() -> Option<&'static [u8]> {
    // A program with more privileges than the user that started it does not trust the environment (as in
    // `softrnic_sys::environment`). SAFETY: reads a number that the process was given when it started; takes no
    // pointers.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return None;
    }
    // SAFETY: the name is a C string. As everywhere in C, the program must not change its environment at the same time.
    let root = unsafe { libc::getenv(c"SOFTRNIC_SYSFS".as_ptr()) };
    if root.is_null() {
        return None;
    }
    // SAFETY: not null, so a C string of the environment, which stays as long as the program leaves it unchanged.
    let root = unsafe { CStr::from_ptr(root) }.to_bytes();
    (!root.is_empty()).then_some(root)
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
    /// In sysfs: what follows one of our classes.
    Sysfs { class: &'static [u8], rest: &'a [u8] },
    /// In sysfs, where other devices are as well: what follows a directory below `/sys`.
    Tree { directory: &'static [u8], rest: &'a [u8] },
    /// A device node.
    Device(&'a [u8]),
}

/// The directories on the way to what matters.
#[derive(Clone, Copy)]
enum Place {
    Root,
    Sys,
    SysClass,
    Class(&'static [u8]),
    Bus,
    Pci,
    /// The directories of all devices, by their paths below `/sys`.
    Tree(&'static [u8]),
    Dev,
    Nodes,
}

const DEVICES: &[u8] = b"devices";
const PCI_DEVICES: &[u8] = b"bus/pci/devices";
const PCI_BUSES: &[u8] = b"class/pci_bus";

/// What `path` names, seen from a directory, whose path is empty for the root.
///
/// Dots count as written, as no directory on the way is a symbolic link.
fn target<'a>(directory: &[u8], path: &'a [u8]) -> Option<Target<'a>> {
    let mut walk = Walk { place: Place::Root, beside: 0 };
    directory.split(|byte| *byte == b'/').for_each(|component| walk.step(component));
    let mut rest = path;
    loop {
        rest = rest.get(rest.iter().take_while(|byte| **byte == b'/').count()..)?;
        let (component, after) = rest.split_at(rest.iter().take_while(|byte| **byte != b'/').count());
        match walk.place {
            Place::Class(class) if walk.beside == 0 && !matches!(component, b"." | b"..") => {
                return Some(Target::Sysfs { class, rest });
            }
            Place::Tree(directory) if walk.beside == 0 && !matches!(component, b"" | b"." | b"..") => {
                return Some(Target::Tree { directory, rest });
            }
            Place::Nodes if walk.beside == 0 && !matches!(component, b"" | b"." | b"..") => {
                return after.is_empty().then_some(Target::Device(component));
            }
            _ if component.is_empty() => return None,
            _ => walk.step(component),
        }
        rest = after;
    }
}

/// Follows a path.
struct Walk {
    place: Place,
    /// How many directories below it, aside from the way.
    beside: u32,
}

impl Walk {
    fn step(&mut self, component: &[u8]) {
        let next = match (self.place, component) {
            (_, b"" | b".") => return,
            (_, b"..") if self.beside > 0 => {
                self.beside -= 1;
                return;
            }
            (Place::Root | Place::Sys | Place::Dev, b"..") => Place::Root,
            (Place::SysClass, b"..") => Place::Sys,
            (Place::Class(_) | Place::Tree(PCI_BUSES), b"..") => Place::SysClass,
            (Place::Tree(PCI_DEVICES), b"..") => Place::Pci,
            (Place::Pci, b"..") => Place::Bus,
            (Place::Bus | Place::Tree(_), b"..") => Place::Sys,
            (Place::Nodes, b"..") => Place::Dev,
            (Place::Root, b"sys") if self.beside == 0 => Place::Sys,
            (Place::Sys, b"class") if self.beside == 0 => Place::SysClass,
            (Place::SysClass, b"infiniband") if self.beside == 0 => Place::Class(b"infiniband"),
            (Place::SysClass, b"infiniband_verbs") if self.beside == 0 => Place::Class(b"infiniband_verbs"),
            (Place::SysClass, b"pci_bus") if self.beside == 0 => Place::Tree(PCI_BUSES),
            (Place::Sys, b"devices") if self.beside == 0 => Place::Tree(DEVICES),
            (Place::Sys, b"bus") if self.beside == 0 => Place::Bus,
            (Place::Bus, b"pci") if self.beside == 0 => Place::Pci,
            (Place::Pci, b"devices") if self.beside == 0 => Place::Tree(PCI_DEVICES),
            (Place::Root, b"dev") if self.beside == 0 => Place::Dev,
            (Place::Dev, b"infiniband") if self.beside == 0 => Place::Nodes,
            _ => {
                self.beside += 1;
                return;
            }
        };
        self.place = next;
    }
}

/// Has a path that a call found in our tree say where the kernel would have it: `/sys/devices/…`.
///
/// # Safety
/// `path` is null, or a C string that nothing else uses.
pub unsafe fn show_in_sys(path: *mut c_char) {
    let Some(root) = root().filter(|_| !path.is_null()) else { return };
    // SAFETY: not null, so a C string, as the caller promises.
    let text = unsafe { CStr::from_ptr(path) }.to_bytes();
    let Some(rest) = text.strip_prefix(root).filter(|rest| rest.starts_with(b"/")) else { return };
    // A description of a device is such a tree again.
    let rest = match rest.strip_prefix(b"/described/") {
        Some(rest) => rest.get(rest.iter().take_while(|byte| **byte != b'/').count()..).unwrap_or_default(),
        None => rest,
    };
    let (from, length) = (text.len() - rest.len(), rest.len());
    if from < SYSFS.count_bytes() {
        return;
    }
    // SAFETY: the end of the string with its zero moves towards its beginning, as there is room for `/sys` before it.
    unsafe {
        let after = path.add(SYSFS.count_bytes());
        std::ptr::copy(path.add(from), after, length + 1);
        std::ptr::copy_nonoverlapping(SYSFS.as_ptr(), path, SYSFS.count_bytes());
    }
}

/// The flags that `fopen` opens a file with, as far as they matter here.
///
/// # Safety
/// `mode` is a C string.
pub unsafe fn open_flags(mode: *const c_char) -> c_int {
    // SAFETY: a C string, as the caller promises.
    let mode = unsafe { CStr::from_ptr(mode) }.to_bytes();
    match mode.first() {
        Some(b'r') if !mode.contains(&b'+') => libc::O_RDONLY,
        Some(b'r') => libc::O_RDWR,
        _ => libc::O_WRONLY | libc::O_CREAT,
    }
}

/// Whether the file exists. Asks the kernel directly: `access` is one of the functions replaced here.
pub fn exists(path: &CStr) -> bool {
    // SAFETY: the path is a C string, which lives through the call.
    unsafe { libc::syscall(libc::SYS_faccessat, libc::AT_FDCWD, path.as_ptr(), libc::F_OK) == 0 }
}

#[cfg(test)]
mod tests;
