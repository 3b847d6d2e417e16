//! Faults planted in a NIC: each must be found by the script that is about it. tests/verbs/test_mutants.py plays the same
//! over a wire.

use softrnic_script::suite;
use softrnic_sim_tests::scenario;
use softrnic_transport::Fault;

#[test]
fn every_planted_fault_is_found_by_its_script() {
    let lines = include_str!("mutants.txt").lines().filter(|line| !line.starts_with('#'));
    let pairs: Vec<(&str, &str)> = lines
        .filter_map(|line| {
            let mut words = line.split(' ');
            Some((words.next()?, words.next()?))
        })
        .collect();
    let named: Vec<&str> = pairs.iter().map(|(fault, _)| *fault).collect();
    assert_eq!(named, Fault::ALL.map(|(name, _)| name));
    for (fault, name) in pairs {
        let script = suite().into_iter().find(|script| script.name == name).expect("a script of the suite");
        let found = scenario::run_with(&script, Fault::named(fault)).expect_err(fault);
        println!("{fault}: {}: {}", found[0].place, found[0].what);
    }
}
