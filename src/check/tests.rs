use softrnic_transport::WcOpcode;

use super::*;

const QPN: u32 = 0x11;
const KEY: u32 = 0x700;

fn object(address: usize, kind: ObjectKind, facts: Facts, uses: &[usize], made: u32) -> Object {
    Object { address, kind, facts, uses: uses.to_vec(), made: Trace(made) }
}

/// A PD at 1, a region at 2, a CQ at 3 and a QP at 4.
fn program() -> Checker {
    let mut checker = Checker::default();
    checker.made(object(1, ObjectKind::Pd, Facts::None, &[], 1));
    checker.made(object(2, ObjectKind::Mr, Facts::Region { addr: 0x1000, length: 64, key: KEY }, &[1], 2));
    checker.made(object(3, ObjectKind::Cq, Facts::Cq { entries: 8 }, &[], 3));
    let qp = Facts::Qp {
        qpn: QPN,
        datagrams: false,
        reliable: true,
        max_send: 8,
        srq: None,
        send_cq: 3,
        recv_cq: 3,
    };
    checker.made(object(4, ObjectKind::Qp, qp, &[1, 3], 4));
    checker
}

fn send(wr_id: u64, signaled: bool) -> Request {
    Request {
        wr_id,
        opcode: WcOpcode::Send,
        length: 8,
        pieces: vec![Piece { addr: 0x1000, length: 8, lkey: KEY }],
        remote: None,
        fenced: false,
        signaled,
        sum: Some(5),
        stage: Stage::default(),
        posted: Trace(9),
    }
}

fn kinds(checker: &mut Checker) -> Vec<Kind> {
    checker.take().into_iter().map(|finding| finding.kind).collect()
}

struct Named;

impl Symbols for Named {
    fn frames(&self, trace: Trace) -> Vec<Frame> {
        ["inner", "middle", "outer"]
            .map(|name| Frame { function: format!("{name}_{}", trace.0), place: format!("/src/{name}.c:1") })
            .into()
    }
}

#[test]
fn a_buffer_that_changes_before_its_completion_is_found_and_one_that_does_not_is_not() {
    for (now, expected) in [(5, vec![]), (6, vec![Kind::ChangedBuffer])] {
        let mut checker = program();
        checker.post(Queue::Send(QPN), send(1, true));
        let polled = Completion { wr_id: 1, qpn: QPN, receive: false, failed: false, filled: None };
        checker.completed(polled, |_| Some(now));
        assert_eq!(kinds(&mut checker), expected);
    }
}

#[test]
fn what_overtakes_a_read_of_the_same_bytes_is_found_unless_it_is_fenced() {
    let read = Request { opcode: WcOpcode::RdmaRead, sum: None, ..send(1, true) };
    let elsewhere = vec![Piece { addr: 0x1008, length: 8, lkey: KEY }];
    for (second, expected) in [
        (send(2, true), vec![Kind::OverlappingRequests]),
        (Request { fenced: true, ..send(2, true) }, vec![]),
        (Request { pieces: elsewhere, ..send(2, true) }, vec![]),
        (Request { wr_id: 2, ..read.clone() }, vec![]),
    ] {
        let mut checker = program();
        checker.post(Queue::Send(QPN), read.clone());
        checker.post(Queue::Send(QPN), second);
        assert_eq!(kinds(&mut checker), expected);
    }
}

#[test]
fn bytes_behind_a_message_are_those_up_to_the_end_of_a_line() {
    let receive = |addr, length| Request {
        opcode: WcOpcode::Recv,
        pieces: vec![Piece { addr, length, lkey: KEY }],
        sum: None,
        ..send(1, true)
    };
    let queue = Queue::Receive(QPN);
    let mut checker = program();
    assert_eq!(checker.behind(queue, &receive(0x1000, 64), 60), Some((0x103c, 4)));
    assert_eq!(
        checker.behind(queue, &receive(0x1000, 62), 60),
        Some((0x103c, 2)),
        "no more than the receive has"
    );
    assert_eq!(checker.behind(queue, &receive(0x1000, 64), 64), None);
    assert_eq!(checker.behind(queue, &receive(0x1010, 64), 8), None, "it ends past its region");
    checker.post(queue, receive(0x1020, 16));
    assert_eq!(
        checker.behind(queue, &receive(0x1000, 64), 60),
        None,
        "another receive has some of the bytes"
    );
}

/// What the NIC does with a receive of 8 bytes, and what becomes of their checksum: when it was posted, when the message came, when
/// it was complete, when the program polled.
fn receive(checker: &mut Checker, sums: [u32; 4], meanwhile: impl Fn(&mut Checker)) -> Vec<Kind> {
    let queue = Queue::Receive(QPN);
    let request = Request { opcode: WcOpcode::Recv, sum: Some(sums[0]), ..send(1, true) };
    assert!(checker.keeps_bytes(queue, &request));
    let list = request.pieces.clone();
    checker.post(queue, request);
    meanwhile(checker);
    checker.places(QPN, list.iter().copied(), |_| Some(sums[1]));
    checker.completes(QPN, 1, true, |_| Some(sums[2]));
    meanwhile(checker);
    let polled = Completion { wr_id: 1, qpn: QPN, receive: true, failed: false, filled: Some(8) };
    checker.completed(polled, |_| Some(sums[3]));
    assert_eq!(checker.sums, 0);
    kinds(checker)
}

#[test]
fn a_receive_that_the_program_writes_to_is_found_before_the_message_and_behind_it() {
    let nothing = |_: &mut Checker| {};
    for (sums, expected) in [
        ([5, 5, 6, 6], vec![]),
        ([5, 7, 6, 6], vec![Kind::WrittenBuffer]),
        ([5, 5, 6, 7], vec![Kind::WrittenBuffer]),
    ] {
        assert_eq!(receive(&mut program(), sums, nothing), expected, "{sums:?}");
    }
}

#[test]
fn a_receive_that_something_else_may_have_written_to_is_not_found() {
    let sums = [5, 7, 6, 8];
    let by_peer = |checker: &mut Checker| checker.peer_writes(KEY, 0x1004, 4);
    let anywhere = |checker: &mut Checker| checker.peer_writes(0x999, 0, 4);
    let another = |checker: &mut Checker| checker.places(0x22, send(1, true).pieces.into_iter(), |_| None);
    let sent = |checker: &mut Checker| checker.post(Queue::Send(QPN), send(3, true));
    let elsewhere = |checker: &mut Checker| checker.peer_writes(KEY, 0x1008, 8);
    assert_eq!(receive(&mut program(), sums, by_peer), []);
    assert_eq!(receive(&mut program(), sums, anywhere), []);
    assert_eq!(receive(&mut program(), sums, another), []);
    assert_eq!(receive(&mut program(), sums, sent), []);
    assert_eq!(receive(&mut program(), sums, elsewhere), [Kind::WrittenBuffer], "of one place");
}

#[test]
fn receives_that_share_their_bytes_have_no_checksum() {
    let mut checker = program();
    let request = Request { opcode: WcOpcode::Recv, ..send(1, true) };
    checker.post(Queue::Receive(QPN), request.clone());
    assert!(!checker.keeps_bytes(Queue::Receive(QPN), &request));
}

#[test]
fn a_word_that_changes_between_two_atomics_of_one_step_is_found() {
    let word = |before, step| Word { qpn: QPN, rkey: KEY, addr: 0x1000, before, after: before + 1, step };
    for (second, expected) in
        [(word(1, 70), vec![]), (word(2, 70), vec![Kind::ChangedAtomic]), (word(2, 71), vec![])]
    {
        let mut checker = program();
        checker.executed(word(0, 70));
        checker.executed(second);
        assert_eq!(kinds(&mut checker), expected);
    }
    let mut checker = program();
    checker.executed(word(0, 70));
    checker.peer_writes(KEY, 0x1000, 8);
    checker.executed(word(2, 70));
    assert_eq!(kinds(&mut checker), [], "a peer has written it");
}

#[test]
fn requests_before_a_completion_are_complete_as_well() {
    let mut checker = program();
    // A number may stand for several.
    checker.post(Queue::Send(QPN), send(2, false));
    checker.post(Queue::Send(QPN), send(2, true));
    checker.post(Queue::Send(QPN), send(3, true));
    checker.completed(Completion { wr_id: 2, qpn: QPN, receive: false, failed: false, filled: None }, |_| {
        Some(5)
    });
    let queue = &checker.queues[&Queue::Send(QPN)];
    assert_eq!(queue.iter().map(|request| request.wr_id).collect::<Vec<_>>(), [3]);
}

#[test]
fn a_full_queue_is_a_mistake_only_if_nothing_in_it_will_be_polled() {
    for (signaled, expected) in [(true, vec![]), (false, vec![Kind::SendQueueFull])] {
        let mut checker = program();
        checker.post(Queue::Send(QPN), send(1, signaled));
        checker.full(Queue::Send(QPN), Part { says: "ibv_post_send was called".into(), trace: Trace(7) });
        assert_eq!(kinds(&mut checker), expected);
    }
}

#[test]
fn who_uses_an_object_that_is_busy_is_told() {
    let mut checker = program();
    let call = Part { says: "ibv_dealloc_pd was called".into(), trace: Trace(7) };
    checker.refused(Kind::StillUsed, "ibv_dealloc_pd fails with EBUSY".into(), call, Some(1));
    let found = checker.take().remove(0);
    let traces: Vec<_> = found.parts.iter().map(|part| part.trace.0).collect();
    assert_eq!(traces, [7, 1, 4, 2], "the call, the domain, its QP and its region");
}

#[test]
fn what_is_left_is_listed_in_the_order_of_its_destruction() {
    let mut checker = program();
    checker.destroyed(2, Trace(8));
    checker.end(true);
    let left: Vec<_> = checker.take().into_iter().map(|finding| finding.parts[0].trace.0).collect();
    assert_eq!(left, [4, 3, 1], "the QP, its CQ, the domain");
    assert_eq!(checker.summary().left.len(), 3);
}

#[test]
fn the_same_finding_is_reported_once_and_counted() {
    let mut checker = program();
    for _ in 0..3 {
        checker.post(Queue::Send(QPN), send(1, true));
        checker.completed(
            Completion { wr_id: 1, qpn: QPN, receive: false, failed: false, filled: None },
            |_| None,
        );
    }
    assert_eq!(kinds(&mut checker).len(), 1);
    assert_eq!((checker.summary().errors(), checker.summary().places()), (3, 1));
}

#[test]
fn a_suppressed_finding_is_counted_apart() {
    let mut checker = program();
    for _ in 0..3 {
        checker.post(Queue::Send(QPN), send(1, true));
        checker.completed(
            Completion { wr_id: 1, qpn: QPN, receive: false, failed: false, filled: None },
            |_| None,
        );
        for finding in checker.take() {
            checker.suppress(&finding);
        }
    }
    assert_eq!((checker.summary().errors(), checker.summary().suppressed), (0, 3));
}

#[test]
fn suppressions_are_like_valgrinds() {
    let mut checker = program();
    checker.post(Queue::Send(QPN), send(1, true));
    checker
        .completed(Completion { wr_id: 1, qpn: QPN, receive: false, failed: false, filled: None }, |_| None);
    let finding = checker.take().remove(0);
    for (rule, covers) in [
        ("softrnic:changed-buffer", true),
        ("softrnic:*", true),
        ("softrnic:unknown-key", false),
        ("softrnic:*\nfun:inner_9\nfun:middle_9", true),
        ("softrnic:*\nfun:middle_9", false),
        ("softrnic:*\n...\nfun:out*", true),
        ("softrnic:*\n...\nfun:out*\nfun:more", false),
        ("softrnic:*\nsrc:inner.c", true),
        ("softrnic:*\nobj:inner.c", false),
        ("softrnic:*\nsrc:/src/*.c\nsrc:outer.c", false),
    ] {
        let suppressions = Suppressions::parse(&format!("# why\n{{\n  a name\n{rule}\n}}\n")).unwrap();
        assert_eq!(suppressions.cover(&finding, &Named), covers, "{rule}");
    }
    for (text, error) in [
        ("x", "line 1: a rule begins with {"),
        ("{\nname\nchanged-buffer\n}", "line 3: the second line of a rule is its kind: softrnic:KIND"),
        ("{\nname\n}", "line 3: the rule has no kind: softrnic:KIND"),
        ("{\nname\nsoftrnic:*\nmain\n}", "line 4: a call is fun:NAME, src:FILE, obj:FILE or ..."),
        ("{\nname\nsoftrnic:*", "line 3: a } is missing"),
    ] {
        assert_eq!(Suppressions::parse(text).unwrap_err().to_string(), error);
    }
}

#[test]
fn names_of_kinds_are_unlike() {
    let names: std::collections::BTreeSet<_> = Kind::ALL.iter().map(|kind| kind.name()).collect();
    assert_eq!(names.len(), Kind::ALL.len());
    for kind in Kind::ALL {
        assert_eq!(Kind::named(kind.name()), Some(*kind));
    }
}
