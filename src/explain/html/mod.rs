//! The report as one self-contained HTML page.
//!
//! Text and tables are written here, so that the page tells its story without scripts too; the ladder
//! diagrams and plots are drawn by the page's script from the data embedded in it. Whatever the size of
//! the capture, the page stays below a few megabytes: [`PageLimits`] says how much is drawn, and the
//! page says what it leaves out.

pub(crate) mod data;
mod details;
pub(crate) mod escape;
mod findings;
mod page;
mod plot;
pub(crate) mod rows;

use std::io::{self, Write};

pub use details::{Details, PacketId};

use crate::Report;

/// The limits of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageLimits {
    /// Packets drawn in ladders, of all pairs together.
    pub rows: usize,
    /// Pairs that have a ladder.
    pub ladders: usize,
    /// Points of each plot.
    pub points: usize,
    /// Messages listed per pair.
    pub messages: usize,
}

impl Default for PageLimits {
    fn default() -> PageLimits {
        PageLimits { rows: 3000, ladders: 60, points: 1500, messages: 100 }
    }
}

/// A page that has been laid out: it is known which packets it will draw, so they can be looked up in the capture.
#[derive(Debug)]
pub struct Page<'r> {
    report: &'r Report,
    title: &'r str,
    limits: PageLimits,
    ladders: Vec<rows::Ladder>,
}

impl<'r> Page<'r> {
    /// Decides what the page shows of a report. `title` names the capture.
    pub fn new(report: &'r Report, title: &'r str, limits: PageLimits) -> Page<'r> {
        Page { report, title, limits, ladders: rows::choose(report, limits) }
    }

    /// The packets that will be drawn, in rising order: those whose fields [`Details::read`] should look
    /// up.
    pub fn wanted(&self) -> Vec<PacketId> {
        let mut wanted: Vec<PacketId> = self.ladders.iter().flat_map(rows::Ladder::packets).collect();
        wanted.sort_unstable();
        wanted.dedup();
        wanted
    }

    /// Writes the page. Packets without details show only what the ladder says.
    ///
    /// # Errors
    /// Those of writing.
    pub fn write(&self, details: &Details, out: &mut impl Write) -> io::Result<()> {
        let mut text = Vec::with_capacity(1 << 20);
        page::head(&mut text, self.title);
        page::summary(&mut text, self.report, self.title);
        findings::write(&mut text, self.report);
        page::pairs(&mut text, self.report, &self.ladders);
        page::diagrams(&mut text, self.report, &self.ladders);
        page::connections(&mut text, self.report);
        page::messages(&mut text, self.report, self.limits.messages);
        data::write(&mut text, self.report, &self.ladders, details, self.limits.points);
        page::foot(&mut text);
        out.write_all(&text)
    }
}
