//! What takes long happens beside the NIC, which others may have meanwhile.

use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use softrnic_link::{Backlog, Link, ProcessSlot, ServeError, Sharing, delegate_link};
use softrnic_wire::ServiceId;

use super::pair;
use super::wire::{WireLink, wire};
use crate::progress::tuning::ATTEND_MEMBERS;
use crate::verbs::{Access, AppRange, Context, MrSpec, Running};

const LENGTH: usize = 64 << 20;
/// How long a thread waits for what another is to do.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

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

/// A link whose address is shared, and where somebody wants to join.
struct Shared {
    below: WireLink,
    ready: OwnedFd,
    backlog: Option<Arc<Crowd>>,
}

/// Accepting takes until `end` says so.
struct Crowd {
    begun: Sender<()>,
    end: Mutex<Receiver<()>>,
}

impl Backlog for Crowd {
    fn accept_some(&self) {
        self.begun.send(()).expect("heard");
        let _ = self.end.lock().expect("whole").recv_timeout(WAIT_TIMEOUT);
    }
}

impl Link for Shared {
    delegate_link!(self => self.below;
        capabilities reserve reserved commit flush is_blocked receive descriptor watch join leave counters
    );

    fn sharing(&mut self) -> Option<&mut dyn Sharing> {
        Some(self)
    }
}

impl Sharing for Shared {
    fn processes(&mut self) -> Vec<u32> {
        vec![std::process::id()]
    }

    fn lifelines(&mut self, _address: IpAddr, _slot: ProcessSlot) -> Option<u64> {
        None
    }

    fn descriptor(&self) -> RawFd {
        self.ready.as_raw_fd()
    }

    fn attend(&mut self) -> Vec<Arc<dyn Backlog>> {
        rustix::io::read(&self.ready, &mut [0; 8]).expect("it is ready");
        self.backlog.take().into_iter().map(|crowd| crowd as Arc<dyn Backlog>).collect()
    }

    fn let_in(&mut self) {}

    fn serve(&mut self, _service: ServiceId, _at: Option<IpAddr>) -> Result<(), ServeError> {
        Ok(())
    }

    fn stop_serving(&mut self, _service: ServiceId) -> Result<(), ServeError> {
        Ok(())
    }

    fn end_sharing(&mut self) {}
}

/// Other users choose how many connect, and whoever accepts may be suspended.
#[test]
fn connections_are_accepted_while_another_thread_has_the_nic() {
    let (begun, accepting) = channel();
    let (end, ends) = channel();
    let (below, ..) = wire(1);
    let ready = eventfd(1, EventfdFlags::CLOEXEC).expect("an eventfd");
    let backlog = Some(Arc::new(Crowd { begun, end: Mutex::new(ends) }));
    let link = Box::new(Shared { below, ready, backlog });
    let running = Running::with_link(link, IpAddr::from([127, 0, 77, 9]), "crowded").expect("starts");
    let context = Context::on(running).expect("opens");
    accepting.recv_timeout(WAIT_TIMEOUT).expect("the thread accepts");
    thread::scope(|scope| {
        let control = scope.spawn(|| context.nic().control(|_, _| ()));
        let had_the_nic = wait_until(|| control.is_finished());
        end.send(()).expect("heard");
        assert!(had_the_nic, "whoever accepts holds the NIC");
    });
}
