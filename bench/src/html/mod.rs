//! Reports as one HTML file that needs nothing else: no script, no font, no network.
//!
//! - The page is well-formed XML besides, so that a test can look at all of it with a parser.
//! - All text from a report goes through `escape`; what is pushed as it is comes from this program.
//! - Light and dark differ in the variables of `style.css` alone.

mod changes;
mod charts;
mod details;
mod latency;
mod limits;
mod load;
mod server;
mod steady;
mod summary;
mod sweep;
mod words;

pub use changes::write_changes;

use std::fmt::{self, Display, Write as _};
use std::io::{self, Write};

use crate::chart::escape;
use crate::reference::Rating;
use crate::run::Run;

/// What a page is told besides the run.
#[derive(Debug, Clone, Copy, Default)]
pub struct PageOptions {
    /// What each drive is rated at, where neither the run nor this program knows.
    pub rating: Option<Rating>,
}

/// Writes the page of one run.
///
/// # Errors
///
/// What the writer returns.
pub fn write_run(run: &Run, options: &PageOptions, mut output: impl Write) -> io::Result<()> {
    let mut page = Page::new(&format!("swath-{}: {}", run.kind, run.title()));
    summary::section(&mut page, run);
    sweep::section(&mut page, run);
    steady::section(&mut page, run);
    charts::section(&mut page, run);
    server::section(&mut page, run);
    limits::section(&mut page, run, options);
    load::section(&mut page, run);
    latency::section(&mut page, run);
    details::numbers(&mut page, run);
    load::numbers(&mut page, run);
    details::environment(&mut page, run, "Environment");
    details::command(&mut page, run, "Exact command");
    output.write_all(page.finish().as_bytes())
}

/// A page in the making.
#[derive(Debug)]
struct Page(String);

impl Page {
    fn new(title: &str) -> Self {
        Self(format!(
            "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n<head>\n\
             <meta charset=\"utf-8\"/>\n<meta name=\"viewport\" content=\"width=device-width, \
             initial-scale=1\"/>\n<title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n",
            escape(title),
            include_str!("style.css")
        ))
    }

    /// What is in the arguments, as it is.
    fn push(&mut self, arguments: fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.0.write_fmt(arguments);
        self.0.push('\n');
    }

    fn heading(&mut self, text: &str) {
        self.push(format_args!("<h2>{}</h2>", escape(text)));
    }

    fn paragraph(&mut self, text: impl Display) {
        self.push(format_args!("<p>{}</p>", escape(text)));
    }

    fn list(&mut self, items: &[String]) {
        if items.is_empty() {
            return;
        }
        self.push(format_args!("<ul>"));
        for item in items {
            self.push(format_args!("<li>{}</li>", escape(item)));
        }
        self.push(format_args!("</ul>"));
    }

    /// A drawing with a heading of its own and words below.
    fn figure(&mut self, title: &str, svg: &str, caption: &str) {
        self.push(format_args!("<figure><h3>{}</h3>", escape(title)));
        self.push(format_args!("<div class=\"scroll\">{svg}</div>"));
        if !caption.is_empty() {
            self.push(format_args!("<figcaption>{}</figcaption>", escape(caption)));
        }
        self.push(format_args!("</figure>"));
    }

    /// Figures beside each other, where there is room.
    fn pair(&mut self, fill: impl FnOnce(&mut Self)) {
        self.push(format_args!("<div class=\"pair\">"));
        fill(self);
        self.push(format_args!("</div>"));
    }

    /// A table whose first `left` columns are text. A row that begins with something new in its
    /// first column gets a line above.
    fn table(&mut self, left: usize, heads: &[String], rows: &[Vec<String>]) {
        let is_text = |place: usize| {
            let head = heads.get(place).map(String::as_str);
            place < left || matches!(head, Some("verdict" | "data"))
        };
        let class = |place| {
            if is_text(place) {
                " class=\"text\""
            } else {
                ""
            }
        };
        self.push(format_args!("<div class=\"scroll\"><table><thead><tr>"));
        for (place, head) in heads.iter().enumerate() {
            self.push(format_args!("<th{}>{}</th>", class(place), escape(head)));
        }
        self.push(format_args!("</tr></thead><tbody>"));
        let mut before: Option<&String> = None;
        for row in rows {
            let is_next = before.is_some() && before != row.first();
            before = row.first();
            let _ = self.0.write_str(if is_next {
                "<tr class=\"next\">"
            } else {
                "<tr>"
            });
            for (place, text) in row.iter().enumerate() {
                let class = match text.as_str() {
                    "faster" => " class=\"text faster\"",
                    "slower" | "not steady" => " class=\"text slower\"",
                    _ => class(place),
                };
                let _ = write!(self.0, "<td{class}>{}</td>", escape(text));
            }
            self.push(format_args!("</tr>"));
        }
        self.push(format_args!("</tbody></table></div>"));
    }

    fn finish(mut self) -> String {
        self.0.push_str("</body>\n</html>\n");
        self.0
    }
}

#[cfg(test)]
mod tests;
