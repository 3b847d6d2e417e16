//! Numbers in a readable form.

use std::time::Duration;

/// `64 KiB`, `4097 B`: in a larger unit only if nothing is lost.
pub fn size(bytes: u64) -> String {
    match bytes {
        0 => "0 B".into(),
        _ if bytes.is_multiple_of(1 << 30) => format!("{} GiB", bytes >> 30),
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

/// `1 error`, `2 errors`.
pub fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Approximately this many bytes: `31.4 MB`.
pub fn volume(bytes: u64) -> String {
    let value = bytes as f64;
    match bytes {
        1_000_000_000.. => format!("{:.1} GB", value / 1e9),
        1_000_000.. => format!("{:.1} MB", value / 1e6),
        1_000.. => format!("{:.1} kB", value / 1e3),
        _ => format!("{bytes} B"),
    }
}

/// Three significant digits with a unit: bytes per second.
pub fn bandwidth(bytes_per_second: f64) -> String {
    match bytes_per_second {
        value if value >= 1e9 => format!("{} GB/s", three_digits(value / 1e9)),
        value if value >= 1e6 => format!("{} MB/s", three_digits(value / 1e6)),
        value => format!("{} kB/s", three_digits(value / 1e3)),
    }
}

/// Three significant digits with a unit.
pub fn duration(duration: Duration) -> String {
    match duration.as_nanos() as f64 {
        nanos if nanos >= 1e9 => format!("{} s", three_digits(nanos / 1e9)),
        nanos if nanos >= 1e6 => format!("{} ms", three_digits(nanos / 1e6)),
        nanos => format!("{} µs", three_digits(nanos / 1e3)),
    }
}

/// Messages per second.
pub fn rate(per_second: f64) -> String {
    match per_second {
        value if value >= 1e6 => format!("{} M/s", three_digits(value / 1e6)),
        value if value >= 1e3 => format!("{} k/s", three_digits(value / 1e3)),
        value => format!("{} /s", three_digits(value)),
    }
}

fn three_digits(value: f64) -> String {
    match value {
        value if value >= 99.95 => format!("{value:.0}"),
        value if value >= 9.995 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// `4096`, `64K`, `1M`: a size as typed.
pub fn parse_size(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    if digits.is_empty() {
        return Err(format!("'{text}' is not a size"));
    }
    let factor = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        unit => return Err(format!("'{unit}' is not a unit of size: use K, M or G")),
    };
    let number: usize = digits.parse().map_err(|_| format!("'{text}' is not a size"))?;
    number.checked_mul(factor).ok_or_else(|| format!("'{text}' is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_lose_nothing() {
        let sizes = [(0, "0 B"), (4097, "4097 B"), (65536, "64 KiB"), (1 << 20, "1 MiB"), (3 << 30, "3 GiB")];
        for (bytes, text) in sizes {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn typed_sizes_are_parsed_or_refused() {
        assert_eq!(parse_size("64K"), Ok(65536));
        assert_eq!(parse_size("1MiB"), Ok(1 << 20));
        assert_eq!(parse_size("13"), Ok(13));
        assert!(parse_size("13 parsecs").is_err());
        assert!(parse_size("99999999999G").is_err());
        assert!(parse_size("").is_err());
    }

    #[test]
    fn three_digits_are_shown() {
        assert_eq!(bandwidth(2.345e9), "2.35 GB/s");
        assert_eq!(bandwidth(23.45e6), "23.4 MB/s");
        assert_eq!(duration(Duration::from_nanos(999_960)), "1000 µs");
        assert_eq!(duration(Duration::from_nanos(7_654)), "7.65 µs");
        assert_eq!(rate(1_234_000.0), "1.23 M/s");
    }
}
