use crate::app_range::AppRange;
use crate::error::MemoryError;

/// Smallest page of a fast-register page list, in bytes.
const MIN_PAGE: u64 = 4096;

/// The pages behind a fast-register region: of equal size, anywhere in memory, seen as one range.
#[derive(Default)]
pub(crate) struct PageList {
    pages: Vec<u64>,
    shift: u32,
    /// Offset of the region's first byte in the first page.
    first: u64,
    length: u64,
}

impl PageList {
    pub(crate) fn with_capacity(pages: usize) -> Result<Self, MemoryError> {
        let mut list = Self::default();
        list.pages.try_reserve_exact(pages).map_err(|_| MemoryError::NoMemory)?;
        Ok(list)
    }

    /// Divides `ranges` into pages. Every range but the first starts, and every one but the last ends, at a page
    /// boundary. On an error the list is empty.
    pub(crate) fn set(
        &mut self,
        ranges: &[AppRange],
        page_size: u64,
        max_pages: usize,
    ) -> Result<(), MemoryError> {
        self.pages.clear();
        self.length = 0;
        let result = self.fill(ranges, page_size, max_pages);
        if result.is_err() {
            self.pages.clear();
            self.length = 0;
        }
        result
    }

    fn fill(&mut self, ranges: &[AppRange], page_size: u64, max_pages: usize) -> Result<(), MemoryError> {
        if page_size < MIN_PAGE || !page_size.is_power_of_two() || ranges.is_empty() {
            return Err(MemoryError::InvalidArgument);
        }
        let mask = page_size - 1;
        self.shift = page_size.trailing_zeros();
        self.first = ranges[0].addr() as u64 & mask;
        for (i, range) in ranges.iter().enumerate() {
            if range.length() == 0 || !range.is_sound() {
                return Err(MemoryError::InvalidArgument);
            }
            let (start, end) = (range.addr() as u64, range.addr() as u64 + range.length());
            let aligned = (i == 0 || start & mask == 0) && (i + 1 == ranges.len() || end & mask == 0);
            let start = start & !mask;
            let pages = (end - start).div_ceil(page_size);
            if !aligned || pages > (max_pages - self.pages.len()) as u64 {
                return Err(MemoryError::InvalidArgument);
            }
            self.pages.extend((0..pages).map(|n| start + (n << self.shift)));
            self.length += range.length();
        }
        Ok(())
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Address of the byte at `offset` into the region, modulo the page size.
    pub(crate) fn first_offset(&self) -> u64 {
        self.first
    }

    pub(crate) fn page_mask(&self) -> u64 {
        (1 << self.shift) - 1
    }

    /// The address of the byte at `offset`, which is below `length()`, and how many bytes its page holds from there on.
    pub(crate) fn locate(&self, offset: u64) -> (usize, u64) {
        let at = self.first + offset;
        let within = at & self.page_mask();
        let addr = self.pages[(at >> self.shift) as usize] + within;
        (addr as usize, self.page_mask() + 1 - within)
    }
}
