//! The memory of one simulated application, and what it must contain.
//!
//! Every byte is accounted for. A shadow copy holds what the application has written or was promised; pieces that a NIC
//! may be writing are exposed, and compared when they are settled. All the rest holds a pattern that depends on the
//! address, so a stray write is found.

use std::collections::BTreeMap;

use softrnic_memory::{AppRange, copy_from_app, copy_to_app};

/// A piece of an [`Arena`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Offset of the first byte.
    pub offset: usize,
    /// Bytes.
    pub len: usize,
}

impl Span {
    fn end(self) -> usize {
        self.offset + self.len
    }
}

/// See the [module](self).
pub struct Arena {
    memory: *mut [u64],
    shadow: Vec<u8>,
    /// Free pieces, by offset.
    free: BTreeMap<usize, usize>,
    /// Where the next search for a free piece begins.
    rover: usize,
    /// Pieces that a NIC may write now, by offset.
    exposed: BTreeMap<usize, usize>,
}

impl Arena {
    /// `len` bytes, all free.
    pub fn new(len: usize) -> Arena {
        let len = len.next_multiple_of(8);
        let memory = Box::into_raw(vec![0_u64; len / 8].into_boxed_slice());
        let mut arena = Arena {
            memory,
            shadow: vec![0; len],
            free: BTreeMap::from([(0, len)]),
            rover: 0,
            exposed: BTreeMap::new(),
        };
        arena.fill(Span { offset: 0, len });
        arena
    }

    /// Bytes in all.
    pub fn size(&self) -> usize {
        self.shadow.len()
    }

    /// Address of the first byte.
    pub fn address(&self) -> usize {
        self.memory.cast::<u8>().expose_provenance()
    }

    /// All of it, to be registered.
    pub fn range(&self) -> AppRange {
        // SAFETY: the memory lives until the arena is dropped, after the engines that know of it; there is no reference
        // into it, and everything happens on one thread.
        unsafe { AppRange::new(self.address(), self.size() as u64) }
    }

    /// A piece of it, to be registered by itself.
    pub fn part(&self, span: Span) -> AppRange {
        assert!(span.end() <= self.size());
        // SAFETY: as for the whole.
        unsafe { AppRange::new(self.address() + span.offset, span.len as u64) }
    }

    /// Takes a free piece whose offset is a multiple of `align`.
    pub fn take(&mut self, len: usize, align: usize) -> Option<Span> {
        if len == 0 {
            return Some(Span { offset: 0, len });
        }
        let fits = |(&offset, &size): (&usize, &usize)| {
            let start = offset.next_multiple_of(align);
            (start + len <= offset + size).then_some((offset, size, start))
        };
        let found = self.free.range(self.rover..).find_map(fits).or_else(|| self.free.iter().find_map(fits));
        let (offset, size, start) = found?;
        self.free.remove(&offset);
        let (before, after) = (start - offset, offset + size - start - len);
        if before > 0 {
            self.free.insert(offset, before);
        }
        if after > 0 {
            self.free.insert(start + len, after);
        }
        self.rover = start + len;
        Some(Span { offset: start, len })
    }

    /// Frees a piece. It must contain what the shadow says, unless it is exposed; then it is taken as it is. Whatever
    /// is written to it afterwards is written too late.
    pub fn give_back(&mut self, span: Span) {
        if span.len == 0 {
            return;
        }
        if self.exposed.remove(&span.offset).is_none() {
            self.verify(span, "a piece that was only to be read");
        }
        self.fill(span);
        let (mut offset, mut len) = (span.offset, span.len);
        if let Some((&before, &size)) = self.free.range(..offset).next_back()
            && before + size == offset
        {
            self.free.remove(&before);
            (offset, len) = (before, len + size);
        }
        if let Some(size) = self.free.remove(&(offset + len)) {
            len += size;
        }
        self.free.insert(offset, len);
    }

    /// The application writes.
    pub fn write(&mut self, span: Span, bytes: &[u8]) {
        assert_eq!(span.len, bytes.len());
        assert!(span.end() <= self.size());
        self.shadow[span.offset..span.end()].copy_from_slice(bytes);
        // SAFETY: inside the memory, to which there are no references.
        unsafe { copy_to_app(self.address() + span.offset, bytes) }
    }

    /// The application writes to a piece that a NIC may write too.
    pub fn poke(&mut self, span: Span, bytes: &[u8]) {
        self.write(span, bytes);
    }

    /// What the application wrote last.
    pub fn expected(&self, span: Span) -> Vec<u8> {
        self.shadow[span.offset..span.end()].to_vec()
    }

    /// The application reads.
    pub fn read(&self, span: Span) -> Vec<u8> {
        let mut bytes = vec![0; span.len];
        assert!(span.end() <= self.size());
        // SAFETY: inside the memory, to which there are no references.
        unsafe { copy_from_app(self.address() + span.offset, &mut bytes) }
        bytes
    }

    /// From now on a NIC may write this piece.
    pub fn expose(&mut self, span: Span) {
        if span.len > 0 {
            assert_eq!(self.exposed.insert(span.offset, span.len), None);
        }
    }

    /// The NIC has finished with an exposed piece, which must now contain `expected`.
    pub fn settle(&mut self, span: Span, expected: &[u8], what: &str) {
        assert_eq!(span.len, expected.len());
        if span.len == 0 {
            return;
        }
        assert_eq!(self.exposed.remove(&span.offset), Some(span.len), "{what}: not exposed");
        self.shadow[span.offset..span.end()].copy_from_slice(expected);
        self.verify(span, what);
    }

    /// Whatever a NIC may have written to an exposed piece is fine; it writes nothing more.
    pub fn settle_unknown(&mut self, span: Span) {
        if span.len > 0 {
            assert_eq!(self.exposed.remove(&span.offset), Some(span.len), "not exposed");
            let bytes = self.read(span);
            self.shadow[span.offset..span.end()].copy_from_slice(&bytes);
        }
    }

    /// Everything outside exposed pieces must match the shadow.
    pub fn verify_all(&self) {
        let mut offset = 0;
        for (&exposed, &len) in &self.exposed {
            self.verify(Span { offset, len: exposed - offset }, "memory that nobody may write");
            offset = exposed + len;
        }
        self.verify(Span { offset, len: self.size() - offset }, "memory that nobody may write");
    }

    /// Bytes that have not been freed.
    pub fn in_use(&self) -> usize {
        self.size() - self.free.values().sum::<usize>()
    }

    fn verify(&self, span: Span, what: &str) {
        let bytes = self.read(span);
        let expected = &self.shadow[span.offset..span.end()];
        if bytes == expected {
            return;
        }
        let at = bytes.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(0);
        let wrong = bytes.iter().zip(expected).filter(|(a, b)| a != b).count();
        let show = |bytes: &[u8]| format!("{:02x?}", &bytes[at..(at + 16).min(bytes.len())]);
        panic!(
            "{what}: {wrong} of {} bytes differ, first at {at} (offset {:#x}): {} instead of {}",
            span.len,
            span.offset + at,
            show(&bytes),
            show(expected)
        );
    }

    fn fill(&mut self, span: Span) {
        let filling: Vec<u8> = (span.offset..span.end())
            .map(|at| ((at as u64 / 8).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (at % 8 * 8)) as u8 ^ 0x5A)
            .collect();
        self.write(span, &filling);
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw` in `new`, and freed once.
        drop(unsafe { Box::from_raw(self.memory) });
    }
}
