//! What is wrong with a drive, as far as it and its link tell.

use std::fmt;

use serde::Serialize;

use super::drive::Drive;
use super::health::CriticalWarning;
use super::link::LinkRate;

/// A reason to look after a drive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Warning {
    /// The drive itself warns.
    Critical {
        /// Of what.
        warning: CriticalWarning,
    },
    /// Its link runs below what both of its ends can do.
    Downtrained {
        /// What it runs at.
        current: LinkRate,
        /// What it could run at.
        possible: LinkRate,
    },
    /// Spare blocks are below their threshold, though the drive does not warn of it.
    SpareLow {
        /// What is left.
        spare_percent: u8,
        /// The threshold.
        threshold_percent: u8,
    },
    /// It has been written as much as its maker expects it to last.
    EnduranceUsedUp {
        /// How much of that life is used.
        used_percent: u8,
    },
    /// It is as warm as it calls too warm, though it does not warn of it.
    Hot {
        /// What it has.
        temperature_celsius: i32,
        /// What it calls too warm.
        warning_celsius: i32,
    },
    /// Data was lost, or could not be read, at some time of its life.
    MediaErrors {
        /// How often.
        count: u64,
    },
    /// The driver does not have the controller in order.
    NotLive {
        /// What the driver says.
        state: String,
    },
    /// It has no bytes: no medium, or a drive that is going.
    Empty,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Critical { warning } => warning.fmt(f),
            Self::Downtrained { current, possible } => write!(
                f,
                "its link runs at {current}, and {possible} is possible: seat it anew, look at \
                 cable and slot"
            ),
            Self::SpareLow {
                spare_percent,
                threshold_percent,
            } => write!(
                f,
                "{spare_percent} % of its spare blocks are left, less than {threshold_percent} %"
            ),
            Self::EnduranceUsedUp { used_percent } => {
                write!(f, "{used_percent} % of its endurance is used")
            }
            Self::Hot {
                temperature_celsius,
                warning_celsius,
            } => write!(
                f,
                "{temperature_celsius} \u{b0}C, and {warning_celsius} \u{b0}C is too warm for it"
            ),
            Self::MediaErrors { count } => write!(f, "{count} media errors in its life"),
            Self::NotLive { state } => write!(f, "its controller is {state}"),
            Self::Empty => f.write_str("it has no bytes: no medium, or a drive that is going"),
        }
    }
}

impl Drive {
    /// What is wrong with it, the gravest first.
    pub fn warnings(&self) -> Vec<Warning> {
        let mut warnings = Vec::new();
        let nvme = self.nvme.as_ref();
        let health = nvme.and_then(|nvme| nvme.health.as_ref());
        let of_drive = health.map_or(&[][..], |health| &health.critical_warnings);
        warnings.extend(
            of_drive
                .iter()
                .map(|&warning| Warning::Critical { warning }),
        );
        if let Some(state) = nvme.and_then(|nvme| nvme.state.as_ref())
            && state != "live"
        {
            warnings.push(Warning::NotLive {
                state: state.clone(),
            });
        }
        if self.capacity_bytes == 0 {
            warnings.push(Warning::Empty);
        }
        if let Some(health) = health {
            if health.media_errors > 0 {
                warnings.push(Warning::MediaErrors {
                    count: health.media_errors,
                });
            }
            if health.spare_percent < health.spare_threshold_percent
                && !of_drive.contains(&CriticalWarning::SpareLow)
            {
                warnings.push(Warning::SpareLow {
                    spare_percent: health.spare_percent,
                    threshold_percent: health.spare_threshold_percent,
                });
            }
            if health.endurance_used_percent >= 100 {
                warnings.push(Warning::EnduranceUsedUp {
                    used_percent: health.endurance_used_percent,
                });
            }
        }
        let too_warm = nvme
            .and_then(|nvme| nvme.controller.as_ref()?.temperature_warning_celsius)
            .zip(self.temperature_celsius)
            .filter(|(warning, now)| now >= warning);
        if let Some((warning_celsius, temperature_celsius)) = too_warm
            && !of_drive.contains(&CriticalWarning::Temperature)
        {
            warnings.push(Warning::Hot {
                temperature_celsius,
                warning_celsius,
            });
        }
        if let Some(link) = self.link.filter(|link| link.is_downtrained) {
            warnings.push(Warning::Downtrained {
                current: link.current,
                possible: link.possible,
            });
        }
        warnings
    }
}
