//! What headless Chromium makes of the pages.

use std::path::{Path, PathBuf};
use std::process::Command;

use softrnic_inspect::html::PageLimits;

use super::page::{eventful, large, render};

#[test]
fn ladders_plots_and_findings_are_drawn_without_an_error() {
    let Some(dom) = dom("eventful", &render(&eventful().pcap(), "eventful", PageLimits::default()), 1280)
    else {
        return;
    };
    assert_eq!(count(&dom, "class=\"ladder\""), 2, "one for the connection, one for QP 1");
    assert_eq!(count(&dom, "class=\"plot\""), 2, "what either side of the connection asks");
    for mark in ["lost", "corrupt", "resent", "duplicate", "late", "replay", "violation"] {
        assert!(dom.contains(&format!("m-{mark}\" tabindex")), "nothing is drawn as {mark}");
    }
    assert_eq!(count(&dom, " tabindex=\"0\" role=\"listitem\""), eventful().frames.len() + 2);
}

#[test]
fn pages_of_a_large_capture_and_of_an_empty_one_are_drawn_too() {
    let page = render(&large().pcap(), "large", PageLimits::default());
    let Some(dom) = dom("large", &page, 1280) else { return };
    assert_eq!(count(&dom, "class=\"ladder\""), 1, "of a hundred pairs one is chosen");
    let empty = render(&super::common::pcap_header(0xA1B2_C3D4, 1), "empty", PageLimits::default());
    assert!(self::dom("empty", &empty, 1280).unwrap().contains("data-ready=\"0\""));
}

/// Adds a script that measures the page, and reads what it found.
#[test]
fn fits_a_phone_and_follows_the_colour_scheme() {
    const MEASURE: &str = r#"<script>addEventListener("load", () => {
        const wide = [...document.querySelectorAll("main *")].filter((e) => !e.closest(".wide, svg")
            && e.getBoundingClientRect().right > innerWidth + 1).map((e) => [e.tagName, e.id]);
        const colour = (of) => getComputedStyle(document.body)[of];
        document.body.dataset.measured = JSON.stringify({ inner: innerWidth, wide,
            scroll: document.documentElement.scrollWidth, back: colour("backgroundColor"), text: colour("color") });
    });</script></body>"#;
    let page = render(&eventful().pcap(), "eventful", PageLimits::default()).replace("</body>", MEASURE);
    for (name, dark) in [("phone-light", false), ("phone-dark", true)] {
        let Some(dom) = dom_of(name, &page, 390, dark) else { return };
        let start = dom.find("data-measured=\"").unwrap() + 15;
        let measured = dom[start..].split('"').next().unwrap().replace("&quot;", "\"");
        let measured: serde_json::Value = serde_json::from_str(&measured).unwrap();
        assert_eq!(measured["wide"], serde_json::json!([]), "{measured}");
        assert!(measured["scroll"].as_u64() <= measured["inner"].as_u64(), "{measured}");
        let brightness = |of: &str| -> u32 {
            let digits = measured[of].as_str().unwrap().trim_start_matches("rgb(").trim_end_matches(')');
            digits.split(", ").map(|n| n.parse::<u32>().unwrap()).sum()
        };
        assert_eq!(brightness("back") < brightness("text"), dark, "{measured}");
    }
}

fn count(text: &str, what: &str) -> usize {
    text.matches(what).count()
}

fn dom(name: &str, page: &str, width: u32) -> Option<String> {
    dom_of(name, page, width, false)
}

/// The document after its script ran; `None` without Chromium, except in continuous integration.
fn dom_of(name: &str, page: &str, width: u32, dark: bool) -> Option<String> {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("page-{name}"));
    let profile = directory.join("profile");
    std::fs::create_dir_all(&profile).unwrap();
    let path = directory.join("page.html");
    std::fs::write(&path, page).unwrap();
    let output = browser(&path, &profile, width, dark);
    std::fs::remove_dir_all(&profile).unwrap();
    let output = match output {
        Ok(output) => output,
        Err(e) if std::env::var_os("CI").is_none() => {
            eprintln!("SKIPPED: chromium is needed: {e}");
            return None;
        }
        Err(e) => panic!("no chromium: {e}"),
    };
    let log = String::from_utf8_lossy(&output.stderr);
    let complaints: Vec<_> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(complaints.is_empty(), "{complaints:?}");
    let dom = String::from_utf8(output.stdout).unwrap();
    assert!(dom.contains("data-ready="), "the page's script did not come to its end:\n{log}");
    Some(dom)
}

fn browser(page: &Path, profile: &Path, width: u32, dark: bool) -> std::io::Result<std::process::Output> {
    let mut chromium = Command::new("chromium");
    chromium.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--hide-scrollbars",
        "--enable-logging=stderr",
        "--timeout=20000",
        "--dump-dom",
    ]);
    if dark {
        chromium.arg("--force-dark-mode");
    }
    chromium.arg(format!("--window-size={width},900"));
    chromium.arg(format!("--user-data-dir={}", profile.display()));
    chromium.arg(format!("file://{}", page.display())).output()
}
