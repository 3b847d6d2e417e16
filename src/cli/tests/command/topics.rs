//! What the help says about faults and the environment, what the documents say, and what the code reads.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::support::softrnic;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn document(name: &str) -> String {
    std::fs::read_to_string(root().join("docs").join(name)).expect("a page of the documentation")
}

/// The variables of SoftRNIC that a text names.
fn variables(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_uppercase() || c == '_'));
    words.filter(|word| word.starts_with("SOFTRNIC_") && word.len() > 9).map(str::to_owned).collect()
}

/// Source files, without tests and examples.
fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_source = [".rs", ".c", ".h"].iter().any(|ending| name.ends_with(ending));
        match path.is_dir() {
            true if ["tests", "examples", "bench"].contains(&name.as_str()) => {}
            true => sources(&path, found),
            false if is_source && name != "tests.rs" => found.push(path),
            false => {}
        }
    }
}

#[test]
fn every_variable_that_is_read_is_in_the_page_and_in_the_help_and_no_other() {
    let mut files = Vec::new();
    sources(&root().join("src"), &mut files);
    let mut read = BTreeSet::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a source file");
        // Tests stand at the end of a file.
        let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        let strings = code.split('"').skip(1).step_by(2);
        read.extend(strings.filter(|string| variables(string).contains(*string)).map(str::to_owned));
    }
    assert!(read.contains("SOFTRNIC_DEVICES") && read.contains("SOFTRNIC_SHM"), "{read:?}");
    let help = softrnic(&["help", "environment"]).expect(0).stdout;
    assert_eq!(variables(&help), read, "the help, and what the code reads or sets");
    assert_eq!(variables(&document("environment.md")), read, "the page, and what the code reads or sets");
}

#[test]
fn the_page_about_faults_has_the_grammar_that_the_help_prints() {
    let help = softrnic(&["help", "faults"]).expect(0).stdout;
    let topic = softrnic(&["faults"]).expect(0).stdout;
    let page = document("faults.md");
    let grammar = softrnic_link::fault::GRAMMAR;
    assert!(topic.starts_with(grammar), "{topic}");
    assert!(page.contains(grammar), "the page has another grammar");
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words(&help).contains(&words(grammar)), "{help}");
    let help = softrnic(&["run", "--help"]).expect(0).stdout;
    // Lines are wrapped anywhere.
    assert!(help.split_whitespace().collect::<Vec<_>>().join(" ").contains("softrnic help faults"), "{help}");
}

#[test]
fn every_example_of_a_fault_is_one() {
    let page = document("faults.md") + &softrnic(&["faults"]).expect(0).stdout;
    let mut examples = 0;
    for rest in page.split("--fault ").skip(1) {
        let Some((spec, _)) = rest.split_once(" -- ") else { continue };
        let spec = spec.split_whitespace().next().unwrap_or_default();
        if spec != "SPEC" {
            spec.parse::<softrnic_link::fault::FaultSpec>().unwrap_or_else(|error| panic!("{spec}: {error}"));
            examples += 1;
        }
    }
    assert!(examples >= 8, "{examples}");
}
