//! From a captured record to a RoCE packet: link layer, IP and UDP (or GRH), transport headers, ICRC.

mod bth;
mod cm;
mod cm_names;
mod link;
mod mad;
mod roce;

pub use bth::BthBytes;
pub use cm::{
    Apr, CmBody, CmIds, CmMessage, CmPath, Dreq, Lap, Mra, PrivateHeader, Rej, RejReason, Rep, Req, Served,
    ServiceId, SidrRep, SidrReq,
};
pub use link::{Dissector, Skipped};
pub use mad::{MAD_LEN, Mad, MgmtClass};
pub use roce::{Icrc, Net, Roce, Transport};

/// What a record turned out to be.
#[derive(Clone, Copy, Debug)]
pub enum Dissection<'a> {
    /// A RoCE packet, perhaps a damaged one.
    Roce(Roce<'a>),
    /// Not RoCE, or not recognisable as such.
    Skipped(Skipped),
}

