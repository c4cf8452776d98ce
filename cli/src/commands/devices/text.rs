//! The inventory for people: a table of all drives, and all fields of one.

use std::fmt::Display;

use swath_engine::inventory::{Link, RelativePerformance};

use super::entry::{Entry, State, Summary};
use crate::bytes::{Exact, Short};
use crate::output::Text;

/// One row for each drive, then what is wrong, then all of it in numbers.
pub(super) fn table(entries: &[Entry], summary: &Summary, text: &mut Text) {
    let heads = [
        "Device", "Size", "Block", "Model", "Serial", "Firmware", "Link", "NUMA", "Temp", "Used",
        "Spare", "State",
    ];
    let rows: Vec<[String; 12]> = entries.iter().map(row).collect();
    if !rows.is_empty() {
        text.table(heads, &rows).line("");
    }
    for entry in entries {
        for warning in &entry.warnings {
            text.line(format!("warning: {}: {}", entry.title(), warning.text));
        }
    }
    text.line(in_words(summary));
    if summary.needs_root > 0 {
        text.line(format!(
            "Of {} less is shown than root would see: health, or what lies on it.",
            plural(summary.needs_root, "device")
        ));
    }
}

fn in_words(summary: &Summary) -> String {
    let mut parts = vec![format!("{} ready", summary.ready)];
    for (count, words) in [
        (summary.members, "in a volume"),
        (summary.not_ready, "not ready"),
        (summary.unknown, "unknown"),
    ] {
        if count > 0 {
            parts.push(format!("{count} {words}"));
        }
    }
    let warnings = match summary.with_warnings {
        0 => "no warnings".to_owned(),
        count => format!("warnings of {count}"),
    };
    format!(
        "{}: {}; {warnings}",
        plural(summary.count, "device"),
        parts.join(", ")
    )
}

fn plural(count: usize, word: &str) -> String {
    match count {
        1 => format!("1 {word}"),
        _ => format!("{count} {word}s"),
    }
}

fn row(entry: &Entry) -> [String; 12] {
    let drive = &entry.drive;
    let health = drive.nvme.as_ref().and_then(|nvme| nvme.health.as_ref());
    [
        drive.node.display().to_string(),
        Short(drive.capacity_bytes).to_string(),
        or_dash(drive.logical_block_bytes),
        or_dash(drive.model.as_deref()),
        or_dash(drive.serial.as_deref()),
        or_dash(drive.firmware.as_deref()),
        link(entry),
        or_dash(drive.numa_node),
        or_dash(drive.temperature_celsius.map(|it| format!("{it} \u{b0}C"))),
        or_dash(health.map(|health| format!("{} %", health.endurance_used_percent))),
        or_dash(health.map(|health| format!("{} %", health.spare_percent))),
        state(entry),
    ]
}

/// What a link runs at, and what it could where that is more; else how the drive is attached.
fn link(entry: &Entry) -> String {
    match entry.drive.link {
        Some(link) if link.is_downtrained => format!("{} of {}", link.current, link.possible),
        Some(link) => link.current.to_string(),
        None => or_dash(entry.drive.transport.as_deref()),
    }
}

fn state(entry: &Entry) -> String {
    if let Some(volume) = &entry.volume {
        let name = match volume.name.as_str() {
            "" => volume.uuid.to_string(),
            name => format!("{name:?}"),
        };
        return format!(
            "member {} of {} of {name}",
            volume.member_index, volume.member_count
        );
    }
    let word = match entry.state {
        State::Ready => "ready",
        State::Member => "member",
        State::NotReady => "not ready",
        State::Unknown => "unknown",
    };
    match &entry.state_reason {
        Some(reason) => format!("{word}: {reason}"),
        None => word.to_owned(),
    }
}

fn or_dash(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// All that is known of one drive.
pub(super) fn fields(entry: &Entry, text: &mut Text) {
    let drive = &entry.drive;
    text.line(format!("{}:", drive.node.display()));
    text.field("State", &state(entry));
    let mut field = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            text.field(name, &value);
        }
    };
    let count = |value: u64| Some(value.to_string());
    field("Model", drive.model.clone());
    field("Serial", drive.serial.clone());
    field("Firmware", drive.firmware.clone());
    field("World Wide ID", drive.world_wide_id.clone());
    field("Size", Some(Exact(drive.capacity_bytes).to_string()));
    field("Logical Block", drive.logical_block_bytes.map(bytes));
    field("Physical Block", drive.physical_block_bytes.map(bytes));
    let turns = |turns| if turns { "yes" } else { "no" }.to_owned();
    field("Rotational", drive.is_rotational.map(turns));
    field("Form Factor", drive.form_factor.map(str::to_owned));
    field("Write Cache", drive.write_cache.clone());
    field("Transport", drive.transport.clone());
    field("PCIe Address", drive.pcie_address.clone());
    if drive.transport.as_deref() != Some("pcie") {
        field("Address", drive.address.clone());
    }
    field("Link", drive.link.as_ref().map(link_in_words));
    field("NUMA Node", drive.numa_node.map(|node| node.to_string()));
    let celsius = |degrees: i32| format!("{degrees} \u{b0}C");
    field("Temperature", drive.temperature_celsius.map(celsius));
    if let Some(nvme) = &drive.nvme {
        field("Namespace", nvme.namespace_id.map(|id| id.to_string()));
        field("Controllers", Some(nvme.controllers.join(", ")));
        field("Controller", nvme.state.clone());
        field("Subsystem", nvme.subsystem_nqn.clone());
        if let Some(controller) = &nvme.controller {
            field("NVMe Version", controller.version.map(|it| it.to_string()));
            let limits = controller
                .temperature_warning_celsius
                .zip(controller.temperature_critical_celsius);
            field(
                "Too Warm At",
                limits.map(|(warning, critical)| {
                    format!("{}, critical at {}", celsius(warning), celsius(critical))
                }),
            );
        }
        for format in nvme.namespace.iter().flat_map(|it| &it.formats) {
            let mut words = vec![format!("{} bytes", format.block_bytes)];
            if format.metadata_bytes > 0 {
                words.push(format!("{} of metadata", format.metadata_bytes));
            }
            words.push(
                match format.performance {
                    RelativePerformance::Best => "best",
                    RelativePerformance::Better => "better",
                    RelativePerformance::Good => "good",
                    RelativePerformance::Degraded => "degraded",
                }
                .to_owned(),
            );
            if format.is_in_use {
                words.push("in use".to_owned());
            }
            field("Block Format", Some(words.join(", ")));
        }
        if let Some(health) = &nvme.health {
            let spare = format!(
                "{} % (threshold {} %)",
                health.spare_percent, health.spare_threshold_percent
            );
            field("Spare", Some(spare));
            let used = format!("{} %", health.endurance_used_percent);
            field("Endurance Used", Some(used));
            field("Data Read", Some(Short(health.data_read_bytes).to_string()));
            let written = Short(health.data_written_bytes).to_string();
            field("Data Written", Some(written));
            field("Media Errors", count(health.media_errors));
            field("Error Log", count(health.error_log_entries));
            field("Power On Hours", count(health.power_on_hours));
            field("Power Cycles", count(health.power_cycles));
            field("Power Losses", count(health.unsafe_shutdowns));
        }
        field(
            "Not Asked",
            nvme.unread.as_ref().map(|unread| unread.reason.clone()),
        );
    }
    let partitions = drive.partitions.join(", ");
    field("Partitions", (!partitions.is_empty()).then_some(partitions));
    for warning in &entry.warnings {
        field("Warning", Some(warning.text.clone()));
    }
    text.line("");
}

fn bytes(count: u32) -> String {
    Exact(u64::from(count)).to_string()
}

fn link_in_words(link: &Link) -> String {
    let limit = if link.is_limited_by_port {
        format!(", the drive could do {}", link.drive)
    } else {
        String::new()
    };
    if link.is_downtrained {
        format!("{}, possible {}{limit}", link.current, link.possible)
    } else {
        format!("{}{limit}", link.current)
    }
}

#[cfg(test)]
mod tests {
    use swath_engine::inventory::{Drive, Health, LinkRate, Nvme};

    use super::*;

    fn rate(megatransfers_per_s: u32, lanes: u32) -> LinkRate {
        LinkRate {
            megatransfers_per_s: Some(megatransfers_per_s),
            lanes: Some(lanes),
        }
    }

    /// A drive in use, so that its node is not looked for.
    fn entry(health: Option<Health>, current: LinkRate) -> Entry {
        Entry::of(Drive {
            node: "/dev/nvme3n1".into(),
            model: Some("MODEL".to_owned()),
            serial: Some("S3".to_owned()),
            capacity_bytes: 1 << 40,
            logical_block_bytes: Some(512),
            link: Some(Link::new(current, rate(32_000, 4), rate(32_000, 4))),
            users: vec!["part of md0".to_owned()],
            nvme: Some(Nvme {
                health,
                ..Nvme::default()
            }),
            ..Drive::default()
        })
    }

    fn printed(print: impl FnOnce(&mut Text)) -> String {
        let mut text = Text::default();
        print(&mut text);
        text.as_str().to_owned()
    }

    #[test]
    fn a_table_tells_what_is_wrong_and_counts() {
        let entries = [entry(None, rate(8_000, 4)), entry(None, rate(32_000, 4))];
        let text = printed(|text| table(&entries, &Summary::of(&entries), text));
        assert!(text.contains("gen3 x4 of gen5 x4"), "{text}");
        assert!(text.contains("not ready: part of md0"), "{text}");
        let warning =
            "warning: /dev/nvme3n1 (S3): its link runs at gen3 x4, and gen5 x4 is possible";
        assert_eq!(text.matches(warning).count(), 1, "{text}");
        assert!(
            text.ends_with("2 devices: 0 ready, 2 not ready; warnings of 1\n"),
            "{text}"
        );
    }

    #[test]
    fn what_is_not_known_has_no_field() {
        let mut page = [0; swath_engine::inventory::HEALTH_BYTES];
        page[3..6].copy_from_slice(&[9, 10, 101]);
        let health = Health::parse(&page);
        let text = printed(|text| fields(&entry(Some(health), rate(32_000, 4)), text));
        assert!(text.contains("Spare : 9 % (threshold 10 %)"), "{text}");
        assert!(
            text.contains("Warning : 101 % of its endurance is used"),
            "{text}"
        );
        assert!(!text.contains("NUMA") && !text.contains("Temp"), "{text}");
    }

    #[test]
    fn no_devices_are_told_as_that() {
        let text = printed(|text| table(&[], &Summary::default(), text));
        assert_eq!(text, "0 devices: 0 ready; no warnings\n");
    }
}
