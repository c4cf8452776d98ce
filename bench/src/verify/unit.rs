//! The bytes of a unit: 4 KiB of the volume that say themselves what they are.
//!
//! A unit is eight sectors of 512 bytes, since nothing larger is written as a whole by every drive:
//!
//! ```text
//!  0  magic          8   SWATHVFY
//!  8  run           16   UUID of the run, or of the journal that outlives it
//! 24  unit           8   which 4 KiB of the volume
//! 32  generation     4   the how manieth write of this unit, from 1
//! 36  sector         4   0 to 7
//! 40  checksum       4   CRC-32 of the sector without this field
//! 44  zero           4
//! 48  data         464   incompressible, drawn from all of the above
//! ```
//!
//! - All 512 bytes follow from run, seed, unit, generation and sector. So what is read is compared
//!   with what must be there, bit by bit; the checksum is only asked what a wrong sector is.
//! - Arithmetic only, no I/O. Little-endian.

use swath_engine::fill_incompressible;
use swath_volume::Uuid;

use super::fault::{Fault, Sector};
use super::table::Entry;
use crate::random::Random;

/// Bytes of a unit.
pub(crate) const UNIT_BYTES: u64 = 4096;

/// The same, of memory.
pub(super) const UNIT_LEN: usize = 4096;

/// What every drive writes as a whole.
pub(super) const SECTOR_LEN: usize = 512;

/// Sectors of a unit.
pub(super) const SECTORS: usize = UNIT_LEN / SECTOR_LEN;

const HEADER_LEN: usize = 48;

const MAGIC: [u8; 8] = *b"SWATHVFY";

/// What the contents of all units follow from, besides their place and generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    run: Uuid,
    base: u64,
}

/// A unit at a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) unit: u64,
    pub(super) generation: u32,
}

/// What a sector says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Header {
    run: Uuid,
    version: Version,
    sector: u32,
}

impl Identity {
    /// Of a run, and the seed that its data is drawn from.
    pub(super) fn new(run: Uuid, seed: u64) -> Self {
        let (high, low) = run.as_u64_pair();
        let base = Random::new(seed ^ high, low).next_u64();
        Self { run, base }
    }

    /// Writes the contents of a unit into its bytes.
    pub(super) fn stamp(&self, version: Version, bytes: &mut [u8]) {
        for (number, sector) in (0..).zip(bytes.chunks_exact_mut(SECTOR_LEN)) {
            self.stamp_sector(version, number, sector);
        }
    }

    fn stamp_sector(&self, version: Version, number: u32, bytes: &mut [u8]) {
        let (header, data) = bytes.split_at_mut(HEADER_LEN);
        header[..8].copy_from_slice(&MAGIC);
        header[8..24].copy_from_slice(self.run.as_bytes());
        header[24..32].copy_from_slice(&version.unit.to_le_bytes());
        header[32..36].copy_from_slice(&version.generation.to_le_bytes());
        header[36..40].copy_from_slice(&number.to_le_bytes());
        header[40..].fill(0);
        let stream = u64::from(version.generation) << 8 | u64::from(number);
        let key = Random::new(self.base ^ version.unit, stream).next_u64();
        fill_incompressible(data, key, 0);
        let checksum = checksum(bytes);
        bytes[40..44].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Looks at the bytes of a unit that must hold what `entry` says. None: they do.
    pub(super) fn examine(&self, unit: u64, entry: Entry, bytes: &[u8]) -> Option<Fault> {
        let mut sectors = [Sector::Right; SECTORS];
        for (number, (found, sector)) in (0..).zip(bytes.chunks_exact(SECTOR_LEN).zip(&mut sectors))
        {
            *sector = self.examine_sector(unit, entry, number, found);
        }
        let is_right = sectors.iter().all(|sector| *sector == Sector::Right);
        (!is_right).then_some(Fault { entry, sectors })
    }

    /// The one generation that all sectors of a unit are of, if they are.
    pub(super) fn generation_of(&self, unit: u64, bytes: &[u8]) -> Option<u32> {
        let version = Version {
            unit,
            generation: claimed_generation(bytes),
        };
        let mut right = [0; UNIT_LEN];
        self.stamp(version, &mut right);
        (right == *bytes).then_some(version.generation)
    }

    fn examine_sector(&self, unit: u64, entry: Entry, number: u32, found: &[u8]) -> Sector {
        // Usually right, and then one comparison says so.
        let claimed = claimed_generation(found);
        let generation = if entry.allows(claimed) {
            claimed
        } else {
            entry.intended
        };
        if let Difference { bits: 0, .. } = self.difference(unit, generation, number, found) {
            return Sector::Right;
        }
        if found.iter().all(|byte| *byte == 0) {
            return Sector::Zeroes;
        }
        match Header::read(found) {
            Some(header) if header.run != self.run => Sector::OtherRun,
            Some(Header {
                version, sector, ..
            }) if (version.unit, sector) != (unit, number) => Sector::Misplaced {
                unit: version.unit,
                sector,
                generation: version.generation,
            },
            Some(header) if !entry.allows(header.version.generation) => {
                Sector::OtherGeneration(header.version.generation)
            }
            _ => self.changed(unit, entry, number, found),
        }
    }

    /// How far bytes that say nothing true of themselves are from what must be there.
    fn changed(&self, unit: u64, entry: Entry, number: u32, found: &[u8]) -> Sector {
        let claimed = Some(claimed_generation(found)).filter(|claimed| entry.allows(*claimed));
        let candidates = [Some(entry.intended), Some(entry.confirmed), claimed];
        let nearest = candidates
            .into_iter()
            .flatten()
            .map(|generation| self.difference(unit, generation, number, found))
            .min_by_key(|difference| difference.bits);
        let Some(Difference { bits, first_byte }) = nearest else {
            return Sector::Foreign;
        };
        // Half the bits of unrelated data differ; a quarter is far from both.
        if bits > 8 * 512 / 4 {
            return Sector::Foreign;
        }
        Sector::Changed { bits, first_byte }
    }

    fn difference(&self, unit: u64, generation: u32, number: u32, found: &[u8]) -> Difference {
        let mut right = [0; SECTOR_LEN];
        self.stamp_sector(Version { unit, generation }, number, &mut right);
        if right == *found {
            return Difference::default();
        }
        let pairs = || right.iter().zip(found);
        Difference {
            bits: pairs().map(|(one, other)| (one ^ other).count_ones()).sum(),
            first_byte: pairs()
                .position(|(one, other)| one != other)
                .unwrap_or_default(),
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Difference {
    bits: u32,
    first_byte: usize,
}

impl Header {
    /// None: no sector of this kind, or one whose checksum is wrong.
    fn read(bytes: &[u8]) -> Option<Self> {
        let stored = u32::from_le_bytes(field(bytes, 40));
        if bytes[..8] != MAGIC || bytes[44..HEADER_LEN] != [0; 4] || stored != checksum(bytes) {
            return None;
        }
        Some(Self {
            run: Uuid::from_bytes(field(bytes, 8)),
            version: Version {
                unit: u64::from_le_bytes(field(bytes, 24)),
                generation: claimed_generation(bytes),
            },
            sector: u32::from_le_bytes(field(bytes, 36)),
        })
    }
}

/// What stands where the generation does, whatever the rest is.
fn claimed_generation(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(field(bytes, 32))
}

fn field<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[offset..offset + N]);
    field
}

fn checksum(sector: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&sector[..40]);
    hasher.update(&sector[44..]);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: u64 = 77;

    fn identity() -> Identity {
        Identity::new(Uuid::from_u128(5), 42)
    }

    fn stamped(unit: u64, generation: u32) -> Vec<u8> {
        let mut bytes = vec![0; UNIT_LEN];
        identity().stamp(Version { unit, generation }, &mut bytes);
        bytes
    }

    fn examine(entry: Entry, bytes: &[u8]) -> Option<[Sector; SECTORS]> {
        let fault = identity().examine(UNIT, entry, bytes);
        fault.map(|fault| fault.sectors)
    }

    #[test]
    fn a_unit_is_right_at_its_place_and_generation_and_nowhere_else() {
        let bytes = stamped(UNIT, 9);
        assert_eq!(examine(Entry::settled(9), &bytes), None);
        assert_eq!(
            examine(Entry::settled(10), &bytes),
            Some([Sector::OtherGeneration(9); SECTORS])
        );
        assert_eq!(
            examine(Entry::settled(9), &stamped(UNIT, 10)),
            Some([Sector::OtherGeneration(10); SECTORS])
        );
        let misplaced = examine(Entry::settled(9), &stamped(UNIT + 1, 9)).unwrap();
        assert_eq!(
            misplaced[3],
            Sector::Misplaced {
                unit: UNIT + 1,
                sector: 3,
                generation: 9
            }
        );
        let mut other = vec![0; UNIT_LEN];
        let version = Version {
            unit: UNIT,
            generation: 9,
        };
        Identity::new(Uuid::from_u128(6), 42).stamp(version, &mut other);
        assert_eq!(
            examine(Entry::settled(9), &other),
            Some([Sector::OtherRun; SECTORS])
        );
        assert_eq!(
            examine(Entry::settled(9), &[0; UNIT_LEN]),
            Some([Sector::Zeroes; SECTORS])
        );
    }

    #[test]
    fn sectors_exchanged_within_a_unit_are_misplaced() {
        let mut bytes = stamped(UNIT, 1);
        bytes.rotate_left(SECTOR_LEN);
        let sectors = examine(Entry::settled(1), &bytes).unwrap();
        assert!(
            sectors
                .iter()
                .all(|sector| matches!(sector, Sector::Misplaced { unit: UNIT, .. }))
        );
    }

    #[test]
    fn every_flipped_bit_is_found_and_counted() {
        let right = stamped(UNIT, 3);
        for bit in 0..UNIT_LEN * 8 {
            let (byte, sector) = (bit / 8, bit / 8 / SECTOR_LEN);
            let mut bytes = right.clone();
            bytes[byte] ^= 1 << (bit % 8);
            let sectors = examine(Entry::settled(3), &bytes).unwrap();
            for (number, found) in sectors.into_iter().enumerate() {
                let expected = if number == sector {
                    Sector::Changed {
                        bits: 1,
                        first_byte: byte % SECTOR_LEN,
                    }
                } else {
                    Sector::Right
                };
                assert_eq!(found, expected, "bit {bit}, sector {number}");
            }
        }
    }

    #[test]
    fn data_of_somebody_else_is_told_from_damage() {
        let mut bytes = vec![0; UNIT_LEN];
        fill_incompressible(&mut bytes, 1, 0);
        assert_eq!(
            examine(Entry::settled(3), &bytes),
            Some([Sector::Foreign; SECTORS])
        );
    }

    #[test]
    fn an_open_entry_allows_every_mix_of_its_generations_and_no_other() {
        let open = Entry {
            confirmed: 4,
            intended: 6,
        };
        let mut bytes = Vec::new();
        for (number, generation) in [4, 5, 6, 6, 4, 5, 4, 6].into_iter().enumerate() {
            let unit = stamped(UNIT, generation);
            let start = number * SECTOR_LEN;
            bytes.extend_from_slice(&unit[start..start + SECTOR_LEN]);
        }
        assert_eq!(examine(open, &bytes), None);
        assert_eq!(identity().generation_of(UNIT, &bytes), None);
        let sectors = examine(Entry::settled(6), &bytes).unwrap();
        assert_eq!(sectors[0], Sector::OtherGeneration(4));
        assert_eq!(sectors[2], Sector::Right);
        let old = stamped(UNIT, 3);
        assert!(examine(open, &old).is_some());
        assert_eq!(identity().generation_of(UNIT, &old), Some(3));
    }

    #[test]
    fn data_does_not_repeat_from_unit_to_unit_or_write_to_write() {
        let mut tails: Vec<Vec<u8>> = Vec::new();
        for unit in 0..8 {
            for generation in 1..8 {
                let bytes = stamped(unit, generation);
                let sectors = bytes.chunks(SECTOR_LEN);
                tails.extend(sectors.map(|sector| sector[HEADER_LEN..].to_vec()));
            }
        }
        let count = tails.len();
        tails.sort();
        tails.dedup();
        assert_eq!(tails.len(), count);
    }
}
