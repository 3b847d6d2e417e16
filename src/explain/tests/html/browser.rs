//! The pages in headless Chromium.

use std::path::{Path, PathBuf};
use std::process::Command;

use softrnic_explain::html::PageLimits;

use super::common::{losses_and_an_error, skip};
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
        let measured = measured(&dom);
        assert_eq!(measured["wide"], serde_json::json!([]), "{measured}");
        assert!(measured["scroll"].as_u64() <= measured["inner"].as_u64(), "{measured}");
        let brightness = |of: &str| -> u32 {
            let digits = measured[of].as_str().unwrap().trim_start_matches("rgb(").trim_end_matches(')');
            digits.split(", ").map(|n| n.parse::<u32>().unwrap()).sum()
        };
        assert_eq!(brightness("back") < brightness("text"), dark, "{measured}");
    }
}

/// Adds a script that uses the page as a reader does.
#[test]
fn filters_zooms_and_shows_fields() {
    const USE: &str = r##"<script>addEventListener("load", () => {
        const $ = (id) => document.getElementById(id), seen = {};
        const rows = () => document.querySelectorAll("svg.ladder .row").length;
        const type = (text) => { $("qp").value = text; $("qp").dispatchEvent(new Event("input")); };
        seen.all = rows();
        type("0x11"); seen.connection = rows();
        type("1"); seen.management = rows();
        type("0x999"); seen.nobody = rows();
        type(""); seen.again = rows();
        $("in").click(); seen.zoomed = rows(); seen.range = $("range").value;
        $("whole").click(); seen.whole = rows();
        document.querySelector("svg.ladder .row[id]").dispatchEvent(new MouseEvent("click", { bubbles: true }));
        seen.fields = $("fields").hidden ? "" : $("fields").textContent;
        document.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }));
        seen.escaped = $("fields").hidden;
        document.querySelector("#findings a").click();
        seen.chosen = document.querySelectorAll(".row.chosen").length;
        dispatchEvent(new Event("beforeprint"));
        seen.closed = document.querySelectorAll("details:not([open])").length;
        document.body.dataset.measured = JSON.stringify(seen);
    });</script></body>"##;
    let page = render(&eventful().pcap(), "eventful", PageLimits::default()).replace("</body>", USE);
    let Some(dom) = dom("used", &page, 1280) else { return };
    let seen = measured(&dom);
    let number = |name: &str| seen[name].as_u64().unwrap_or_else(|| panic!("{seen}"));
    assert!(number("connection") > 20 && number("management") >= 2, "{seen}");
    assert_eq!(number("connection") + number("management"), number("all"), "{seen}");
    assert_eq!(
        (number("nobody"), number("again"), number("whole")),
        (0, number("all"), number("all")),
        "{seen}"
    );
    assert!(number("zoomed") < number("all"), "{seen}");
    assert!(seen["range"].as_str().unwrap().contains(" s to "), "{seen}");
    let fields = seen["fields"].as_str().unwrap();
    assert!(fields.contains("bth") && fields.contains("psn"), "{seen}");
    assert_eq!((&seen["escaped"], number("chosen"), number("closed")), (&true.into(), 1, 0), "{seen}");
}

/// Many pairs, of which one is drawn: the page still begins with the one error, whose packet leads to its place.
#[test]
fn one_error_among_many_losses_is_what_a_reader_sees_first() {
    const USE: &str = r##"<script>addEventListener("load", () => {
        const $ = (id) => document.getElementById(id), seen = {};
        const kinds = [...document.querySelectorAll("#findings .kind")];
        const first = kinds[0].querySelector("li");
        seen.first = [kinds[0].className, kinds[0].open, first.hidden, first.getBoundingClientRect().bottom < innerHeight];
        seen.drawn = [$("pair").value, first.dataset.pair];
        seen.closed = kinds.filter((kind) => !kind.open).length;
        seen.lists = kinds.filter((kind) => !kind.open).map((kind) => kind.querySelector("li").checkVisibility());
        seen.wide = kinds.filter((kind) => kind.scrollWidth > kind.clientWidth).length;
        kinds[1].querySelector("summary").click();
        seen.opened = kinds[1].querySelector("li").checkVisibility();
        $("pair").value = "3";
        $("pair").dispatchEvent(new Event("change"));
        const shown = [...document.querySelectorAll("#findings li:not([hidden])")];
        seen.filtered = [...new Set(shown.map((li) => li.dataset.pair))];
        seen.words = kinds[0].querySelector(".chosen").textContent;
        first.querySelector("a").click();
        seen.after = [$("pair").value, document.querySelectorAll(".row.chosen").length, first.hidden];
        document.body.dataset.measured = JSON.stringify(seen);
    });</script></body>"##;
    let page = render(&losses_and_an_error(5, 20).pcap(), "losses", PageLimits::default());
    let page = page.replace("</body>", USE);
    for (name, width) in [("losses", 1280), ("losses-phone", 390)] {
        let Some(dom) = dom(name, &page, width) else { return };
        let seen = measured(&dom);
        let pair = seen["drawn"][1].clone();
        assert_eq!(seen["first"], serde_json::json!(["kind error", true, false, true]), "{seen}");
        assert_eq!(seen["drawn"][0], pair, "{seen}");
        assert!(seen["closed"].as_u64() >= Some(1), "{seen}");
        assert!(seen["lists"].as_array().unwrap().iter().all(|visible| visible == false), "{seen}");
        assert_eq!((&seen["wide"], &seen["opened"]), (&0.into(), &true.into()), "{seen}");
        assert_eq!(seen["filtered"], serde_json::json!(["3"]), "{seen}");
        assert_eq!(seen["words"], " 0 listed of the QPs chosen", "{seen}");
        assert_eq!(seen["after"], serde_json::json!([pair, 1, false]), "{seen}");
    }
}

#[test]
fn prints_on_paper_with_dark_colours_left_out() {
    let page = render(&eventful().pcap(), "eventful", PageLimits::default());
    let Some(pdf) = printed("printed", &page) else { return };
    assert!(pdf.starts_with(b"%PDF-"));
    let pages = pdf.windows(12).filter(|w| w.starts_with(b"/Type /Page") && w[11] != b's').count();
    // Each ladder is as tall as its drawing, without gaps between ladders.
    assert!((2..=8).contains(&pages), "{pages} pages");
}

/// The measurements that a script left in `data-measured`.
fn measured(dom: &str) -> serde_json::Value {
    let start = dom.find("data-measured=\"").expect("the script came to its end") + 15;
    let text = dom[start..].split('"').next().unwrap().replace("&quot;", "\"").replace("&amp;", "&");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn count(text: &str, what: &str) -> usize {
    text.matches(what).count()
}

fn dom(name: &str, page: &str, width: u32) -> Option<String> {
    dom_of(name, page, width, false)
}

/// The document after its script ran; `None` without Chromium, except in continuous integration.
fn dom_of(name: &str, page: &str, width: u32, dark: bool) -> Option<String> {
    let mut arguments = vec![format!("--window-size={width},900"), "--dump-dom".to_owned()];
    if dark {
        arguments.push("--force-dark-mode".to_owned());
    }
    let dom = String::from_utf8(browse(name, page, &arguments)?).unwrap();
    assert!(dom.contains("data-ready="), "the page's script did not come to its end:\n{dom}");
    Some(dom)
}

/// The page as PDF, printed by a reader who prefers a dark theme.
fn printed(name: &str, page: &str) -> Option<Vec<u8>> {
    let pdf = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("page-{name}.pdf"));
    let print = format!("--print-to-pdf={}", pdf.display());
    browse(name, page, &[print, "--force-dark-mode".to_owned()])?;
    Some(std::fs::read(pdf).expect("a PDF"))
}

/// Standard output of a browser that opens the page and reports no error.
fn browse(name: &str, page: &str, arguments: &[String]) -> Option<Vec<u8>> {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("page-{name}"));
    let profile = directory.join("profile");
    std::fs::create_dir_all(&profile).unwrap();
    let path = directory.join("page.html");
    std::fs::write(&path, page).unwrap();
    let output = browser(&path, &profile, arguments);
    std::fs::remove_dir_all(&profile).unwrap();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            skip("chromium", &error);
            return None;
        }
    };
    let log = String::from_utf8_lossy(&output.stderr);
    let complaints: Vec<_> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(complaints.is_empty(), "{complaints:?}");
    Some(output.stdout)
}

fn browser(page: &Path, profile: &Path, arguments: &[String]) -> std::io::Result<std::process::Output> {
    Command::new("chromium")
        .args([
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
        ])
        .args(arguments)
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("file://{}", page.display()))
        .output()
}
