//! From a captured record to a RoCE packet: link layer, IP and UDP (or GRH), transport headers, ICRC.

mod bth;
mod link;
mod merged;
mod roce;
mod tunnel;

pub use bth::BthBytes;
pub use link::{Dissector, Skipped};
pub use merged::Merged;
pub use roce::{Icrc, Net, Roce, Transport};

/// What a record turned out to be.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::large_enum_variant, reason = "lives on the stack, one at a time")]
#[non_exhaustive]
pub enum Dissection<'a> {
    /// A RoCE packet, perhaps a damaged one.
    Roce(Roce<'a>),
    /// Several RoCE packets that have yet to be cut apart.
    Merged(Merged<'a>),
    /// Not RoCE, or not recognisable as such.
    Skipped(Skipped),
}

impl<'a> Dissection<'a> {
    /// Calls `each` with every packet that the record holds.
    pub fn for_each(&self, mut each: impl FnMut(&Roce<'a>)) {
        match self {
            Dissection::Roce(roce) => each(roce),
            Dissection::Merged(merged) => merged.packets().for_each(|roce| each(&roce)),
            Dissection::Skipped(_) => {}
        }
    }
}
