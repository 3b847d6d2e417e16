//! The port's addresses.

use std::net::IpAddr;

use softrnic_wire::Gid;

/// The GID table. Empty entries are zero GIDs.
#[derive(Clone, Debug, Default)]
pub struct GidTable {
    entries: Vec<Option<IpAddr>>,
    generation: u64,
    /// Applications see each address twice: for RoCE v1, which we do not speak, and behind that for v2.
    with_v1: bool,
}

/// Number of entries, as many as rxe has.
pub const GID_TABLE_LEN: usize = 1024;

impl GidTable {
    /// Shows applications each address twice, for RoCE v1 and for v2.
    pub fn show_v1(&mut self) {
        self.with_v1 = true;
    }

    /// Whether what applications see at an index is for RoCE v1.
    pub fn is_v1(&self, shown: usize) -> bool {
        self.with_v1 && shown.is_multiple_of(2)
    }

    /// The GID that applications see at an index; zero if there is none.
    pub fn shown(&self, shown: usize) -> Gid {
        self.gid(if self.with_v1 { shown / 2 } else { shown })
    }

    /// The address for RoCE v2 that applications mean with an index.
    pub fn meant(&self, shown: usize) -> Option<IpAddr> {
        match self.with_v1 {
            true if self.is_v1(shown) => None,
            true => self.get(shown / 2),
            false => self.get(shown),
        }
    }

    /// The index at which applications see an address for RoCE v2.
    pub fn shown_at(&self, address: IpAddr) -> Option<usize> {
        self.find(address).map(|index| if self.with_v1 { 2 * index + 1 } else { index })
    }

    /// One past the last index at which applications see anything.
    pub fn shown_len(&self) -> usize {
        if self.with_v1 { 2 * self.len() } else { self.len() }
    }

    /// The address at an index.
    pub fn get(&self, index: usize) -> Option<IpAddr> {
        self.entries.get(index).copied().flatten()
    }

    /// The GID at an index; zero if there is none.
    pub fn gid(&self, index: usize) -> Gid {
        self.get(index).map_or(Gid([0; 16]), Gid::from)
    }

    /// The index of an address.
    pub fn find(&self, address: IpAddr) -> Option<usize> {
        self.entries.iter().position(|entry| *entry == Some(address))
    }

    /// Puts an address (or none) at an index. An index beyond the table is ignored.
    pub fn set(&mut self, index: usize, address: Option<IpAddr>) {
        if index >= GID_TABLE_LEN {
            return;
        }
        if self.entries.len() <= index {
            self.entries.resize(index + 1, None);
        }
        self.entries[index] = address;
        self.generation += 1;
    }

    /// A different number after each change.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// All addresses.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.entries.iter().copied().flatten()
    }

    /// Puts the only address of a device at indices 0 and 1. Hardware and rxe have the default GID, which is not an
    /// address of ours, at 0 and their first address at 1, and some clients use index 1 without asking.
    pub fn set_only(&mut self, address: Option<IpAddr>) {
        self.set(0, address);
        self.set(1, address);
    }

    /// One past the last index ever used.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no index was ever used.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn applications_see_each_address_twice_if_there_is_v1() {
        let (first, second) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mut table = GidTable::default();
        table.set(0, Some(first));
        table.set(1, Some(second));
        let seen = |table: &GidTable| {
            (0..5).map(|at| (table.is_v1(at), table.shown(at), table.meant(at))).collect::<Vec<_>>()
        };
        let v2 = |ip: IpAddr| (false, Gid::from(ip), Some(ip));
        let nothing = (false, Gid::ZERO, None);
        assert_eq!(seen(&table), [v2(first), v2(second), nothing, nothing, nothing]);
        assert_eq!((table.shown_at(second), table.shown_len()), (Some(1), 2));
        table.show_v1();
        let v1 = |ip: IpAddr| (true, Gid::from(ip), None);
        assert_eq!(seen(&table), [v1(first), v2(first), v1(second), v2(second), (true, Gid::ZERO, None)]);
        assert_eq!((table.shown_at(second), table.shown_len()), (Some(3), 4));
    }
}
