//! Names of enumeration values.

use std::ffi::{CStr, c_char};

use crate::ffi_boundary::{Outcome, call, guard};

/// A C string that lives for ever.
pub(crate) struct Text(&'static CStr);

impl Outcome for Text {
    type C = *const c_char;
    fn into_c(result: Result<Text, crate::errno::Errno>) -> *const c_char {
        result.map_or(c"unknown".as_ptr(), |Text(text)| text.as_ptr())
    }
}

fn lookup(names: &'static [&'static CStr], value: i32) -> Text {
    Text(usize::try_from(value).ok().and_then(|index| names.get(index)).copied().unwrap_or(c"unknown"))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_node_type_str(node_type: i32) -> *const c_char {
    guard::<Text>(call!(ibv_node_type_str, node_type), move || {
        Ok(if node_type == 0 { Text(c"unknown") } else { lookup(NODE_TYPES, node_type) })
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_port_state_str(port_state: i32) -> *const c_char {
    guard::<Text>(call!(ibv_port_state_str, port_state), move || Ok(lookup(PORT_STATES, port_state)))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_event_type_str(event: i32) -> *const c_char {
    guard::<Text>(call!(ibv_event_type_str, event), move || Ok(lookup(EVENTS, event)))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_wc_status_str(status: i32) -> *const c_char {
    guard::<Text>(call!(ibv_wc_status_str, status), move || Ok(lookup(WC_STATUSES, status)))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_wr_opcode_str(opcode: i32) -> *const c_char {
    guard::<Text>(call!(ibv_wr_opcode_str, opcode), move || Ok(lookup(WR_OPCODES, opcode)))
}

const NODE_TYPES: &[&CStr] = &[
    c"unknown",
    c"InfiniBand channel adapter",
    c"InfiniBand switch",
    c"InfiniBand router",
    c"iWARP NIC",
    c"usNIC",
    c"usNIC UDP",
    c"unspecified",
];

const PORT_STATES: &[&CStr] =
    &[c"no state change (NOP)", c"down", c"init", c"armed", c"active", c"active defer"];

const EVENTS: &[&CStr] = &[
    c"CQ error",
    c"local work queue catastrophic error",
    c"invalid request local work queue error",
    c"local access violation work queue error",
    c"communication established",
    c"send queue drained",
    c"path migrated",
    c"path migration request error",
    c"local catastrophic error",
    c"port active",
    c"port error",
    c"LID change",
    c"P_Key change",
    c"SM change",
    c"SRQ catastrophic error",
    c"SRQ limit reached",
    c"last WQE reached",
    c"client reregistration",
    c"GID table change",
    c"WQ fatal",
    c"device speed change",
];

const WC_STATUSES: &[&CStr] = &[
    c"success",
    c"local length error",
    c"local QP operation error",
    c"local EE context operation error",
    c"local protection error",
    c"Work Request Flushed Error",
    c"memory management operation error",
    c"bad response error",
    c"local access error",
    c"remote invalid request error",
    c"remote access error",
    c"remote operation error",
    c"transport retry counter exceeded",
    c"RNR retry counter exceeded",
    c"local RDD violation error",
    c"remote invalid RD request",
    c"aborted error",
    c"invalid EE context number",
    c"invalid EE context state",
    c"fatal error",
    c"response timeout error",
    c"general error",
    c"TM error",
    c"TM software rendezvous",
];

const WR_OPCODES: &[&CStr] = &[
    c"rdma-write",
    c"rdma-write-with-imm",
    c"send",
    c"send-with-imm",
    c"rdma-read",
    c"atomic-cmp-and-swp",
    c"atomic-fetch-and-add",
    c"local-inv",
    c"bind-mw",
    c"send-with-inv",
    c"tso",
    c"driver1",
    c"unknown",
    c"unknown",
    c"flush",
    c"atomic-write",
];
