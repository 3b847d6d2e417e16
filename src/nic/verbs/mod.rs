//! Verbs for Rust programs.
//!
//! ```no_run
//! use softrnic_nic::verbs::{Access, Context, QpOptions};
//!
//! # fn main() -> Result<(), softrnic_nic::verbs::Error> {
//! // A NIC of our own on a free loopback address: no privileges, no kernel module.
//! let context = Context::open_default()?;
//! let pd = context.alloc_pd()?;
//! let mr = pd.register(vec![0u8; 4096], Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
//! let cq = context.create_cq(64, None)?;
//! let qp = pd.create_rc_qp(&cq, &cq, QpOptions::default())?;
//! println!("{} QPN {:#x}, rkey {:#x}", context.address(), qp.qpn().get(), mr.rkey().0);
//! # Ok(()) }
//! ```
//!
//! Objects keep alive what they depend on: a [`Qp`] its [`Pd`] and [`Cq`]s, those their [`Context`]. Memory is
//! registered by passing ownership ([`Pd::register`]). Peers and the NIC may write it at any time, so it is accessed by
//! copying ([`Mr::read`], [`Mr::write`]).

mod address;
mod channel;
mod context;
mod cq;
mod device_memory;
mod error;
mod imitation;
mod mr;
mod pd;
mod port;
mod qp;
mod running;
mod srq;
mod statistics;
mod work;

pub use address::{AddressHandle, AddressVector};
pub use channel::{Block, CompletionChannel};
pub use context::{Context, ContextId};
pub use cq::Cq;
pub use error::{Error, PostError};
pub use imitation::{long_number, short_number};
pub use mr::{Mr, RawMr};
pub use pd::Pd;
pub use port::PortAttributes;
pub use qp::{Qp, QpAttributes, QpOptions, SendBatch};
pub use running::Running;
pub use srq::{Srq, SrqOptions};
pub use work::WorkRequest;

pub use crate::device::{AsyncEvent, DeviceSpec, EventKind, EventSource, LinkKind, PortSpeed, PortState};
pub use softrnic_engine::{
    ControlError, Cqe, CqeExtra, DeviceCaps, InlineBytes, LocalData, QpQuery, RecvRequest, SendRequest,
    SrdSource, XrcdKey,
};
pub use softrnic_link::FrameAudit;
pub use softrnic_link::{Capabilities, LinkCounters};
pub use softrnic_memory::{Access, AppRange, BindSpec, DmId, Lkey, MrSpec, MwType, ReregSpec, Sge};
pub use softrnic_models::{Features, Model, Refusal, Rule, SendOps, Srd as SrdFigures};
pub use softrnic_transport::{AttrMask, Counter, QpAccess, QpState, QpType, Status, WcOpcode};
pub use softrnic_wire::{Gid, Imm, Mtu, Psn, Qkey, Qpn, Rkey, RnrTimer, Srqn};
