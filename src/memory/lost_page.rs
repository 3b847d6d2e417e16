//! Survives accesses to registered memory that has gone: unmapped, protected, or a file cut short.
//!
//! Hardware keeps the pages of what is registered. Programs that give them back too early work with it, and some do: UCX
//! frees the receive buffers of a UD queue pair before it destroys the queue pair. Here the access ends with SIGSEGV or
//! SIGBUS. A handler for these two lets it return an error instead, and gives every other signal to the handler that was
//! there before.
//!
//! It is a second line only, since a process has one handler for each signal: one that the application installs later
//! replaces it. [`Config::safe_copies`](crate::Config::safe_copies) depends on no handler.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::{io, ptr};

type Action = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// The handlers that were there before, for SIGSEGV and SIGBUS.
static BEFORE: [OnceLock<libc::sigaction>; 2] = [const { OnceLock::new() }; 2];
const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// Installs the handlers, the first time. Where that is refused, everything is as it would be without them.
pub(crate) fn install() {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        for (signal, before) in SIGNALS.into_iter().zip(&BEFORE) {
            let _refused = take_over(signal, before);
        }
    });
}

fn take_over(signal: c_int, before: &OnceLock<libc::sigaction>) -> io::Result<()> {
    let mut found = MaybeUninit::uninit();
    // SAFETY: asks only; what it fills lives through the call.
    check(unsafe { libc::sigaction(signal, ptr::null(), found.as_mut_ptr()) })?;
    // SAFETY: filled, since the call succeeded.
    let found = before.get_or_init(|| unsafe { found.assume_init() });
    let mut ours = *found;
    ours.sa_sigaction = handle as Action as libc::sighandler_t;
    // A handler that was there runs on the stack that it asked for.
    ours.sa_flags = libc::SA_SIGINFO
        | match found.sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => libc::SA_ONSTACK,
            _ => found.sa_flags & (libc::SA_ONSTACK | libc::SA_RESTART | libc::SA_NODEFER),
        };
    // SAFETY: the handler calls nothing that a signal may not interrupt. What is read lives through the call.
    check(unsafe { libc::sigaction(signal, &ours, ptr::null_mut()) })
}

fn check(status: c_int) -> io::Result<()> {
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// # Safety
///
/// Called by the kernel, for SIGSEGV or SIGBUS, with what belongs to the signal.
unsafe extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's, as the caller promises; nothing else refers to them during the handler.
    let (by_a_fault, interrupted) =
        unsafe { ((*info).si_code > 0, &mut *context.cast::<libc::ucontext_t>()) };
    // SAFETY: the thread's own errno, which the interrupted code may be about to read.
    let errno = unsafe { *libc::__errno_location() };
    let resumed = by_a_fault && machine::resume(interrupted);
    // SAFETY: as before.
    unsafe { *libc::__errno_location() = errno };
    if !resumed {
        // SAFETY: as the caller promises.
        unsafe { pass_on(signal, by_a_fault, info, context) };
    }
}

/// Does what would have been done without the handler of this file.
///
/// # Safety
///
/// As for [`handle`].
unsafe fn pass_on(signal: c_int, by_a_fault: bool, info: *mut libc::siginfo_t, context: *mut c_void) {
    let before = SIGNALS.iter().position(|&ours| ours == signal).and_then(|index| BEFORE[index].get());
    let Some(before) = before else { return };
    match before.sa_sigaction {
        libc::SIG_IGN if !by_a_fault => {}
        action
            if matches!(action, libc::SIG_DFL | libc::SIG_IGN)
                || before.sa_flags & libc::SA_RESETHAND != 0 =>
        {
            // The kernel's part, or over after one signal. A fault happens again on return; other signals are sent again.
            // SAFETY: puts back what was there; the structure is static.
            unsafe {
                libc::sigaction(signal, before, ptr::null_mut());
                if !by_a_fault {
                    libc::raise(signal);
                }
            }
        }
        action if before.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: with SA_SIGINFO the kernel would call the same function with the same arguments.
            unsafe { std::mem::transmute::<libc::sighandler_t, Action>(action)(signal, info, context) };
        }
        action => {
            // SAFETY: without SA_SIGINFO it is a function of the signal alone.
            unsafe { std::mem::transmute::<libc::sighandler_t, extern "C" fn(c_int)>(action)(signal) };
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod machine {
    use crate::racing;

    /// Lets an access to registered memory return an error. False if what was interrupted is something else.
    pub(super) fn resume(interrupted: &mut libc::ucontext_t) -> bool {
        let registers = &mut interrupted.uc_mcontext.gregs;
        let stack: *const usize =
            std::ptr::with_exposed_provenance(registers[libc::REG_RSP as usize] as usize);
        if !is_readable(stack) {
            return false;
        }
        // SAFETY: readable, and part of the stack of this thread, which is in this handler; it may be unaligned.
        let caller = unsafe { stack.read_unaligned() };
        let pc = &mut registers[libc::REG_RIP as usize];
        racing::resume(*pc as usize, caller).map(|on| *pc = on as i64).is_some()
    }

    /// Whether a word can be read: where a stack has overflowed, there is nothing.
    ///
    /// The kernel copies a signal mask from there before it refuses to do what is not an operation on masks
    /// (`rt_sigprocmask` in kernel/signal.c). No sandbox forbids this call, as some do `process_vm_readv`.
    fn is_readable(word: *const usize) -> bool {
        const NO_OPERATION: libc::c_long = -1;
        let no_mask = std::ptr::null::<usize>();
        // SAFETY: reads a word at most, with its own check; changes no mask.
        let status = unsafe {
            libc::syscall(libc::SYS_rt_sigprocmask, NO_OPERATION, word, no_mask, size_of::<usize>())
        };
        // SAFETY: the thread's own errno.
        status == 0 || unsafe { *libc::__errno_location() } != libc::EFAULT
    }
}

#[cfg(target_arch = "aarch64")]
mod machine {
    use crate::racing;

    /// Lets an access to registered memory return an error. False if what was interrupted is something else.
    pub(super) fn resume(interrupted: &mut libc::ucontext_t) -> bool {
        let machine = &mut interrupted.uc_mcontext;
        let on = racing::resume(machine.pc as usize, machine.regs[30] as usize);
        on.map(|on| machine.pc = on as u64).is_some()
    }
}
