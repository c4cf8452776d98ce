//! What part of the limit was reached: of the drives' rating, of their links, of the bare members.

use super::{Page, PageOptions, words};
use crate::reference::Rating;
use crate::run::{Run, RunCell};

pub(super) fn section(page: &mut Page, run: &Run, options: &PageOptions) {
    if run.cells.is_empty() {
        return;
    }
    page.heading("Percent of the limit");
    let rating = rating(run, options);
    let link = link_bytes_per_s(run);
    let has_bare = run
        .cells
        .iter()
        .any(|cell| cell.baseline_bw_bytes.is_some());
    if rating.is_none() && link.is_none() && !has_bare {
        page.paragraph(
            "No limit is known: the run has neither a model whose rating is known, nor a link, nor \
             the bare members. 'swath report --drive-rating 14,10' tells what each drive is rated at, \
             and '--baseline' of the bench measures the bare members in turn with the volume.",
        );
        return;
    }
    let mut heads = vec!["pattern", "block", "GB/s", "per member"];
    heads.extend(rating.map(|_| "% of rating"));
    heads.extend(link.map(|_| "% of link"));
    heads.extend(has_bare.then_some("% of bare members"));
    let percent = |cell: &RunCell, limit: Option<f64>| match limit {
        Some(limit) if limit > 0.0 && words::is_from_drive(cell) => {
            format!("{:.1}", cell.bw_bytes as f64 / limit * 100.0)
        }
        _ => "-".to_owned(),
    };
    let mut rows = Vec::new();
    for pattern in run.patterns() {
        let cells = run.best_by_size(pattern);
        let fastest = cells.iter().copied().max_by_key(|cell| cell.bw_bytes);
        let mut chosen: Vec<&RunCell> = cells.first().copied().into_iter().collect();
        chosen.extend(fastest.filter(|cell| chosen.iter().all(|one| one.bs != cell.bs)));
        for cell in chosen {
            let mut row = vec![
                words::name(pattern).to_owned(),
                words::size(cell.bs),
                words::gb(cell.bw_bytes as f64),
                words::gb(cell.bw_bytes as f64 / run.member_count()),
            ];
            if let Some(rating) = rating {
                let all = rating.of(pattern) * 1e9 * run.member_count();
                row.push(percent(cell, Some(all)));
            }
            if link.is_some() {
                row.push(percent(cell, link));
            }
            if has_bare {
                row.push(percent(
                    cell,
                    cell.baseline_bw_bytes.map(|bare| bare as f64),
                ));
            }
            rows.push(row);
        }
    }
    let heads: Vec<String> = heads.into_iter().map(str::to_owned).collect();
    page.table(2, &heads, &rows);
    let mut notes = vec!["The smallest block and the fastest one of each pattern.".to_owned()];
    notes.extend(rating.map(|rating| {
        format!(
            "Rating: {} GB/s of reads and {} of writes for each of {}, sequential; no maker promises it \
             for small or random ones.",
            rating.read_gb,
            rating.write_gb,
            words::members(run)
        )
    }));
    notes.extend(link.map(|link| {
        format!(
            "Link: {} GB/s over all members as their links run now, line code taken off; headers of \
             packets cost some percent more.",
            words::gb(link)
        )
    }));
    if has_bare {
        notes.push(
            "Bare members: the same lanes at the same total depth on the members themselves, in turn \
             with the volume. What is missing to 100 is the cost of the stripe, or noise. More than 100: a \
             chunk's requests go to one member together, and the kernel can merge them."
                .to_owned(),
        );
    }
    page.list(&notes);
}

/// The rating that was given, or that of the model, when all members are of one.
fn rating(run: &Run, options: &PageOptions) -> Option<Rating> {
    if options.rating.is_some() {
        return options.rating;
    }
    let mut found = None;
    for device in &run.environment.devices {
        let rating = Rating::by_model(device.model.as_deref()?)?;
        if found.is_some_and(|known| known != rating) {
            return None;
        }
        found = Some(rating);
    }
    found
}

/// What all links together carry, where every one of them is known.
fn link_bytes_per_s(run: &Run) -> Option<f64> {
    let devices = &run.environment.devices;
    let rates = devices
        .iter()
        .map(|device| device.link.as_ref()?.current.bytes_per_s());
    let sum: Option<f64> = rates.sum();
    sum.filter(|sum| *sum > 0.0)
}
