//! Lines with marked points, each with its name at its right end.

use super::{At, Axis, Frame, Svg, escape};

/// Room at the right for the names.
const NAMES_WIDTH: f64 = 128.0;

/// Names are no closer than this.
const NAME_HEIGHT: f64 = 15.0;

/// A chart of lines.
#[derive(Debug)]
pub(crate) struct LineChart<'data> {
    /// For those who do not see it.
    pub(crate) title: &'data str,
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    /// Behind the lines.
    pub(crate) bands: Vec<Band>,
    pub(crate) series: Vec<Series>,
}

/// A range over the whole width; of no height it is a line.
#[derive(Debug)]
pub(crate) struct Band {
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// What is written at it, and its tooltip.
    pub(crate) name: String,
    pub(crate) note: String,
}

/// One line.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) name: String,
    /// Class of its colour: `s0` to `s3`, `ref`.
    pub(crate) class: &'static str,
    /// 0 circle, 1 square, 2 triangle, 3 diamond.
    pub(crate) marker: usize,
    pub(crate) is_dashed: bool,
    /// Neighbours that are further apart are not joined: nothing is known of what lies between.
    pub(crate) gap_max: f64,
    pub(crate) points: Vec<Point>,
}

/// One point.
#[derive(Debug)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    /// The slowest and the fastest round, or the ends of a published range.
    pub(crate) range: Option<(f64, f64)>,
    /// What is written at it; nothing where it is empty.
    pub(crate) label: String,
    /// The tooltip.
    pub(crate) note: String,
}

impl LineChart<'_> {
    /// Draws it.
    pub(crate) fn render(&self) -> String {
        let mut svg = Svg::new(self.width, self.height, self.title);
        let frame = Frame {
            left: 56.0,
            right: self.width - NAMES_WIDTH,
            top: 34.0,
            bottom: self.height - 46.0,
            name_gap: 14.0,
        };
        frame.draw(&mut svg, &self.x, &self.y);
        let mut names: Vec<(f64, &str, String)> = Vec::new();
        for band in &self.bands {
            let (top, bottom) = (frame.y(&self.y, band.high), frame.y(&self.y, band.low));
            svg.push(format_args!(
                "<g class=\"band{}\"><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/><title>{}</title></g>",
                if bottom > top { "" } else { " thin" },
                At(frame.left),
                At(top),
                At(frame.right - frame.left),
                At((bottom - top).max(1.2)),
                escape(&band.note)
            ));
            if !band.name.is_empty() {
                names.push((f64::midpoint(top, bottom), "ref", band.name.clone()));
            }
        }
        for series in &self.series {
            self.draw_series(&mut svg, frame, series);
            if let Some(last) = series.points.last() {
                names.push((frame.y(&self.y, last.y), series.class, series.name.clone()));
            }
        }
        spread(&mut names, frame.top, frame.bottom);
        for (y, class, name) in &names {
            let at = (frame.right + 10.0, y + 4.0);
            svg.text(&format!("label {class}"), "start", at, name);
        }
        svg.finish()
    }

    fn draw_series(&self, svg: &mut Svg, frame: Frame, series: &Series) {
        let places: Vec<(f64, f64)> = series
            .points
            .iter()
            .map(|point| (frame.x(&self.x, point.x), frame.y(&self.y, point.y)))
            .collect();
        let dashed = if series.is_dashed { " dashed" } else { "" };
        let mut parts: Vec<Vec<String>> = Vec::new();
        let mut before = f64::NEG_INFINITY;
        for (point, (x, y)) in series.points.iter().zip(&places) {
            let place = format!("{},{}", At(*x), At(*y));
            match parts.last_mut() {
                Some(part) if point.x - before <= series.gap_max => part.push(place),
                _ => parts.push(vec![place]),
            }
            before = point.x;
        }
        for part in parts.iter().filter(|part| part.len() > 1) {
            svg.push(format_args!(
                "<polyline class=\"line {}{dashed}\" points=\"{}\"/>",
                series.class,
                part.join(" ")
            ));
        }
        for (point, place) in series.points.iter().zip(places) {
            svg.push(format_args!("<g class=\"point {}\">", series.class));
            if let Some((low, high)) = point.range {
                let ends = [low, high].map(|value| frame.y(&self.y, value));
                svg.line("whisker", (place.0, ends[0]), (place.0, ends[1]));
            }
            svg.push(format_args!(
                "{}<circle class=\"touch\" cx=\"{}\" cy=\"{}\" r=\"10\"/><title>{}</title></g>",
                marker(series.marker, place),
                At(place.0),
                At(place.1),
                escape(&point.note)
            ));
            if !point.label.is_empty() {
                svg.text("tick", "end", (place.0 - 6.0, place.1 - 6.0), &point.label);
            }
        }
    }
}

fn marker(kind: usize, (x, y): (f64, f64)) -> String {
    let polygon = |corners: &[(f64, f64)]| {
        let corners: Vec<String> = corners
            .iter()
            .map(|(dx, dy)| format!("{},{}", At(x + dx), At(y + dy)))
            .collect();
        format!("<polygon points=\"{}\"/>", corners.join(" "))
    };
    match kind {
        0 => format!("<circle cx=\"{}\" cy=\"{}\" r=\"4\"/>", At(x), At(y)),
        1 => polygon(&[(-3.6, -3.6), (3.6, -3.6), (3.6, 3.6), (-3.6, 3.6)]),
        2 => polygon(&[(0.0, -5.0), (4.6, 3.6), (-4.6, 3.6)]),
        _ => polygon(&[(0.0, -5.0), (5.0, 0.0), (0.0, 5.0), (-5.0, 0.0)]),
    }
}

/// Moves names apart: those that would overlap become a group around their middle, within the chart.
fn spread(names: &mut [(f64, &str, String)], top: f64, bottom: f64) {
    names.sort_by(|one, other| one.0.total_cmp(&other.0));
    // The middle of each group, and how many are in it.
    let mut groups: Vec<(f64, f64)> = Vec::new();
    for name in names.iter() {
        let mut group = (name.0, 1.0);
        loop {
            let half = (group.1 - 1.0) * NAME_HEIGHT / 2.0;
            group.0 = group.0.min(bottom - half).max(top + half);
            match groups.last() {
                Some(last) if group.0 - last.0 < (group.1 + last.1) / 2.0 * NAME_HEIGHT => {
                    let all = group.1 + last.1;
                    group = ((group.0 * group.1 + last.0 * last.1) / all, all);
                    groups.pop();
                }
                _ => break,
            }
        }
        groups.push(group);
    }
    let mut names = names.iter_mut();
    for (middle, count) in groups {
        let mut y = middle - (count - 1.0) * NAME_HEIGHT / 2.0;
        let end = y + (count - 0.5) * NAME_HEIGHT;
        while y < end
            && let Some(name) = names.next()
        {
            name.0 = y;
            y += NAME_HEIGHT;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_overlap_and_stay_inside() {
        let mut names = [50.0, 52.0, 51.0, 100.0, 99.0].map(|y| (y, "s0", String::new()));
        spread(&mut names, 0.0, 110.0);
        for pair in names.windows(2) {
            assert!(pair[1].0 - pair[0].0 >= NAME_HEIGHT - 1e-9, "{names:?}");
        }
        assert!(names[0].0 >= 0.0 && names[4].0 <= 110.0, "{names:?}");
    }

    #[test]
    fn a_chart_is_xml_with_its_names_and_notes_whatever_the_numbers() {
        let point = |x, y| Point {
            x,
            y,
            range: Some((y * 0.9, f64::INFINITY)),
            label: "depth <8>".to_owned(),
            note: "<4K & \"more\">".to_owned(),
        };
        let chart = LineChart {
            title: "a <chart>",
            width: 640.0,
            height: 300.0,
            x: Axis::sizes("Block size", &[4096, 8192]),
            y: Axis::linear("GB/s", 2.0, |value| format!("{value:.1}")),
            bands: vec![Band {
                low: 0.5,
                high: 0.5,
                name: "rated".to_owned(),
                note: "the rating".to_owned(),
            }],
            series: vec![Series {
                name: "read".to_owned(),
                class: "s0",
                marker: 0,
                is_dashed: false,
                gap_max: f64::INFINITY,
                points: vec![point(12.0, 1.0), point(13.0, f64::NAN)],
            }],
        };
        let svg = chart.render();
        let document = roxmltree::Document::parse(&svg).unwrap();
        let texts: Vec<&str> = document
            .descendants()
            .filter(|node| node.has_tag_name(("http://www.w3.org/2000/svg", "text")))
            .filter_map(|node| node.text())
            .collect();
        for label in [
            "4K",
            "8K",
            "Block size",
            "GB/s",
            "read",
            "rated",
            "1.0",
            "depth <8>",
        ] {
            assert!(texts.contains(&label), "{label} is not in {texts:?}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
