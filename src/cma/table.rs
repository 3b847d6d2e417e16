//! A table that gives each entry the smallest free number.

use std::collections::BTreeSet;

/// A table of at most 2^31 entries: the C library treats the numbers as signed.
pub(super) struct Table<T> {
    places: Vec<Option<T>>,
    free: BTreeSet<u32>,
}

/// More would be a leak.
const MOST: usize = 1 << 20;

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table { places: Vec::new(), free: BTreeSet::new() }
    }
}

impl<T> Table<T> {
    /// `None` when it is full.
    pub fn insert(&mut self, value: T) -> Option<u32> {
        if let Some(number) = self.free.pop_first() {
            self.places[number as usize] = Some(value);
            return Some(number);
        }
        if self.places.len() >= MOST {
            return None;
        }
        self.places.push(Some(value));
        Some(self.places.len() as u32 - 1)
    }

    pub fn get(&self, number: u32) -> Option<&T> {
        self.places.get(number as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.places.get_mut(number as usize)?.as_mut()
    }

    pub fn remove(&mut self, number: u32) -> Option<T> {
        let value = self.places.get_mut(number as usize)?.take()?;
        self.free.insert(number);
        Some(value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.places
            .iter()
            .enumerate()
            .filter_map(|(number, device_index)| device_index.as_ref().map(|value| (number as u32, value)))
    }
}
