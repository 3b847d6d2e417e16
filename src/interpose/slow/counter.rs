//! The processor's time stamp counter: reading it traps, and the program gets what its slowed clock would have.
//!
//! The trap is SIGSEGV. So the handler here stays the process's, whatever the program installs, and gives all other
//! faults to the program's; and no thread blocks the signal. What the kernel's own functions in user space read is the
//! true value, from which they compute the wall clock.

use std::ffi::{c_int, c_ulong, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::time;
use crate::next::{fail, next};

type Action = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// Where the kernel's functions in user space begin, and more than they take.
static KERNELS: AtomicUsize = AtomicUsize::new(0);
const KERNELS_SIZE: usize = 4 << 12;

/// What the program has installed for the signal: the handler, and its flags.
static HANDLER: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
static FLAGS: AtomicUsize = AtomicUsize::new(0);

/// Has reading the counter trap in this thread, or not.
pub fn set_trap(traps: bool) {
    let how = if traps { libc::PR_TSC_SIGSEGV } else { libc::PR_TSC_ENABLE };
    // SAFETY: changes a flag of this thread.
    unsafe { libc::syscall(libc::SYS_prctl, libc::PR_SET_TSC as c_ulong, how as c_ulong, 0, 0, 0) };
}

/// The counter, where reading it traps.
pub fn now() -> u64 {
    set_trap(false);
    // SAFETY: reads a register of the processor.
    let counter = unsafe { std::arch::x86_64::_rdtsc() };
    set_trap(true);
    counter
}

/// Has reading the counter trap, in this thread and those that it will start. False if the kernel refuses.
pub fn trap() -> bool {
    type Sigaction = unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;
    let Some(sigaction) = next!(sigaction, Sigaction) else { return false };
    // SAFETY: reads a number that the process was given when it started; takes no pointers.
    KERNELS.store(unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize, Ordering::Relaxed);
    // SAFETY: zeroes are no flags and an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handle as Action as libc::sighandler_t;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_ONSTACK;
    // SAFETY: the handler calls nothing that a signal may not interrupt; what is read lives through the call.
    if unsafe { sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut()) } != 0 {
        return false;
    }
    set_trap(true);
    true
}

/// # Safety
///
/// Called by the kernel, for SIGSEGV, with what belongs to the signal.
unsafe extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    const SI_KERNEL: c_int = 0x80;
    // SAFETY: the kernel's, as the caller promises; nothing else refers to them during the handler.
    let (code, interrupted) = unsafe { ((*info).si_code, &mut *context.cast::<libc::ucontext_t>()) };
    // SAFETY: a general protection fault has this code, and one is raised only once the instruction has been fetched.
    if code == SI_KERNEL && unsafe { resume(interrupted) } {
        return;
    }
    // SAFETY: as the caller promises.
    unsafe { pass_on(signal, code, info, context) };
}

/// Does what the instruction would have done. False if it does not read the counter.
///
/// # Safety
///
/// The instruction can be read.
unsafe fn resume(interrupted: &mut libc::ucontext_t) -> bool {
    let registers = &mut interrupted.uc_mcontext.gregs;
    let at = registers[libc::REG_RIP as usize] as usize;
    let instruction: *const u8 = std::ptr::with_exposed_provenance(at);
    // SAFETY: each byte is read only if those before it do not end the instruction.
    let length = match unsafe { (*instruction, *instruction.add(1)) } {
        (0x0F, 0x31) => 2,
        // SAFETY: as before.
        (0x0F, 0x01) if unsafe { *instruction.add(2) } == 0xF9 => 3,
        _ => return false,
    };
    let counter = now();
    let kernels = KERNELS.load(Ordering::Relaxed);
    let shown = if (kernels..kernels + KERNELS_SIZE).contains(&at) {
        counter
    } else {
        time::note_read();
        counter - time::counter_lag_at(counter)
    };
    registers[libc::REG_RAX as usize] = (shown & 0xFFFF_FFFF) as i64;
    registers[libc::REG_RDX as usize] = (shown >> 32) as i64;
    if length == 3 {
        registers[libc::REG_RCX as usize] = 0;
    }
    registers[libc::REG_RIP as usize] += length;
    true
}

/// Does what would have been done without the handler here.
///
/// # Safety
///
/// As for [`handle`].
unsafe fn pass_on(signal: c_int, code: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    type Sigaction = unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;
    let (handler, flags) = (HANDLER.load(Ordering::Acquire), FLAGS.load(Ordering::Acquire) as c_int);
    match handler {
        libc::SIG_IGN if code <= 0 => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            let Some(sigaction) = next!(sigaction, Sigaction) else { return };
            // SAFETY: zeroes are the default action. A fault happens again on return; other signals are sent again.
            unsafe {
                let action: libc::sigaction = std::mem::zeroed();
                sigaction(signal, &raw const action, std::ptr::null_mut());
                if code <= 0 {
                    libc::raise(signal);
                }
            }
        }
        _ => {
            if flags & libc::SA_RESETHAND != 0 {
                HANDLER.store(libc::SIG_DFL, Ordering::Release);
            }
            // SAFETY: the kernel would call the same function with the same arguments.
            unsafe { std::mem::transmute::<libc::sighandler_t, Action>(handler)(signal, info, context) };
        }
    }
}

/// The signals of a set but ours.
///
/// # Safety
///
/// `set` is null or a set.
unsafe fn without_ours(set: *const libc::sigset_t) -> Option<libc::sigset_t> {
    if !time::is_prepared() || set.is_null() {
        return None;
    }
    // SAFETY: not null, so a set.
    let mut set = unsafe { *set };
    // SAFETY: a set, and the number of a signal.
    unsafe { libc::sigdelset(&raw mut set, libc::SIGSEGV) };
    Some(set)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    type Function = unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;
    let Some(next) = next!(sigaction, Function) else { return fail(libc::ENOSYS) };
    if !time::is_prepared() {
        // SAFETY: the next function of this name, with the application's arguments, which meet its contract.
        return unsafe { next(signal, new, old) };
    }
    if signal != libc::SIGSEGV {
        if new.is_null() {
            // SAFETY: as before.
            return unsafe { next(signal, new, old) };
        }
        // SAFETY: not null, so the application's structure.
        let mut action = unsafe { *new };
        // SAFETY: a set of the structure.
        action.sa_mask = unsafe { without_ours(&raw const action.sa_mask) }.unwrap_or(action.sa_mask);
        // SAFETY: the next function of this name; what it reads lives through the call.
        return unsafe { next(signal, &raw const action, old) };
    }
    let before = (HANDLER.load(Ordering::Acquire), FLAGS.load(Ordering::Acquire) as c_int);
    if !new.is_null() {
        // SAFETY: not null, so the application's structure.
        let new = unsafe { *new };
        FLAGS.store(new.sa_flags as usize, Ordering::Release);
        HANDLER.store(new.sa_sigaction, Ordering::Release);
    }
    if !old.is_null() {
        // SAFETY: not null, so the application's structure; zeroes are an empty mask.
        unsafe {
            *old = std::mem::zeroed();
            ((*old).sa_sigaction, (*old).sa_flags) = before;
        }
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn signal(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t {
    type Function = unsafe extern "C" fn(c_int, libc::sighandler_t) -> libc::sighandler_t;
    if time::is_prepared() && signal == libc::SIGSEGV {
        FLAGS.store(0, Ordering::Release);
        return HANDLER.swap(handler, Ordering::AcqRel);
    }
    let Some(next) = next!(signal, Function) else { return libc::SIG_ERR };
    // SAFETY: the next function of this name, with the application's arguments, which meet its contract.
    unsafe { next(signal, handler) }
}

/// Defines functions that change which signals a thread blocks.
macro_rules! change_mask {
    ($($name:ident or $failed:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(how: c_int, set: *const libc::sigset_t, old: *mut libc::sigset_t) -> c_int {
            type Function = unsafe extern "C" fn(c_int, *const libc::sigset_t, *mut libc::sigset_t) -> c_int;
            let Some(next) = next!($name, Function) else { return $failed };
            // SAFETY: null or a set, as the C library's function requires of the application.
            let changed = if how == libc::SIG_UNBLOCK { None } else { unsafe { without_ours(set) } };
            let set = changed.as_ref().map_or(set, std::ptr::from_ref);
            // SAFETY: the next function of this name; what it reads lives through the call.
            unsafe { next(how, set, old) }
        }
    )*};
}

change_mask! {
    sigprocmask or fail(libc::ENOSYS);
    pthread_sigmask or libc::ENOSYS;
}
