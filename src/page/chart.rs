//! Lines over a common axis, as SVG.

use std::fmt::Write as _;

use crate::escaped;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 34.0;
/// A line of a document's key.
const KEY: f64 = 18.0;
/// Colours of the page's style, which lines take in turn.
pub const HUES: usize = 8;

/// A line.
pub struct Line {
    /// What it is called.
    pub name: String,
    /// Where it goes, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// An axis from 0 on.
pub struct Axis {
    /// What is measured along it.
    pub title: &'static str,
    /// Its upper end.
    pub high: f64,
}

/// Where the first whole steps of 1, 2 or 5 times a power of ten lie: five to ten of them.
fn ticks(high: f64) -> Vec<f64> {
    if !(high.is_finite() && high > 0.0) {
        return vec![0.0];
    }
    let power = 10f64.powf((high / 10.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * power).find(|step| high / step <= 10.0);
    let step = step.unwrap_or(10.0 * power);
    (0..=(high / step) as u32).map(|number| f64::from(number) * step).collect()
}

/// As short as it can be written.
fn label(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Lines over their axes.
pub struct Chart {
    /// Across.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// Their colours are in this order.
    pub lines: Vec<Line>,
}

/// Of a document: those of the page's style that lines and axes need, and its own colours for them.
const STYLE: &str = "\
svg { font: 12px system-ui, sans-serif; --dim: #656d76; --line: #d8dee4; --paper: #fff }
@media (prefers-color-scheme: dark) { svg { --dim: #9198a1; --line: #30363d; --paper: #0d1117 } }
.paper { fill: var(--paper) } .key { fill: var(--hue) }
";

impl Chart {
    /// A part of a page: the lines, and their names below.
    pub fn figure(&self) -> String {
        let mut out = format!("<figure><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" {}>\n", self.role());
        out += &self.drawing();
        out += "</svg>\n<figcaption>";
        for (number, line) in self.lines.iter().enumerate() {
            let _ = write!(out, "<span class=\"key hue{}\">{}</span> ", number % HUES, escaped(&line.name));
        }
        out + "</figcaption></figure>\n"
    }

    /// A picture of its own.
    pub fn document(&self, page_style: &str) -> String {
        let height = HEIGHT + 8.0 + KEY * self.lines.len() as f64;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" {}>\n<style>{STYLE}{page_style}</style>\n\
             <rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n",
            self.role()
        );
        out += &self.drawing();
        for (number, line) in self.lines.iter().enumerate() {
            let y = HEIGHT + KEY * (number as f64 + 0.7);
            let _ = writeln!(
                out,
                "<rect class=\"key hue{}\" x=\"{LEFT}\" y=\"{:.1}\" width=\"16\" height=\"4\"/><text x=\"{}\" y=\"{y:.1}\">{}</text>",
                number % HUES,
                y - 6.0,
                LEFT + 24.0,
                escaped(&line.name)
            );
        }
        out + "</svg>\n"
    }

    fn role(&self) -> String {
        format!("role=\"img\" aria-label=\"{} over {}\"", self.y.title, self.x.title)
    }

    fn drawing(&self) -> String {
        drawing(&self.x, &self.y, &self.lines)
    }
}

/// The axes and the lines.
fn drawing(x: &Axis, y: &Axis, lines: &[Line]) -> String {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    let across = |value: f64| LEFT + value / x.high.max(f64::MIN_POSITIVE) * (right - LEFT);
    let up = |value: f64| bottom - value / y.high.max(f64::MIN_POSITIVE) * (bottom - TOP);
    let mut svg = String::new();
    for tick in ticks(y.high) {
        let _ = writeln!(
            svg,
            "<path class=\"rule\" d=\"M{LEFT} {0:.1}H{right}\"/><text x=\"{1}\" y=\"{2:.1}\" text-anchor=\"end\">{3}</text>",
            up(tick),
            LEFT - 6.0,
            up(tick) + 4.0,
            label(tick)
        );
    }
    for tick in ticks(x.high) {
        let _ = writeln!(
            svg,
            "<path class=\"rule\" d=\"M{0:.1} {bottom}v4\"/><text x=\"{0:.1}\" y=\"{1}\" text-anchor=\"middle\">{2}</text>",
            across(tick),
            bottom + 17.0,
            label(tick)
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{right}\" y=\"{}\" text-anchor=\"end\">{}</text>\
         <text transform=\"translate(13 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        HEIGHT - 2.0,
        x.title,
        (TOP + bottom) / 2.0,
        y.title
    );
    for (number, line) in lines.iter().enumerate() {
        let points: Vec<String> =
            line.points.iter().map(|(x, y)| format!("{:.1},{:.1}", across(*x), up(*y))).collect();
        let _ = writeln!(
            svg,
            "<polyline class=\"hue{}\" points=\"{}\"><title>{}</title></polyline>",
            number % HUES,
            points.join(" "),
            escaped(&line.name)
        );
    }
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_has_up_to_ten_whole_steps() {
        assert_eq!(ticks(10.0), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]);
        assert_eq!(
            ticks(0.36),
            [0.0, 0.05, 0.1, 0.15000000000000002, 0.2, 0.25, 0.30000000000000004, 0.35000000000000003]
        );
        assert_eq!(ticks(97.2), [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0]);
        assert_eq!([label(0.15000000000000002), label(300.0), label(0.0)], ["0.15", "300", "0"]);
    }

    #[test]
    fn nothing_to_draw_is_still_a_picture() {
        let axis = || Axis { title: "time", high: 0.0 };
        let lines = vec![Line { name: "<a>".into(), points: vec![(0.0, 0.0)] }];
        let chart = Chart { x: axis(), y: axis(), lines };
        for svg in [chart.figure(), chart.document("")] {
            assert!(svg.contains("&lt;a&gt;") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}
