//! What the web pages of all commands have in common: one file, nothing fetched, light and dark.

#![forbid(unsafe_code)]

pub mod chart;

use std::time::SystemTime;

use softrnic_inspect::decode::date;

const STYLE: &str = include_str!("web_page.css");

/// Where a page comes from.
pub struct Origin {
    /// What it is about.
    title: String,
    /// When.
    date: String,
    /// By which command.
    command: String,
}

impl Origin {
    /// This run.
    pub fn now(title: String) -> Origin {
        let words: Vec<String> = std::env::args().skip(1).map(|word| quoted(&word)).collect();
        Origin { title, date: date(SystemTime::now()), command: format!("softrnic {}", words.join(" ")) }
    }
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The page up to what follows its title: when and by which command it was made.
pub fn head(origin: &Origin, tool: &str, style: &str) -> String {
    let Origin { title, date, command } = origin;
    let (title, command) = (escaped(title), escaped(command));
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">\n\
         <title>{title}: softrnic {tool}</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>\n{STYLE}{style}</style>\n</head>\n\
         <body>\n<h1>{title}</h1>\n\
         <p class=\"origin\">{date}, SoftRNIC {}<br><code>{command}</code></p>\n",
        env!("CARGO_PKG_VERSION")
    )
}

/// What every page ends with.
pub const TAIL: &str = "</body>\n</html>\n";

/// Text as XML and HTML take it.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            c if c.is_control() && c != '\n' => out.push('\u{FFFD}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_date_version_and_command() {
        let origin = Origin {
            title: "10.0.0.5, device <mlx5>".into(),
            date: "2026-01-31 12:34:56 UTC".into(),
            command: "softrnic drill --peer 10.0.0.5 'my scripts/a.txt'".into(),
        };
        let page = head(&origin, "drill", ".own {}");
        for part in [
            "<h1>10.0.0.5, device &lt;mlx5&gt;</h1>",
            concat!("2026-01-31 12:34:56 UTC, SoftRNIC ", env!("CARGO_PKG_VERSION")),
            "<code>softrnic drill --peer 10.0.0.5 'my scripts/a.txt'</code>",
            "prefers-color-scheme: dark",
            ".own {}",
        ] {
            assert!(page.contains(part), "no '{part}' in:\n{page}");
        }
    }

    #[test]
    fn a_command_can_be_given_to_a_shell_again() {
        assert_eq!(
            ["--peer=10.0.0.5", "a b", "it's", ""].map(quoted),
            ["--peer=10.0.0.5", "'a b'", r"'it'\''s'", "''"]
        );
    }
}
