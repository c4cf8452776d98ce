//! Charts as inline SVG, written by hand.
//!
//! - Colours, fonts and the difference between light and dark are left to the page's style sheet:
//!   elements carry classes. No library for charts was found that leaves them to it.
//! - Every number that is drawn can be read: points have tooltips, axes their units.
//! - What comes from outside is escaped, here and nowhere else ([`escape`]).
//! - No coordinate is anything but a finite number, whatever the data are.

mod axis;
mod bars;
mod heat;
mod lines;

pub(crate) use axis::Axis;
pub(crate) use bars::histogram;
pub(crate) use heat::{HeatMap, heat_map};
pub(crate) use lines::{Band, LineChart, Point, Series};

use std::fmt::{self, Display, Write as _};

/// Text as it may stand in HTML and SVG, between tags and in quoted attributes.
pub(crate) fn escape(text: impl Display) -> String {
    let text = text.to_string();
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // No control character but these may stand in XML, and none is seen in HTML.
            '\n' | '\t' => escaped.push(letter),
            letter if letter.is_control() => escaped.push('\u{fffd}'),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// A coordinate: one digit after the point is a tenth of a pixel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At(pub(crate) f64);

impl Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = if self.0.is_finite() { self.0 } else { 0.0 };
        let text = format!("{value:.1}");
        f.write_str(text.strip_suffix(".0").unwrap_or(&text))
    }
}

/// A drawing in the making. The first thing in it is its name, for those who do not see it.
#[derive(Debug)]
pub(crate) struct Svg(String);

impl Svg {
    pub(crate) fn new(width: f64, height: f64, title: &str) -> Self {
        Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" role=\"img\" \
             aria-label=\"{}\">\n",
            At(width),
            At(height),
            escape(title)
        ))
    }

    /// Writes what is in the arguments, as it is.
    pub(crate) fn push(&mut self, arguments: fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.0.write_fmt(arguments);
        self.0.push('\n');
    }

    pub(crate) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        self.push(format_args!(
            "<line class=\"{class}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>",
            At(from.0),
            At(from.1),
            At(to.0),
            At(to.1)
        ));
    }

    /// Text; `class` says how it is set, `anchor` which of its ends is at the place.
    pub(crate) fn text(&mut self, class: &str, anchor: &str, at: (f64, f64), text: impl Display) {
        self.push(format_args!(
            "<text class=\"{class}\" text-anchor=\"{anchor}\" x=\"{}\" y=\"{}\">{}</text>",
            At(at.0),
            At(at.1),
            escape(text)
        ));
    }

    pub(crate) fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}

/// The inside of a drawing, between the axes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    pub(crate) left: f64,
    pub(crate) right: f64,
    pub(crate) top: f64,
    pub(crate) bottom: f64,
    /// How far above the frame the name of the vertical axis stands.
    pub(crate) name_gap: f64,
}

impl Frame {
    /// Grid, ticks and names of both axes.
    pub(crate) fn draw(&self, svg: &mut Svg, x: &Axis, y: &Axis) {
        for (value, label) in y.ticks((self.bottom - self.top) / 34.0) {
            let at = self.y(y, value);
            svg.line("grid", (self.left, at), (self.right, at));
            svg.text("tick", "end", (self.left - 6.0, at + 4.0), label);
        }
        let room = (self.right - self.left) / 44.0;
        for (value, label) in x.ticks(room) {
            let at = self.x(x, value);
            svg.line("mark", (at, self.bottom), (at, self.bottom + 4.0));
            svg.text("tick", "middle", (at, self.bottom + 18.0), label);
        }
        svg.line("axis", (self.left, self.bottom), (self.right, self.bottom));
        svg.text(
            "name",
            "start",
            (self.left - 40.0, self.top - self.name_gap),
            y.name(),
        );
        svg.text("name", "end", (self.right, self.bottom + 36.0), x.name());
    }

    pub(crate) fn x(&self, axis: &Axis, value: f64) -> f64 {
        self.left + axis.part(value) * (self.right - self.left)
    }

    pub(crate) fn y(&self, axis: &Axis, value: f64) -> f64 {
        self.bottom - axis.part(value) * (self.bottom - self.top)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_from_outside_is_escaped() {
        assert_eq!(
            escape("<script>alert('x' & \"y\")</script>\u{7}"),
            "&lt;script&gt;alert(&#39;x&#39; &amp; &quot;y&quot;)&lt;/script&gt;\u{fffd}"
        );
    }

    #[test]
    fn coordinates_are_finite_and_short() {
        let shown = |value| At(value).to_string();
        assert_eq!(shown(12.04), "12");
        assert_eq!(shown(12.34), "12.3");
        assert_eq!(shown(f64::NAN), "0");
        assert_eq!(shown(f64::INFINITY), "0");
    }
}
