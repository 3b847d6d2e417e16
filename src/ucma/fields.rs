//! Structs of the command ABI, by the offsets of their fields.
//!
//! Numbers are in host order unless the kernel's header says otherwise.

/// A struct that was read. Beyond its end it reads as zero.
#[derive(Clone, Copy)]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub fn bytes<const N: usize>(self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        let found = self.0.get(at..).unwrap_or_default();
        let there = found.len().min(N);
        bytes[..there].copy_from_slice(&found[..there]);
        bytes
    }

    pub fn part(self, at: usize, length: usize) -> Fields<'a> {
        let end = (at + length).min(self.0.len());
        Fields(self.0.get(at..end).unwrap_or_default())
    }

    pub fn u8(self, at: usize) -> u8 {
        self.bytes::<1>(at)[0]
    }

    pub fn u16(self, at: usize) -> u16 {
        u16::from_ne_bytes(self.bytes(at))
    }

    pub fn u32(self, at: usize) -> u32 {
        u32::from_ne_bytes(self.bytes(at))
    }

    pub fn u64(self, at: usize) -> u64 {
        u64::from_ne_bytes(self.bytes(at))
    }
}

/// A struct that is being written; zero where nothing is put.
pub struct Struct<const N: usize>(pub [u8; N]);

impl<const N: usize> Struct<N> {
    pub fn new() -> Struct<N> {
        Struct([0; N])
    }

    /// Puts bytes at an offset; an array field takes as many as fit.
    pub fn put(&mut self, at: usize, bytes: &[u8]) -> &mut Struct<N> {
        let room = self.0.get_mut(at..).unwrap_or_default();
        let length = room.len().min(bytes.len());
        room[..length].copy_from_slice(&bytes[..length]);
        self
    }

    pub fn u8(&mut self, at: usize, value: u8) -> &mut Struct<N> {
        self.put(at, &[value])
    }

    pub fn u16(&mut self, at: usize, value: u16) -> &mut Struct<N> {
        self.put(at, &value.to_ne_bytes())
    }

    pub fn u32(&mut self, at: usize, value: u32) -> &mut Struct<N> {
        self.put(at, &value.to_ne_bytes())
    }

    pub fn u64(&mut self, at: usize, value: u64) -> &mut Struct<N> {
        self.put(at, &value.to_ne_bytes())
    }
}
