//! Explains a capture: `explain FILE [OUT.html]`.

use std::error::Error;
use std::fs::File;
use std::io;

use softrnic_explain::html::{Details, Page, PageLimits};
use softrnic_explain::{Limits, TextOptions, explain, write_text};
use softrnic_inspect::capture::Reader;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: explain FILE [OUT.html]")?;
    let report = explain(&mut Reader::new(File::open(&path)?)?, Limits::default(), |_| {});
    match args.next() {
        None => write_text(&report, TextOptions::default(), &mut io::stdout().lock())?,
        Some(html) => {
            let page = Page::new(&report, &path, PageLimits::default());
            let details = Details::read(&mut Reader::new(File::open(&path)?)?, &page.wanted(), |_| {});
            page.write(&details, &mut File::create(html)?)?;
        }
    }
    Ok(())
}
