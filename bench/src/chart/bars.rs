//! Latency histograms: a bar for each bin, over a logarithmic axis.

use super::{At, Axis, Frame, Svg, escape};
use crate::latency::{LatencyBins, bin_start};

/// What a bar's height is counted for: so much more latency.
const RANGE: f64 = 1.1;

/// One bar. Bins are not equally wide on a logarithmic axis: the height is that of a range of
/// latencies which is the same everywhere, so that areas can be compared.
#[derive(Debug)]
struct Bar {
    start_ns: f64,
    end_ns: f64,
    count: u64,
    height: f64,
}

impl Bar {
    fn of(end_ns: u64, count: u64, total: f64) -> Self {
        let start_ns = bin_start(end_ns).max(1) as f64;
        let end_ns = end_ns.saturating_add(1).max(2) as f64;
        let ranges = (end_ns / start_ns).ln() / RANGE.ln();
        Self {
            start_ns,
            end_ns,
            count,
            height: count as f64 / total * 100.0 / ranges,
        }
    }
}

/// Draws the shape of a latency histogram, with lines at `marks`: nanoseconds and a name.
/// `label` writes a time in nanoseconds.
pub(crate) fn histogram(
    title: &str,
    class: &str,
    bins: &LatencyBins,
    marks: &[(f64, &str)],
    label: fn(f64) -> String,
) -> String {
    let (width, height) = (520.0, 270.0);
    let mut svg = Svg::new(width, height, title);
    let total = (bins.total() as f64).max(1.0);
    let part = |count: u64| count as f64 / total * 100.0;
    // The tail is told by the marks: what is rarer than one in 100,000 stretches the axis for bars
    // that nobody sees.
    let shown: Vec<Bar> = bins
        .0
        .iter()
        .filter(|(_, count)| part(**count) >= 1e-3)
        .map(|(end_ns, count)| Bar::of(*end_ns, *count, total))
        .collect();
    let ends = shown.iter().flat_map(|bar| [bar.start_ns, bar.end_ns]);
    let places = ends.chain(marks.iter().map(|mark| mark.0));
    let x = Axis::log("Latency, logarithmic", places, label);
    let highest = shown.iter().map(|bar| bar.height).fold(0.0, f64::max);
    let y = Axis::linear("% of requests per 10 % of latency", highest, |value| {
        let text = format!("{value:.1}");
        text.strip_suffix(".0").unwrap_or(&text).to_owned()
    });
    let frame = Frame {
        left: 50.0,
        right: width - 36.0,
        // Two rows of names of marks, and the axis's own above them.
        top: 62.0,
        bottom: height - 46.0,
        name_gap: 46.0,
    };
    frame.draw(&mut svg, &x, &y);
    for bar in &shown {
        let (left, right) = (frame.x(&x, bar.start_ns), frame.x(&x, bar.end_ns));
        let top = frame.y(&y, bar.height);
        svg.push(format_args!(
            "<g class=\"bar {class}\"><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\
             <title>{}</title></g>",
            At(left),
            At(top),
            At((right - left - 0.6).max(0.8)),
            At((frame.bottom - top).max(0.5)),
            escape(format_args!(
                "{} to {}: {:.3} % of requests ({})",
                label(bar.start_ns),
                label(bar.end_ns),
                part(bar.count),
                bar.count
            ))
        ));
    }
    // Names of marks that are close take turns in height.
    let mut last = f64::NEG_INFINITY;
    let mut is_high = false;
    for (ns, name) in marks {
        let at = frame.x(&x, *ns);
        is_high = at - last < 44.0 && !is_high;
        last = at;
        let top = if is_high {
            frame.top - 24.0
        } else {
            frame.top - 10.0
        };
        svg.line("percentile", (at, top + 2.0), (at, frame.bottom));
        svg.push(format_args!(
            "<g class=\"mark-name\"><text text-anchor=\"middle\" x=\"{}\" y=\"{}\">{}</text><title>{}</title></g>",
            At(at),
            At(top - 2.0),
            escape(name),
            escape(format_args!("{name}: {}", label(*ns)))
        ));
    }
    svg.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_hold_all_requests_but_the_rarest() {
        let bins = LatencyBins(
            [
                (0, 1),
                (61_439, 900_000),
                (2_097_151, 99_998),
                (1_u64 << 40, 1),
            ]
            .into(),
        );
        let svg = histogram(
            "4K <read>",
            "s0",
            &bins,
            &[(60_000.0, "p50"), (61_000.0, "p99")],
            |ns| format!("{ns:.0} ns"),
        );
        let document = roxmltree::Document::parse(&svg).unwrap();
        let bars = document
            .descendants()
            .filter(|node| node.tag_name().name() == "rect");
        assert_eq!(bars.count(), 2);
        assert!(
            svg.contains("p50: 60000 ns") && svg.contains(">p99<"),
            "{svg}"
        );
        assert!(!svg.contains("NaN"));
    }
}
