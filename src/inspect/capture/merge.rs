//! Several captures read together, in the order of time.

use std::io::Read;

use super::batch::RecordHeader;
use super::{CaptureError, Direction, Reader, Record};

/// Where records come from: one capture, or several.
pub trait Source {
    /// The next record, `None` at the end.
    ///
    /// # Errors
    /// As for [`Reader::next`].
    fn next_record(&mut self) -> Result<Option<Record<'_>>, CaptureError>;

    /// Bytes consumed so far, for showing progress.
    fn consumed(&self) -> u64;

    /// Packets that the capturing programs report as dropped.
    fn dropped(&self) -> u64;
}

impl<R: Read> Source for Reader<R> {
    fn next_record(&mut self) -> Result<Option<Record<'_>>, CaptureError> {
        self.next()
    }

    fn consumed(&self) -> u64 {
        self.offset()
    }

    fn dropped(&self) -> u64 {
        self.dropped_by_capture()
    }
}

/// Captures merged by time. Each keeps the order of its records; of records with the same time, those that leave come
/// first, since a packet is sent before it is received. Records are numbered through all files. A file that begins when
/// another has ended goes on with its interfaces, as the next of a ring of files.
#[derive(Debug)]
pub struct Merge<R> {
    files: Vec<File<R>>,
    records: u64,
    /// Places of files that have ended, and how many places there are.
    free: Vec<u32>,
    places: u32,
    /// The file that the last record came from.
    current: Option<usize>,
    damaged: Option<(usize, CaptureError)>,
}

#[derive(Debug)]
struct File<R> {
    reader: Reader<R>,
    /// What tells its interfaces from those of other files, once it has begun.
    place: Option<u32>,
    /// The next record, which has been read, its bytes, and its comment.
    waiting: Option<RecordHeader>,
    data: Vec<u8>,
    comment: Vec<u8>,
}

/// Interfaces of a file that are told apart.
const INTERFACES: u32 = 256;

impl<R: Read> Merge<R> {
    /// Captures of which nothing has been read yet. Damage in one is told when all others have been read.
    pub fn new(readers: Vec<Reader<R>>) -> Merge<R> {
        let files = readers.into_iter().map(|reader| File {
            reader,
            place: None,
            waiting: None,
            data: Vec::new(),
            comment: Vec::new(),
        });
        let mut merge = Merge {
            files: files.collect(),
            records: 0,
            free: Vec::new(),
            places: 0,
            current: None,
            damaged: None,
        };
        (0..merge.files.len()).for_each(|index| merge.advance(index));
        merge
    }

    /// Which file is damaged, if one is.
    pub fn damaged(&self) -> Option<usize> {
        self.damaged.map(|(index, _)| index)
    }

    /// Reads a file's next record.
    fn advance(&mut self, index: usize) {
        let file = &mut self.files[index];
        file.waiting = match file.reader.next() {
            Ok(Some(record)) => {
                file.data.clear();
                file.data.extend_from_slice(record.data);
                file.comment.clear();
                file.comment.extend_from_slice(record.comment);
                Some(RecordHeader::of(&record))
            }
            Ok(None) => None,
            Err(error) => {
                self.damaged.get_or_insert((index, error));
                None
            }
        };
        if file.waiting.is_none() {
            self.free.extend(file.place);
        }
    }
}

impl<R: Read> Source for Merge<R> {
    fn next_record(&mut self) -> Result<Option<Record<'_>>, CaptureError> {
        if let Some(index) = self.current.take() {
            self.advance(index);
        }
        let waiting = self.files.iter().enumerate().filter_map(|(index, file)| {
            let record = file.waiting.as_ref()?.record(&file.data, &file.comment);
            Some(((record.time_ns, record.direction != Some(Direction::Outbound), index), index))
        });
        let Some((_, index)) = waiting.min() else {
            return self.damaged.map_or(Ok(None), |(_, error)| Err(error));
        };
        self.current = Some(index);
        self.records += 1;
        let number = self.records;
        let file = &mut self.files[index];
        let place = *file.place.get_or_insert_with(|| {
            self.free.pop().unwrap_or_else(|| {
                self.places += 1;
                self.places - 1
            })
        });
        let file = &*file;
        Ok(file.waiting.as_ref().map(|header| {
            let record = header.record(&file.data, &file.comment);
            let interface = place * INTERFACES + record.interface.min(INTERFACES - 1);
            Record { number, interface, ..record }
        }))
    }

    fn consumed(&self) -> u64 {
        self.files.iter().map(|file| file.reader.offset()).sum()
    }

    fn dropped(&self) -> u64 {
        self.files.iter().map(|file| file.reader.dropped_by_capture()).sum()
    }
}
