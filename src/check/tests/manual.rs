//! The manual has what is reported.

use softrnic_check::Kind;

#[test]
fn the_manual_has_a_row_for_each_kind() {
    let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/check.md");
    let manual = std::fs::read_to_string(manual).unwrap();
    for kind in Kind::ALL {
        let row = format!("| `{kind}` | {} |", kind.means());
        assert!(manual.contains(&row), "docs/check.md has no row: {row}");
    }
}
