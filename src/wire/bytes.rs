//! Cursors over wire bytes: one that cannot read past the end, one that fills a buffer front to back.

/// Takes fixed-size pieces off the front of received bytes.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    #[inline(always)]
    pub fn take<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (head, tail) = self.0.split_first_chunk::<N>()?;
        self.0 = tail;
        Some(head)
    }

    #[inline(always)]
    pub fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|b| b[0])
    }

    #[inline(always)]
    pub fn u16(&mut self) -> Option<u16> {
        self.take().map(|b| u16::from_be_bytes(*b))
    }

    #[inline(always)]
    pub fn u32(&mut self) -> Option<u32> {
        self.take().map(|b| u32::from_be_bytes(*b))
    }

    #[inline(always)]
    pub fn u64(&mut self) -> Option<u64> {
        self.take().map(|b| u64::from_be_bytes(*b))
    }
}

/// Appends fixed-size pieces to a buffer. Panics when the buffer is too small, which is why every
/// public `emit` states the size it needs and takes the whole of it first.
pub(crate) struct Writer<'a>(pub &'a mut [u8]);

impl Writer<'_> {
    #[inline(always)]
    pub fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        let (head, tail) = core::mem::take(&mut self.0).split_at_mut(N);
        head.copy_from_slice(&bytes);
        self.0 = tail;
    }

    #[inline(always)]
    pub fn u16(&mut self, v: u16) {
        self.put(v.to_be_bytes());
    }

    #[inline(always)]
    pub fn u32(&mut self, v: u32) {
        self.put(v.to_be_bytes());
    }

    #[inline(always)]
    pub fn u64(&mut self, v: u64) {
        self.put(v.to_be_bytes());
    }
}
