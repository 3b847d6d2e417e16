//! Ladders as one SVG picture: what the page of [`html`](crate::html) draws, for documents and slides.
//!
//! The same report makes the same picture, byte by byte.

use std::fmt::Write as _;
use std::io::{self, Write};

use crate::html::PageLimits;
use crate::html::data::{Shown, shown};
use crate::html::escape::html;
use crate::html::rows::{Ladder, choose};
use crate::{Report, words};
use softrnic_inspect::decode::writing::Out;

const WIDTH: f64 = 760.0;
/// Where the life lines of A and B stand.
const SIDES: [f64; 2] = [150.0, 720.0];
/// From row to row, and how far an arrow falls.
const ROW: f64 = 26.0;
const FALL: f64 = 5.0;
/// Where along its arrow a sign sits.
const SIGN_AT: f64 = 0.86;
/// How far a packet gets that does not arrive.
const LOST_AT: f64 = 0.62;
/// About how wide a letter is.
const LETTER: f64 = 6.2;

const STYLE: &str = include_str!("svg.css");

/// Writes the ladders of a report, `rows` packets in all at most.
///
/// # Errors
/// Those of writing.
pub fn write_svg(report: &Report, title: &str, rows: usize, out: &mut impl Write) -> io::Result<()> {
    let limits = PageLimits { rows, ..PageLimits::default() };
    let mut body = Vec::new();
    let mut y = 8.0;
    for ladder in choose(report, limits) {
        y = draw(&mut body, report, &ladder, y);
    }
    if body.is_empty() {
        text(&mut body, "note", SIDES[0], 26.0, "start", "No RoCE packets.");
        y = 36.0;
    }
    let mut head = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {}\" role=\"img\">\n<title>",
        number(y + 4.0)
    )
    .into_bytes();
    html(&mut head, title);
    head.text("</title>\n<style>\n");
    head.text(STYLE);
    head.text("</style>\n<rect class=\"back\" width=\"100%\" height=\"100%\"/>\n");
    out.write_all(&head)?;
    out.write_all(&body)?;
    out.write_all(b"</svg>\n")
}

/// Draws one ladder from `top` down; returns where it ends.
fn draw(out: &mut Vec<u8>, report: &Report, ladder: &Ladder, top: f64) -> f64 {
    let pair = &report.pairs[ladder.pair];
    for (side, name) in ["A", "B"].into_iter().enumerate() {
        let end = format!("{name}: {}", pair.ends[side].name());
        let (x, anchor) = if side == 0 { (8.0, "start") } else { (WIDTH - 8.0, "end") };
        text(out, "name", x, top + 12.0, anchor, &end);
    }
    let middle = (SIDES[0] + SIDES[1]) / 2.0;
    let (from, mut y, mut last) = (top + 22.0, top + 26.0, None);
    let mut rows = Vec::new();
    for row in &ladder.rows {
        let shown = match shown(report, ladder.pair, row) {
            Ok(shown) => shown,
            Err(count) => {
                y += ROW;
                let left_out = format!("… {} not drawn …", words::count(count as u64, "packet"));
                text(&mut rows, "note", middle, y + 4.0, "middle", &left_out);
                last = None;
                continue;
            }
        };
        let wait = last.map_or(0, |last| shown.time_ns.saturating_sub(last));
        y += ROW;
        if wait > 100_000 {
            // Time runs down, its long stretches shortened to their logarithm.
            y += (14.0 * (wait as f64 / 1e5).log10()).min(60.0);
        }
        if wait > 1_000_000 {
            text(&mut rows, "dim", middle, y - 24.0, "middle", &format!("{} later", words::span(wait)));
        }
        last = Some(shown.time_ns);
        packet(&mut rows, &shown, y);
    }
    y += 22.0;
    for x in SIDES {
        let (x, from, y) = (number(x), number(from), number(y));
        let _ = writeln!(Text(out), "<path class=\"life\" d=\"M{x} {from}V{y}\"/>");
    }
    out.extend_from_slice(&rows);
    y + 16.0
}

fn packet(out: &mut Vec<u8>, shown: &Shown, y: f64) {
    let Shown { time_ns, from, class, mark, number: packet, label } = shown;
    let _ = writeln!(Text(out), "<g class=\"c-{class} m-{mark}\">");
    text(
        out,
        "dim",
        4.0,
        y + 2.0,
        "start",
        &format!("{}.{:06}", time_ns / 1_000_000_000, time_ns / 1000 % 1_000_000),
    );
    if *packet > 0 {
        text(out, "dim", SIDES[0] - 8.0, y + 2.0, "end", &format!("#{packet}"));
    }
    let [x1, x2] = if *from == 0 { SIDES } else { [SIDES[1], SIDES[0]] };
    arrow(out, [x1, y], [x2, y + FALL], class, mark);
    let room = ((SIDES[1] - SIDES[0] - 50.0) / LETTER) as usize;
    let mut label: String = label.clone();
    if label.chars().count() > room {
        label = label.chars().take(room - 1).collect();
        label.push('…');
    }
    let (x, anchor) = if *from == 0 { (x1 + 8.0, "start") } else { (x1 - 8.0, "end") };
    text(out, "label", x, y - 4.0, anchor, &label);
    out.text("</g>\n");
}

/// An arrow with its head and sign; one that did not arrive ends on its way.
fn arrow(out: &mut Vec<u8>, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2], class: &str, mark: &str) {
    let stops = mark == "lost" || mark == "corrupt";
    let share = if stops { LOST_AT } else { 1.0 };
    let along = |share: f64| [x1 + (x2 - x1) * share, y1 + (y2 - y1) * share];
    let [x, y] = along(share);
    let mut out = Text(out);
    let line = |out: &mut Text<'_>, down: f64| {
        let [from, to] = [y1 + down, y + down].map(number);
        let _ = writeln!(out, "<path class=\"arrow\" d=\"M{} {from}L{} {to}\"/>", number(x1), number(x));
    };
    line(&mut out, 0.0);
    if mark == "duplicate" {
        line(&mut out, 4.0);
    }
    let back = if x2 > x1 { -8 } else { 8 };
    let _ = if stops {
        writeln!(
            out,
            "<path class=\"mark\" d=\"M{} {}l10 10m0 -10l-10 10\"/>",
            number(x - 5.0),
            number(y - 5.0)
        )
    } else if class == "ack" {
        let start = number(x + f64::from(back));
        writeln!(
            out,
            "<path class=\"arrow\" d=\"M{start} {}L{} {}l{back} 4\"/>",
            number(y - 4.0),
            number(x),
            number(y)
        )
    } else {
        writeln!(out, "<path class=\"head\" d=\"M{} {}l{back} -4.5v9z\"/>", number(x), number(y))
    };
    if let Some(sign) = sign(mark).filter(|_| !stops) {
        let [x, y] = along(SIGN_AT);
        let _ = writeln!(out, "<circle class=\"mark\" cx=\"{}\" cy=\"{}\" r=\"8\"/>", number(x), number(y));
        text(out.0, "glyph", x, y + 4.0, "middle", sign);
    }
}

/// As in the page's script.
fn sign(mark: &str) -> Option<&'static str> {
    Some(match mark {
        "resent" => "↻",
        "duplicate" => "2×",
        "late" => "⤵",
        "replay" => "↺",
        "violation" => "!",
        _ => return None,
    })
}

fn text(out: &mut Vec<u8>, class: &str, x: f64, y: f64, anchor: &str, content: &str) {
    let (x, y) = (number(x), number(y));
    let _ = write!(Text(out), "<text class=\"{class}\" x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">");
    html(out, content);
    out.text("</text>\n");
}

/// With one decimal at most.
fn number(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// Formatted text at the end of bytes.
struct Text<'o>(&'o mut Vec<u8>);

impl std::fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.text(text);
        Ok(())
    }
}
