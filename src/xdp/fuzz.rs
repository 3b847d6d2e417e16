//! Hand-overs with any bytes and descriptors.

use std::fs::File;
use std::io::Write;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use softrnic_sys::fuzz::Choices;

use super::grant::Grant;
use super::handover::{GrantRequest, Wishes, send};
use super::options::XdpOptions;

/// What a helper receives from an application, and an application from a helper, with descriptors of all kinds.
pub fn grant(data: &[u8]) {
    let mut choices = Choices(data);
    let kind = choices.byte();
    let (near, far) = UnixStream::pair().expect("a pair");
    match kind % 3 {
        0 => {
            (&near).write_all(choices.0).expect("room for it");
            near.shutdown(Shutdown::Write).expect("the end");
            if let Ok(request) = GrantRequest::read(far) {
                assert!(!request.interface().contains('\n'));
                request.refuse("it is not for anybody").expect("room for it");
            }
        }
        1 => {
            let count = usize::from(choices.byte() % 8);
            let descriptors: Vec<OwnedFd> =
                choices.take(count).iter().map(|&kind| descriptor(kind)).collect();
            let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
            let text = String::from_utf8_lossy(choices.0);
            if !text.is_empty() {
                send(&far, &text, &borrowed).expect("room for it");
            }
            far.shutdown(Shutdown::Write).expect("the end");
            assert!(
                Grant::ask(near, "lo", &XdpOptions::default()).is_err(),
                "none of them is a bound socket"
            );
        }
        _ => {
            let mut wishes = Wishes::default();
            while !choices.is_empty() {
                let len = usize::from(choices.byte());
                if wishes.add(choices.take(len), &mut |_| {}).is_err() {
                    break;
                }
            }
        }
    }
}

fn descriptor(kind: u8) -> OwnedFd {
    match kind % 3 {
        0 => UnixStream::pair().expect("a pair").0.into(),
        1 => File::open("/dev/null").expect("a device").into(),
        _ => softrnic_af_xdp::fuzz::memory_file(usize::from(kind)),
    }
}
