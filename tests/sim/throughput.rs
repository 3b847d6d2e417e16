//! Goodput under loss, compared with the stored table.

use std::path::Path;

use softrnic_sim_tests::goodput::{self, Kind};

/// The table is determined by the seed, so every relevant change of the transport shows here. To accept one:
/// `SOFTRNIC_UPDATE=1 cargo test -p softrnic-sim-tests --test throughput`.
#[test]
fn goodput_is_what_the_kept_table_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("goodput.txt");
    let table = goodput::table();
    print!("{table}");
    if std::env::var_os("SOFTRNIC_UPDATE").is_some() {
        std::fs::write(&path, &table).expect("written");
    }
    let kept = std::fs::read_to_string(&path).expect("the kept table");
    assert!(table == kept, "goodput has changed:\n{table}\nwas:\n{kept}");
}

#[test]
fn loss_costs_no_more_than_it_must() {
    let lossless = goodput::goodput(Kind::Write, 0.0, 1, 1);
    assert!(lossless > 9.0, "{lossless}");
    for (loss, share) in [(0.001, 0.9), (0.01, 0.6)] {
        let found = goodput::goodput(Kind::Write, loss, 1, 1) / lossless;
        assert!(found > share, "{found:.2} of the goodput is left at {loss}");
    }
}
