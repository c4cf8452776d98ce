//! Heat maps: rows by columns, the stronger the more, with the number in every field.

use super::{At, Svg, escape};

const FIELD_WIDTH: f64 = 46.0;
const FIELD_HEIGHT: f64 = 28.0;

/// A heat map.
#[derive(Debug)]
pub(crate) struct HeatMap<'data> {
    /// For those who do not see it.
    pub(crate) title: &'data str,
    /// What the rows are.
    pub(crate) row_name: &'data str,
    pub(crate) rows: Vec<String>,
    /// What the columns are.
    pub(crate) column_name: &'data str,
    pub(crate) columns: Vec<String>,
    /// Row by row: the value, how it is written, and the tooltip. None: not measured.
    pub(crate) fields: Vec<Option<(f64, String, String)>>,
    /// The value of the strongest colour.
    pub(crate) max: f64,
}

/// Draws it.
pub(crate) fn heat_map(map: &HeatMap<'_>) -> String {
    let (left, top) = (52.0, 34.0);
    let width = left + map.columns.len() as f64 * FIELD_WIDTH + 8.0;
    let height = top + map.rows.len() as f64 * FIELD_HEIGHT + 44.0;
    // A narrow map is not blown up to the width of the page.
    let mut svg = Svg::new(width.max(420.0), height, map.title);
    svg.text("name", "start", (4.0, top - 14.0), map.row_name);
    for (index, row) in map.rows.iter().enumerate() {
        let y = top + (index as f64 + 0.5) * FIELD_HEIGHT + 4.0;
        svg.text("tick", "end", (left - 8.0, y), row);
    }
    let bottom = top + map.rows.len() as f64 * FIELD_HEIGHT;
    for (index, column) in map.columns.iter().enumerate() {
        let x = left + (index as f64 + 0.5) * FIELD_WIDTH;
        svg.text("tick", "middle", (x, bottom + 17.0), column);
    }
    let right = left + map.columns.len() as f64 * FIELD_WIDTH;
    svg.text(
        "name",
        "end",
        (right.max(200.0), bottom + 35.0),
        map.column_name,
    );
    for (index, field) in map.fields.iter().enumerate() {
        let columns = map.columns.len().max(1);
        let x = left + (index % columns) as f64 * FIELD_WIDTH;
        let y = top + (index / columns) as f64 * FIELD_HEIGHT;
        let middle = (x + FIELD_WIDTH / 2.0, y + FIELD_HEIGHT / 2.0 + 4.0);
        let Some((value, text, note)) = field else {
            svg.text("tick", "middle", middle, "-");
            continue;
        };
        let part = if map.max > 0.0 { value / map.max } else { 0.0 };
        let part = if part.is_finite() {
            part.clamp(0.0, 1.0)
        } else {
            0.0
        };
        // What writing can be read on it, in light and in dark.
        let tone = match part {
            part if part > 0.85 => "strong",
            part if part > 0.6 => "middle",
            _ => "weak",
        };
        svg.push(format_args!(
            "<g class=\"heat {tone}\"><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"3\" \
             fill-opacity=\"{:.2}\"/><text text-anchor=\"middle\" x=\"{}\" y=\"{}\">{}</text>\
             <title>{}</title></g>",
            At(x + 1.0),
            At(y + 1.0),
            At(FIELD_WIDTH - 2.0),
            At(FIELD_HEIGHT - 2.0),
            0.06 + 0.94 * part,
            At(middle.0),
            At(middle.1),
            escape(text),
            escape(note)
        ));
    }
    svg.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_there_and_what_was_not_measured_is_a_dash() {
        let field = |value: f64| Some((value, format!("{value:.1}"), "<note>".to_owned()));
        let svg = heat_map(&HeatMap {
            title: "threads by sizes",
            row_name: "Threads",
            rows: vec!["1".to_owned(), "2".to_owned()],
            column_name: "Block size",
            columns: vec!["4K".to_owned(), "1M".to_owned()],
            fields: vec![field(0.5), field(f64::NAN), None, field(8.0)],
            max: 8.0,
        });
        let document = roxmltree::Document::parse(&svg).unwrap();
        let rectangles = document
            .descendants()
            .filter(|node| node.tag_name().name() == "rect");
        assert_eq!(rectangles.count(), 3);
        for part in [
            ">0.5<",
            ">8.0<",
            ">-<",
            ">Threads<",
            ">1M<",
            "fill-opacity=\"1.00\"",
        ] {
            assert!(svg.contains(part), "{part} is not in {svg}");
        }
    }
}
