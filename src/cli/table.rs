//! Tables of text with aligned columns.

use std::fmt::{self, Write as _};

use anstyle::{AnsiColor, Style};

/// The style of headings on terminals; `anstream` removes it elsewhere.
pub const HEADING: Style = Style::new().bold();
pub const QUIET: Style = Style::new().dimmed();
pub const GOOD: Style = AnsiColor::Green.on_default().bold();
pub const BAD: Style = AnsiColor::Red.on_default().bold();

/// A table. The first `left` columns and those from `words` on are aligned left; the others right.
pub struct Table {
    left: usize,
    /// The first of the trailing text columns.
    words: usize,
    /// Titles over several columns: where they start, and their text.
    groups: Vec<(usize, String)>,
    titles: Vec<String>,
    rows: Vec<Vec<String>>,
    /// What the columns are at least as wide as.
    widths: Vec<usize>,
}

const GAP: usize = 2;

impl Table {
    pub fn new(left: usize, titles: &[&str]) -> Table {
        let titles: Vec<String> = titles.iter().map(|title| (*title).to_owned()).collect();
        let widths = vec![0; titles.len()];
        Table { left, words: titles.len(), groups: Vec::new(), titles, rows: Vec::new(), widths }
    }

    /// Puts a title over the columns from `column` on.
    pub fn group(mut self, column: usize, title: impl Into<String>) -> Table {
        self.groups.push((column, title.into()));
        self
    }

    /// Aligns the columns from `column` on left too.
    pub fn words(self, column: usize) -> Table {
        Table { words: column, ..self }
    }

    /// Makes the columns at least so wide, for rows that are not known yet.
    pub fn at_least(self, widths: &[usize]) -> Table {
        Table { widths: widths.to_vec(), ..self }
    }

    /// One more row, as the line that it is in a table that grows.
    pub fn grow(&mut self, cells: Vec<String>) -> String {
        self.row(cells);
        self.rows.last().map(|row| self.line(&self.widths(), row)).unwrap_or_default()
    }

    /// The heading and the rows as text without colours.
    pub fn lines(&self) -> Vec<String> {
        let widths = self.widths();
        std::iter::once(&self.titles).chain(&self.rows).map(|row| self.line(&widths, row)).collect()
    }

    pub fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.titles.len());
        self.rows.push(cells);
    }

    fn widths(&self) -> Vec<usize> {
        let rows = std::iter::once(&self.titles).chain(&self.rows);
        let mut widths = self.widths.clone();
        for row in rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        widths
    }

    fn line(&self, widths: &[usize], cells: &[String]) -> String {
        let mut line = String::new();
        for (column, (cell, &width)) in cells.iter().zip(widths).enumerate() {
            let gap = if column == 0 { 0 } else { GAP };
            let _ = if column < self.left || column >= self.words {
                write!(line, "{:gap$}{cell:<width$}", "")
            } else {
                write!(line, "{:gap$}{cell:>width$}", "")
            };
        }
        line.truncate(line.trim_end().len());
        line
    }

    fn group_line(&self, widths: &[usize]) -> String {
        let mut line = String::new();
        for (column, title) in &self.groups {
            let start = widths[..*column].iter().sum::<usize>() + GAP * column;
            let used = line.chars().count();
            let _ = write!(line, "{:pad$}{title}", "", pad = start.saturating_sub(used));
        }
        line
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        if !self.groups.is_empty() {
            writeln!(f, "{QUIET}{}{QUIET:#}", self.group_line(&widths))?;
        }
        writeln!(f, "{HEADING}{}{HEADING:#}", self.line(&widths, &self.titles))?;
        self.rows.iter().try_for_each(|row| writeln!(f, "{}", self.line(&widths, row)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_in_characters_not_bytes() {
        let mut table = Table::new(1, &["operation", "latency"]).group(1, "clean");
        table.row(vec!["SEND".into(), "7.65 µs".into()]);
        table.row(vec!["WRITE".into(), "12 s".into()]);
        let text = anstream::adapter::strip_str(&table.to_string()).to_string();
        assert_eq!(text, "           clean\noperation  latency\nSEND       7.65 µs\nWRITE         12 s\n");
    }

    #[test]
    fn a_growing_table_has_its_stated_width() {
        let mut table = Table::new(1, &["script", "cases"]).at_least(&[8, 5]);
        assert_eq!(table.lines(), ["script    cases"]);
        assert_eq!(table.grow(vec!["naks".into(), "7".into()]), "naks          7");
    }
}
