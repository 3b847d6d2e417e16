//! The numbers of `verbs.h`, in which the agent speaks.

use softrnic_script::{Access, Event, Right};

/// `enum ibv_access_flags`
pub fn access(access: Access, flush: bool) -> u32 {
    let known = [
        (Right::LocalWrite, 1),
        (Right::RemoteWrite, 2),
        (Right::RemoteRead, 4),
        (Right::RemoteAtomic, 8),
        (Right::Bind, 16),
        (Right::Flush, if flush { 256 } else { 0 }),
    ];
    known.into_iter().filter(|(right, _)| access.has(*right)).map(|(_, bit)| bit).sum()
}

/// `enum ibv_wc_flags`
const WITH_IMM: u64 = 2;
const WITH_INV: u64 = 8;
/// What the kernel of rxe calls it.
const RXE_WITH_INV: u64 = 4;

/// The immediate data or the key that a receive came with.
pub fn extras(flags: u64, extra: u32) -> (Option<u32>, Option<u32>) {
    let imm = flags & WITH_IMM != 0;
    let invalidated = !imm && flags & (WITH_INV | RXE_WITH_INV) != 0;
    (imm.then_some(extra), invalidated.then_some(extra))
}

/// `enum ibv_event_type`
const EVENTS: [(u64, Event); 8] = [
    (0, Event::CqError),
    (1, Event::QpFatal),
    (2, Event::RequestError),
    (3, Event::AccessError),
    (4, Event::CommunicationEstablished),
    (5, Event::SendQueueDrained),
    (15, Event::SrqLimit),
    (16, Event::LastWqeReached),
];

pub fn event(number: u64) -> Option<Event> {
    EVENTS.iter().find(|(known, _)| *known == number).map(|(_, event)| *event)
}

/// `enum ibv_wc_status`
pub fn status(status: u64) -> String {
    const NAMES: [&str; 14] = [
        "Success",
        "LocalLength",
        "LocalQpOperation",
        "LocalEecOperation",
        "LocalProtection",
        "Flushed",
        "MwBind",
        "BadResponse",
        "LocalAccess",
        "RemoteInvalidRequest",
        "RemoteAccess",
        "RemoteOperation",
        "RetryExceeded",
        "RnrRetryExceeded",
    ];
    NAMES.get(status as usize).map_or_else(|| format!("status {status}"), |name| (*name).to_owned())
}

/// `enum ibv_wc_opcode`
pub fn opcode(opcode: u64) -> String {
    let name = match opcode {
        0 => "Send",
        1 => "RdmaWrite",
        2 => "RdmaRead",
        3 => "CompareSwap",
        4 => "FetchAdd",
        5 => "BindMw",
        6 => "LocalInvalidate",
        8 => "Flush",
        9 => "AtomicWrite",
        128 => "Recv",
        129 => "RecvRdmaWithImm",
        other => return format!("opcode {other}"),
    };
    name.to_owned()
}
