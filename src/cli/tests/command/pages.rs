//! What shells and `man` read is made from the command's own help.

use std::process::Command;

use crate::support::{SOFTRNIC, directory, outcome, softrnic};

/// The subcommands that the help lists.
fn subcommands() -> Vec<String> {
    let help = softrnic(&["--help"]).expect(0).stdout;
    let list = help.split("Commands:\n").nth(1).and_then(|rest| rest.split("\n\n").next()).expect("a list");
    let names = list.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[test]
fn every_shell_gets_a_script() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = softrnic(&["completions", shell]).expect(0).stdout;
        for name in subcommands() {
            assert!(script.contains(&name), "{shell}: no {name}");
        }
    }
    softrnic(&["completions", "cmd.exe"]).expect(2).says("invalid value");
}

#[test]
fn bash_completes_a_partial_word() {
    let complete = r#"
        eval "$("$0" completions bash)"
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE}
        _softrnic softrnic "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let complete = |words: &[&str]| {
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-c", complete, SOFTRNIC, "softrnic"]).args(words);
        outcome(bash.output().expect("bash starts")).expect(0).stdout
    };
    assert_eq!(complete(&["doc"]), "doctor\n");
    assert_eq!(complete(&["run", "--fa"]), "--fault\n");
    assert!(complete(&["run", "--log", ""]).contains("debug\n"));
}

#[test]
fn every_subcommand_has_a_manual_page() {
    let directory = directory("man");
    softrnic(&["man", directory.join("man1").to_str().expect("a text")]).expect(0);
    let pages = std::fs::read_dir(directory.join("man1")).expect("written");
    let mut pages: Vec<String> =
        pages.map(|page| page.expect("a page").file_name().to_string_lossy().into_owned()).collect();
    pages.sort();
    for name in subcommands().iter().filter(|name| *name != "help") {
        let page = format!("softrnic-{name}.1");
        assert!(pages.contains(&page), "no {page} in {pages:?}");
        let text = std::fs::read_to_string(directory.join("man1").join(page)).expect("readable");
        assert!(text.contains(&format!(".TH softrnic-{name} 1")) && text.contains("Examples:"), "{text}");
    }
    assert!(pages.contains(&"softrnic.1".into()), "{pages:?}");
    assert!(!pages.iter().any(|page| page.contains("peer") || page.contains("help")), "{pages:?}");

    std::fs::write(directory.join("file"), "").expect("a file");
    let wrong = directory.join("file/man1");
    softrnic(&["man", wrong.to_str().expect("a text")]).expect(1).says("file/man1");
    std::fs::remove_dir_all(directory).expect("removed");
}
