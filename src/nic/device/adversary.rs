//! The seed of an adversarial NIC.

use std::fmt;
use std::str::FromStr;

/// A seed, by which a NIC uses every freedom that the specification gives it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdversarySeed(pub u64);

/// An empty text draws one that is easy to type.
impl FromStr for AdversarySeed {
    type Err = String;

    fn from_str(text: &str) -> Result<AdversarySeed, String> {
        if !text.is_empty() {
            return text.parse().map(AdversarySeed).map_err(|_| format!("{text}: a seed is a number"));
        }
        let drawn = getrandom::u32().map_err(|error| format!("cannot draw a seed: {error}"))?;
        Ok(AdversarySeed(drawn.into()))
    }
}

impl fmt::Display for AdversarySeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
