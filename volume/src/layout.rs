//! The stripe map: where the bytes of a volume lie on its members. Arithmetic only, no I/O.
//!
//! RAID0. Chunks go round the members; a stripe is one chunk from each. With 3 members:
//!
//! ```text
//!            member 0   member 1   member 2
//! stripe 0   chunk 0    chunk 1    chunk 2
//! stripe 1   chunk 3    chunk 4    chunk 5
//! ```
//!
//! - [`Layout::segments`] is the one mapping function: reads, writes, discards and write-zeroes
//!   all go through it, so they cannot disagree. [`LAYOUT_RAID0`] names it on the media.
//! - Every byte of the volume lies in exactly one place, and [`Layout::logical`] leads back.
//! - A capacity is below 2^63, so sums and products of offsets that are in range cannot wrap.
//! - Nothing here divides or allocates per request: division is by a multiplication that
//!   [`Layout::new`] prepared.

use swath_engine::Segment;

use crate::error::{Error, ErrorKind, Result};

/// The number that names this layout in a superblock. Another layout gets another number; an
/// unknown one is refused.
pub const LAYOUT_RAID0: u32 = 1;

/// The most members of a volume. Half of a superblock holds the UUIDs of so many.
pub const MEMBERS_MAX: u32 = 128;

/// The chunk when none is asked for: 1 MiB. Drives reach their full bandwidth with operations of
/// this size, and a request of a few MiB already keeps several of them busy.
pub const CHUNK_BYTES_DEFAULT: u64 = 1 << 20;

/// A chunk is a multiple of this, the largest block that drives have.
pub const CHUNK_BYTES_UNIT: u64 = 4096;

/// The largest capacity: file offsets are signed.
pub(crate) const BYTES_MAX: u64 = (1 << 63) - 1;

/// The stripe map of one volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    chunk: Divisor,
    members: Divisor,
    member_count: u32,
    member_data_bytes: u64,
    capacity_bytes: u64,
}

impl Layout {
    /// The map of `members` members with `member_data_bytes` of data each, cut to whole chunks.
    ///
    /// # Errors
    ///
    /// No member or more than [`MEMBERS_MAX`]; a chunk that is zero, not a multiple of
    /// [`CHUNK_BYTES_UNIT`] or larger than a member; a capacity of 2^63 bytes or more.
    pub fn new(members: u32, chunk_bytes: u64, member_data_bytes: u64) -> Result<Self> {
        let refuse = |message: String| Err(Error::new(ErrorKind::InvalidInput, message));
        if members == 0 || members > MEMBERS_MAX {
            return refuse(format!(
                "a volume has 1 to {MEMBERS_MAX} members, not {members}"
            ));
        }
        if chunk_bytes == 0 || !chunk_bytes.is_multiple_of(CHUNK_BYTES_UNIT) {
            return refuse(format!(
                "a chunk is a multiple of {CHUNK_BYTES_UNIT} bytes, not {chunk_bytes}"
            ));
        }
        if chunk_bytes > member_data_bytes {
            return refuse(format!(
                "a chunk of {chunk_bytes} bytes does not fit into {member_data_bytes} bytes of \
                 data per member"
            ));
        }
        let member_data_bytes = member_data_bytes - member_data_bytes % chunk_bytes;
        let capacity_bytes = member_data_bytes.checked_mul(u64::from(members));
        let Some(capacity_bytes) = capacity_bytes.filter(|bytes| *bytes <= BYTES_MAX) else {
            return refuse(format!(
                "{members} members of {member_data_bytes} bytes are more than the {BYTES_MAX} \
                 bytes a volume can have"
            ));
        };
        Ok(Self {
            chunk: Divisor::new(chunk_bytes),
            members: Divisor::new(u64::from(members)),
            member_count: members,
            member_data_bytes,
            capacity_bytes,
        })
    }

    /// How many members there are.
    #[inline]
    pub const fn member_count(&self) -> u32 {
        self.member_count
    }

    /// How many bytes sit together on one member.
    #[inline]
    pub const fn chunk_bytes(&self) -> u64 {
        self.chunk.value
    }

    /// One chunk from every member.
    #[inline]
    pub const fn stripe_bytes(&self) -> u64 {
        self.chunk.value * self.members.value
    }

    /// How many bytes each member holds, whole chunks.
    #[inline]
    pub const fn member_data_bytes(&self) -> u64 {
        self.member_data_bytes
    }

    /// How many bytes the volume has.
    #[inline]
    pub const fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// Whether the range lies inside the volume.
    #[inline]
    pub const fn contains(&self, offset: u64, length: u64) -> bool {
        offset <= self.capacity_bytes && length <= self.capacity_bytes - offset
    }

    /// Refuses a range that does not lie inside the volume.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::OutOfBounds`], with the range.
    #[inline]
    pub fn check_range(&self, offset: u64, length: u64) -> Result<()> {
        if self.contains(offset, length) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::OutOfBounds,
            format!(
                "beyond the end of the volume, which has {} bytes",
                self.capacity_bytes
            ),
        )
        .with_range(offset, length))
    }

    /// The member that holds the byte at `offset`, and the byte's place in that member's data.
    ///
    /// # Panics
    ///
    /// When `offset` is not below the capacity.
    #[inline]
    pub fn locate(&self, offset: u64) -> (u32, u64) {
        assert!(
            offset < self.capacity_bytes,
            "offset {offset} lies beyond the volume"
        );
        let (chunk_index, within) = self.chunk.div_rem(offset);
        let (stripe, member) = self.members.div_rem(chunk_index);
        (as_member(member), stripe * self.chunk.value + within)
    }

    /// The byte of the volume that lies at `member_offset` of the data of `member`: the inverse of
    /// [`Layout::locate`].
    ///
    /// # Panics
    ///
    /// When there is no such member or its data ends before.
    #[inline]
    pub fn logical(&self, member: u32, member_offset: u64) -> u64 {
        assert!(member < self.member_count, "there is no member {member}");
        assert!(
            member_offset < self.member_data_bytes,
            "offset {member_offset} lies beyond a member's data"
        );
        let (stripe, within) = self.chunk.div_rem(member_offset);
        (stripe * self.members.value + u64::from(member)) * self.chunk.value + within
    }

    /// The one segment of a range that lies in one chunk, which small ranges mostly do: what
    /// [`Layout::segments`] would make of it, without a list. None for every other range.
    #[inline]
    pub fn single(&self, offset: u64, length: u64, data_offset: u64) -> Option<Segment> {
        // A volume ends where a chunk does.
        if offset >= self.capacity_bytes {
            return None;
        }
        let (chunk_index, within) = self.chunk.div_rem(offset);
        // One question for two: no length is the longest of all by this.
        if length.wrapping_sub(1) >= self.chunk.value - within {
            return None;
        }
        let (stripe, member) = self.members.div_rem(chunk_index);
        let device_offset = data_offset + stripe * self.chunk.value + within;
        Some(Segment::whole(as_member(member), device_offset, length))
    }

    /// How many segments [`Layout::segments`] makes of a range.
    #[inline]
    pub fn segment_count(&self, offset: u64, length: u64) -> u64 {
        if length == 0 {
            return 0;
        }
        if self.member_count == 1 {
            return 1;
        }
        self.chunk.div_rem(offset + (length - 1)).0 - self.chunk.div_rem(offset).0 + 1
    }

    /// Splits a range of the volume into the pieces that lie on the members.
    ///
    /// `out` is cleared first; nothing is allocated when it has room. Members' data begins at
    /// `data_offset`. Each segment is one run of memory and lies in one chunk; with a single member
    /// all chunks of a range are one run, and so one segment. Segments are grouped by member,
    /// beginning with the member that holds the first byte, then round the members; within a
    /// member they ascend and continue each other on the device, so the engine makes one operation
    /// of each group. An empty range has no segments.
    ///
    /// # Panics
    ///
    /// When the range does not lie inside the volume; see [`Layout::check_range`].
    #[inline]
    pub fn segments(&self, offset: u64, length: u64, data_offset: u64, out: &mut Vec<Segment>) {
        out.clear();
        assert!(
            self.contains(offset, length),
            "{length} bytes at offset {offset} do not lie inside the volume"
        );
        assert!(
            data_offset <= BYTES_MAX,
            "data offset {data_offset} is beyond any device"
        );
        if length == 0 {
            return;
        }
        if let Some(segment) = self.single(offset, length, data_offset) {
            out.push(segment);
            return;
        }
        let (chunk_index, within) = self.chunk.div_rem(offset);
        let (stripe, member) = self.members.div_rem(chunk_index);
        let device_offset = data_offset + stripe * self.chunk.value + within;
        if self.member_count == 1 {
            out.push(Segment::whole(as_member(member), device_offset, length));
            return;
        }
        self.segments_of_many(
            Start {
                within,
                member,
                device_offset,
            },
            length,
            out,
        );
    }

    /// Where a range lies on each member: the segments of [`Layout::segments`] with those that
    /// continue each other made one, so at most one for a member, whatever the length. For
    /// operations without memory; `buffer_offset` is 0.
    ///
    /// # Panics
    ///
    /// As [`Layout::segments`].
    pub fn extents(&self, offset: u64, length: u64, data_offset: u64, out: &mut Vec<Segment>) {
        out.clear();
        assert!(
            self.contains(offset, length),
            "{length} bytes at offset {offset} do not lie inside the volume"
        );
        assert!(
            data_offset <= BYTES_MAX,
            "data offset {data_offset} is beyond any device"
        );
        if length == 0 {
            return;
        }
        let (first_chunk, first_within) = self.chunk.div_rem(offset);
        let (last_chunk, last_within) = self.chunk.div_rem(offset + (length - 1));
        let count = self.members.value.min(last_chunk - first_chunk + 1);
        for turn in 0..count {
            // The member's first chunk of the range, and its last: a whole number of stripes on.
            let begin_chunk = first_chunk + turn;
            let stripes = self.members.div_rem(last_chunk - begin_chunk).0;
            let end_chunk = begin_chunk + stripes * self.members.value;
            let (begin_stripe, member) = self.members.div_rem(begin_chunk);
            let begin_within = if turn == 0 { first_within } else { 0 };
            let end_within = if end_chunk == last_chunk {
                last_within + 1
            } else {
                self.chunk.value
            };
            let begin = begin_stripe * self.chunk.value + begin_within;
            let end = (begin_stripe + stripes) * self.chunk.value + end_within;
            out.push(Segment::whole(
                as_member(member),
                data_offset + begin,
                end - begin,
            ));
        }
    }

    /// The general case of [`Layout::segments`]: several members, and more than one chunk.
    fn segments_of_many(&self, start: Start, length: u64, out: &mut Vec<Segment>) {
        let chunk_bytes = self.chunk.value;
        let stripe_bytes = self.stripe_bytes();
        let first_bytes = chunk_bytes - start.within;
        let stripe_offset = start.device_offset - start.within;
        for turn in 0..self.members.value {
            // Where this member's first chunk begins in the buffer. The first member begins in the
            // middle of one; those that the count wraps round to begin one stripe further down.
            let mut buffer_offset = if turn == 0 {
                0
            } else {
                first_bytes + (turn - 1) * chunk_bytes
            };
            if buffer_offset >= length {
                break;
            }
            let mut member = start.member + turn;
            let mut device_offset = if turn == 0 {
                start.device_offset
            } else {
                stripe_offset
            };
            if member >= self.members.value {
                member -= self.members.value;
                device_offset += chunk_bytes;
            }
            let mut piece_bytes = if turn == 0 { first_bytes } else { chunk_bytes };
            while buffer_offset < length {
                let piece = piece_bytes.min(length - buffer_offset);
                out.push(Segment {
                    device: as_member(member),
                    offset: device_offset,
                    buffer_offset,
                    length: piece,
                });
                device_offset += piece;
                buffer_offset += piece_bytes + (stripe_bytes - chunk_bytes);
                piece_bytes = chunk_bytes;
            }
        }
    }
}

/// Where a range begins.
#[derive(Clone, Copy)]
struct Start {
    within: u64,
    member: u64,
    device_offset: u64,
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a member's number is below MEMBERS_MAX"
)]
#[inline]
const fn as_member(member: u64) -> u32 {
    member as u32
}

/// A number to divide by, with its reciprocal.
///
/// For a divisor d let l = ceil(log2 d) and m = floor(2^(63 + l) / d) + 1, which is below 2^64.
/// Then m * d exceeds 2^(63 + l) by at most d, and so by at most 2^l, and for every n below 2^63
/// the quotient floor(n / d) is floor(n * m / 2^(63 + l)) exactly (Granlund and Montgomery,
/// "Division by invariant integers using multiplication", theorem 4.2). One multiplication serves
/// powers of two and all others alike, in a third of the time of a division.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Divisor {
    value: u64,
    reciprocal: u64,
    shift: u32,
}

impl Divisor {
    /// # Panics
    ///
    /// When `value` is 0 or above 2^63.
    fn new(value: u64) -> Self {
        assert!(value != 0 && value <= 1 << 63, "cannot divide by {value}");
        if value.is_power_of_two() {
            return Self {
                value,
                reciprocal: 0,
                shift: value.trailing_zeros(),
            };
        }
        let shift = 64 - (value - 1).leading_zeros();
        let reciprocal = (1u128 << (63 + shift)) / u128::from(value) + 1;
        let reciprocal = u64::try_from(reciprocal).expect("2^shift is less than twice the value");
        Self {
            value,
            reciprocal,
            shift,
        }
    }

    /// Quotient and remainder of a number below 2^63.
    #[inline]
    const fn div_rem(&self, number: u64) -> (u64, u64) {
        debug_assert!(number <= BYTES_MAX);
        if self.reciprocal == 0 {
            return (number >> self.shift, number & (self.value - 1));
        }
        let product = ((number << 1) as u128) * (self.reciprocal as u128);
        let quotient = ((product >> 64) as u64) >> self.shift;
        (quotient, number - quotient * self.value)
    }
}

#[cfg(test)]
mod tests;
