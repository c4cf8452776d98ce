//! What could go wrong: a page that is no page, a label that is missing, a number that is none, text
//! from a report that becomes markup, something that is fetched from elsewhere.

use roxmltree::{Document, ParsingOptions};

use super::*;
use crate::latency::LatencyBins;
use crate::run::{
    Changes, RunKind, RunLink, RunLinkRate, RunPoint, RunSize, RunWorkload, fixture, of_json,
};
use crate::subject::DataState;

fn page(run: &Run, options: &PageOptions) -> String {
    let mut bytes = Vec::new();
    write_run(run, options, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// Sees that the page can be parsed and shows nothing that is no number; gives all its text.
#[track_caller]
fn text_of(page: &str) -> String {
    let options = ParsingOptions {
        allow_dtd: true,
        ..ParsingOptions::default()
    };
    let document = Document::parse_with_options(page, options).unwrap();
    let texts: Vec<&str> = document
        .descendants()
        .filter_map(|node| node.text())
        .collect();
    for node in document.descendants() {
        for attribute in node.attributes() {
            let value = attribute.value();
            assert!(!value.contains("NaN") && !value.contains("inf"), "{value}");
            assert!(!["src", "href", "onclick", "onload"].contains(&attribute.name()));
        }
    }
    let tags = [
        "script",
        "link",
        "img",
        "iframe",
        "object",
        "image",
        "use",
        "foreignObject",
    ];
    for node in document.descendants() {
        assert!(
            !tags.contains(&node.tag_name().name()),
            "{:?}",
            node.tag_name()
        );
    }
    assert!(!page.contains("url(") && !page.contains("@import"));
    texts.join("\n")
}

#[track_caller]
fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "'{part}' is not in the page");
    }
}

#[test]
fn a_page_has_every_section_and_label() {
    let mut run = fixture::full("full.json", 1.0, 3);
    run.label = None;
    let text = text_of(&page(&run, &PageOptions::default()));
    has(
        &text,
        &[
            "full.json",
            "Bandwidth and IOPS by block size",
            "Beside a reference server",
        ],
    );
    has(
        &text,
        &[
            "Percent of the limit",
            "Latency by block size",
            "Latency histograms",
        ],
    );
    has(
        &text,
        &[
            "Every number",
            "Environment",
            "Exact command",
            "swath-matrix --bs 4k",
        ],
    );
    for label in [
        "4K",
        "8K",
        "16K",
        "32K",
        "64K",
        "128K",
        "256K",
        "512K",
        "1M",
        "GB/s",
        "Block size",
    ] {
        assert!(text.lines().any(|line| line == label), "{label}");
    }
    has(
        &text,
        &[
            "seq read",
            "seq write",
            "rand read",
            "rand write",
            "R7725xd",
            "rated 14 GB/s",
        ],
    );
    has(
        &text,
        &[
            "% of bare members",
            "Neither is steady state",
            "p99.9",
            "up to 3 times",
        ],
    );
    assert!(!text.contains("Threads by block sizes"));
}

#[test]
fn text_from_a_report_never_becomes_markup() {
    let strange = "<script>alert(1)</script>\"'&";
    let json = fixture::json()
        .replace("a label", &strange.replace('"', "\\\""))
        .replace("a CPU", "</style><b>&amp;")
        .replace("/dev/a", "<img src=x>")
        .replace("swath-matrix --bs 4k", "x' </pre><script>");
    let run = of_json("<svg onload=1>.json", json).unwrap();
    let page = page(&run, &PageOptions::default());
    let text = text_of(&page);
    has(
        &text,
        &[
            strange,
            "</style><b>&amp;",
            "</pre><script>",
            "<svg onload=1>.json",
        ],
    );
    assert!(!page.contains("<script") && !page.contains("<img") && !page.contains("<b>&amp;"));
}

#[test]
fn a_small_run_says_what_it_cannot_tell() {
    let mut run = fixture::run();
    for cell in &mut run.cells {
        cell.baseline_bw_bytes = None;
        cell.lat_ns_bins = LatencyBins::default();
    }
    let text = text_of(&page(&run, &PageOptions::default()));
    has(
        &text,
        &[
            "one round shows no noise",
            "No limit is known",
            "unwritten blocks",
        ],
    );
    has(&text, &["Reads of unwritten blocks are left out above"]);
    assert!(!text.contains("Latency histograms"));
}

#[test]
fn limits_are_those_of_ratings_and_links() {
    let mut run = fixture::full("a.json", 1.0, 1);
    let device = serde_json::json!({"path": "/dev/nvme0n1", "kind": "block device",
        "model": "Micron_9550_MTFDLAL15T3TGL", "capacity_bytes": 1_u64 << 40});
    run.environment.devices = vec![serde_json::from_value(device).unwrap(); 2];
    for device in &mut run.environment.devices {
        device.link = Some(RunLink {
            current: RunLinkRate {
                megatransfers_per_s: Some(32_000),
                lanes: Some(4),
            },
        });
    }
    run.cells.retain(|cell| cell.bs == 1 << 20);
    for cell in &mut run.cells {
        cell.bw_bytes = 14_000_000_000;
    }
    let text = text_of(&page(&run, &PageOptions::default()));
    // Two drives of 14 GB/s, two links of 15.754.
    has(
        &text,
        &[
            "% of rating",
            "% of link",
            "50.0",
            "70.0",
            "44.4",
            "32 GT/s x4",
        ],
    );
    let rating = Some(Rating {
        read_gb: 7.0,
        write_gb: 7.0,
    });
    has(&text_of(&page(&run, &PageOptions { rating })), &["100.0"]);
}

#[test]
fn several_numbers_of_lanes_make_a_heat_map() {
    let mut run = fixture::full("a.json", 1.0, 1);
    let mut more = run.cells.clone();
    for cell in &mut more {
        cell.numjobs = 8;
        cell.bw_bytes *= 2;
    }
    run.kind = RunKind::Threads;
    run.cells.extend(more);
    let text = text_of(&page(&run, &PageOptions::default()));
    has(
        &text,
        &["Threads by block sizes", "Threads", "the best is drawn"],
    );
}

#[test]
fn a_sweep_has_its_knee_and_a_grid_a_heat_map() {
    let run = fixture::swept(&[1], &[1, 8, 64]);
    let text = text_of(&page(&run, &PageOptions::default()));
    has(
        &text,
        &[
            "What more in flight gives",
            "In flight on each lane",
            "The best is 1 lane at depth 64",
            "Dashed: the 99th percentile",
            "Of each sweep the best is drawn",
        ],
    );
    // The depths stand at the points of the chart of latency.
    assert!(text.lines().any(|line| line == "64"));
    assert!(!text.contains("IOPS in each field") && !text.contains("Threads"));

    let run = fixture::swept(&[1, 2, 4], &[1, 8, 64]);
    let grid = page(&run, &PageOptions::default());
    let text = text_of(&grid);
    has(
        &text,
        &[
            "IOPS in each field",
            "GB/s in each field",
            "4 lanes",
            "1 lane",
            "Lanes",
        ],
    );
    assert!(!grid.contains("<details"));

    let mut single = fixture::swept(&[1, 2], &[1, 8]);
    single.cells.retain(|cell| cell.bs == 4096);
    let text = text_of(&page(&single, &PageOptions::default()));
    assert!(
        !text.contains("by block size"),
        "one size needs no such chart"
    );
}

#[test]
fn many_sweeps_are_folded() {
    let mut run = fixture::swept(&[1], &[1, 8]);
    let cells = run.cells.clone();
    run.cells = (12..=18)
        .flat_map(|power| {
            cells.iter().map(move |cell| {
                let mut cell = cell.clone();
                cell.bs = 1 << power;
                cell
            })
        })
        .collect();
    let page = page(&run, &PageOptions::default());
    text_of(&page);
    assert_eq!(
        page.matches("<details open").count(),
        2,
        "one for each pattern"
    );
    assert_eq!(page.matches("<details").count(), 14);
}

#[test]
fn what_did_not_become_steady_is_told_everywhere() {
    let run = fixture::steady();
    let text = text_of(&page(&run, &PageOptions::default()));
    has(
        &text,
        &[
            "35 of 36 cells became steady",
            "not steady after 7 rounds",
            "4K !",
            "-3.5 %",
            "Marked !: not steady",
            "given up: see below",
            "spread:20%,slope:10%,window:5,rounds:25",
        ],
    );
    assert!(
        !text.contains("one round shows no noise") && !text.contains("That is not steady state")
    );
}

#[test]
fn curves_are_drawn_without_cells() {
    let mut run = fixture::run();
    let latency = run.cells[0].lat_ns;
    run.kind = RunKind::Curve;
    run.cells.clear();
    run.workloads = vec![RunWorkload {
        name: "4K random read <x>".to_owned(),
        read_percent: Some(100.0),
        seek_percent: Some(100.0),
        sizes: vec![RunSize { bytes: 4096 }],
        peak: None,
        points: (1..=12)
            .map(|tenth| RunPoint {
                achieved_iops: f64::from(tenth.min(10)) * 1e5,
                offered_iops: Some(f64::from(tenth) * 1e5),
                bw_bytes: 1 << 30,
                lat_ns: latency,
                percent: Some(f64::from(tenth) * 10.0),
                saturated: tenth > 10,
                cpu_ns_per_io: 900.0,
            })
            .collect(),
    }];
    let text = text_of(&page(&run, &PageOptions::default()));
    has(
        &text,
        &[
            "Latency against load",
            "4K random read <x>",
            "asked for 120 % of the peak",
            "at 50 %: mean",
            "1.000M IOPS",
            "Every point",
            "120 % *",
            "beyond saturation",
        ],
    );
    assert!(!text.contains("Beside a reference server"));
}

#[test]
fn a_comparison_shows_both_runs_and_what_is_different() {
    let mut after = fixture::full("b.json", 1.5, 3);
    after.volume.chunk_bytes *= 2;
    after.cells[3].state = DataState::Unwritten;
    let mut before = fixture::full("a.json", 1.0, 3);
    before.label = Some("<old>".to_owned());
    let changes = Changes::of(before, after).unwrap();
    let mut bytes = Vec::new();
    write_changes(&changes, &mut bytes).unwrap();
    let text = text_of(std::str::from_utf8(&bytes).unwrap());
    has(
        &text,
        &[
            "<old> → a label",
            "36 faster",
            "as fast as before",
            "1.500",
            "volume.chunk_bytes",
        ],
    );
    has(
        &text,
        &[
            "Exact command before",
            "Exact command after",
            "1 cells worked on blocks",
        ],
    );
}
