//! The names here are those of the source and of the object.

extern crate std;

use std::format;
use std::string::String;
use std::vec::Vec;

use super::*;

const SOURCE: &str = include_str!("softrnic_xdp.c");

#[test]
fn verdicts_have_the_order_of_the_source() {
    let (_, after) = SOURCE.split_once("enum verdict {").expect("the enum");
    let (body, _) = after.split_once('}').expect("its end");
    let names: Vec<&str> = body.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    let (last, names) = names.split_last().expect("names");
    assert_eq!(*last, "VERDICTS");
    let ours: Vec<String> = Verdict::ALL.iter().map(|verdict| screaming(&format!("{verdict:?}"))).collect();
    assert_eq!(names, ours);
    for (index, verdict) in Verdict::ALL.into_iter().enumerate() {
        assert_eq!(verdict as usize, index);
    }
}

#[test]
fn sizes_are_those_of_the_source() {
    assert!(SOURCE.contains(&format!("#define MAX_QUEUES {MAX_QUEUES}\n")));
    assert!(SOURCE.contains(&format!("#define MAX_ADDRESSES {MAX_ADDRESSES}\n")));
}

#[test]
fn the_object_is_aligned_and_has_the_programs_and_maps() {
    assert_eq!(OBJECT.as_ptr() as usize % 8, 0);
    assert_eq!(OBJECT[..4], *b"\x7fELF");
    for name in [STEER_FRAGS, STEER_LINEAR, SOCKETS, ADDRESSES, VERDICTS] {
        let symbol = format!("\0{name}\0");
        let found = OBJECT.windows(symbol.len()).any(|bytes| bytes == symbol.as_bytes());
        assert!(found, "no symbol {name}");
        assert!(SOURCE.contains(name), "{name} is not in the source");
    }
}

/// `PassedNoSocket` as `PASSED_NO_SOCKET`.
fn screaming(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.extend(letter.to_uppercase());
    }
    text
}
