//! Memory that goes away under an ordinary region.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::{env, fs, os::fd::AsRawFd, ptr};

use softrnic_memory::{Config, LocalFault, MemoryError, MemoryTable, MrSpec, RemoteFault};

use crate::world::{ALL, PAGE, Pages, World, sge};

/// The address sanitizer has a `memcpy` of its own, and takes every fault for a finding.
fn under_the_sanitizer() -> bool {
    env::var_os("ASAN_OPTIONS").is_some()
}

/// Every way to copy, every way to lose a page, and all the lengths for which `memcpy` has code of its own.
#[test]
fn a_lost_page_is_an_error_and_its_neighbours_are_as_before() {
    if under_the_sanitizer() {
        return;
    }
    let file = fs::File::options().read(true).write(true).create_new(true).open(temporary()).unwrap();
    fs::remove_file(temporary()).unwrap();
    type Lose<'a> = &'a dyn Fn(&Pages, usize);
    let ways: [(&str, Lose<'_>); 3] = [
        ("unmapped", &|pages, first| pages.unmap(first, 1)),
        ("protected", &|pages, first| pages.protect(first, 1, libc::PROT_NONE)),
        ("cut short", &|_, first| file.set_len((first * PAGE) as u64).unwrap()),
    ];
    for (way, lose) in ways {
        for length in [1, 2, 8, 15, 16, 31, 32, 63, 64, 128, 255, 256, 1024, PAGE, 16 * PAGE, 8192 * PAGE] {
            let last = length.div_ceil(PAGE);
            file.set_len(((last + 1) * PAGE) as u64).unwrap();
            let pages = Pages::of_file(file.as_raw_fd(), last + 1);
            let mut w = World::new();
            let keys = w.reg(pages.range(), ALL);
            lose(&pages, last);
            // All but the last byte is there.
            let va = pages.va() + (last * PAGE - length + 1) as u64;
            let mut bytes = vec![7; length];
            let what = format!("{way}, {length} bytes");
            let list = [sge(va, length as u32, keys.lkey)];
            let (table, pd, qpn) = (&w.table, w.pd, w.qpn);
            let gone = Err(RemoteFault::Unmapped);
            assert_eq!(table.write_remote(pd, qpn, keys.rkey, va, &bytes), gone, "{what}");
            assert_eq!(table.read_remote(pd, qpn, keys.rkey, va, &mut bytes), gone, "{what}");
            assert_eq!(table.scatter(pd, &list, 0, &bytes), Err(LocalFault::Unmapped), "{what}");
            assert_eq!(table.gather(pd, &list, 0, &mut bytes), Err(LocalFault::Unmapped), "{what}");
            let word = pages.va() + (last * PAGE) as u64;
            let gone = Err(RemoteFault::Unmapped);
            assert_eq!(table.fetch_add(pd, qpn, keys.rkey, word, 1), gone, "{what}");
            assert_eq!(table.compare_swap(pd, qpn, keys.rkey, word, 0, 1), gone, "{what}");
            assert_eq!(
                table.atomic_write(pd, qpn, keys.rkey, word, [1; 8]),
                Err(RemoteFault::Unmapped),
                "{what}"
            );
            assert_eq!(table.write_remote(pd, qpn, keys.rkey, va - 1, &bytes), Ok(()), "{what}: beside it");
            assert_eq!(
                table.fetch_add(pd, qpn, keys.rkey, pages.va(), 1).map(drop),
                Ok(()),
                "{what}: beside it"
            );
        }
    }
}

fn temporary() -> std::path::PathBuf {
    env::temp_dir().join(format!("softrnic-lost-page-{}", std::process::id()))
}

/// What the program does with the signal, and how it then ends.
#[test]
fn other_signals_reach_the_former_handler() {
    if under_the_sanitizer() {
        return;
    }
    assert_eq!(run("default, fault").signal(), Some(libc::SIGSEGV));
    assert_eq!(run("default, sent").signal(), Some(libc::SIGSEGV));
    assert_eq!(run("ignore, fault").signal(), Some(libc::SIGSEGV));
    assert_eq!(run("ignore, sent").code(), Some(0));
    assert_eq!(run("once, fault").code(), Some(3), "its handler was called");
    assert_eq!(run("handle, fault").code(), Some(3), "its handler was called");
    assert_eq!(run("handle, sent").code(), Some(3), "its handler was called");
    assert_eq!(run("handle plainly, fault").code(), Some(4), "its handler was called");
    assert_eq!(run("replace, fault").code(), Some(3), "its handler was called");
}

/// A filter of system calls that ends the process at those that look into processes, as sandboxes have it.
#[test]
fn a_fault_in_a_sandbox_is_a_fault() {
    if under_the_sanitizer() {
        return;
    }
    assert_eq!(run("default, sandboxed fault").signal(), Some(libc::SIGSEGV));
    assert_eq!(run("handle, sandboxed fault").code(), Some(3), "its handler was called");
}

#[test]
fn a_sandbox_without_safe_copies_is_found_out_alive() {
    if under_the_sanitizer() {
        return;
    }
    assert_eq!(run("nothing, sandboxed registration").code(), Some(0));
}

/// The standard library says so, and aborts.
#[test]
fn a_stack_overflow_is_still_detected() {
    if under_the_sanitizer() {
        return;
    }
    assert_eq!(run("nothing, overflow").signal(), Some(libc::SIGABRT));
}

fn run(plan: &str) -> ExitStatus {
    let mut program = Command::new(env::current_exe().unwrap());
    program.args(["--exact", "lost_page::program", "--include-ignored"]);
    program.env("SOFTRNIC_LOST_PAGE", plan).output().unwrap().status
}

/// A process of its own for each plan, since a process has these handlers once.
#[test]
#[ignore = "ends with a signal; the test above starts it"]
fn program() {
    let Ok(plan) = env::var("SOFTRNIC_LOST_PAGE") else { return };
    let (before, how) = plan.split_once(", ").unwrap();
    match before {
        "default" => set(libc::SIG_DFL, 0),
        "ignore" => set(libc::SIG_IGN, 0),
        "once" => set(handler as *const () as usize, libc::SA_SIGINFO | libc::SA_RESETHAND),
        "handle" => set(handler as *const () as usize, libc::SA_SIGINFO),
        "handle plainly" => set(plain_handler as *const () as usize, 0),
        _ => {}
    }
    let pages = Pages::new(1);
    if how == "sandboxed registration" {
        forbid(libc::SYS_process_vm_readv);
        let safe = Config { safe_copies: true, ..Config::default() };
        let mut w = World::of(MemoryTable::with_config([9; 32], safe));
        let spec = MrSpec { range: pages.range(), iova: pages.va(), access: ALL };
        assert_eq!(w.table.reg_mr(w.pd, spec).map(drop), Err(MemoryError::Unsupported));
        std::process::exit(0);
    }
    let mut w = World::new();
    let keys = w.reg(pages.range(), ALL);
    if before == "replace" {
        set(handler as *const () as usize, libc::SA_SIGINFO);
    } else {
        pages.unmap(0, 1);
        let lost = w.table.write_remote(w.pd, w.qpn, keys.rkey, pages.va(), &[1]);
        assert_eq!(lost, Err(RemoteFault::Unmapped));
    }
    if how == "sandboxed fault" {
        forbid(libc::SYS_process_vm_readv);
    }
    match how {
        "overflow" => drop(overflow(0)),
        // SAFETY: ends the process, or is handled by ending it.
        "fault" | "sandboxed fault" => unsafe {
            ptr::with_exposed_provenance_mut::<u8>(FAULT).write_volatile(1)
        },
        // SAFETY: takes no pointers.
        _ => drop(unsafe { libc::raise(libc::SIGSEGV) }),
    }
    std::process::exit(0);
}

/// Needs more stack than there is, a page or more at a time, so that it ends where nothing of the stack is mapped.
#[expect(unconditional_recursion, reason = "it is to overflow the stack")]
fn overflow(depth: u8) -> u8 {
    let frame = std::hint::black_box([depth; 5 * PAGE]);
    overflow(frame[1]).wrapping_add(frame[0])
}

/// From now on a system call ends the process.
fn forbid(call: libc::c_long) {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP_IF: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let instruction = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        // The number of the call is the first word of what the filter sees.
        instruction(LOAD, 0, 0, 0),
        instruction(JUMP_IF, 0, 1, call as u32),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the kernel copies the filter, which lives through the calls.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
    }
}

/// An address where nothing is.
const FAULT: usize = 64;

fn set(action: usize, flags: i32) {
    // SAFETY: zeros are valid; the handlers call nothing but `_exit`.
    unsafe {
        let mut wanted: libc::sigaction = std::mem::zeroed();
        wanted.sa_sigaction = action;
        wanted.sa_flags = flags;
        assert_eq!(libc::sigaction(libc::SIGSEGV, &wanted, ptr::null_mut()), 0);
    }
}

unsafe extern "C" fn handler(_signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel's.
    let wanted = unsafe { (*info).si_code <= 0 || (*info).si_addr().addr() == FAULT };
    // SAFETY: takes no pointers.
    unsafe { libc::_exit(if wanted { 3 } else { 5 }) }
}

extern "C" fn plain_handler(signal: i32) {
    // SAFETY: takes no pointers.
    unsafe { libc::_exit(if signal == libc::SIGSEGV { 4 } else { 5 }) }
}
