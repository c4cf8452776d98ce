//! What is known of every unit: the generation that was confirmed, and the one that was intended.
//!
//! - 0 is no generation: nobody is known to have written the unit.
//! - An entry is open from the moment its write is intended until that is confirmed. Meanwhile each
//!   sector of the unit may hold any generation from the confirmed to the intended one: a process
//!   may have been killed at any moment, once or several times.
//! - Lanes share the table without a lock: a unit belongs to one lane at a time.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::environment::memory_available_bytes;
use crate::error::{Error, ErrorKind, Result};
use crate::size::format_bytes;

/// What is known of one unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Entry {
    /// The last generation that is known to be there; 0: none.
    pub(super) confirmed: u32,
    /// The last generation that was to be written; the same when nothing is open.
    pub(super) intended: u32,
}

impl Entry {
    /// A unit that holds this generation.
    pub(super) const fn settled(generation: u32) -> Self {
        Self {
            confirmed: generation,
            intended: generation,
        }
    }

    /// Whether it is known what the unit must hold.
    pub(super) const fn is_known(self) -> bool {
        self.confirmed > 0
    }

    /// Whether a write was intended and never confirmed.
    pub(super) const fn is_open(self) -> bool {
        self.intended > self.confirmed
    }

    /// Whether a sector of this generation may be there.
    pub(super) const fn allows(self, generation: u32) -> bool {
        self.confirmed <= generation && generation <= self.intended
    }

    /// The entry once the next write is intended; none when the numbers are used up.
    pub(super) fn intend(self) -> Option<Self> {
        let intended = self.intended.checked_add(1)?;
        Some(Self { intended, ..self })
    }

    /// The entry once what was intended last is there.
    pub(super) const fn confirm(self) -> Self {
        Self::settled(self.intended)
    }

    /// Whether such an entry can come about.
    pub(super) const fn is_sound(self) -> bool {
        self.confirmed <= self.intended
    }

    fn to_word(self) -> u64 {
        u64::from(self.confirmed) << 32 | u64::from(self.intended)
    }

    #[expect(clippy::cast_possible_truncation, reason = "the halves are asked for")]
    const fn of_word(word: u64) -> Self {
        Self {
            confirmed: (word >> 32) as u32,
            intended: word as u32,
        }
    }
}

/// One entry for each unit of a volume.
#[derive(Debug)]
pub(super) struct Table(Box<[AtomicU64]>);

impl Table {
    /// A table of `units` units that nobody has written.
    ///
    /// # Errors
    ///
    /// There is not enough memory.
    pub(super) fn new(units: u64) -> Result<Self> {
        let needs = units.saturating_mul(size_of::<AtomicU64>() as u64);
        let have = memory_available_bytes().unwrap_or(u64::MAX);
        let count = usize::try_from(units).ok().filter(|_| needs <= have / 2);
        let Some(count) = count else {
            return Err(Error::new(
                ErrorKind::NoSpace,
                format!(
                    "--verify needs {} of memory to know every 4 KiB of this volume, and {} are free; \
                     use a smaller volume",
                    format_bytes(needs),
                    format_bytes(have)
                ),
            ));
        };
        Ok(Self((0..count).map(|_| AtomicU64::new(0)).collect()))
    }

    /// How many units there are.
    pub(super) fn units(&self) -> u64 {
        self.0.len() as u64
    }

    /// What is known of a unit.
    ///
    /// # Panics
    ///
    /// When there is no such unit.
    pub(super) fn entry(&self, unit: u64) -> Entry {
        Entry::of_word(self.slot(unit).load(Ordering::Relaxed))
    }

    /// Notes what is known of a unit.
    ///
    /// # Panics
    ///
    /// When there is no such unit.
    pub(super) fn set(&self, unit: u64, entry: Entry) {
        self.slot(unit).store(entry.to_word(), Ordering::Relaxed);
    }

    fn slot(&self, unit: u64) -> &AtomicU64 {
        let place = usize::try_from(unit).ok();
        let slot = place.and_then(|place| self.0.get(place));
        slot.expect("requests lie inside the volume")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_open_from_intent_to_confirmation() {
        let entry = Entry::settled(4);
        assert!(entry.is_known() && !entry.is_open());
        let open = entry.intend().unwrap();
        assert!(open.is_open() && open.allows(4) && open.allows(5));
        assert!(!open.allows(3) && !open.allows(6));
        assert_eq!(open.confirm(), Entry::settled(5));
        // Killed again and again, each time in the middle of another write.
        let twice = open.intend().unwrap();
        assert!((4..=6).all(|generation| twice.allows(generation)));
        assert_eq!(Entry::settled(u32::MAX).intend(), None);
    }

    #[test]
    fn nobody_knows_a_unit_whose_first_write_was_not_confirmed() {
        let entry = Entry::default().intend().unwrap();
        assert!(!entry.is_known() && entry.is_open());
    }

    #[test]
    fn a_table_keeps_both_halves_of_every_entry() {
        let table = Table::new(3).unwrap();
        let entry = Entry {
            confirmed: u32::MAX - 1,
            intended: u32::MAX,
        };
        table.set(1, entry);
        let all: Vec<Entry> = (0..table.units()).map(|unit| table.entry(unit)).collect();
        assert_eq!(all, [Entry::default(), entry, Entry::default()]);
    }

    #[test]
    fn a_table_that_no_memory_holds_is_refused() {
        let error = Table::new(1 << 52).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace);
    }
}
