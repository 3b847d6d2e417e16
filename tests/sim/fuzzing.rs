//! What fuzzing runs, without a fuzzer: the kept inputs, and inputs that are random.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use softrnic_sim_tests::fuzz::TARGETS;
use softrnic_sim_tests::rng::Rng;

#[test]
fn kept_inputs() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    for (name, target) in TARGETS {
        let mut count = 0;
        for entry in fs::read_dir(corpus.join(name)).expect("a corpus").flatten() {
            let data = fs::read(entry.path()).expect("readable");
            println!("{name}: {:?}", entry.file_name());
            target(&data);
            count += 1;
        }
        assert!(count > 0, "no inputs for {name}");
    }
}

#[test]
fn random_inputs() {
    for (name, target) in TARGETS {
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let len = rng.between(1, 3000) as usize;
            let data: Vec<u8> = (0..len).map(|_| rng.next() as u8).collect();
            let result = catch_unwind(AssertUnwindSafe(|| target(&data)));
            assert!(result.is_ok(), "{name} fails with the random input of seed {seed}");
        }
    }
}
