//! The commands (`include/uapi/rdma/rdma_user_cm.h`), checked before anything is done.
//!
//! Errors are checked in the kernel's order: first the command itself, then whether the id exists, then the rest
//! (`drivers/infiniband/core/ucma.c`).

use std::time::Duration;

use softrnic_cma::{Address, ConnParams, Ece, EventKind, IdKind, IdOption, PathRecord};
use softrnic_nic::verbs::{Mtu, Qkey, QpState, QpType, Qpn};
use softrnic_wire::{Gid, PortSpace};

use crate::errno::Errno;
use crate::fields::Fields;
use crate::sockaddr::{self, IN6, STORAGE};
use crate::user::{Answer, Frame};

/// A command to the kernel.
#[derive(Clone, PartialEq, Debug)]
pub enum Command {
    CreateId {
        context: u64,
        kind: IdKind,
        answer: Answer,
    },
    DestroyId {
        id: u32,
        answer: Answer,
    },
    Bind {
        id: u32,
        address: Address,
    },
    ResolveAddr {
        id: u32,
        source: Option<Address>,
        destination: Address,
        timeout: Duration,
    },
    ResolveRoute {
        id: u32,
        timeout: Duration,
    },
    QueryRoute {
        id: u32,
        answer: Answer,
    },
    Query {
        id: u32,
        query: Query,
        answer: Answer,
    },
    Connect {
        id: u32,
        params: ConnParams,
    },
    Listen {
        id: u32,
        backlog: i32,
    },
    Accept {
        id: u32,
        context: u64,
        params: ConnParams,
    },
    /// An accept without parameters: the caller has set up the QP.
    Establish {
        id: u32,
    },
    Reject {
        id: u32,
        reason: u8,
        private: Vec<u8>,
    },
    Disconnect {
        id: u32,
    },
    InitQpAttr {
        id: u32,
        state: QpState,
        answer: Answer,
    },
    GetEvent {
        answer: Answer,
    },
    SetOption {
        id: u32,
        option: IdOption,
    },
    Notify {
        id: u32,
        event: u32,
    },
    Join {
        id: u32,
        context: u64,
        group: Address,
        send_only: bool,
        answer: Answer,
    },
    Leave {
        group: u32,
        answer: Answer,
    },
    /// Written to the new channel; `from` is the descriptor of the old one.
    Migrate {
        id: u32,
        from: i32,
        answer: Answer,
    },
    WriteEvent {
        id: u32,
        kind: EventKind,
        status: i32,
        argument: u64,
    },
    /// Refused once the id is known to exist.
    Refused {
        id: u32,
        errno: Errno,
    },
}

/// A query about an id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Query {
    Addresses,
    Paths,
    Gids,
}

/// `rdma_ucm_conn_param`.
mod conn_param {
    pub const SIZE: usize = 272;
    pub const VALID: usize = 271;
}

/// Reads `rdma_ucm_conn_param`; the vendor options are stored elsewhere.
fn conn_params(from: Fields<'_>, ece: Ece) -> ConnParams {
    ConnParams {
        qpn: Qpn::new(from.u32(0)),
        qkey: Qkey(from.u32(4)),
        private: from.part(8, from.u8(264).into()).0.to_vec(),
        srq: from.u8(265) != 0,
        responder_resources: from.u8(266),
        initiator_depth: from.u8(267),
        flow_control: from.u8(268) != 0,
        retry_count: from.u8(269).min(7),
        rnr_retry: from.u8(270).min(7),
        ece,
    }
}

fn ece(body: Fields<'_>, at: usize) -> Ece {
    Ece { vendor_id: body.u32(at), options: body.u32(at + 4) }
}

/// Commands by number. The kernel's table has a hole at 13 (`GET_OPTION`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Code {
    CreateId = 0,
    DestroyId = 1,
    BindIp = 2,
    ResolveIp = 3,
    ResolveRoute = 4,
    QueryRoute = 5,
    Connect = 6,
    Listen = 7,
    Accept = 8,
    Reject = 9,
    Disconnect = 10,
    InitQpAttr = 11,
    GetEvent = 12,
    GetOption = 13,
    SetOption = 14,
    Notify = 15,
    JoinIpMcast = 16,
    LeaveMcast = 17,
    MigrateId = 18,
    Query = 19,
    Bind = 20,
    ResolveAddr = 21,
    JoinMcast = 22,
    ResolveIbService = 23,
    WriteCmEvent = 24,
}

impl Code {
    /// All commands, at their numbers, with the shortest body of each.
    pub const TABLE: [(Code, usize); 25] = [
        (Code::CreateId, 24),
        (Code::DestroyId, 16),
        (Code::BindIp, 40),
        (Code::ResolveIp, 64),
        (Code::ResolveRoute, 8),
        (Code::QueryRoute, 16),
        (Code::Connect, 280),
        (Code::Listen, 8),
        (Code::Accept, 288),
        (Code::Reject, 264),
        (Code::Disconnect, 4),
        (Code::InitQpAttr, 16),
        (Code::GetEvent, 8),
        (Code::GetOption, 0),
        (Code::SetOption, 24),
        (Code::Notify, 8),
        (Code::JoinIpMcast, 48),
        (Code::LeaveMcast, 16),
        (Code::MigrateId, 16),
        (Code::Query, 16),
        (Code::Bind, 136),
        (Code::ResolveAddr, 272),
        (Code::JoinMcast, 152),
        (Code::ResolveIbService, 88),
        (Code::WriteCmEvent, 24),
    ];

    /// The command with this number, whose body must be long enough.
    fn of(number: u32, body: usize) -> Result<Code, Errno> {
        let (code, least) =
            usize::try_from(number).ok().and_then(|n| Code::TABLE.get(n)).ok_or(Errno::INVAL)?;
        if body < *least { Err(Errno::INVAL) } else { Ok(*code) }
    }
}

/// Smallest answer buffers; a shorter one is refused.
mod room {
    pub const NUMBER: usize = 4;
    /// Up to the index of the device, which was added later.
    pub const ROUTE: usize = 200;
    pub const ADDRESSES: usize = 272;
    pub const PATHS: usize = 8;
    pub const QP_ATTR: usize = 144;
    /// Without the vendor options, which were added later.
    pub const EVENT: usize = 324;
}

impl Command {
    /// The function of librdmacm that writes it.
    pub fn function(&self) -> &'static str {
        match self {
            Command::CreateId { .. } => "rdma_create_id",
            Command::DestroyId { .. } => "rdma_destroy_id",
            Command::Bind { .. } => "rdma_bind_addr",
            Command::ResolveAddr { .. } => "rdma_resolve_addr",
            Command::ResolveRoute { .. } => "rdma_resolve_route",
            Command::QueryRoute { .. } | Command::Query { .. } => "a query of librdmacm",
            Command::Connect { .. } => "rdma_connect",
            Command::Listen { .. } => "rdma_listen",
            Command::Accept { .. } => "rdma_accept",
            Command::Establish { .. } => "rdma_establish",
            Command::Reject { .. } => "rdma_reject",
            Command::Disconnect { .. } => "rdma_disconnect",
            Command::InitQpAttr { .. } => "rdma_init_qp_attr",
            Command::GetEvent { .. } => "rdma_get_cm_event",
            Command::SetOption { .. } | Command::Refused { .. } => "rdma_set_option",
            Command::Notify { .. } => "rdma_notify",
            Command::Join { .. } => "rdma_join_multicast",
            Command::Leave { .. } => "rdma_leave_multicast",
            Command::Migrate { .. } => "rdma_migrate_id",
            Command::WriteEvent { .. } => "rdma_write_cm_event",
        }
    }

    /// Reads a command.
    ///
    /// # Errors
    /// What the kernel would return, whatever the state of its ids.
    pub fn read(frame: &Frame) -> Result<Command, Errno> {
        let body = Fields(frame.body());
        let answer = |at| frame.answer(body.u64(at));
        match Code::of(frame.code, frame.body().len())? {
            Code::CreateId => {
                let answer = answer(8).with_room(room::NUMBER)?;
                let kind = id_kind(body.u16(16), body.u8(18))?;
                Ok(Command::CreateId { context: body.u64(0), kind, answer })
            }
            Code::DestroyId => {
                Ok(Command::DestroyId { id: body.u32(8), answer: answer(0).with_room(room::NUMBER)? })
            }
            Code::BindIp => {
                let address = sockaddr::read_ip(body.part(8, IN6)).ok_or(Errno::INVAL)?;
                Ok(Command::Bind { id: body.u32(36), address })
            }
            Code::Bind => {
                let (size, reserved) = (body.u16(4), body.u16(6));
                let address = sockaddr::read_exact(body.part(8, STORAGE), size);
                let address = address.filter(|_| reserved == 0).ok_or(Errno::INVAL)?;
                Ok(Command::Bind { id: body.u32(0), address })
            }
            Code::ResolveIp => {
                let source = match body.u16(0) {
                    0 => None,
                    _ => Some(sockaddr::read_ip(body.part(0, IN6)).ok_or(Errno::INVAL)?),
                };
                let destination = sockaddr::read_ip(body.part(IN6, IN6)).ok_or(Errno::INVAL)?;
                let timeout = milliseconds(body.u32(60));
                Ok(Command::ResolveAddr { id: body.u32(56), source, destination, timeout })
            }
            Code::ResolveAddr => {
                let (source_size, size, reserved) = (body.u16(8), body.u16(10), body.u32(12));
                let source = body.part(16, STORAGE);
                let source = match source_size {
                    0 => sockaddr::read(source),
                    size => Some(sockaddr::read_exact(source, size).ok_or(Errno::INVAL)?),
                };
                let destination = sockaddr::read_exact(body.part(16 + STORAGE, STORAGE), size);
                let destination = destination.filter(|_| reserved == 0).ok_or(Errno::INVAL)?;
                let timeout = milliseconds(body.u32(4));
                Ok(Command::ResolveAddr { id: body.u32(0), source, destination, timeout })
            }
            Code::ResolveRoute => {
                Ok(Command::ResolveRoute { id: body.u32(0), timeout: milliseconds(body.u32(4)) })
            }
            Code::QueryRoute => {
                Ok(Command::QueryRoute { id: body.u32(8), answer: answer(0).with_room(room::ROUTE)? })
            }
            Code::Query => Ok(query(body.u32(8), body.u32(12), answer(0))),
            Code::Connect => {
                if body.u8(conn_param::VALID) == 0 {
                    return Err(Errno::INVAL);
                }
                Ok(Command::Connect { id: body.u32(272), params: conn_params(body, ece(body, 280)) })
            }
            Code::Listen => Ok(Command::Listen { id: body.u32(0), backlog: body.u32(4) as i32 }),
            Code::Accept => {
                let (id, param) = (body.u32(280), body.part(8, conn_param::SIZE));
                if param.u8(conn_param::VALID) == 0 {
                    return Ok(Command::Establish { id });
                }
                let params = conn_params(param, ece(body, 288));
                Ok(Command::Accept { id, context: body.u64(0), params })
            }
            Code::Reject => {
                let reason = reject_reason(body.u8(5))?;
                let private = body.part(8, body.u8(4).into()).0.to_vec();
                Ok(Command::Reject { id: body.u32(0), reason, private })
            }
            Code::Disconnect => Ok(Command::Disconnect { id: body.u32(0) }),
            Code::InitQpAttr => {
                let answer = answer(0).with_room(room::QP_ATTR)?;
                let state = usize::try_from(body.u32(12)).ok().and_then(|state| QpState::ALL.get(state));
                let state = *state.ok_or(Errno::INVAL)?;
                Ok(Command::InitQpAttr { id: body.u32(8), state, answer })
            }
            Code::GetEvent => Ok(Command::GetEvent { answer: answer(0).with_room(room::EVENT)? }),
            Code::GetOption => Err(Errno::NOSYS),
            Code::SetOption => {
                let value = frame.option(body.u64(0), body.u32(20))?;
                let id = body.u32(8);
                Ok(match option(body.u32(12), body.u32(16), &value) {
                    Ok(option) => Command::SetOption { id, option },
                    Err(errno) => Command::Refused { id, errno },
                })
            }
            Code::Notify => Ok(Command::Notify { id: body.u32(0), event: body.u32(4) }),
            Code::JoinIpMcast => {
                let answer = answer(0).with_room(room::NUMBER)?;
                let group = sockaddr::read_ip(body.part(16, IN6)).ok_or(Errno::INVAL)?;
                Ok(Command::Join { id: body.u32(44), context: body.u64(8), group, send_only: false, answer })
            }
            Code::JoinMcast => {
                let answer = answer(0).with_room(room::NUMBER)?;
                let group = sockaddr::read_exact(body.part(24, STORAGE), body.u16(20)).ok_or(Errno::INVAL)?;
                let send_only = match body.u16(22) {
                    0 => false,
                    1 => true,
                    _ => return Err(Errno::INVAL),
                };
                Ok(Command::Join { id: body.u32(16), context: body.u64(8), group, send_only, answer })
            }
            Code::LeaveMcast => {
                Ok(Command::Leave { group: body.u32(8), answer: answer(0).with_room(room::NUMBER)? })
            }
            Code::MigrateId => {
                let answer = answer(0).with_room(room::NUMBER)?;
                Ok(Command::Migrate { id: body.u32(8), from: body.u32(12) as i32, answer })
            }
            // Service records belong to the subnet administrator, which RoCE does not have.
            Code::ResolveIbService => Ok(Command::Refused { id: body.u32(0), errno: Errno::OPNOTSUPP }),
            Code::WriteCmEvent => {
                let kind = [EventKind::User, EventKind::Internal];
                let kind = kind.into_iter().find(|kind| *kind as u32 == body.u32(8)).ok_or(Errno::INVAL)?;
                let (status, argument) = (body.u32(12) as i32, body.u64(16));
                Ok(Command::WriteEvent { id: body.u32(0), kind, status, argument })
            }
        }
    }
}

fn milliseconds(number: u32) -> Duration {
    Duration::from_millis(number.into())
}

/// The port space with this number, and the service of its QPs. Only `IB` lets the application choose.
fn id_kind(number: u16, qp_type: u8) -> Result<IdKind, Errno> {
    let space = PortSpace::ALL.into_iter().find(|space| space.number() == number).ok_or(Errno::INVAL)?;
    let service = match space {
        PortSpace::Tcp => QpType::Rc,
        PortSpace::Udp | PortSpace::IpoIb => QpType::Ud,
        PortSpace::Ib => match qp_type {
            2 => QpType::Rc,
            3 => QpType::Uc,
            4 => QpType::Ud,
            9 => QpType::XrcInitiator,
            10 => QpType::XrcTarget,
            _ => return Err(Errno::INVAL),
        },
    };
    Ok(IdKind { space, service })
}

/// The reason of a REJ: consumer-defined, or that a vendor option is not supported.
fn reject_reason(reason: u8) -> Result<u8, Errno> {
    match reason {
        0 | 28 => Ok(28),
        35 => Ok(35),
        _ => Err(Errno::INVAL),
    }
}

fn query(id: u32, option: u32, answer: Answer) -> Command {
    let (query, room) = match option {
        0 => (Query::Addresses, room::ADDRESSES),
        1 => (Query::Paths, room::PATHS),
        2 => (Query::Gids, room::ADDRESSES),
        3 => return Command::Refused { id, errno: Errno::OPNOTSUPP },
        _ => return Command::Refused { id, errno: Errno::NOSYS },
    };
    match answer.with_room(room) {
        Ok(answer) => Command::Query { id, query, answer },
        Err(errno) => Command::Refused { id, errno },
    }
}

fn option(level: u32, name: u32, value: &[u8]) -> Result<IdOption, Errno> {
    let fields = Fields(value);
    let flag = || if value.len() == 4 { Ok(fields.u32(0) != 0) } else { Err(Errno::INVAL) };
    let byte = || if value.len() == 1 { Ok(fields.u8(0)) } else { Err(Errno::INVAL) };
    match (level, name) {
        (0, 0) => Ok(IdOption::TypeOfService(byte()?)),
        (0, 1) => Ok(IdOption::ReuseAddress(flag()?)),
        (0, 2) => Ok(IdOption::OneFamily(flag()?)),
        (0, 3) => Ok(IdOption::AckTimeout(byte()?)),
        (1, 1) => Ok(IdOption::Path(vec![path(value)?])),
        _ => Err(Errno::NOSYS),
    }
}

/// `ibv_path_data`: flags, and a path record as the subnet administrator sends it.
pub mod path_data {
    pub const SIZE: usize = 72;
    /// GMP, PRIMARY, and OUTBOUND with INBOUND_REVERSE (there and back): a path that can be used.
    pub const USABLE: u32 = 0x2B;
    pub const RECORD: usize = 8;
}

/// The first usable path of those that the application has found itself (`ucma_set_ib_path`).
fn path(value: &[u8]) -> Result<PathRecord, Errno> {
    if value.is_empty() || !value.len().is_multiple_of(path_data::SIZE) {
        return Err(Errno::INVAL);
    }
    let mut paths = value.chunks(path_data::SIZE).map(Fields);
    let path = paths.find(|path| path.u32(0) == path_data::USABLE).ok_or(Errno::INVAL)?;
    let record = path.part(path_data::RECORD, path_data::SIZE - path_data::RECORD);
    let flow_and_hops = u32::from_be_bytes(record.bytes(44));
    let mtu = record.u8(54) & 0x3F;
    Ok(PathRecord {
        dgid: Gid(record.bytes(8)),
        sgid: Gid(record.bytes(24)),
        flow_label: flow_and_hops >> 8 & 0xF_FFFF,
        hop_limit: flow_and_hops as u8,
        traffic_class: record.u8(48),
        pkey: u16::from_be_bytes(record.bytes(50)),
        sl: record.u8(53) & 0xF,
        mtu: Mtu::ALL.into_iter().find(|known| *known as u8 == mtu).ok_or(Errno::INVAL)?,
        packet_life: record.u8(56) & 0x3F,
    })
}

#[cfg(test)]
mod tests;
