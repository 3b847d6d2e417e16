//! The manual has what programs are shown.

use softrnic_diagnosis::Code;

#[test]
fn the_manual_has_a_row_for_each_code() {
    let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/troubleshooting.md");
    let manual = std::fs::read_to_string(manual).unwrap();
    for code in Code::all() {
        let row = format!("| `{:#05x}` | {} |", code.get(), code.meaning());
        assert!(manual.contains(&row), "docs/troubleshooting.md has no row: {row}");
    }
}
