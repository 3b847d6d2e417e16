//! Every script of `src/script/suite`.

use softrnic_sim_tests::scenario;

#[test]
fn every_script_holds() {
    let wanted = std::env::var("SCENARIO").unwrap_or_default();
    let (mut cases, mut failures) = (0, Vec::new());
    for script in softrnic_script::suite().iter().filter(|script| script.name.contains(&wanted)) {
        match scenario::run(script) {
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
