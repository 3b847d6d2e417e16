//! A sliding window over a byte stream that knows its position in it.

use std::io::{ErrorKind, Read};

use super::error::{CaptureError, CaptureFault};

const CHUNK: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Window<R> {
    source: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// File offset of `buffer[start]`.
    offset: u64,
    eof: bool,
    held: bool,
}

impl<R: Read> Window<R> {
    pub fn new(source: R) -> Window<R> {
        Window { source, buffer: vec![0; CHUNK], start: 0, end: 0, offset: 0, eof: false, held: false }
    }

    /// File offset of the next byte.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether nothing is left. True only after a read has found the end.
    pub fn is_empty(&self) -> bool {
        self.start == self.end && self.eof
    }

    /// How many bytes are buffered; all that remain once a read has found the end.
    #[inline]
    pub fn available(&self) -> usize {
        self.end - self.start
    }

    /// The next `N` bytes, `None` if fewer remain.
    #[inline]
    pub fn peek<const N: usize>(&mut self) -> Result<Option<&[u8; N]>, CaptureError> {
        Ok(self.ensure(N)?.then(|| self.buffer[self.start..].first_chunk()).flatten())
    }

    /// Ensures that `n` bytes are buffered; false if fewer remain.
    #[inline]
    pub fn ensure(&mut self, n: usize) -> Result<bool, CaptureError> {
        if self.end - self.start >= n {
            return Ok(true);
        }
        self.fill(n)
    }

    /// The next `n` bytes, which [`Window::ensure`] has buffered.
    #[inline]
    pub fn at_hand(&self, n: usize) -> &[u8] {
        &self.buffer[self.start..self.start + n]
    }

    /// Steps over `n` buffered bytes and lends them.
    #[inline]
    pub fn take(&mut self, n: usize) -> &[u8] {
        let from = self.start;
        self.start += n;
        self.offset += n as u64;
        &self.buffer[from..self.start]
    }

    /// Steps over any number of bytes without buffering them; false if fewer remain.
    pub fn skip(&mut self, mut n: u64) -> Result<bool, CaptureError> {
        while n > 0 {
            if !self.ensure(1)? {
                return Ok(false);
            }
            let step = n.min((self.end - self.start) as u64) as usize;
            self.take(step);
            n -= step as u64;
        }
        Ok(true)
    }

    /// Exchanges the buffer for `other`, which continues with the bytes not yet stepped over.
    pub fn swap(&mut self, other: &mut Vec<u8>) {
        let left = self.end - self.start;
        other.resize(self.buffer.len().max(other.len()), 0);
        other[..left].copy_from_slice(&self.buffer[self.start..self.end]);
        std::mem::swap(&mut self.buffer, other);
        (self.start, self.end) = (0, left);
    }

    /// Position of the next byte in the buffer.
    #[inline]
    pub fn place(&self) -> usize {
        self.start
    }

    /// While held, bytes stay where they are in the buffer, including those stepped over.
    pub fn hold(&mut self, held: bool) {
        self.held = held;
    }

    #[cold]
    fn fill(&mut self, n: usize) -> Result<bool, CaptureError> {
        if !self.held {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        while self.end - self.start < n && !self.eof {
            if self.buffer.len() == self.end {
                // Grows with the data that really arrives, so a false length cannot make it large.
                self.buffer.resize(self.end + CHUNK, 0);
            }
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.eof = true,
                Ok(got) => self.end += got,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => {
                    let unread = (self.end - self.start) as u64;
                    return Err(CaptureFault::Io(e.kind()).at(self.offset + unread));
                }
            }
        }
        Ok(self.end - self.start >= n)
    }
}
