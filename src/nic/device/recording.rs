//! What is recorded of a device's packets, and into which files.

use super::spec::SpecError;
use softrnic_sys::environment;

/// A capture to make.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Recording {
    /// The file; `%p` becomes the process id.
    pub path: String,
    /// How many bytes of a packet are kept, from its Ethernet header on; all of them if not given.
    pub snap_len: Option<u32>,
    /// A new file begins when one has this many bytes. The files are numbered, with the process id in their names if the
    /// path does not have it.
    pub file_bytes: Option<u64>,
    /// How many files stay, if there are several; all of them if not given.
    pub files: Option<u32>,
    /// Whether packets may be missing when the file cannot keep up. Otherwise the device waits for the file.
    pub lossy: bool,
}

impl From<String> for Recording {
    /// All packets, whole, in one file.
    fn from(path: String) -> Recording {
        Recording { path, ..Recording::default() }
    }
}

impl From<&str> for Recording {
    fn from(path: &str) -> Recording {
        Recording::from(path.to_owned())
    }
}

impl Recording {
    /// What the environment asks for: `SOFTRNIC_PCAP`, `SOFTRNIC_PCAP_SNAPLEN`, `SOFTRNIC_PCAP_FILESIZE`,
    /// `SOFTRNIC_PCAP_FILES` and `SOFTRNIC_PCAP_LOSSY`.
    pub(super) fn from_env() -> Result<Option<Recording>, SpecError> {
        let Some(path) = environment::text("SOFTRNIC_PCAP") else { return Ok(None) };
        Ok(Some(Recording {
            path,
            snap_len: value("SOFTRNIC_PCAP_SNAPLEN", snap_len)?,
            file_bytes: value("SOFTRNIC_PCAP_FILESIZE", file_size)?,
            files: value("SOFTRNIC_PCAP_FILES", file_count)?,
            lossy: environment::text("SOFTRNIC_PCAP_LOSSY").as_deref() == Some("1"),
        }))
    }
}

fn value<T>(variable: &str, parse: fn(&str) -> Result<T, String>) -> Result<Option<T>, SpecError> {
    let text = environment::text(variable);
    text.map(|text| parse(&text)).transpose().map_err(|why| SpecError::new(format!("{variable}: {why}")))
}

/// How many bytes of a packet to keep.
///
/// # Errors
/// Too few for the headers, or no number.
pub fn snap_len(text: &str) -> Result<u32, String> {
    match text.parse() {
        // Ethernet, IPv6, UDP and BTH.
        Ok(bytes @ 74..) => Ok(bytes),
        _ => Err(format!(
            "'{text}' is not a length of at least 74, the size of the Ethernet, IPv6, UDP and BTH headers"
        )),
    }
}

/// The size of a file: a number with k, M or G for powers of 1000.
///
/// # Errors
/// It is none, or so small that there would be countless files.
pub fn file_size(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1000),
        Some(b'M') => (&text[..text.len() - 1], 1_000_000),
        Some(b'G') => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    match digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)) {
        Some(bytes @ 10_000..) => Ok(bytes),
        _ => Err(format!("'{text}' is not a file size of at least 10k; write 500k, 100M or 2G")),
    }
}

/// How many files to keep.
///
/// # Errors
/// It is no number from 1.
pub fn file_count(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(count @ 1..) => Ok(count),
        _ => Err(format!("'{text}' is not a number of files, at least 1")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_decimal_units() {
        assert_eq!(file_size("10000"), Ok(10_000));
        assert_eq!(
            (file_size("64k"), file_size("100M"), file_size("2G")),
            (Ok(64_000), Ok(100_000_000), Ok(2_000_000_000))
        );
        for wrong in ["", "M", "9k", "1T", "-1M", "99999999999999G"] {
            assert!(file_size(wrong).is_err(), "{wrong}");
        }
        assert_eq!(snap_len("128"), Ok(128));
        assert!(snap_len("73").is_err() && snap_len("all").is_err());
        assert_eq!(file_count("5"), Ok(5));
        assert!(file_count("0").is_err());
    }
}
