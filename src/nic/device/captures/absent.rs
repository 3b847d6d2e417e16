//! Replaces the captures in a build without them.

use std::io;
use std::sync::Arc;

use softrnic_link::Link;
use softrnic_link::fault::FaultNotes;

use super::recording::Recording;

/// A capture file being written: there is none.
pub enum OpenCapture {}

impl OpenCapture {
    pub(super) fn record(&self, _link: Box<dyn Link>, _device: &str, _notes: FaultNotes) -> Box<dyn Link> {
        match *self {}
    }
}

pub(super) fn open(_recording: &Recording) -> io::Result<Arc<OpenCapture>> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this build was made without the feature capture"))
}
