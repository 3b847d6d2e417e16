//! The results of a sweep as a picture: bandwidth above, latency below, both over the size of a message.

use std::fmt::Write as _;

use super::Operation;
use super::report::{Point, Report};
use crate::units;

const WIDTH: f64 = 860.0;
const PANEL_HEIGHT: f64 = 300.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 76.0;
const GAP: f64 = 84.0;

const STYLE: &str = "\
svg { font: 13px system-ui, sans-serif; --ink: #1c2128; --quiet: #656d76; --rule: #d8dee4; --paper: #fff }
.send { --hue: #0969da } .write { --hue: #bc4c00 } .read { --hue: #1a7f37 }
@media (prefers-color-scheme: dark) {
  svg { --ink: #e6edf3; --quiet: #9198a1; --rule: #30363d; --paper: #0d1117 }
  .send { --hue: #58a6ff } .write { --hue: #f0883e } .read { --hue: #3fb950 }
}
.paper { fill: var(--paper) } text { fill: var(--quiet) } .title { fill: var(--ink); font-weight: 600; font-size: 15px }
.rule { stroke: var(--rule) } .line { fill: none; stroke: var(--hue); stroke-width: 2.2; stroke-linejoin: round }
.tail { fill: none; stroke: var(--hue); stroke-width: 1.2; stroke-dasharray: 3 4 } .dot, .key { fill: var(--hue) }
";

/// A complete SVG document.
pub fn draw(report: &Report) -> String {
    let height = TOP + 2.0 * PANEL_HEIGHT + GAP + 56.0;
    let mut svg = String::new();
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"Bandwidth and latency over message size\">\n<style>{STYLE}</style>\n\
         <rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n"
    );
    legend(&mut svg, report);
    let sizes = Axis::over(report.points.iter().map(|point| point.size.max(1) as f64));
    let bandwidth = Panel {
        title: "Bandwidth",
        top: TOP,
        sizes: &sizes,
        values: Axis::over(report.points.iter().filter_map(|point| point.bytes_per_second)),
        unit: units::bandwidth,
    };
    bandwidth.frame(&mut svg, report);
    let micros = |micros: f64| units::duration(std::time::Duration::from_nanos((micros * 1e3) as u64));
    let latencies = report.points.iter().filter_map(|point| point.latency_us);
    let latency = Panel {
        title: "Latency (dashed: 99th percentile)",
        top: TOP + PANEL_HEIGHT + GAP,
        sizes: &sizes,
        values: Axis::over(latencies.flat_map(|latency| [latency.p50, latency.p99])),
        unit: micros,
    };
    latency.frame(&mut svg, report);
    for operation in operations(report) {
        let of = |figure: fn(&Point) -> Option<f64>| -> Vec<(f64, f64)> {
            let points = report.points.iter().filter(|point| point.operation == operation);
            points.filter_map(|point| Some((point.size.max(1) as f64, figure(point)?))).collect()
        };
        let _ = writeln!(svg, "<g class=\"{}\">", class(operation));
        bandwidth.line(&mut svg, "line", &of(|point| point.bytes_per_second));
        latency.line(&mut svg, "line", &of(|point| point.latency_us.map(|latency| latency.p50)));
        latency.line(&mut svg, "tail", &of(|point| point.latency_us.map(|latency| latency.p99)));
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

/// The operations that were measured, in the order of the report.
fn operations(report: &Report) -> Vec<Operation> {
    let mut operations = Vec::new();
    for point in &report.points {
        if !operations.contains(&point.operation) {
            operations.push(point.operation);
        }
    }
    operations
}

fn class(operation: Operation) -> &'static str {
    match operation {
        Operation::Send => "send",
        Operation::Write => "write",
        Operation::Read => "read",
    }
}

fn legend(svg: &mut String, report: &Report) {
    let _ =
        writeln!(svg, "<text class=\"title\" x=\"{LEFT}\" y=\"28\">SoftRNIC, path MTU {}</text>", report.mtu);
    let mut x = LEFT + 260.0;
    for operation in operations(report) {
        let _ = writeln!(
            svg,
            "<g class=\"{}\"><rect class=\"key\" x=\"{x}\" y=\"18\" width=\"14\" height=\"10\" rx=\"2\"/></g>\
             <text x=\"{}\" y=\"28\">{}</text>",
            class(operation),
            x + 20.0,
            operation.name()
        );
        x += 130.0;
    }
}

/// A logarithmic axis.
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    /// From a power of ten or two below all values to one above them.
    fn over(values: impl Iterator<Item = f64>) -> Axis {
        let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
        for value in values.filter(|value| value.is_finite() && *value > 0.0) {
            low = low.min(value);
            high = high.max(value);
        }
        match low <= high {
            true => Axis { low, high: high.max(low * 2.0) },
            false => Axis { low: 1.0, high: 10.0 },
        }
    }

    /// 0 to 1.
    fn place(&self, value: f64) -> f64 {
        (value.max(self.low).ln() - self.low.ln()) / (self.high.ln() - self.low.ln())
    }

    /// 1, 2 and 5 times powers of ten, as many as fit.
    fn ticks(&self) -> Vec<f64> {
        let decades = (self.high / self.low).log10();
        let steps: &[f64] = if decades > 3.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let first = self.low.log10().floor() as i32;
        let last = self.high.log10().ceil() as i32;
        let all = (first..=last).flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)));
        all.filter(|tick| (self.low * 0.999..=self.high * 1.001).contains(tick)).collect()
    }
}

struct Panel<'a> {
    title: &'static str,
    top: f64,
    sizes: &'a Axis,
    values: Axis,
    unit: fn(f64) -> String,
}

impl Panel<'_> {
    fn x(&self, size: f64) -> f64 {
        LEFT + self.sizes.place(size) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        self.top + (1.0 - self.values.place(value)) * PANEL_HEIGHT
    }

    fn frame(&self, svg: &mut String, report: &Report) {
        let (right, bottom) = (WIDTH - RIGHT, self.top + PANEL_HEIGHT);
        let _ = writeln!(
            svg,
            "<text class=\"title\" x=\"{LEFT}\" y=\"{}\">{}</text>",
            self.top - 14.0,
            self.title
        );
        for tick in self.values.ticks() {
            let y = self.y(tick);
            let _ = writeln!(
                svg,
                "<line class=\"rule\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 8.0,
                y + 4.0,
                (self.unit)(tick)
            );
        }
        let mut sizes: Vec<usize> = report.points.iter().map(|point| point.size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let _ = writeln!(
            svg,
            "<line class=\"rule\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{bottom}\" y2=\"{bottom}\"/>"
        );
        let mut free = f64::NEG_INFINITY;
        for size in sizes {
            let x = self.x(size.max(1) as f64);
            let _ = writeln!(
                svg,
                "<line class=\"rule\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom}\" y2=\"{}\"/>",
                bottom + 5.0
            );
            // Labels of neighbouring sizes must not overlap.
            if x >= free {
                let label = units::size(size as u64);
                let y = bottom + 20.0;
                let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{label}</text>");
                free = x + 60.0;
            }
        }
    }

    fn line(&self, svg: &mut String, class: &str, points: &[(f64, f64)]) {
        let places: Vec<(f64, f64)> =
            points.iter().map(|&(size, value)| (self.x(size), self.y(value))).collect();
        let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(svg, "<polyline class=\"{class}\" points=\"{}\"/>", path.join(" "));
        if class == "line" {
            for ((x, y), (size, value)) in places.iter().zip(points) {
                let _ = writeln!(
                    svg,
                    "<circle class=\"dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.4\"><title>{}: {}</title></circle>",
                    units::size(*size as u64),
                    (self.unit)(*value)
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_lie_on_the_axis() {
        let axis = Axis { low: 3.0, high: 900.0 };
        assert_eq!(axis.ticks(), [5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0]);
        assert_eq!(axis.place(3.0), 0.0);
        assert_eq!(axis.place(900.0), 1.0);
    }

    #[test]
    fn a_picture_without_figures_is_still_one() {
        let report =
            Report { modes: [String::new(), String::new()], mtu: 1024, seconds: 1.0, points: Vec::new() };
        let svg = draw(&report);
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n") && !svg.contains("NaN"), "{svg}");
    }
}
