//! The first lines of a report: what is measured, on what, and under which conditions.

use std::fmt::Write;

use super::{Report, VolumeReport};
use crate::environment::Environment;
use crate::size::{format_bytes, format_size};

/// A line that keeps its label and its text apart.
fn line(text: &mut String, label: &str, value: impl std::fmt::Display) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "  {label:<10}{value}");
}

/// What is measured and where. Known before the first cell runs.
pub fn render_header(report: &Report) -> String {
    let mut text = format!("swath-matrix {}", report.version);
    if let Some(label) = &report.label {
        let _ = write!(text, ": {label}");
    }
    text.push('\n');
    text + &render_conditions(&report.volume, &report.environment, &report.notes)
}

/// The queues of the lanes that ran. Known when they have.
pub fn render_backend(volume: &VolumeReport) -> String {
    let mut text = String::new();
    let value = match volume.backend_flags.as_str() {
        "" => volume.backend.clone(),
        flags => format!("{} ({flags})", volume.backend),
    };
    line(&mut text, "backend", value);
    for reason in &volume.backend_reasons {
        line(&mut text, "", reason);
    }
    text
}

/// The conditions of any run: volume, devices, machine, and what a reader must know besides.
pub fn render_conditions(
    volume: &VolumeReport,
    environment: &Environment,
    notes: &[String],
) -> String {
    let mut text = String::new();
    let count = volume.members.len();
    let plural = if count == 1 { "" } else { "s" };
    line(
        &mut text,
        "volume",
        format_args!(
            "'{}', {}, {count} member{plural}, chunk {}",
            volume.name,
            format_bytes(volume.capacity_bytes),
            format_size(volume.chunk_bytes)
        ),
    );
    for (index, device) in environment.devices.iter().enumerate() {
        line(
            &mut text,
            &format!("member {index}"),
            format_args!(
                "{}: {}, {}, blocks {}, memory alignment {}",
                device.path,
                device.kind,
                format_bytes(device.capacity_bytes),
                device.logical_block_bytes,
                device.memory_align_bytes
            ),
        );
    }
    line(&mut text, "data", &environment.preconditioning);
    let plural = if environment.cores == 1 { "" } else { "s" };
    line(
        &mut text,
        "machine",
        format_args!(
            "{}, {} core{plural}, {} of memory, Linux {}, huge pages: {}",
            environment.cpu,
            environment.cores,
            format_bytes(environment.memory_bytes),
            environment.kernel,
            environment.transparent_hugepages
        ),
    );
    for note in notes {
        line(&mut text, "note", note);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    #[test]
    fn the_header_names_volume_and_kernel_and_the_backend_follows_with_its_reasons() {
        let report = fixture::report(false);
        let text = render_header(&report);
        for part in ["a label", "2 members", "chunk 1m", "Linux 6.18"] {
            assert!(text.contains(part), "'{part}' is not in:\n{text}");
        }
        // No lane has run yet.
        assert!(!text.contains("uring"), "{text}");
        let text = render_backend(&report.volume);
        assert!(text.contains("uring (SINGLE_ISSUER)"), "{text}");
        assert!(text.contains("no polling: no poll queues"), "{text}");
    }
}
