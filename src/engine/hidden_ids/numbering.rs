//! One way of numbering that a sender has been seen to use.

/// This many datagrams may be missing or late without raising suspicion.
pub const LOST: u16 = 4;
/// Datagrams for other processes of the address that may have come in a tick.
const OTHERS: u32 = 64;
/// Spreads are in units of 1/64, and shrink by 1/64 with each expected datagram.
const SPREAD: u32 = 64;

/// The time since a sender was last heard.
#[derive(Clone, Copy)]
pub struct Silence {
    pub ticks: u32,
    /// Whether other processes may have heard it meanwhile.
    pub with_others: bool,
}

impl Silence {
    /// How far a counter may have gone on. A shared one jumps ahead by up to one for each jiffy, of which there are at most
    /// 1000 in a second: fewer than 17 in 16 ticks. What is for others is not seen.
    fn gap(self) -> i32 {
        let ticks = self.ticks.min(1 << 16);
        let others = if self.with_others { OTHERS * (ticks + 1) } else { 0 };
        (ticks + ticks / 16 + others) as i32
    }
}

/// What has been seen of a numbering, and how well it was predicted.
#[derive(Clone, Copy)]
pub struct Numbering {
    /// The ID of the first datagram of the last send, and of the last datagram.
    first: u16,
    last: u16,
    /// By how much the first ID grows from send to send, and by how much it grew last.
    step: u16,
    stride: u16,
    /// Datagrams read together were not always sent together; if not, a send begins where the one before ended.
    runs_on: bool,
    /// How far IDs were off recently, in units of [`SPREAD`].
    spread: u32,
}

impl Numbering {
    /// A numbering of which one ID is known.
    pub fn starting(place: u16, id: u16) -> Numbering {
        let first = id.wrapping_sub(place);
        let step = u16::from(first != 0);
        Numbering { first, last: id, step, stride: step, runs_on: false, spread: 0 }
    }

    /// The likeliest ID of the datagram at this position in its send.
    #[inline]
    pub fn expected(&self, place: u16) -> u16 {
        match (place, self.runs_on) {
            (0, true) => self.last.wrapping_add(1),
            (0, false) => self.first.wrapping_add(self.step),
            _ => self.first.wrapping_add(place),
        }
    }

    /// Whether a datagram can have this ID.
    pub fn admits(&self, place: u16, id: u16, silence: Silence) -> bool {
        // What does not count does not go on either.
        let silence = Silence { with_others: silence.with_others && self.step != 0, ..silence };
        is_within(self.ahead(place, id), self.berth() + (self.spread / SPREAD) as i32, silence)
    }

    /// A datagram had the expected ID.
    #[inline]
    pub fn follow(&mut self, place: u16, id: u16) {
        self.spread = self.spread.saturating_sub(self.spread / SPREAD + 1);
        self.advance(place, id);
    }

    /// A datagram had an admitted ID.
    pub fn follow_about(&mut self, place: u16, id: u16, silence: Silence) {
        let ahead = self.ahead(place, id);
        // How far a counter has jumped in silence says nothing about its spread.
        let off = if ahead > 0 { (ahead - silence.gap()).max(0) } else { -ahead };
        self.spread = self.spread.max(off as u32 * SPREAD);
        // Late datagrams do not move it back.
        if id.wrapping_sub(place).wrapping_sub(self.first) as i16 >= 0 {
            self.advance(place, id);
        }
    }

    /// Widens the margin: a datagram that was not admitted should have been.
    pub fn widen_to(&mut self, place: u16, id: u16) {
        self.spread = 2 * self.ahead(place, id).unsigned_abs() * SPREAD;
        self.advance(place, id);
    }

    #[inline]
    fn advance(&mut self, place: u16, id: u16) {
        if place == 0 {
            self.runs_on = self.last != self.first && id == self.last.wrapping_add(1);
            let stride = id.wrapping_sub(self.first);
            // A single jump may be a loss.
            if stride == self.stride {
                self.step = stride;
            }
            self.stride = stride;
        }
        self.first = id.wrapping_sub(place);
        self.last = id;
    }

    /// How far an ID is ahead of the nearest one that can come next if nothing is lost.
    fn ahead(&self, place: u16, id: u16) -> i32 {
        let ahead_of = |next: u16| i32::from(id.wrapping_sub(next) as i16);
        let continued = if self.last == self.first { self.step } else { 1 };
        [
            ahead_of(self.last.wrapping_add(continued)),
            ahead_of(match place {
                0 => self.first.wrapping_add(self.step),
                _ => self.first.wrapping_add(place),
            }),
        ]
        .into_iter()
        .min_by_key(|ahead| ahead.unsigned_abs())
        .unwrap_or(0)
    }

    /// The margin for lost and late datagrams.
    fn berth(&self) -> i32 {
        i32::from(LOST) * i32::from(self.step.max(u16::from(self.last != self.first)))
    }
}

/// Whether an ID this far ahead, or behind, is near enough.
pub fn is_within(ahead: i32, berth: i32, silence: Silence) -> bool {
    (-berth..=berth + silence.gap()).contains(&ahead)
}
