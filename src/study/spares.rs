//! What is used again instead of being allocated: packets and frames.

/// Whoever receives more packets than it sends keeps no more than these.
const MOST: usize = 256;

/// Those that nobody needs at the moment.
#[derive(Debug, Default)]
pub struct Spares<T>(Vec<Box<T>>);

impl<T: Default> Spares<T> {
    /// One with stale contents.
    pub fn take(&mut self) -> Box<T> {
        self.0.pop().unwrap_or_default()
    }

    /// Keeps one for later, unless there are enough.
    pub fn keep(&mut self, spare: Box<T>) {
        if self.0.len() < MOST {
            self.0.push(spare);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A receiver of ten gigabytes answers with a few ACKs.
    #[test]
    fn one_that_keeps_more_than_it_takes_does_not_grow() {
        let mut spares = Spares::<u64>::default();
        (0..10 * MOST).for_each(|_| spares.keep(Box::default()));
        assert_eq!(spares.0.len(), MOST);
    }
}
