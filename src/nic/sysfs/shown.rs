//! Which description of a device this process shows, once its port has changed.
//!
//! Other processes with the same devices have ports of their own. So the tree that they share stays as it is, and this says
//! which description stands for the one there. It is read by whoever opens a file, in signal handlers too: nothing here
//! waits, and nothing is ever freed. Every state is kept once.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

static SHOWN: List<Shown> = List::new();

/// A device by its name.
struct Shown {
    name: String,
    directories: List<PathBuf>,
    /// The place of the present one, from 1; 0 if it is that of the shared tree.
    present: AtomicUsize,
}

/// A list that only grows.
struct List<T: 'static>(OnceLock<&'static Node<T>>);

struct Node<T: 'static> {
    value: T,
    next: List<T>,
}

impl<T: 'static> List<T> {
    const fn new() -> List<T> {
        List(OnceLock::new())
    }

    fn iter(&self) -> impl Iterator<Item = &'static T> {
        std::iter::successors(self.0.get().copied(), |node| node.next.0.get().copied())
            .map(|node| &node.value)
    }

    fn push(&self, value: T) {
        let node: &'static Node<T> = Box::leak(Box::new(Node { value, next: List::new() }));
        let mut end = &self.0;
        while let Err(node_of_another) = end.set(node).map_err(|_| end.get()) {
            let Some(other) = node_of_another else { return };
            end = &other.next.0;
        }
    }
}

/// This directory describes a device from now on. The caller keeps forks out, and is the only one for this device.
pub(super) fn set(name: &str, directory: PathBuf) {
    let found = SHOWN.iter().find(|shown| shown.name == name);
    let shown = found.or_else(|| {
        let (directories, present) = (List::new(), AtomicUsize::new(0));
        SHOWN.push(Shown { name: name.to_owned(), directories, present });
        SHOWN.iter().find(|shown| shown.name == name)
    });
    let Some(shown) = shown else { return };
    if !shown.directories.iter().any(|known| *known == directory) {
        shown.directories.push(directory.clone());
    }
    let place = shown.directories.iter().position(|known| *known == directory);
    shown.present.store(place.map_or(0, |place| place + 1), Ordering::Release);
}

/// The shared tree describes a device again.
pub(super) fn unset(name: &str) {
    SHOWN
        .iter()
        .filter(|shown| shown.name == name)
        .for_each(|shown| shown.present.store(0, Ordering::Release));
}

/// The same for all.
pub(super) fn unset_all() {
    SHOWN.iter().for_each(|shown| shown.present.store(0, Ordering::Release));
}

/// The directory that describes a device, if it is not in the shared tree.
pub fn directory_of(name: &[u8]) -> Option<&'static PathBuf> {
    let shown = SHOWN.iter().find(|shown| shown.name.as_bytes() == name)?;
    shown.directories.iter().nth(shown.present.load(Ordering::Acquire).checked_sub(1)?)
}
