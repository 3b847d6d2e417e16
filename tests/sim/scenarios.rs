//! Every script of `src/script/suite`.

use softrnic_script::Script;
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

/// A peer's reply may come again before it reads the confirmation. Where a script gives a time, it may not.
#[test]
fn a_message_may_come_again_where_nothing_new_may() {
    let script = |nothing: &str| {
        let text = format!(
            "title: a reply that is not confirmed\nserver\n< CM REQ c cm_timeout 14\n> CM REP c\nwait 300ms\n\
             {nothing}\nignore\n< CM RTU c\n< CM DREQ c\n> CM DREP c\n"
        );
        scenario::run(&Script::new("again", text))
    };
    assert_eq!(script("> nothing").expect("the reply came again"), 1);
    let failed = script("> nothing for 300ms").expect_err("the reply came again");
    assert!(failed[0].what.contains("CM REP"), "{failed:?}");
}
