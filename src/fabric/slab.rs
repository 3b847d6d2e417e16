//! Values by small numbers, which are used again.

/// See the [module](self).
#[derive(Clone)]
pub struct Slab<T> {
    entries: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub fn new() -> Slab<T> {
        Slab { entries: Vec::new(), free: Vec::new() }
    }

    pub fn insert(&mut self, value: T) -> u32 {
        match self.free.pop() {
            Some(key) => {
                self.entries[key as usize] = Some(value);
                key
            }
            None => {
                self.entries.push(Some(value));
                self.entries.len() as u32 - 1
            }
        }
    }

    /// # Panics
    /// If nothing has the key: it came from [`insert`](Slab::insert), and was not removed.
    pub fn get(&self, key: u32) -> &T {
        self.entries[key as usize].as_ref().expect("a key in use")
    }

    /// # Panics
    /// As [`get`](Slab::get).
    pub fn get_mut(&mut self, key: u32) -> &mut T {
        self.entries[key as usize].as_mut().expect("a key in use")
    }

    /// # Panics
    /// As [`get`](Slab::get).
    pub fn remove(&mut self, key: u32) -> T {
        self.free.push(key);
        self.entries[key as usize].take().expect("a key in use")
    }

    /// Values that are there.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }
}
