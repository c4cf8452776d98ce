//! Published figures of other machines, compiled in from `bench/reference`, whose README says where
//! they come from.
//!
//! They are of whole servers. Beside a run they stand divided by their drives, as the run's numbers
//! are divided by its members.

use crate::error::{Error, Result};
use crate::workload::Pattern;

/// How pages name the server whose bandwidth by size they draw.
pub(crate) const SERVER: &str = "R7725xd";

/// The same at length, with the source.
pub(crate) const SERVER_AT_LENGTH: &str = "Dell PowerEdge R7725xd, 2 × EPYC 9575F (128 cores), 24 × Micron \
     9550 PRO (PCIe 5 x4 each), measured locally by fio; figures as published by StorageReview";

/// Its drives.
pub(crate) const SERVER_DRIVES: f64 = 24.0;

/// What each of them is rated at, in decimal GB/s.
pub(crate) const SERVER_RATING: Rating = Rating {
    read_gb: 14.0,
    write_gb: 10.0,
};

/// What a core of it spends on a 4 KiB random read at most: 128 cores, 71.4 million a second.
pub(crate) const SERVER_CPU_NS_PER_IO: f64 = 1_792.7;

/// How pages name the server whose latency against load they draw.
pub(crate) const LOADED: &str = "R6525";

/// The same at length.
pub(crate) const LOADED_AT_LENGTH: &str = "Dell EMC PowerEdge R6525, 4 NVMe drives (PCIe 4), measured by VDBench; \
     figures as published by StorageReview";

/// Its drives.
pub(crate) const LOADED_DRIVES: f64 = 4.0;

/// The bandwidth of one drive of the server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Figure {
    pub(crate) pattern: Pattern,
    /// None: a range over sizes.
    pub(crate) block_bytes: Option<u64>,
    /// Decimal GB/s of one drive.
    pub(crate) low_gb: f64,
    pub(crate) high_gb: f64,
    /// How sure it is: `stated`, `repaired` or `derived`.
    pub(crate) status: &'static str,
}

/// The end of a load curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Peak {
    pub(crate) workload: &'static str,
    pub(crate) pattern: Pattern,
    pub(crate) block_bytes: u64,
    /// Requests a second of one drive.
    pub(crate) iops: f64,
    pub(crate) latency_us: f64,
    pub(crate) start_latency_us: Option<f64>,
}

/// What a drive's maker promises, in decimal GB/s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rating {
    /// Sequential reads.
    pub read_gb: f64,
    /// Sequential writes.
    pub write_gb: f64,
}

impl Rating {
    pub(crate) fn of(&self, pattern: Pattern) -> f64 {
        if pattern.is_write() {
            self.write_gb
        } else {
            self.read_gb
        }
    }

    /// The rating of a drive whose model is known here.
    pub(crate) fn by_model(model: &str) -> Option<Self> {
        rows(include_str!("../reference/ratings.csv")).find_map(|row| match row.as_slice() {
            [name, read_gb, write_gb] if model.contains(name) => Some(Self {
                read_gb: read_gb.parse().ok()?,
                write_gb: write_gb.parse().ok()?,
            }),
            _ => None,
        })
    }
}

impl std::str::FromStr for Rating {
    type Err = Error;

    /// `14,10`: reads and writes in GB/s.
    fn from_str(text: &str) -> Result<Self> {
        let numbers: Vec<f64> = text
            .split(',')
            .filter_map(|part| part.trim().parse().ok())
            .filter(|number| (1e-3..1e6).contains(number))
            .collect();
        match (numbers.as_slice(), text.split(',').count()) {
            (&[read_gb, write_gb], 2) => Ok(Self { read_gb, write_gb }),
            _ => Err(Error::usage(format!(
                "'{text}' is not the rating of a drive; write GB/s of reads and of writes, as in 14,10"
            ))),
        }
    }
}

/// The figures of the server, of one pattern, by rising size; ranges over sizes come first.
pub(crate) fn figures(pattern: Pattern) -> Vec<Figure> {
    let all = rows(include_str!("../reference/r7725xd_fio.csv")).filter_map(|row| {
        let [rw, bs, low, high, status] = row.as_slice() else {
            return None;
        };
        Some(Figure {
            pattern: rw.parse().ok()?,
            block_bytes: bs.parse().ok(),
            low_gb: low.parse::<f64>().ok()? / SERVER_DRIVES,
            high_gb: high.parse::<f64>().ok()? / SERVER_DRIVES,
            status,
        })
    });
    let mut figures: Vec<Figure> = all.filter(|figure| figure.pattern == pattern).collect();
    figures.sort_by_key(|figure| figure.block_bytes);
    figures
}

/// The load curves of the other server.
pub(crate) fn peaks() -> Vec<Peak> {
    let all = rows(include_str!("../reference/r6525_vdbench.csv")).filter_map(|row| {
        let [workload, rw, bs, iops, latency, start, _] = row.as_slice() else {
            return None;
        };
        Some(Peak {
            workload,
            pattern: rw.parse().ok()?,
            block_bytes: bs.parse().ok()?,
            iops: iops.parse::<f64>().ok()? / LOADED_DRIVES,
            latency_us: latency.parse().ok()?,
            start_latency_us: start.parse().ok(),
        })
    });
    all.collect()
}

/// The rows of a table of ours, without its first line. No field of ours is quoted.
fn rows(text: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    text.lines()
        .skip(1)
        .map(|line| line.split(',').map(str::trim).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_tables_is_read() {
        let count = |text: &'static str| text.lines().count() - 1;
        let figures: Vec<Figure> = Pattern::ALL.into_iter().flat_map(figures).collect();
        assert_eq!(
            figures.len(),
            count(include_str!("../reference/r7725xd_fio.csv"))
        );
        assert_eq!(
            peaks().len(),
            count(include_str!("../reference/r6525_vdbench.csv"))
        );
        for figure in figures {
            assert!(
                figure.low_gb > 1.0 && figure.high_gb >= figure.low_gb,
                "{figure:?}"
            );
            assert!(
                ["stated", "repaired", "derived"].contains(&figure.status),
                "{figure:?}"
            );
        }
    }

    #[test]
    fn one_drive_gives_a_24th() {
        let at = |figure: &&Figure| figure.block_bytes == Some(1 << 20);
        let figures = figures(Pattern::RandRead);
        let figure = figures.iter().find(at).unwrap();
        assert!((figure.low_gb - 13.25).abs() < 1e-9);
    }

    #[test]
    fn ratings_are_found_by_model_or_typed() {
        let rating = Rating::by_model("Micron_9550_MTFDLAL15T3TGL").unwrap();
        assert!((rating.of(Pattern::RandWrite) - 10.0).abs() < 1e-9);
        assert!(Rating::by_model("QEMU NVMe Ctrl").is_none());
        assert!("7.4, 6".parse::<Rating>().is_ok());
        for text in ["14", "14,x", "0,1", "14,10,3", "inf,1", ""] {
            assert_eq!(text.parse::<Rating>().unwrap_err().exit_code(), 2, "{text}");
        }
    }
}
