//! Bytes to numbers and back, little-endian, and the envelope every blob on media wears.
//!
//! - [`Cursor`] reads bytes that nobody has vouched for. A length is compared with what is left and
//!   with the most its field may have before anything is allocated, so no allocation is larger than
//!   a small multiple of the input.
//! - [`open`] believes nothing in a blob before its length and its checksum are right, and says
//!   "newer version" only of a blob that is intact.
//! - The checksum stands at the head and not at the end: a CRC-32 taken over bytes and then their
//!   own CRC-32 is one and the same number for all bytes, and could not tell two blobs apart. Who
//!   points to a blob keeps its checksum as well, so that an older blob of the same place, intact
//!   as it is, is not taken for the one meant.
//!
//! The envelope; its fields have this place in every version to come:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic: what kind of blob this is |
//! | 8 | 4 | version |
//! | 12 | 4 | CRC-32 of all other bytes: 0 to 12, then 16 to the end |
//! | 16 | 8 | length of the blob, envelope included |
//! | 24 | | body |

use uuid::Uuid;

use crate::error::{Error, ErrorKind, Result};

/// How many bytes stand before the body.
pub(crate) const ENVELOPE_BYTES: usize = 24;

/// The most bytes a blob may have: the checksums of 4 PiB of data.
pub const BLOB_BYTES_MAX: u64 = 1 << 34;

const CHECKSUM_AT: usize = 12;
const LENGTH_AT: usize = 16;

/// Begins a blob of about `body_bytes`; [`seal`] ends it.
pub(crate) fn begin(magic: [u8; 8], version: u32, body_bytes: usize) -> Writer {
    let mut writer = Writer(Vec::with_capacity(ENVELOPE_BYTES + body_bytes));
    writer.bytes(&magic);
    writer.u32(version);
    writer.u32(0);
    writer.u64(0);
    writer
}

/// Fills in the length and the checksum.
pub(crate) fn seal(writer: Writer) -> Vec<u8> {
    let mut blob = writer.0;
    let length = blob.len() as u64;
    assert!(length <= BLOB_BYTES_MAX, "a blob of {length} bytes");
    blob[LENGTH_AT..ENVELOPE_BYTES].copy_from_slice(&length.to_le_bytes());
    let checksum = checksum_over(&blob);
    blob[CHECKSUM_AT..LENGTH_AT].copy_from_slice(&checksum.to_le_bytes());
    blob
}

/// The body of a blob of this kind and version. `what` names it in errors.
pub(crate) fn open<'a>(
    what: &'static str,
    magic: [u8; 8],
    version: u32,
    blob: &'a [u8],
) -> Result<Cursor<'a>> {
    let mut cursor = Cursor::new(what, blob);
    if cursor.array::<8>()? != magic {
        return Err(cursor.damaged("what stands there is something else"));
    }
    let found = cursor.u32()?;
    let checksum = cursor.u32()?;
    let length = cursor.u64()?;
    if length != blob.len() as u64 {
        return Err(cursor.damaged(format_args!(
            "it says it has {length} bytes, and {} were read",
            blob.len()
        )));
    }
    if checksum != checksum_over(blob) {
        return Err(cursor.damaged("checksum mismatch"));
    }
    if found != version {
        return Err(unsupported_version(what, found, version));
    }
    Ok(cursor)
}

/// The checksum a blob says it has; nothing is checked.
pub(crate) fn stated_checksum(blob: &[u8]) -> Option<u32> {
    let bytes = blob.get(CHECKSUM_AT..LENGTH_AT)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn checksum_over(blob: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&blob[..CHECKSUM_AT]);
    hasher.update(&blob[LENGTH_AT..]);
    hasher.finalize()
}

/// The error for what a newer program wrote.
pub(crate) fn unsupported_version(what: &str, found: u32, known: u32) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("the {what} has version {found}, and this program knows version {known}"),
    )
}

/// Appends to a growing blob.
#[derive(Debug)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    /// A writer without an envelope.
    pub(crate) fn bare() -> Self {
        Self(Vec::new())
    }

    /// What was written, without an envelope.
    pub(crate) fn into_bare(self) -> Vec<u8> {
        self.0
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    pub(crate) fn uuid(&mut self, value: Uuid) {
        self.bytes(value.as_bytes());
    }

    /// A length or a count in 32 bits.
    ///
    /// # Panics
    ///
    /// When it does not fit; what is written has been checked against far smaller limits.
    pub(crate) fn count(&mut self, count: usize) {
        let count = u32::try_from(count).expect("a count on media has 32 bits");
        self.u32(count);
    }

    /// Zeroes up to a multiple of eight bytes from the start of the blob.
    pub(crate) fn pad(&mut self) {
        self.0.resize(self.0.len().next_multiple_of(8), 0);
    }
}

/// Reads from the front of bytes that may say anything.
#[derive(Debug)]
pub(crate) struct Cursor<'a> {
    what: &'static str,
    whole_bytes: usize,
    left: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// A cursor over `bytes`; `what` names them in errors.
    pub(crate) fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self {
            what,
            whole_bytes: bytes.len(),
            left: bytes,
        }
    }

    /// Damage right here.
    pub(crate) fn damaged(&self, reason: impl std::fmt::Display) -> Error {
        let at = self.whole_bytes - self.left.len();
        Error::damaged(format!("the {}, near byte {at}: {reason}", self.what))
    }

    /// The next `length` bytes, borrowed.
    pub(crate) fn bytes(&mut self, length: usize) -> Result<&'a [u8]> {
        let Some((bytes, left)) = self.left.split_at_checked(length) else {
            return Err(self.damaged(format_args!(
                "{length} bytes wanted, {} left",
                self.left.len()
            )));
        };
        self.left = left;
        Ok(bytes)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N)?);
        Ok(array)
    }

    pub(crate) fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn uuid(&mut self) -> Result<Uuid> {
        Ok(Uuid::from_bytes(self.array()?))
    }

    /// A count of things that each take at least `item_bytes` of what is left, and of which there
    /// are at most `most`. A vector of so many may be allocated.
    pub(crate) fn count(&mut self, most: usize, item_bytes: usize) -> Result<usize> {
        let count = self.u32()?;
        self.believe(u64::from(count), most, item_bytes)
    }

    /// As [`Cursor::count`], for a count that has been read already.
    pub(crate) fn believe(&self, count: u64, most: usize, item_bytes: usize) -> Result<usize> {
        let fits = usize::try_from(count).ok().filter(|count| {
            let bytes = count.checked_mul(item_bytes);
            *count <= most && bytes.is_some_and(|bytes| bytes <= self.left.len())
        });
        fits.ok_or_else(|| {
            self.damaged(format_args!(
                "a count of {count} with {} bytes left and at most {most} allowed",
                self.left.len()
            ))
        })
    }

    /// `count` values of `N` bytes each, a number that the cursor was asked to believe. Much faster
    /// than one by one: the length is checked once, and the vector has its size at once.
    pub(crate) fn list<const N: usize, T>(
        &mut self,
        count: usize,
        value: impl Fn(&[u8; N]) -> T,
    ) -> Result<Vec<T>> {
        let bytes = count.saturating_mul(N);
        let (chunks, _) = self.bytes(bytes)?.as_chunks::<N>();
        Ok(chunks.iter().map(value).collect())
    }

    /// UTF-8 of `length` bytes.
    pub(crate) fn text(&mut self, length: usize) -> Result<String> {
        let bytes = self.bytes(length)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(self.damaged("a text is not UTF-8")),
        }
    }

    /// Zeroes up to a multiple of eight bytes from the start of the blob; anything else is damage.
    pub(crate) fn pad(&mut self) -> Result<()> {
        let at = self.whole_bytes - self.left.len();
        let padding = self.bytes(at.next_multiple_of(8) - at)?;
        if padding.iter().all(|byte| *byte == 0) {
            Ok(())
        } else {
            Err(self.damaged("padding is not zero"))
        }
    }

    /// Zero in a field kept for later.
    pub(crate) fn reserved_u32(&mut self) -> Result<()> {
        match self.u32()? {
            0 => Ok(()),
            _ => Err(self.damaged("padding is not zero")),
        }
    }

    /// Checks that nothing is left.
    pub(crate) fn finish(self) -> Result<()> {
        if self.left.is_empty() {
            Ok(())
        } else {
            Err(self.damaged(format_args!("{} bytes too many", self.left.len())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAGIC: [u8; 8] = *b"SWTESTS\n";

    fn blob(body: &[u8]) -> Vec<u8> {
        let mut writer = begin(MAGIC, 1, body.len());
        writer.bytes(body);
        seal(writer)
    }

    #[test]
    fn every_bit_flip_and_every_cut_is_damage() {
        let mut blob = blob(b"a body of some bytes");
        for bit in 0..blob.len() * 8 {
            blob[bit / 8] ^= 1 << (bit % 8);
            let error = open("test", MAGIC, 1, &blob).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Damaged, "bit {bit}");
            blob[bit / 8] ^= 1 << (bit % 8);
        }
        for length in 0..blob.len() {
            let error = open("test", MAGIC, 1, &blob[..length]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Damaged, "{length} bytes");
        }
        blob.push(0);
        assert!(open("test", MAGIC, 1, &blob).is_err());
    }

    #[test]
    fn a_newer_version_is_unsupported_when_it_is_intact() {
        let error = open("test", MAGIC, 2, &blob(b"")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert_eq!(
            error.to_string(),
            "the test has version 1, and this program knows version 2"
        );
    }

    /// With the checksum at the end, the checksum of the whole would not depend on the body.
    #[test]
    fn blobs_of_other_bodies_have_other_checksums() {
        let (a, b) = (blob(b"one body"), blob(b"2nd body"));
        assert_ne!(stated_checksum(&a), stated_checksum(&b));
        assert_ne!(crc32fast::hash(&a), crc32fast::hash(&b));
        assert_eq!(stated_checksum(&[0; 15]), None);
    }

    #[test]
    fn counts_are_held_against_what_is_left() {
        let mut writer = Writer::bare();
        writer.u32(3);
        writer.bytes(&[0; 24]);
        let bytes = writer.into_bare();
        let count = |most, item| Cursor::new("test", &bytes).count(most, item);
        assert_eq!(count(3, 8).unwrap(), 3);
        assert!(count(2, 8).is_err());
        assert!(count(3, 9).is_err());
        assert!(count(3, usize::MAX).is_err());
        let mut huge = [0xff; 64];
        huge[60..].fill(0);
        assert!(Cursor::new("test", &huge).count(usize::MAX, 1).is_err());
    }

    #[test]
    fn padding_and_text_are_checked() {
        let mut cursor = Cursor::new("test", b"abc\0\0\0\0\0");
        assert_eq!(cursor.text(3).unwrap(), "abc");
        cursor.pad().unwrap();
        cursor.pad().unwrap();
        cursor.finish().unwrap();
        let mut cursor = Cursor::new("test", b"abc\0\0\0\0\x01");
        cursor.bytes(3).unwrap();
        assert!(cursor.pad().is_err());
        assert!(Cursor::new("test", b"\xff").text(1).is_err());
        let error = Cursor::new("test", b"ab").finish().unwrap_err();
        assert_eq!(error.to_string(), "the test, near byte 0: 2 bytes too many");
    }
}
