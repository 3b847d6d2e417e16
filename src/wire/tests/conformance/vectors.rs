//! Reads `frames.txt`.

/// The source of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Real,
    Independent,
    Synthetic,
}

pub struct Vector {
    pub name: &'static str,
    pub kind: Kind,
    pub opcode: &'static str,
    pub bytes: Vec<u8>,
}

pub fn load() -> Vec<Vector> {
    let lines = include_str!("frames.txt").lines();
    let lines: Vec<_> = lines.filter(|l| !l.is_empty() && !l.starts_with('#')).collect();
    let (blocks, rest) = lines.as_chunks::<3>();
    assert!(rest.is_empty(), "a block is three lines");
    blocks.iter().map(parse_block).collect()
}

fn parse_block([title, what, hex]: &[&'static str; 3]) -> Vector {
    let (name, kind) = title.strip_prefix('[').and_then(|t| t.split_once("] ")).expect(title);
    let kind = match kind.split(';').next() {
        Some("REAL") => Kind::Real,
        Some("INDEPENDENT") => Kind::Independent,
        Some("SYNTHETIC") => Kind::Synthetic,
        _ => panic!("{name}: unknown kind"),
    };
    let opcode = what.split(';').next().expect(name);
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect(name);
    Vector { name, kind, opcode, bytes: (0..hex.len()).step_by(2).map(byte).collect() }
}
