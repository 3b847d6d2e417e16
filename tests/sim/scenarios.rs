//! Every script in `scenarios/`.

use std::path::Path;

use softrnic_sim_tests::scenario;

#[test]
fn every_script_holds() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let wanted = std::env::var("SCENARIO").unwrap_or_default();
    let (mut cases, mut failures) = (0, Vec::new());
    for path in scenario::scripts(&directory).iter().filter(|path| path.to_string_lossy().contains(&wanted)) {
        match scenario::run(path) {
            Ok(count) => cases += count,
            Err(failed) => failures.extend(failed),
        }
    }
    for failure in &failures {
        eprintln!("{}: {}", failure.place, failure.what);
    }
    assert!(failures.is_empty(), "{} scripts fail; SCENARIO=name runs one", failures.len());
    assert!(cases > 0, "no script was found");
    println!("{cases} cases");
}
