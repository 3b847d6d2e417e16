//! What takes long happens beside the NIC, which others may have meanwhile.

use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use super::pair;
use crate::progress::tuning::ATTEND_MEMBERS;
use crate::verbs::{Access, AppRange, Context, MrSpec};

const LENGTH: usize = 64 << 20;

/// Untouched memory, which is unmapped when dropped.
struct Untouched(usize);

impl Untouched {
    fn new() -> Untouched {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, wherever there is room.
        let addr = unsafe { libc::mmap(std::ptr::null_mut(), LENGTH, protection, flags, -1, 0) };
        assert_ne!(addr, libc::MAP_FAILED);
        Untouched(addr.expose_provenance())
    }

    fn range(&self) -> AppRange {
        // SAFETY: mapped until it is dropped, which outlives the registration; there is no reference to it.
        unsafe { AppRange::new(self.0, LENGTH as u64) }
    }

    /// Whether the last page is there.
    fn is_populated(&self) -> bool {
        let mut resident = 0_u8;
        let last = std::ptr::with_exposed_provenance_mut(self.0 + LENGTH - 4096);
        // SAFETY: one byte for the one page asked about.
        assert_eq!(unsafe { libc::mincore(last, 4096, &mut resident) }, 0);
        resident & 1 != 0
    }
}

impl Drop for Untouched {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`; registrations of it are gone.
        unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(self.0), LENGTH) };
    }
}

#[test]
fn pages_are_faulted_in_while_another_thread_holds_the_nic() {
    let end = pair().near;
    let memory = Untouched::new();
    let (held, start) = channel();
    let registered = thread::scope(|scope| {
        let (pd, memory) = (&end._pd, &memory);
        let registering = scope.spawn(move || {
            start.recv().expect("the NIC is held");
            let (range, access) = (memory.range(), Access::LOCAL_WRITE);
            pd.register_raw(MrSpec { range, iova: range.addr() as u64, access })
        });
        let populated = end.context.nic().control(|_, _| {
            held.send(()).expect("heard");
            wait_until(|| memory.is_populated())
        });
        assert_eq!(populated, Ok(true), "the pages wait for the NIC, and so does everybody for the pages");
        registering.join().expect("ends")
    });
    drop(registered.expect("registers"));
}

fn wait_until(happened: impl Fn() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(20);
    while Instant::now() < end {
        if happened() {
            return true;
        }
        thread::sleep(Duration::from_millis(1));
    }
    false
}

/// The name of a shared address is open to every user.
#[test]
fn endless_connections_are_served_only_now_and_then() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

    const BACKLOG: u128 = 128;
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let address = format!("127.200.{high}.{}", low.clamp(1, 254));
    let _device = Context::open(&format!("udp:{address}").parse().expect("a device")).expect("it opens");
    let name =
        SocketAddrUnix::new_abstract_name(format!("softrnic/udp/{address}").as_bytes()).expect("a name");
    let begun = Instant::now();
    let mut let_in = 0;
    while begun.elapsed() < Duration::from_millis(400) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a socket");
        let_in += u128::from(connect(&socket, &name).is_ok());
    }
    // Sixteen at a time, and those that wait.
    let rounds = begun.elapsed().as_millis() / ATTEND_MEMBERS.as_millis() + 2;
    assert!(let_in <= rounds * 16 + BACKLOG + 1, "{let_in} in {:?}", begun.elapsed());
    assert!(let_in > BACKLOG + 1, "those that wait come in: {let_in}");
}
