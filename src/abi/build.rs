//! Turns `testdata/layout.txt` into compile-time assertions.

use std::fmt::Write;
use std::path::Path;

const FACTS: &str = "testdata/layout.txt";

fn main() {
    println!("cargo::rerun-if-changed={FACTS}");
    let facts = std::fs::read_to_string(FACTS).expect("the layout facts are part of the source");
    let out = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    std::fs::write(Path::new(&out).join("layout.rs"), assertions(&facts)).expect("OUT_DIR is writable");
}

/// Lines are `struct NAME SIZE`, or `FIELD OFFSET SIZE` about the last struct; `#` begins a comment.
fn assertions(facts: &str) -> String {
    let mut code = String::new();
    let mut name = "";
    for line in facts.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["struct", new, size] => {
                name = new;
                writeln!(code, "const _: () = assert!(std::mem::size_of::<{name}>() == {size}, \"size of {name}\");")
            }
            [field, offset, size] => writeln!(
                code,
                "const _: () = assert!(std::mem::offset_of!({name}, {field}) == {offset}, \"offset of {name}.{field}\");\n\
                 const _: () = assert!(size(|s: &{name}| {{\n    // SAFETY: never called, only its type is looked at.\n    unsafe {{ &s.{field} }}\n}}) == {size}, \"size of {name}.{field}\");"
            ),
            [] => Ok(()),
            _ => panic!("{FACTS}: {line}"),
        }
        .expect("writing to a string succeeds");
    }
    code
}
