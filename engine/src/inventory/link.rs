//! The PCIe link of a drive: what it runs at, and what it could run at.
//!
//! A link has two ends. What is possible is the smaller of what the drive and the port above it can
//! do, speed and width each; a link that runs below that is *downtrained*: a bad seat, a bad cable,
//! dirt. A drive in a slower slot is not: its link does what it can.

use std::fmt;

use serde::Serialize;

use super::folder::Folder;

/// A speed and a width; either may be unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LinkRate {
    /// Transfers of each lane: 32,000 is 32 GT/s, PCIe 5.
    pub megatransfers_per_s: Option<u32>,
    /// Its lanes.
    pub lanes: Option<u32>,
}

/// The link of a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Link {
    /// What the two ends agreed on.
    pub current: LinkRate,
    /// What the drive can do.
    pub drive: LinkRate,
    /// What the port above it can do.
    pub port: LinkRate,
    /// What both can do.
    pub possible: LinkRate,
    /// Whether the link runs below what both can do.
    pub is_downtrained: bool,
    /// Whether the drive could do more than the port.
    pub is_limited_by_port: bool,
}

impl LinkRate {
    /// What both have; what only one of them knows is taken from that one.
    fn smaller(self, other: Self) -> Self {
        let smaller = |one: Option<u32>, two: Option<u32>| one.into_iter().chain(two).min();
        Self {
            megatransfers_per_s: smaller(self.megatransfers_per_s, other.megatransfers_per_s),
            lanes: smaller(self.lanes, other.lanes),
        }
    }

    /// Whether speed or width is known to be below the other's.
    fn is_below(self, other: Self) -> bool {
        let below =
            |one: Option<u32>, two: Option<u32>| one.zip(two).is_some_and(|(one, two)| one < two);
        below(self.megatransfers_per_s, other.megatransfers_per_s) || below(self.lanes, other.lanes)
    }

    /// The generation of PCIe that has this speed.
    pub fn generation(&self) -> Option<u8> {
        match self.megatransfers_per_s? {
            2_500 => Some(1),
            5_000 => Some(2),
            8_000 => Some(3),
            16_000 => Some(4),
            32_000 => Some(5),
            64_000 => Some(6),
            _ => None,
        }
    }
}

impl fmt::Display for LinkRate {
    /// `gen5 x4`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let speed = match (self.generation(), self.megatransfers_per_s) {
            (Some(generation), _) => format!("gen{generation}"),
            (None, Some(speed)) => format!("{speed} MT/s"),
            (None, None) => "gen?".to_owned(),
        };
        let lanes = self
            .lanes
            .map_or_else(|| "x?".to_owned(), |lanes| format!("x{lanes}"));
        f.pad(&format!("{speed} {lanes}"))
    }
}

impl Link {
    /// Puts the two ends together.
    pub fn new(current: LinkRate, drive: LinkRate, port: LinkRate) -> Self {
        let possible = drive.smaller(port);
        Self {
            current,
            drive,
            port,
            possible,
            is_downtrained: current.is_below(possible),
            is_limited_by_port: port.is_below(drive),
        }
    }

    /// The link of a PCI function; none where it is no PCIe device. `port` is the bridge above it.
    pub(super) fn read(function: &Folder, port: Option<&Folder>) -> Option<Self> {
        let rate = |folder: &Folder, which: &str| LinkRate {
            megatransfers_per_s: folder
                .text(&format!("{which}_link_speed"))
                .and_then(|text| speed(&text)),
            lanes: folder
                .number(&format!("{which}_link_width"))
                .filter(|lanes| (1..=32).contains(lanes)),
        };
        let current = rate(function, "current");
        let drive = rate(function, "max");
        let port = port.map_or_else(LinkRate::default, |port| rate(port, "max"));
        let is_known = current != LinkRate::default() || drive != LinkRate::default();
        is_known.then(|| Self::new(current, drive, port))
    }
}

/// `32.0 GT/s PCIe`, or `8 GT/s` as Linux before 5.9 has it, in megatransfers.
fn speed(text: &str) -> Option<u32> {
    let (number, _) = text.split_once(" GT/s")?;
    let (whole, tenths) = number.split_once('.').unwrap_or((number, "0"));
    let tenths = tenths.parse::<u32>().ok().filter(|tenths| *tenths < 10)?;
    whole
        .parse::<u32>()
        .ok()?
        .checked_mul(1000)?
        .checked_add(tenths * 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(generation: u8, lanes: u32) -> LinkRate {
        LinkRate {
            megatransfers_per_s: [2_500, 5_000, 8_000, 16_000, 32_000, 64_000]
                .get(usize::from(generation) - 1)
                .copied(),
            lanes: Some(lanes),
        }
    }

    #[test]
    fn speeds_are_read_as_every_linux_writes_them() {
        for (text, wanted) in [
            ("2.5 GT/s PCIe", Some(2_500)),
            ("32.0 GT/s PCIe", Some(32_000)),
            ("8 GT/s", Some(8_000)),
            ("Unknown", None),
            ("Unknown speed", None),
            ("9999999999.0 GT/s", None),
            ("4294967.5 GT/s", None),
            ("2.55 GT/s", None),
            (". GT/s", None),
        ] {
            assert_eq!(speed(text), wanted, "{text}");
        }
    }

    #[test]
    fn a_link_is_downtrained_only_below_what_both_ends_can() {
        for (current, drive, port, is_downtrained, is_limited) in [
            (rate(5, 4), rate(5, 4), rate(5, 4), false, false),
            (rate(3, 4), rate(5, 4), rate(5, 4), true, false),
            (rate(5, 2), rate(5, 4), rate(5, 16), true, false),
            // A gen5 drive in a gen4 slot does what it can.
            (rate(4, 4), rate(5, 4), rate(4, 4), false, true),
            (rate(3, 4), rate(5, 4), rate(4, 4), true, true),
            // Nothing is known of the port, or of anything.
            (rate(3, 4), rate(4, 4), LinkRate::default(), true, false),
            (LinkRate::default(), rate(4, 4), rate(4, 4), false, false),
        ] {
            let link = Link::new(current, drive, port);
            assert_eq!(link.is_downtrained, is_downtrained, "{link:?}");
            assert_eq!(link.is_limited_by_port, is_limited, "{link:?}");
        }
    }

    #[test]
    fn rates_print_as_people_say_them() {
        assert_eq!(rate(5, 4).to_string(), "gen5 x4");
        assert_eq!(LinkRate::default().to_string(), "gen? x?");
        assert_eq!(format!("{:>9}", rate(4, 2)), "  gen4 x2");
    }
}
