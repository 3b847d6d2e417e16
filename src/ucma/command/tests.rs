use super::*;

/// A command as librdmacm writes it: header, then the body.
fn written(code: u32, room: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = code.to_ne_bytes().to_vec();
    bytes.extend((body.len() as u16).to_ne_bytes());
    bytes.extend(room.to_ne_bytes());
    bytes.extend(body);
    bytes
}

fn read(code: u32, room: u16, body: &[u8]) -> Result<Command, Errno> {
    let bytes = written(code, room, body);
    // SAFETY: all of a vector. No command here has the address of an option.
    let frame = unsafe { Frame::read(bytes.as_ptr(), bytes.len()) };
    Command::read(&frame.expect("a frame"))
}

/// A body of zeros but for these fields.
fn body(length: usize, fields: &[(usize, &[u8])]) -> Vec<u8> {
    let mut body = vec![0; length];
    for (at, bytes) in fields {
        body[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    body
}

/// 127.0.0.1, port 7282.
const LOCALHOST: [u8; 16] = [2, 0, 0x1c, 0x72, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];

fn localhost() -> Address {
    Address::Ip(std::net::SocketAddr::from(([127, 0, 0, 1], 7282)))
}

#[test]
fn an_id_is_made_for_a_port_space_and_the_service_that_it_has() {
    let create = |space: u16, qp_type: u8| {
        let fields: [(usize, &[u8]); 4] = [
            (0, &7u64.to_ne_bytes()),
            (8, &0x1000u64.to_ne_bytes()),
            (16, &space.to_ne_bytes()),
            (18, &[qp_type]),
        ];
        read(0, 4, &body(24, &fields))
    };
    for (space, qp_type, kind) in [
        (0x0106, 0, (PortSpace::Tcp, QpType::Rc)),
        (0x0106, 4, (PortSpace::Tcp, QpType::Rc)),
        (0x0111, 2, (PortSpace::Udp, QpType::Ud)),
        (0x0002, 2, (PortSpace::IpoIb, QpType::Ud)),
        (0x013F, 2, (PortSpace::Ib, QpType::Rc)),
        (0x013F, 9, (PortSpace::Ib, QpType::XrcInitiator)),
        (0x013F, 10, (PortSpace::Ib, QpType::XrcTarget)),
    ] {
        let Ok(Command::CreateId { context: 7, kind: found, .. }) = create(space, qp_type) else {
            panic!("{space:#x} {qp_type}");
        };
        assert_eq!((found.space, found.service), kind);
    }
    assert_eq!(create(0x0107, 2), Err(Errno::INVAL), "no such port space");
    assert_eq!(create(0x013F, 7), Err(Errno::INVAL), "no such service");
}

#[test]
fn short_or_unknown_commands_are_invalid() {
    for (code, (name, least)) in Code::TABLE.iter().enumerate() {
        assert_eq!(code as u32, *name as u32, "in their places");
        if *least > 0 {
            assert_eq!(read(code as u32, u16::MAX, &vec![0; least - 1]), Err(Errno::INVAL), "{name:?}");
        }
    }
    assert_eq!(read(25, 400, &[0; 320]), Err(Errno::INVAL));
    assert_eq!(read(u32::MAX, 400, &[0; 320]), Err(Errno::INVAL));
    assert_eq!(read(13, 400, &[0; 32]), Err(Errno::NOSYS), "GET_OPTION");
}

#[test]
fn a_write_without_its_length_is_not_a_command() {
    let mut bytes = written(10, 0, &[1, 0, 0, 0]);
    bytes.push(0);
    for length in [0, 7, 8, 11, 13] {
        // SAFETY: within the vector.
        assert!(unsafe { Frame::read(bytes.as_ptr(), length) }.is_none(), "{length}");
    }
    // SAFETY: within the vector.
    assert!(unsafe { Frame::read(bytes.as_ptr(), 12) }.is_some());
}

#[test]
fn an_answer_that_has_no_room_is_refused() {
    for (code, length, least) in
        [(0, 24, 4), (1, 16, 4), (5, 16, 200), (11, 16, 144), (12, 8, 324), (17, 16, 4), (18, 16, 4)]
    {
        let body = body(length, if code == 0 { &[(16, &[0x06, 0x01])] } else { &[] });
        assert_eq!(read(code, least - 1, &body), Err(Errno::NOSPC), "{code}");
        assert!(read(code, least, &body).is_ok(), "{code}");
    }
    // Of a query it comes after the question whether there is such an id.
    let body = body(16, &[(8, &[3])]);
    assert_eq!(read(19, 271, &body), Ok(Command::Refused { id: 3, errno: Errno::NOSPC }));
}

#[test]
fn an_address_must_be_as_long_as_its_family_says() {
    let bind = |size: u16, reserved: u8| {
        read(20, 0, &body(136, &[(0, &[9]), (4, &size.to_ne_bytes()), (6, &[reserved]), (8, &LOCALHOST)]))
    };
    assert_eq!(bind(16, 0), Ok(Command::Bind { id: 9, address: localhost() }));
    for (size, reserved) in [(0, 0), (15, 0), (28, 0), (48, 0), (128, 0), (16, 1)] {
        assert_eq!(bind(size, reserved), Err(Errno::INVAL), "{size} {reserved}");
    }
    let older = read(2, 0, &body(40, &[(8, &LOCALHOST), (36, &[9])]));
    assert_eq!(older, Ok(Command::Bind { id: 9, address: localhost() }));
    let no_ip = read(2, 0, &body(40, &[(8, &[27]), (36, &[9])]));
    assert_eq!(no_ip, Err(Errno::INVAL));
}

#[test]
fn a_source_may_be_left_out() {
    let resolve = |source_size: u8, source: &[u8], size: u8| {
        let fields: [(usize, &[u8]); 6] =
            [(0, &[5]), (4, &[0xD0, 7]), (8, &[source_size]), (10, &[size]), (16, source), (144, &LOCALHOST)];
        read(21, 0, &body(272, &fields))
    };
    let expected = |source| {
        Ok(Command::ResolveAddr { id: 5, source, destination: localhost(), timeout: Duration::from_secs(2) })
    };
    assert_eq!(resolve(0, &[], 16), expected(None));
    assert_eq!(resolve(16, &LOCALHOST, 16), expected(Some(localhost())));
    assert_eq!(resolve(28, &LOCALHOST, 16), Err(Errno::INVAL));
    assert_eq!(resolve(0, &[], 0), Err(Errno::INVAL));
    let older = read(3, 0, &body(64, &[(28, &LOCALHOST), (56, &[5]), (60, &[0xD0, 7])]));
    assert_eq!(older, expected(None));
}

/// What a client says when it connects: QP 0x12345678, 3 bytes, SRQ, 1, 2, flow control, 9 and 15 retries.
fn conn_param(valid: u8) -> Vec<u8> {
    let numbers: [u8; 8] = [3, 1, 1, 2, 1, 9, 15, valid];
    body(272, &[(0, &0x1234_5678_u32.to_ne_bytes()), (4, &[1]), (8, b"abcdef"), (264, &numbers)])
}

fn expected_params(ece: Ece) -> ConnParams {
    ConnParams {
        qpn: Qpn::new(0x34_5678),
        qkey: Qkey(1),
        private: b"abc".to_vec(),
        srq: true,
        responder_resources: 1,
        initiator_depth: 2,
        flow_control: true,
        retry_count: 7,
        rnr_retry: 7,
        ece,
    }
}

#[test]
fn a_connection_is_asked_for_with_or_without_options_of_vendors() {
    let mut connect = conn_param(1);
    connect.extend([4, 0, 0, 0, 0, 0, 0, 0]);
    let without = Command::Connect { id: 4, params: expected_params(Ece::default()) };
    assert_eq!(read(6, 0, &connect), Ok(without));
    connect.extend([7, 0, 0, 0, 8, 0, 0, 0]);
    let ece = Ece { vendor_id: 7, options: 8 };
    assert_eq!(read(6, 0, &connect), Ok(Command::Connect { id: 4, params: expected_params(ece) }));
    connect[271] = 0;
    assert_eq!(read(6, 0, &connect), Err(Errno::INVAL), "parameters that are not valid");
}

#[test]
fn an_accept_without_parameters_is_ready_to_use() {
    let accept = |valid| {
        let mut accept = 99u64.to_ne_bytes().to_vec();
        accept.extend(conn_param(valid));
        accept.extend([4, 0, 0, 0, 0, 0, 0, 0]);
        read(8, 0, &accept)
    };
    let params = expected_params(Ece::default());
    assert_eq!(accept(1), Ok(Command::Accept { id: 4, context: 99, params }));
    assert_eq!(accept(0), Ok(Command::Establish { id: 4 }));
}

#[test]
fn only_two_reasons_may_be_given_to_a_peer() {
    for (given, told) in [(0, Some(28)), (28, Some(28)), (35, Some(35)), (8, None), (255, None)] {
        let told =
            told.map(|reason| Command::Reject { id: 1, reason, private: b"no".to_vec() }).ok_or(Errno::INVAL);
        assert_eq!(read(9, 0, &body(264, &[(0, &[1]), (4, &[2, given]), (8, b"no!")])), told, "{given}");
    }
}

#[test]
fn there_are_seven_states_of_a_qp() {
    for (number, state) in QpState::ALL.iter().enumerate() {
        let read = read(11, 144, &body(16, &[(8, &[1]), (12, &[number as u8])]));
        assert!(matches!(read, Ok(Command::InitQpAttr { id: 1, state: found, .. }) if found == *state));
    }
    assert_eq!(read(11, 144, &body(16, &[(12, &[7])])), Err(Errno::INVAL));
}

#[test]
fn options_have_lengths_of_their_own() {
    assert_eq!(option(0, 0, &[0x20]), Ok(IdOption::TypeOfService(0x20)));
    assert_eq!(option(0, 0, &[0x20, 0, 0, 0]), Err(Errno::INVAL));
    assert_eq!(option(0, 1, &[1, 0, 0, 0]), Ok(IdOption::ReuseAddress(true)));
    assert_eq!(option(0, 2, &[0, 0, 0, 0]), Ok(IdOption::OneFamily(false)));
    assert_eq!(option(0, 2, &[1]), Err(Errno::INVAL));
    assert_eq!(option(0, 3, &[19]), Ok(IdOption::AckTimeout(19)));
    for (level, name) in [(0, 4), (1, 0), (1, 2), (2, 0)] {
        assert_eq!(option(level, name, &[0; 4]), Err(Errno::NOSYS), "{level} {name}");
    }
}

#[test]
fn the_first_usable_path_counts() {
    let mut unusable = vec![0; path_data::SIZE];
    unusable[0] = 4;
    assert_eq!(option(1, 1, &unusable), Err(Errno::INVAL));
    assert_eq!(option(1, 1, &[]), Err(Errno::INVAL));
    assert_eq!(option(1, 1, &[0x2B; 71]), Err(Errno::INVAL));
    let mut usable = unusable.clone();
    usable[0] = 0x2B;
    usable[8 + 23] = 2; // dgid
    usable[8 + 39] = 1; // sgid
    usable[8 + 44..8 + 50].copy_from_slice(&[0xFA, 0xBC, 0xDE, 64, 0x20, 0x81]);
    usable[8 + 50..8 + 57].copy_from_slice(&[0xFF, 0xFF, 0, 3, 0x85, 0x83, 0x92]);
    let Ok(IdOption::Path(paths)) = option(1, 1, &[unusable, usable].concat()) else { panic!("usable") };
    let [path] = paths[..] else { panic!("one path") };
    assert_eq!((path.dgid.0[15], path.sgid.0[15]), (2, 1));
    assert_eq!((path.flow_label, path.hop_limit, path.traffic_class), (0xA_BCDE, 64, 0x20));
    assert_eq!((path.pkey, path.sl, path.mtu, path.packet_life), (0xFFFF, 3, Mtu::B4096, 18));
}

#[test]
fn the_rest() {
    assert_eq!(
        read(4, 0, &body(8, &[(0, &[1]), (4, &[100])])),
        Ok(Command::ResolveRoute { id: 1, timeout: Duration::from_millis(100) })
    );
    assert_eq!(
        read(7, 0, &body(8, &[(0, &[1]), (4, &[0xFF; 4])])),
        Ok(Command::Listen { id: 1, backlog: -1 })
    );
    assert_eq!(read(10, 0, &[1, 0, 0, 0]), Ok(Command::Disconnect { id: 1 }));
    assert_eq!(read(15, 0, &body(8, &[(0, &[1]), (4, &[4])])), Ok(Command::Notify { id: 1, event: 4 }));
    assert_eq!(
        read(19, 280, &body(16, &[(8, &[1]), (12, &[3])])),
        Ok(Command::Refused { id: 1, errno: Errno::OPNOTSUPP })
    );
    assert_eq!(
        read(19, 280, &body(16, &[(8, &[1]), (12, &[4])])),
        Ok(Command::Refused { id: 1, errno: Errno::NOSYS })
    );
    assert_eq!(read(23, 0, &body(88, &[(0, &[1])])), Ok(Command::Refused { id: 1, errno: Errno::OPNOTSUPP }));
    let event = Command::WriteEvent { id: 1, kind: EventKind::User, status: -2, argument: 5 };
    let fields: [(usize, &[u8]); 4] = [(0, &[1]), (8, &[18]), (12, &(-2i32).to_ne_bytes()), (16, &[5])];
    assert_eq!(read(24, 0, &body(320, &fields)), Ok(event));
    assert_eq!(
        read(24, 0, &body(320, &[(8, &[9])])),
        Err(Errno::INVAL),
        "ESTABLISHED is not the application's"
    );
    let joined = read(22, 4, &body(152, &[(8, &[3]), (16, &[1]), (20, &[16, 0, 1]), (24, &LOCALHOST)]));
    assert!(
        matches!(joined, Ok(Command::Join { id: 1, context: 3, send_only: true, group, .. }) if group == localhost())
    );
    assert_eq!(read(22, 4, &body(152, &[(20, &[16, 0, 2]), (24, &LOCALHOST)])), Err(Errno::INVAL));
}
