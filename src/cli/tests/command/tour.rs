//! What the pages of `docs/tour` say that commands print is what they print, and its pictures are those that are
//! drawn. (`tests/sim/tour.rs` makes the captures.)
//!
//! `SOFTRNIC_UPDATE=1` writes the outputs into the pages and the pictures beside them instead.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{SOFTRNIC, directory, unconfigured};

fn tour() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tour")
}

fn files(extension: &str) -> Vec<PathBuf> {
    let mut paths: Vec<_> =
        std::fs::read_dir(tour()).expect("the tour").flatten().map(|e| e.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|found| found == extension));
    paths.sort();
    paths
}

fn updating() -> bool {
    std::env::var_os("SOFTRNIC_UPDATE").is_some()
}

/// What a command line of a page prints, run in the directory of the tour.
fn run(line: &str) -> String {
    let arguments: Vec<&str> = line.split_whitespace().collect();
    let ["softrnic", verb @ ("decode" | "explain"), rest @ ..] = arguments.as_slice() else {
        panic!("the tour runs decode and explain, not `{line}`")
    };
    // A page shows what a reader gets with the output in a pipe.
    let rest: Vec<String> = rest.iter().map(|word| word.replace(['\'', '"'], "")).collect();
    let output = unconfigured(Command::new(SOFTRNIC)).arg(verb).args(rest).current_dir(tour()).output();
    let output = output.expect("the command starts");
    assert!(
        matches!(output.status.code(), Some(0 | 3)),
        "{line}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("text")
}

/// A page with every output made anew: in blocks of `console`, what follows a line that begins with `$ softrnic`.
fn made_anew(page: &str) -> (String, usize) {
    let (mut text, mut commands) = (String::new(), 0);
    let (mut inside, mut replacing) = (false, false);
    for line in page.lines() {
        if line.starts_with("```") {
            inside = line == "```console";
            replacing = false;
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| inside) {
            text.push_str(line);
            text.push('\n');
            text.push_str(&run(command));
            commands += 1;
            replacing = true;
            continue;
        }
        if !replacing {
            text.push_str(line);
            text.push('\n');
        }
    }
    (text, commands)
}

#[test]
fn commands_print_what_the_pages_say() {
    let mut total = 0;
    for path in files("md") {
        let page = std::fs::read_to_string(&path).expect("a page");
        let (text, commands) = made_anew(&page);
        total += commands;
        if updating() {
            std::fs::write(&path, text).expect("written");
        } else {
            assert_eq!(page, text, "{}: SOFTRNIC_UPDATE=1 writes what is printed now", path.display());
        }
    }
    assert!(total >= 16, "{total} commands");
}

#[test]
fn every_capture_has_its_picture_and_its_page() {
    let captures = files("pcapng");
    assert!(captures.len() >= 8);
    let out = directory("tour");
    let pages: String =
        files("md").iter().map(|path| std::fs::read_to_string(path).expect("a page")).collect();
    for capture in captures {
        let name = capture.file_stem().expect("a name").to_string_lossy().into_owned();
        let picture = capture.with_extension("svg");
        let made = out.join(format!("{name}.svg"));
        let mut explain = unconfigured(Command::new(SOFTRNIC));
        explain.args(["explain", "--svg"]).arg(&made).arg(&capture);
        let output = explain.output().expect("the command starts");
        assert!(matches!(output.status.code(), Some(0 | 3)), "{}", String::from_utf8_lossy(&output.stderr));
        let made = std::fs::read(made).expect("a picture");
        if updating() {
            std::fs::write(&picture, made).expect("written");
        } else {
            assert!(
                std::fs::read(&picture).ok() == Some(made),
                "{name}.svg: SOFTRNIC_UPDATE=1 keeps the new one"
            );
        }
        assert!(pages.contains(&format!("({name}.svg)")), "no page shows {name}.svg");
    }
}
