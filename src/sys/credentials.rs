//! Who is at the other side of a Unix socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::OnceLock;

use rustix::fs::{Mode, OFlags};

/// Of the process that connected, or that listened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credentials {
    /// Its number; 0 if it is in another PID namespace, as in another container of a pod.
    pub pid: i32,
    /// Its effective user, as this process's user namespace numbers it.
    pub uid: u32,
}

impl Credentials {
    /// Those of the peer of a Unix socket (`SO_PEERCRED`, unix(7)).
    ///
    /// Not by `rustix`, whose type for a process has no number 0.
    ///
    /// # Errors
    /// It is no such socket, or not connected.
    pub fn of_peer(socket: impl AsFd) -> io::Result<Credentials> {
        let mut found = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: libc::gid_t::MAX };
        let mut length = size_of::<libc::ucred>() as libc::socklen_t;
        let (of, into) = (socket.as_fd().as_raw_fd(), (&raw mut found).cast());
        // SAFETY: the kernel writes at most `length` bytes to `found`; both live through the call.
        match unsafe { libc::getsockopt(of, libc::SOL_SOCKET, libc::SO_PEERCRED, into, &raw mut length) } {
            0 => Ok(Credentials { pid: found.pid, uid: found.uid }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Whether its number is known here.
    pub fn have_pid(&self) -> bool {
        self.pid > 0
    }

    /// Whether it is a process of this process's user.
    pub fn are_ours(self) -> bool {
        self.are_of(rustix::process::geteuid().as_raw())
    }

    /// Whether it is a process of root.
    pub fn are_roots(self) -> bool {
        self.are_of(0)
    }

    /// Whether it is a process of `user`.
    pub fn are_of(self, user: u32) -> bool {
        is_user(self.uid, user)
    }
}

/// Whether a user that the kernel reports is certainly `user`.
pub fn is_user(reported: u32, user: u32) -> bool {
    reported == user && !stands_for_many(user)
}

/// Whether the kernel reports this number for several users: in a user namespace, the overflow uid stands for all users
/// that the namespace does not map (user_namespaces(7)), beside the one whose number it is.
pub fn stands_for_many(user: u32) -> bool {
    user == overflow_uid() && !maps_all_users()
}

/// As the kernel has it unless somebody changes it (`DEFAULT_OVERFLOWUID`, linux/highuid.h).
const DEFAULT_OVERFLOW_UID: u32 = 65534;

fn overflow_uid() -> u32 {
    static FOUND: OnceLock<u32> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let text = read_short("/proc/sys/kernel/overflowuid");
        text.and_then(|text| text.trim().parse().ok()).unwrap_or(DEFAULT_OVERFLOW_UID)
    })
}

/// Not kept: the process may enter another namespace.
fn maps_all_users() -> bool {
    read_short("/proc/self/uid_map").is_some_and(|map| is_identity(&map))
}

/// What a file of the kernel says, if that is short. Unlike `std::fs`, no cancellation point.
fn read_short(path: &str) -> Option<String> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = [0; 128];
    let len = rustix::io::read(&file, &mut text[..]).ok()?;
    (len < text.len()).then(|| String::from_utf8_lossy(&text[..len]).into_owned())
}

/// Whether a map of users leaves none out. Each line has the first number here, the first outside, and their count.
fn is_identity(map: &str) -> bool {
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_map_of_all_users_is_the_identity() {
        assert!(is_identity("         0          0 4294967295\n"));
        for map in [
            "",
            "         0          0      65536\n",
            "         0     100000 4294867295\n",
            "         0       1000          1\n         1     100000      65536\n",
        ] {
            assert!(!is_identity(map), "{map:?}");
        }
    }

    #[test]
    fn a_user_of_the_initial_namespace_is_that_user() {
        let own = rustix::process::geteuid().as_raw();
        assert!(is_user(own, own) || stands_for_many(own));
        assert!(!is_user(own + 1, own));
        assert_eq!(is_user(overflow_uid(), overflow_uid()), maps_all_users());
    }
}
