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

    /// The next word as a number of type `T`.
    pub fn number<T: TryFrom<u64>>(&mut self) -> Result<T, String> {
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

/// A number of type `T`, decimal or with `0x`.
pub fn number<T: TryFrom<u64>>(word: &str) -> Result<T, String> {
    fit(word, whole(word)?)
}

fn whole(word: &str) -> Result<u64, String> {
    let parsed = match word.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => word.replace('_', "").parse(),
    };
    parsed.map_err(|_| format!("`{word}` is not a number"))
}

fn fit<T: TryFrom<u64>>(word: &str, number: u64) -> Result<T, String> {
    number.try_into().map_err(|_| format!("`{word}` is too large"))
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
pub fn size<T: TryFrom<u64>>(word: &str) -> Result<T, String> {
    let units = [('K', 1 << 10), ('M', 1 << 20)];
    let unit = units.into_iter().find_map(|(letter, unit)| Some((word.strip_suffix(letter)?, unit)));
    let (count, unit) = unit.unwrap_or((word, 1));
    let bytes = whole(count)?.checked_mul(unit);
    fit(word, bytes.ok_or_else(|| format!("`{word}` is too large"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_does_not_fit_is_refused() {
        assert_eq!(number("0xff"), Ok(255_u8));
        assert_eq!(number::<u8>("300"), Err("`300` is too large".into()));
        assert_eq!(number::<u8>("-1"), Err("`-1` is not a number".into()));
        assert_eq!((size("2K"), size("1M"), size("7")), (Ok(2048_u32), Ok(1_u32 << 20), Ok(7_u8)));
        assert_eq!(size::<u32>("4096M"), Err("`4096M` is too large".into()));
        assert_eq!(size::<u64>("99999999999999999K"), Err("`99999999999999999K` is too large".into()));
    }
}
