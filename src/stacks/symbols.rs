//! Names and lines for return addresses, made when a report is written.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CStr;
use std::path::Path;

use softrnic_check::{Frame, Symbols, Trace};

use crate::python;
use crate::traces::Stack;

/// Calls from here on are those of the C library that start a program or a thread.
const OUTER: &[&str] = &["__libc_start", "_start", "start_thread", "clone", "__clone", "_dl_"];
/// Inline functions of headers, which stand for a verb.
const HEADERS: &[&str] = &["infiniband/verbs.h", "rdma/rdma_verbs.h"];

/// The stacks of a report.
pub struct Resolved {
    stacks: HashMap<Trace, Vec<Frame>>,
}

impl Symbols for Resolved {
    fn frames(&self, trace: Trace) -> Vec<Frame> {
        self.stacks.get(&trace).cloned().unwrap_or_default()
    }
}

thread_local! {
    /// Gone when destructors of libraries end what a program has left.
    static KNOWN: RefCell<HashMap<usize, Vec<Frame>>> = RefCell::default();
}

/// Finds names and lines. Slow: it reads the debug information of the program.
pub fn resolve(stacks: &[(Trace, Stack)]) -> Resolved {
    let directory = std::env::current_dir().ok();
    let mut resolved = HashMap::new();
    for (trace, stack) in stacks {
        // The calls of an interpreter say less than its lines.
        let frames = match stack.lines.is_empty() {
            true => stack.calls.iter().flat_map(|call| frames_of(*call)).collect(),
            false => stack.lines.iter().copied().map(python::shown).collect(),
        };
        resolved.insert(*trace, shortened(frames, directory.as_deref()));
    }
    Resolved { stacks: resolved }
}

fn shortened(frames: Vec<Frame>, directory: Option<&Path>) -> Vec<Frame> {
    let is_outer = |frame: &Frame| OUTER.iter().any(|name| frame.function.starts_with(name));
    let mut kept: Vec<Frame> = frames.into_iter().take_while(|frame| !is_outer(frame)).collect();
    let is_header = |frame: &Frame| HEADERS.iter().any(|header| frame.place.contains(header));
    if !kept.iter().all(is_header) {
        kept.retain(|frame| !is_header(frame));
    }
    for frame in &mut kept {
        if let Some(directory) = directory
            && let Ok(short) = Path::new(&frame.place).strip_prefix(directory)
        {
            frame.place = short.to_string_lossy().into_owned();
        }
    }
    kept
}

/// The function that a return address is in, after those that were inlined there.
fn frames_of(call: usize) -> Vec<Frame> {
    if let Ok(Some(known)) = KNOWN.try_with(|known| known.borrow().get(&call).cloned()) {
        return known;
    }
    let mut frames = Vec::new();
    // The call is before the address to which it returns.
    let inside = std::ptr::without_provenance_mut::<std::ffi::c_void>(call.wrapping_sub(1));
    backtrace::resolve(inside, |symbol| {
        let function = symbol.name().map_or_else(|| "??".into(), |name| format!("{name:#}"));
        let place = match (symbol.filename(), symbol.lineno()) {
            (Some(file), Some(line)) => format!("{}:{line}", file.display()),
            _ => module(call),
        };
        frames.push(Frame { function, place });
    });
    if frames.is_empty() {
        frames.push(Frame { function: "??".into(), place: module(call) });
    }
    let _ = KNOWN.try_with(|known| known.borrow_mut().insert(call, frames.clone()));
    frames
}

/// Whether an address is in a library with this name.
pub fn is_in(address: usize, library: &str) -> bool {
    module(address).contains(&format!("/{library}"))
}

/// The library that an address is in, and how far from its beginning.
fn module(address: usize) -> String {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: looks an address up, and fills the description if it finds it.
    let info = unsafe {
        match libc::dladdr(std::ptr::without_provenance(address), info.as_mut_ptr()) {
            0 => return format!("{address:#x}"),
            _ => info.assume_init(),
        }
    };
    if info.dli_fname.is_null() {
        return format!("{address:#x}");
    }
    // SAFETY: the name of a loaded library, which the linker keeps.
    let name = unsafe { CStr::from_ptr(info.dli_fname) }.to_string_lossy();
    format!("({name}+{:#x})", address.wrapping_sub(info.dli_fbase.addr()))
}
