//! Several devices in one specification, as in `mlx5_[0-3]=udp?numa=[0,1]`.
//!
//! A list in brackets stands for one text for each device: numbers as in `0-7`, which keep their leading zeros, and texts
//! between commas. The first list says how many devices there are. The values of the others are spread evenly over them, in
//! order: with `numa=[0,1]`, the first half is at node 0 and the second at node 1.

use std::net::Ipv6Addr;

use super::SpecError;

/// More devices than any machine has.
const MOST: usize = 64;

/// A part of a specification.
enum Piece<'a> {
    Text(&'a str),
    List(Vec<String>),
}

/// The specifications of single devices, in order. Commas are between them, or in lists.
pub(super) fn expand(text: &str) -> Result<Vec<String>, SpecError> {
    let mut all = Vec::new();
    for part in split(text) {
        let pieces = pieces(part)?;
        let lists = || {
            pieces.iter().filter_map(|piece| match piece {
                Piece::List(values) => Some(values.len()),
                Piece::Text(_) => None,
            })
        };
        let count = lists().next().unwrap_or(1);
        if let Some(odd) = lists().find(|length| !count.is_multiple_of(*length)) {
            let problem = format!("'{part}': {odd} values cannot be spread evenly over {count} devices");
            return Err(SpecError::new(problem));
        }
        all.extend((0..count).map(|device| {
            let pieces = pieces.iter().map(|piece| match piece {
                Piece::Text(text) => text,
                Piece::List(values) => values[device * values.len() / count].as_str(),
            });
            pieces.collect::<String>()
        }));
    }
    Ok(all)
}

/// The devices of a command line as one specification. `@FILE` stands for those in a file: one to a line, and `#` begins a
/// comment.
pub(super) fn join(arguments: &[String]) -> Result<String, SpecError> {
    let mut all = Vec::new();
    for argument in arguments {
        let Some(path) = argument.strip_prefix('@') else {
            all.push(argument.clone());
            continue;
        };
        let text = std::fs::read_to_string(path)
            .map_err(|error| SpecError::new(format!("cannot read the devices in {path}: {error}")))?;
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
        all.extend(lines.filter(|line| !line.is_empty()).map(str::to_owned));
    }
    Ok(all.join(","))
}

/// Splits at the commas outside brackets.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_u32;
    let parts = text.split(move |c| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    parts.filter(|part| !part.is_empty())
}

fn pieces(part: &str) -> Result<Vec<Piece<'_>>, SpecError> {
    let mut pieces = Vec::new();
    let mut rest = part;
    while let Some((before, after)) = rest.split_once('[') {
        let Some((inside, after)) = after.split_once(']') else { break };
        if inside.parse::<Ipv6Addr>().is_ok() {
            let (address, after) = rest.split_at(before.len() + inside.len() + 2);
            pieces.push(Piece::Text(address));
            rest = after;
            continue;
        }
        pieces.push(Piece::Text(before));
        pieces.push(Piece::List(
            values(inside).map_err(|problem| SpecError::new(format!("'{part}': {problem}")))?,
        ));
        rest = after;
    }
    pieces.push(Piece::Text(rest));
    Ok(pieces)
}

/// What a list stands for.
fn values(list: &str) -> Result<Vec<String>, String> {
    let mut values = Vec::new();
    for item in list.split(',') {
        let range = item.split_once('-').and_then(|(first, last)| {
            let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let bounds =
                (digits(first) && digits(last)).then_some((first.parse().ok()?, last.parse().ok()?))?;
            Some((first.len(), bounds))
        });
        match range {
            Some((width, (first, last))) => {
                let range: std::ops::RangeInclusive<u32> = first..=last;
                values.extend(range.take(MOST + 1).map(|number| format!("{number:0width$}")));
            }
            None => values.push(item.to_owned()),
        }
        if values.len() > MOST {
            return Err(format!("[{list}] has more than {MOST} values"));
        }
    }
    if values.iter().any(String::is_empty) || values.is_empty() {
        return Err(format!("[{list}] is not a list: write [0-7] or [0,2,4]"));
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(text: &str) -> Vec<String> {
        expand(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn what_has_no_list_is_one_device() {
        assert_eq!(
            expanded("a=udp:10.0.0.1,,b=udp:[fe80::1]?shm=off"),
            ["a=udp:10.0.0.1", "b=udp:[fe80::1]?shm=off"]
        );
        assert!(expanded("").is_empty());
    }

    #[test]
    fn values_are_spread_over_the_devices_in_order() {
        assert_eq!(
            expanded("mlx5_[0-3]=udp:127.0.0.[1-4]?numa=[0,1]&speed=[10Gbit],z=udp"),
            [
                "mlx5_0=udp:127.0.0.1?numa=0&speed=10Gbit",
                "mlx5_1=udp:127.0.0.2?numa=0&speed=10Gbit",
                "mlx5_2=udp:127.0.0.3?numa=1&speed=10Gbit",
                "mlx5_3=udp:127.0.0.4?numa=1&speed=10Gbit",
                "z=udp",
            ]
        );
        assert_eq!(
            expanded("r[08-11]=udp:[fd00::1]"),
            ["r08", "r09", "r10", "r11"].map(|name| format!("{name}=udp:[fd00::1]"))
        );
        assert_eq!(expanded("x[a,c-d,3]=udp"), ["xa=udp", "xc-d=udp", "x3=udp"]);
        assert_eq!(
            expanded("x[0-1]=udp?pci=[10:0.0,11:0.0/12:0.0]"),
            ["x0=udp?pci=10:0.0", "x1=udp?pci=11:0.0/12:0.0"]
        );
    }

    #[test]
    fn devices_can_be_in_a_file() {
        let path = std::env::temp_dir().join(format!("softrnic-rails-{}", std::process::id()));
        std::fs::write(&path, "# a machine\nr[0,1]=udp   # two\n\nz=udp?numa=1\n").unwrap();
        let joined = join(&["a=udp".to_owned(), format!("@{}", path.display())]);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(joined, Ok("a=udp,r[0,1]=udp,z=udp?numa=1".to_owned()));
        let missing = join(&["@/no/such/file".to_owned()]).unwrap_err().to_string();
        assert!(missing.contains("cannot read the devices in /no/such/file"), "{missing}");
    }

    #[test]
    fn lists_that_make_no_sense_are_named() {
        for (text, says) in [
            ("a[0-3]=udp?numa=[0,1,0]", "3 values cannot be spread evenly over 4 devices"),
            ("a[]=udp", "[] is not a list"),
            ("a[3-1]=udp", "[3-1] is not a list"),
            ("a[1,,2]=udp", "[1,,2] is not a list"),
            ("a[0-4000000000]=udp", "more than 64 values"),
        ] {
            let error = expand(text).expect_err(text).to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
