//! The lines of Python that led to a verb, if the caller is an interpreter: through its C API, if that is in the process.
//!
//! The interpreter may run finalizers of the program whenever it allocates, and they may call verbs. So no lock is held while
//! it is called.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};

use softrnic_check::Frame;

/// Lines, innermost first: a code object, and a line of it.
pub type Lines = Box<[(usize, u32)]>;

/// Lines that are kept of a stack.
const DEPTH: usize = 16;

/// Functions and files of the code objects that were seen. Each of them has a reference of ours, so it stays.
static CODES: LazyLock<Mutex<HashMap<usize, (String, String)>>> = LazyLock::new(Mutex::default);

type Pointer = *mut c_void;

/// The functions of the interpreter.
struct Api {
    is_initialized: unsafe extern "C" fn() -> c_int,
    /// The state of the calling thread.
    this_thread: unsafe extern "C" fn() -> Pointer,
    /// That of the thread that holds the interpreter.
    running_thread: unsafe extern "C" fn() -> Pointer,
    frame: unsafe extern "C" fn() -> Pointer,
    back: unsafe extern "C" fn(Pointer) -> Pointer,
    code: unsafe extern "C" fn(Pointer) -> Pointer,
    line: unsafe extern "C" fn(Pointer) -> c_int,
    attribute: unsafe extern "C" fn(Pointer, *const c_char) -> Pointer,
    text: unsafe extern "C" fn(Pointer) -> *const c_char,
    clear_error: unsafe extern "C" fn(),
    release: unsafe extern "C" fn(Pointer),
}

impl Api {
    /// Finds it, if this process is an interpreter or has loaded one.
    fn find() -> Option<Api> {
        /// # Safety
        /// `T` is the type of the function with this name.
        unsafe fn symbol<T>(names: &[&CStr]) -> Option<T> {
            names.iter().find_map(|name| {
                // SAFETY: looks a name up among those of the process.
                let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
                // SAFETY: a function of this type, as the caller promises; pointers to functions have the size of others.
                (!found.is_null()).then(|| unsafe { std::mem::transmute_copy::<Pointer, T>(&found) })
            })
        }
        // SAFETY: the types are those of Python's C API.
        unsafe {
            Some(Api {
                is_initialized: symbol(&[c"Py_IsInitialized"])?,
                this_thread: symbol(&[c"PyGILState_GetThisThreadState"])?,
                running_thread: symbol(&[c"PyThreadState_GetUnchecked", c"_PyThreadState_UncheckedGet"])?,
                frame: symbol(&[c"PyEval_GetFrame"])?,
                back: symbol(&[c"PyFrame_GetBack"])?,
                code: symbol(&[c"PyFrame_GetCode"])?,
                line: symbol(&[c"PyFrame_GetLineNumber"])?,
                attribute: symbol(&[c"PyObject_GetAttrString"])?,
                text: symbol(&[c"PyUnicode_AsUTF8"])?,
                clear_error: symbol(&[c"PyErr_Clear"])?,
                release: symbol(&[c"Py_DecRef"])?,
            })
        }
    }
}

/// The lines that the calling thread is at.
pub fn lines() -> Lines {
    static API: OnceLock<Option<Api>> = OnceLock::new();
    static IS_ABSENT: AtomicBool = AtomicBool::new(false);
    if IS_ABSENT.load(Ordering::Relaxed) {
        return Lines::default();
    }
    let Some(api) = API.get_or_init(Api::find) else {
        IS_ABSENT.store(true, Ordering::Relaxed);
        return Lines::default();
    };
    // SAFETY: functions that need no thread state.
    let holds = unsafe {
        (api.is_initialized)() != 0 && {
            let this = (api.this_thread)();
            !this.is_null() && this == (api.running_thread)()
        }
    };
    if !holds {
        return Lines::default();
    }
    let mut lines = Vec::new();
    // SAFETY: this thread holds the interpreter. `frame` is borrowed, and its caller's frames are references that are released
    // once they are no longer used; none of them is the last.
    unsafe {
        let mut frame = (api.frame)();
        let mut owned = false;
        while !frame.is_null() {
            let code = (api.code)(frame);
            let line = (api.line)(frame);
            learn(api, code);
            lines.push((code.addr(), line as u32));
            let is_last = lines.len() == DEPTH;
            let back = if is_last { std::ptr::null_mut() } else { (api.back)(frame) };
            if owned {
                (api.release)(frame);
            }
            (frame, owned) = (back, true);
        }
    }
    lines.into()
}

fn codes() -> MutexGuard<'static, HashMap<usize, (String, String)>> {
    CODES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Remembers the names of a code object, of which this takes over a reference.
///
/// # Safety
/// The thread holds the interpreter, and `code` is a code object.
unsafe fn learn(api: &Api, code: Pointer) {
    let known = codes().contains_key(&code.addr());
    if known {
        // SAFETY: as the caller promises; ours is not the only reference.
        unsafe { (api.release)(code) };
        return;
    }
    let attribute = |name: &CStr| {
        // SAFETY: as the caller promises; the text is that of an object to which there is a reference.
        unsafe {
            let object = (api.attribute)(code, name.as_ptr());
            if object.is_null() {
                (api.clear_error)();
                return String::new();
            }
            let text = (api.text)(object);
            let copy = match text.is_null() {
                true => ((api.clear_error)(), String::new()).1,
                false => CStr::from_ptr(text).to_string_lossy().into_owned(),
            };
            (api.release)(object);
            copy
        }
    };
    let names = (attribute(c"co_name"), attribute(c"co_filename"));
    codes().insert(code.addr(), names);
}

/// What is shown of a line.
pub(crate) fn shown((code, line): (usize, u32)) -> Frame {
    let codes = codes();
    let (function, file) = codes.get(&code).cloned().unwrap_or_default();
    Frame { function, place: format!("{file}:{line}") }
}
