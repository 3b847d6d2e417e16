use crate::notify::arming;

#[test]
fn an_arming_fires_once() {
    let (app, nic) = arming();
    assert!(!nic.should_fire(true), "not armed");
    app.arm(false);
    assert!(nic.should_fire(false));
    assert!(!nic.should_fire(true), "not armed any more");
}

#[test]
fn solicited_only_waits_for_a_solicited_completion() {
    let (app, nic) = arming();
    app.arm(true);
    assert!(!nic.should_fire(false));
    assert!(nic.should_fire(true));
    assert!(!nic.should_fire(true));
}

#[test]
fn asking_for_solicited_ones_does_not_weaken_asking_for_any() {
    let (app, nic) = arming();
    app.arm(false);
    app.arm(true);
    assert!(nic.should_fire(false));
    assert!(!nic.should_fire(true), "both armings were for one event");
}

#[test]
fn asking_for_any_strengthens_asking_for_solicited_ones() {
    let (app, nic) = arming();
    app.arm(true);
    app.arm(false);
    assert!(nic.should_fire(false));
    assert!(!nic.should_fire(true), "both armings were for one event");
}
