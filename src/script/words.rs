//! Words of scripts and what they stand for.

use std::time::Duration;

/// The words of a line, taken from the front.
pub struct Words<'a>(std::iter::Peekable<std::str::SplitWhitespace<'a>>);

impl<'a> Words<'a> {
    /// The words of `line`.
    pub fn new(line: &'a str) -> Words<'a> {
        Words(line.split_whitespace().peekable())
    }

    /// The next word.
    pub fn next(&mut self) -> Result<&'a str, String> {
        self.0.next().ok_or_else(|| "a word is missing at the end of the line".into())
    }

    /// The next word, if there is one.
    pub fn peek(&mut self) -> Option<&'a str> {
        self.0.peek().copied()
    }

    /// The next word, if there is one, taken.
    pub fn following(&mut self) -> Option<&'a str> {
        self.0.next()
    }

    /// The next word as a name.
    pub fn name(&mut self) -> Result<String, String> {
        self.next().map(str::to_owned)
    }

    /// Whether the next word is `word`, which is then taken.
    pub fn take(&mut self, word: &str) -> bool {
        self.0.next_if(|next| *next == word).is_some()
    }

    /// The next word as a number.
    pub fn number(&mut self) -> Result<u64, String> {
        number(self.next()?)
    }

    /// Nothing may be left.
    pub fn end(&mut self) -> Result<(), String> {
        match self.0.next() {
            Some(word) => Err(format!("`{word}` is not understood")),
            None => Ok(()),
        }
    }
}

/// A number, decimal or with `0x`.
pub fn number(word: &str) -> Result<u64, String> {
    let parsed = match word.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => word.replace('_', "").parse(),
    };
    parsed.map_err(|_| format!("`{word}` is not a number"))
}

/// A time such as `4.096us`, `67ms` or `2s`.
pub fn duration(word: &str) -> Result<Duration, String> {
    let at = word.find(|c: char| c.is_alphabetic()).ok_or_else(|| format!("`{word}` has no unit"))?;
    let (value, unit) = word.split_at(at);
    let value: f64 = value.parse().map_err(|_| format!("`{word}` is not a time"))?;
    let nanos = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return Err(format!("`{unit}` is not a unit of time")),
    };
    Ok(Duration::from_nanos((value * nanos).round() as u64))
}

/// A number of bytes, `64` or `64K` or `1M`.
pub fn size(word: &str) -> Result<u64, String> {
    match (word.strip_suffix('K'), word.strip_suffix('M')) {
        (Some(kilo), _) => Ok(number(kilo)? << 10),
        (_, Some(mega)) => Ok(number(mega)? << 20),
        _ => number(word),
    }
}
