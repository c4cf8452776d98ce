//! The parsers of drives' pages and of the kernel's messages, on any bytes.
//!
//! What could go wrong: a panic on bytes that no specification allows, a value beyond its bounds,
//! text that drives a terminal, a field that is not where the specification has it.

use proptest::collection::vec;
use proptest::prelude::*;
use swath_engine::inventory::{
    CriticalWarning, Event, HEALTH_BYTES, Health, IDENTIFY_BYTES, IdentifyController,
    IdentifyNamespace,
};
use swath_tests::seed::check;

/// Pages of chance, of one byte throughout, and blank ones with a few bytes set.
fn pages<const BYTES: usize>() -> impl Strategy<Value = Box<[u8; BYTES]>> {
    let boxed = |bytes: Vec<u8>| -> Box<[u8; BYTES]> { bytes.try_into().unwrap() };
    prop_oneof![
        vec(any::<u8>(), BYTES).prop_map(boxed),
        any::<u8>().prop_map(|byte| Box::new([byte; BYTES])),
        vec((0..BYTES, any::<u8>()), 0..20).prop_map(|changes| {
            let mut page = Box::new([0; BYTES]);
            for (place, byte) in changes {
                page[place] = byte;
            }
            page
        }),
    ]
}

fn is_printable(text: Option<&String>) -> bool {
    text.is_none_or(|text| !text.is_empty() && !text.contains(char::is_control))
}

#[test]
fn any_page_is_a_controller() {
    check(2000, pages::<IDENTIFY_BYTES>(), |page| {
        let controller = IdentifyController::parse(&page);
        prop_assert!(is_printable(controller.serial.as_ref()));
        prop_assert!(is_printable(controller.model.as_ref()));
        prop_assert!(is_printable(controller.firmware.as_ref()));
        let limits = [
            controller.temperature_warning_celsius,
            controller.temperature_critical_celsius,
        ];
        for celsius in limits.into_iter().flatten() {
            prop_assert!((-272..=65_535 - 273).contains(&celsius));
        }
        if let Some(version) = controller.version {
            prop_assert!(version.to_string().contains('.'));
        }
        Ok(())
    });
}

#[test]
fn any_page_is_a_namespace_with_formats_that_can_be() {
    check(2000, pages::<IDENTIFY_BYTES>(), |page| {
        let namespace = IdentifyNamespace::parse(&page);
        prop_assert!(namespace.formats.len() <= 64);
        prop_assert!(namespace.formats.iter().filter(|it| it.is_in_use).count() <= 1);
        for format in namespace.formats {
            prop_assert!(format.block_bytes.is_power_of_two() && format.block_bytes >= 512);
        }
        Ok(())
    });
}

#[test]
fn any_page_is_a_health_and_its_warnings_are_its_bits() {
    check(2000, pages::<HEALTH_BYTES>(), |page| {
        let health = Health::parse(&page);
        let bits = CriticalWarning::ALL
            .iter()
            .enumerate()
            .filter(|(_, warning)| health.critical_warnings.contains(warning))
            .fold(0, |bits, (bit, _)| bits | 1_u8 << bit);
        prop_assert_eq!(bits, page[0]);
        prop_assert_eq!(health.spare_percent, page[3]);
        prop_assert!(
            health.data_read_bytes == u64::MAX || health.data_read_bytes.is_multiple_of(512_000)
        );
        Ok(())
    });
}

#[test]
fn any_line_is_an_event_or_none() {
    let lines = prop_oneof![
        "\\PC{0,80}",
        "[0-9]{1,3},[0-9]{1,22},[0-9]{1,22},[-c];(nvme|sd|pci|ata1.00|pcieport) \\PC{0,60}",
        "6,1,2,-;nvme nvme0: pci function \\PC{0,20}",
    ];
    check(2000, &lines, |line| {
        if let Some(event) = Event::parse(&line) {
            prop_assert!(!event.message.is_empty() && !event.message.contains(char::is_control));
            prop_assert!(line.contains(';'));
        }
        Ok(())
    });
}
