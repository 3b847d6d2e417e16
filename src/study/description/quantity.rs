//! Numbers with units, as people write them.

use softrnic_fabric::Picos;

/// `100Gbps` or `100G`, in bits per second.
pub fn rate(text: &str) -> Result<u64, String> {
    let units = [
        ("Tbps", 1e12),
        ("Gbps", 1e9),
        ("Mbps", 1e6),
        ("kbps", 1e3),
        ("bps", 1.0),
        ("T", 1e12),
        ("G", 1e9),
        ("M", 1e6),
    ];
    let rate =
        with_unit(text, &units).ok_or_else(|| format!("`{text}` is not a rate: write it as 100Gbps"))?;
    if rate < 1.0 {
        Err(format!("`{text}` is not a rate: it must be at least 1bps"))
    } else {
        Ok(rate.round() as u64)
    }
}

/// `1.5us`.
pub fn time(text: &str) -> Result<Picos, String> {
    let units = [("ps", 1.0), ("ns", 1e3), ("us", 1e6), ("ms", 1e9), ("s", 1e12)];
    let time = with_unit(text, &units).ok_or_else(|| format!("`{text}` is not a time: write it as 1.5us"))?;
    Ok(Picos(time.round() as u64))
}

/// `10MB` (a power of ten) or `10MiB` (a power of two).
pub fn bytes(text: &str) -> Result<u64, String> {
    let units = [
        ("KiB", 1024.0),
        ("MiB", 1024.0 * 1024.0),
        ("GiB", 1024.0 * 1024.0 * 1024.0),
        ("kB", 1e3),
        ("KB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("B", 1.0),
    ];
    let bytes = with_unit(text, &units)
        .ok_or_else(|| format!("`{text}` is not a number of bytes: write it as 64KiB or 10MB"))?;
    Ok(bytes.round() as u64)
}

/// A number from 0 to 1.
pub fn probability(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..=1.0).contains(number));
    number.ok_or_else(|| format!("`{text}` is not a probability: it must be from 0 to 1"))
}

fn with_unit(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    units.iter().find_map(|(unit, factor)| {
        let number: f64 = text.strip_suffix(unit)?.trim_end().parse().ok()?;
        let product = number * factor;
        (number >= 0.0 && product < 1e19).then_some(product)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_understood() {
        assert_eq!(rate("100Gbps"), Ok(100_000_000_000));
        assert_eq!(rate("2.5 Gbps"), Ok(2_500_000_000));
        assert_eq!(time("1us"), Ok(Picos::from_micros(1)));
        assert_eq!(time("0.5ns"), Ok(Picos(500)));
        assert_eq!(time("2s"), Ok(Picos(2_000_000_000_000)));
        assert_eq!(bytes("64KiB"), Ok(65_536));
        assert_eq!(bytes("10MB"), Ok(10_000_000));
        assert_eq!(bytes("7B"), Ok(7));
        for wrong in ["", "Gbps", "-1Gbps", "1", "1e30Gbps", "nanGbps", "0bps"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
        assert!(time("1").is_err() && time("-1us").is_err() && bytes("12").is_err());
        assert_eq!(probability("1e-6"), Ok(1e-6));
        assert!(probability("1.5").is_err() && probability("x").is_err());
    }
}
