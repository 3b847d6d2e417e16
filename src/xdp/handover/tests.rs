use std::io::Write;
use std::os::unix::net::UnixListener;
use std::thread;

use super::*;
use softrnic_link::testing;

fn answer(reply: &'static [u8]) -> String {
    let name = format!("@softrnic-handover-test-{}-{}", std::process::id(), reply.len());
    let address = SocketAddr::from_abstract_name(name.trim_start_matches('@')).expect("a name");
    let listener = UnixListener::bind_addr(&address).expect("binds");
    thread::scope(|scope| {
        scope.spawn(|| {
            let (stream, _) = listener.accept().expect("accepts");
            let request = GrantRequest::read(stream).expect("a request");
            assert_eq!(request.interface(), "eth9");
            (&request.stream).write_all(reply).expect("writes");
        });
        let granted = Grant::request(&name, "eth9", &XdpOptions::default());
        granted.err().expect("nothing was granted").to_string()
    })
}

#[test]
fn refusals_and_invalid_answers_are_distinguished() {
    assert!(answer(b"refused\nnot for you").ends_with(": not for you"));
    assert!(answer(b"refused\nnot for you, either\n\n").ends_with(": not for you, either"));
    assert!(answer(b"HTTP/1.1 400 Bad Request\n").contains("its answer is not that of a helper"));
    assert!(answer(b"granted\nifindex 1\n").ends_with("is malformed"));
}

#[test]
fn a_refusal_reaches_a_client_whose_request_was_not_read() {
    let (near, far) = UnixStream::pair().expect("a pair");
    refuse(&far, "it is for user 7 only\n\n").expect("refuses");
    drop(far);
    let refusal = Grant::ask(near, "eth0", &XdpOptions::default()).err().expect("a refusal");
    assert_eq!(refusal, "it is for user 7 only");
}

#[test]
fn another_user_cannot_take_the_place_of_a_helper_that_has_ended() {
    let name = format!("softrnic-handover-test-{}-taken", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    let Some(_listener) = testing::as_another_user(|| UnixListener::bind_addr(&address).expect("binds"))
    else {
        return;
    };
    let error = Grant::request(&format!("@{name}"), "eth9", &XdpOptions::default()).err().expect("an error");
    assert!(
        error.to_string().ends_with("the listener belongs to user 65534, who is neither root nor this user"),
        "{error}"
    );
}

#[test]
fn a_missing_helper_is_an_error() {
    let error = Grant::request("/nowhere/at/all", "eth0", &XdpOptions::default()).err().expect("an error");
    assert!(error.to_string().starts_with("no grant from /nowhere/at/all: No such file"));
}

#[test]
fn a_helper_that_trickles_bytes_is_not_awaited() {
    let (mut near, far) = UnixStream::pair().expect("a pair");
    let begin = Instant::now();
    let slow = thread::spawn(move || {
        while near.write_all(b"g").is_ok() && begin.elapsed() < 4 * CLIENT_TIMEOUT {
            thread::sleep(CLIENT_TIMEOUT / 20);
        }
    });
    assert!(GrantRequest::read(far).is_err());
    assert!(begin.elapsed() < 2 * CLIENT_TIMEOUT);
    slow.join().expect("ends when nobody reads");
}

#[test]
fn wishes_may_arrive_in_pieces_and_invalid_ones_end_them() {
    let mut wishes = Wishes::default();
    let mut seen = Vec::new();
    for piece in ["jo", "in 239.1.2.3\nleave 239.1", ".2.3\n"] {
        wishes.add(piece.as_bytes(), &mut |wish| seen.push(wish.to_string())).expect("wishes");
    }
    assert_eq!(seen, ["join 239.1.2.3\n", "leave 239.1.2.3\n"]);
    assert!(wishes.add(&[b'x'; 65], &mut |_| panic!("a wish")).is_err());
    assert!(Wishes::default().add(b"join 10.0.0.1\n", &mut |_| panic!("a wish")).is_err());
}
