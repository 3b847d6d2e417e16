//! Whether the responder's MSN counts the requester's messages (IBTA C9-148).

use softrnic_wire::Msn;

/// Relates the messages seen to the responder's count.
///
/// A capture may begin in the middle of a connection, so the difference between the two counts is learned from an
/// answer to the newest request: an older answer may count newer messages already.
#[derive(Debug, Default)]
pub(crate) struct MsnCheck {
    /// Messages begun and ended by the requester since this was last reset.
    begun: u32,
    ended: u32,
    offset: Option<u32>,
}

impl MsnCheck {
    /// A new request packet.
    pub fn request(&mut self, starts: bool, ends: bool) {
        self.begun = self.begun.wrapping_add(u32::from(starts));
        self.ended = self.ended.wrapping_add(u32::from(ends));
    }

    /// Messages are missing; what was learned is invalid.
    pub fn forget(&mut self) {
        self.offset = None;
    }

    /// An answer that acknowledges the newest request, whole messages only.
    pub fn answer_to_newest(&mut self, msn: Msn) -> Result<(), Msn> {
        let difference = Msn::new(msn.get().wrapping_sub(self.ended)).get();
        match self.offset {
            Some(offset) if offset != difference => {
                // One report per slip.
                self.offset = Some(difference);
                Err(Msn::new(self.ended.wrapping_add(offset)))
            }
            _ => {
                self.offset = Some(difference);
                Ok(())
            }
        }
    }
}
