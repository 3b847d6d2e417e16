//! Other users of the machine, who may take any name in the registry. Only root can run programs of two users.

use std::net::{IpAddr, UdpSocket};
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType, accept, bind, getpeername, listen, recv,
    send, socket,
};

use super::*;
use crate::names::{Family, Name};
use crate::reach::{Reached, reach};

const NOBODY: u32 = 65534;

/// Runs `what` as another user. `None` where this one may not become another.
fn as_user<T: Send>(uid: u32, what: impl FnOnce() -> T + Send) -> Option<T> {
    let uid = rustix::process::Uid::from_raw(uid);
    let run = || rustix::thread::set_thread_res_uid(uid, uid, uid).ok().map(|()| what());
    std::thread::scope(|scope| scope.spawn(run).join().expect("it does not panic"))
}

fn as_nobody<T: Send>(what: impl FnOnce() -> T + Send) -> Option<T> {
    as_user(NOBODY, what)
}

/// An address of this machine that is not a loopback address, if it has one.
fn own_address() -> Option<IpAddr> {
    let probe = UdpSocket::bind("0.0.0.0:0").ok()?;
    // No packet is sent.
    probe.connect("192.0.2.1:9").ok()?;
    probe.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_loopback())
}

/// A name that another user takes.
struct Squatter(OwnedFd);

impl Squatter {
    fn take(name: &str) -> Option<Squatter> {
        as_nobody(|| {
            let taken = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
            let name = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("short");
            bind(&taken, &name).expect("free");
            Squatter(taken)
        })
    }

    /// Tells whoever asks that a device listens there that does not exist, until nobody asks any more.
    fn answer(&self) -> Option<()> {
        as_nobody(|| listen(&self.0, 8).expect("listens"))?;
        let listener = rustix::io::dup(&self.0).expect("a descriptor");
        let serve = move || {
            while let Ok(client) = accept(&listener) {
                let mut question = [0; 40];
                let Ok((_, 40)) = recv(&client, &mut question[..], RecvFlags::empty()) else { continue };
                question[4] = 1;
                question[24..].copy_from_slice(&softrnic_wire::Gid::from(IpAddr::from([127, 99, 99, 99])).0);
                let _gone = send(&client, &question, SendFlags::NOSIGNAL);
            }
        };
        std::thread::spawn(serve);
        Some(())
    }
}

/// A user's listener at a name that others disregard.
fn listener_of(uid: u32, name: &Name) -> Option<OwnedFd> {
    let Squatter(taken) = Squatter::take(&name.text())?;
    as_user(uid, || listen(&taken, 8).expect("listens"))?;
    Some(taken)
}

/// Whose listener it is, and whether it is the one on every address.
fn reached(name: &Name) -> Option<(u32, bool)> {
    let Reached::Listener(socket) = reach(None, name, [10, 1, 1, 1].into()) else { return None };
    let owner = softrnic_sys::Credentials::of_peer(&socket).expect("connected").uid;
    let peer =
        SocketAddrUnix::try_from(getpeername(&socket).expect("connected").expect("named")).expect("of Unix");
    Some((owner, peer.abstract_name() == Some(name.text().as_bytes())))
}

#[test]
fn of_two_listeners_the_one_of_this_user_or_of_root_is_accepted() {
    const OWN: u32 = 1001;
    // Who listens on one address and on every one; what a process of OWN reaches.
    let cases = [
        ((Some(OWN), Some(OWN)), Some((OWN, false))),
        ((Some(OWN), Some(NOBODY)), Some((OWN, false))),
        ((Some(NOBODY), Some(OWN)), Some((OWN, true))),
        ((Some(NOBODY), Some(0)), Some((0, true))),
        ((Some(NOBODY), Some(NOBODY)), Some((NOBODY, false))),
        ((Some(NOBODY), None), Some((NOBODY, false))),
        ((None, Some(NOBODY)), Some((NOBODY, true))),
        // Nobody can say who was first.
        ((Some(NOBODY), Some(1002)), None),
    ];
    for (port, ((on_one, on_every), expected)) in (21010..).zip(cases) {
        let (every, one) = Name::both(None, PortSpace::Tcp, port, Family::V4, [10, 1, 1, 1].into());
        let one = one.expect("not a loopback address");
        let names = [(on_one, one), (on_every, every)];
        let listeners: Vec<_> =
            names.iter().filter_map(|(uid, name)| uid.map(|uid| listener_of(uid, name))).collect();
        if listeners.iter().any(Option::is_none) {
            return;
        }
        assert_eq!(as_user(OWN, || reached(&every)), Some(expected), "{on_one:?}, {on_every:?}");
    }
}

#[test]
fn a_listener_on_one_address_is_not_taken_over_by_another_users_on_every_address() {
    let Some(address) = own_address() else { return };
    let (near, far) = (End::new(), End::new());
    let listener = far.id(IdKind::CONNECTED);
    listener.bind(&Address::Ip((address, 0).into())).expect("binds");
    listener.listen(0).expect("listens");
    let local = listener.query().expect("there").local.expect("bound");
    let Some(squatter) = Squatter::take(&format!("softrnic/cm/tcp/{}/4", local.port())) else { return };
    squatter.answer().expect("as before");
    let client = near.resolved(IdKind::CONNECTED, &local);
    client.connect(&near.qp().params(&[])).expect("asks");
    assert_eq!(far.expect(EventKind::ConnectRequest).listener, Some(listener));
}

#[test]
fn a_listener_on_every_address_is_not_taken_over_by_another_users_on_one() {
    let (near, far) = (End::new(), End::new());
    let listener = far.id(IdKind::CONNECTED);
    listener.bind(&at("0.0.0.0:0")).expect("binds");
    listener.listen(0).expect("listens");
    let port = listener.query().expect("there").local.expect("bound").port();
    for address in own_address().into_iter().chain([IpAddr::from([127, 0, 0, 1])]) {
        let Some(squatter) = Squatter::take(&format!("softrnic/cm/tcp/{port}/4/{address}")) else { return };
        squatter.answer().expect("as before");
        let client = near.resolved(IdKind::CONNECTED, &Address::Ip((address, port).into()));
        client.connect(&near.qp().params(&[])).expect("asks");
        assert_eq!(far.expect(EventKind::ConnectRequest).listener.as_ref(), Some(&listener));
        client.destroy().expect("destroyed");
    }
}

/// No listener registers these.
#[test]
fn names_for_impossible_addresses_reserve_no_port() {
    let end = End::new();
    for (port, address) in [(21001, "9.9.9.9"), (21002, "127.0.0.1"), (21003, "nonsense")] {
        let Some(_squatter) = Squatter::take(&format!("softrnic/cm/tcp/{port}/4/{address}")) else { return };
        assert_eq!(end.id(IdKind::CONNECTED).bind(&at(&format!("0.0.0.0:{port}"))), Ok(()), "{address}");
    }
}

/// Only root may have them, whoever was first.
#[test]
fn privileged_ports_are_roots() {
    let (near, far) = (End::new(), End::new());
    let address = own_address();
    for port in [901, 902] {
        let names = [
            Some(format!("softrnic/cm/tcp/{port}/4")),
            address.map(|address| format!("softrnic/cm/tcp/{port}/4/{address}")),
        ];
        let names: Vec<String> = names.into_iter().flatten().collect();
        let squatters: Vec<Squatter> = names.iter().map_while(|name| Squatter::take(name)).collect();
        if squatters.is_empty() {
            return;
        }
        // One that listens and one that does not.
        if port == 902 {
            squatters.iter().for_each(|squatter| squatter.answer().expect("as before"));
        }
        let to = at(&format!("127.0.0.1:{port}"));
        let early = near.resolved(IdKind::CONNECTED, &to);
        early.connect(&near.qp().params(&[])).expect("asks");
        let nobody = near.expect(EventKind::Rejected).status;
        assert_eq!(nobody, EventStatus::Refused(RejReason::INVALID_SERVICE_ID.0));

        let listener = far.id(IdKind::CONNECTED);
        listener.bind(&at(&format!("0.0.0.0:{port}"))).expect("binds");
        let second = near.id(IdKind::CONNECTED).bind(&at(&format!("0.0.0.0:{port}")));
        assert_eq!(second, Err(Error::AddressNotAvailable), "it is taken now");
        listener.listen(0).expect("listens");
        let client = near.resolved(IdKind::CONNECTED, &to);
        client.connect(&near.qp().params(&[])).expect("asks");
        assert_eq!(far.expect(EventKind::ConnectRequest).listener.as_ref(), Some(&listener));
        client.destroy().expect("destroyed");
        listener.destroy().expect("destroyed");
    }
}
