use super::*;

const K4: u64 = 4096;

fn layout(members: u32, chunk_bytes: u64, chunks: u64) -> Layout {
    Layout::new(members, chunk_bytes, chunk_bytes * chunks).unwrap()
}

fn segments(layout: &Layout, offset: u64, length: u64) -> Vec<Segment> {
    let mut out = Vec::new();
    layout.segments(offset, length, 1 << 21, &mut out);
    out
}

#[test]
fn reciprocals_divide_exactly() {
    let mut divisors: Vec<u64> = (1..=1024).collect();
    for bit in 1..63 {
        divisors.extend([(1 << bit) - 1, 1 << bit, (1 << bit) + 1, 3 << (bit - 1)]);
    }
    divisors.push(BYTES_MAX);
    for &value in &divisors {
        let divisor = Divisor::new(value);
        let mut numbers = vec![0, 1, BYTES_MAX, BYTES_MAX - 1, BYTES_MAX / 2];
        for multiple in [1, 2, 3, 7, BYTES_MAX / value / 2, BYTES_MAX / value] {
            if let Some(product) = value.checked_mul(multiple) {
                numbers.extend([product.saturating_sub(1), product, product + 1]);
            }
        }
        for number in numbers.into_iter().filter(|number| *number <= BYTES_MAX) {
            let expected = (number / value, number % value);
            assert_eq!(divisor.div_rem(number), expected, "{number} / {value}");
        }
    }
}

/// What needs no memory must touch the very bytes that a write would.
#[test]
fn extents_are_the_segments_with_those_that_continue_each_other_made_one() {
    for members in 1..=5 {
        let layout = layout(members, K4, 4);
        let capacity = layout.capacity_bytes();
        for offset in (0..capacity).step_by(1024) {
            for length in (0..=capacity - offset).step_by(1024) {
                let segments = segments(&layout, offset, length);
                let merged: Vec<_> = segments
                    .chunk_by(Segment::is_continued_by)
                    .map(|run| {
                        let length = run.iter().map(|segment| segment.length).sum();
                        Segment::whole(run[0].device, run[0].offset, length)
                    })
                    .collect();
                let mut extents = Vec::new();
                layout.extents(offset, length, 1 << 21, &mut extents);
                assert_eq!(extents, merged, "{members} members, {length} at {offset}");
            }
        }
    }
}

/// A wrong map would put two bytes in one place, or a byte where the inverse does not find it.
#[test]
fn every_byte_has_one_place_and_the_inverse_finds_it() {
    for members in 1..=5 {
        for chunk_bytes in [K4, 3 * K4] {
            let layout = layout(members, chunk_bytes, 3);
            let member_bytes = usize::try_from(layout.member_data_bytes()).unwrap();
            let mut seen = vec![false; member_bytes * members as usize];
            for offset in 0..layout.capacity_bytes() {
                let (member, member_offset) = layout.locate(offset);
                let place =
                    member as usize * member_bytes + usize::try_from(member_offset).unwrap();
                assert!(!seen[place], "two bytes at {member}:{member_offset}");
                seen[place] = true;
                assert_eq!(layout.logical(member, member_offset), offset);
            }
            assert!(seen.into_iter().all(|seen| seen));
        }
    }
}

/// Checks every promise of `segments` against `locate`, for every range with ends at, before
/// and behind chunk borders.
#[test]
fn segments_cover_each_range_once_in_the_promised_order() {
    for members in 1..=5 {
        for chunk_bytes in [K4, 3 * K4] {
            let layout = layout(members, chunk_bytes, 3);
            let mut ends: Vec<u64> = (0..=layout.capacity_bytes() / chunk_bytes)
                .map(|chunk| chunk * chunk_bytes)
                .flat_map(|border| [border.saturating_sub(1), border, border + 1])
                .filter(|end| *end <= layout.capacity_bytes())
                .collect();
            ends.sort_unstable();
            ends.dedup();
            for (place, &offset) in ends.iter().enumerate() {
                for &end in &ends[place..] {
                    check_segments(&layout, offset, end - offset);
                }
            }
        }
    }
}

fn check_segments(layout: &Layout, offset: u64, length: u64) {
    let segments = segments(layout, offset, length);
    assert_eq!(segments.len() as u64, layout.segment_count(offset, length));
    let mut by_buffer = segments.clone();
    by_buffer.sort_unstable_by_key(|segment| segment.buffer_offset);
    let mut next = 0;
    for segment in &by_buffer {
        assert_eq!(segment.buffer_offset, next, "{segments:?}");
        assert!(segment.length > 0);
        for byte in [0, segment.length - 1] {
            let (member, member_offset) = layout.locate(offset + next + byte);
            assert_eq!(segment.device, member);
            assert_eq!(segment.offset + byte, (1 << 21) + member_offset);
        }
        next += segment.length;
    }
    assert_eq!(next, length);

    let mut groups: Vec<u32> = segments.iter().map(|segment| segment.device).collect();
    groups.dedup();
    for (turn, member) in groups.iter().enumerate() {
        let first = u64::from(groups[0]) + turn as u64;
        assert_eq!(u64::from(*member), first % u64::from(layout.member_count()));
    }
    for pair in segments.windows(2) {
        assert!(pair[0].device != pair[1].device || pair[0].is_continued_by(&pair[1]));
    }
}

#[test]
fn one_member_has_one_segment_for_any_range() {
    let layout = layout(1, K4, 8);
    assert_eq!(
        segments(&layout, 5, 7 * K4),
        [Segment::whole(0, (1 << 21) + 5, 7 * K4)]
    );
}

#[test]
fn a_full_stripe_write_is_one_group_per_member() {
    let layout = layout(3, K4, 4);
    let found = segments(&layout, K4, 6 * K4);
    let expected: Vec<Segment> = [
        (1, 0, 0),
        (1, 1, 3),
        (2, 0, 1),
        (2, 1, 4),
        (0, 1, 2),
        (0, 2, 5),
    ]
    .map(|(device, chunk, piece)| Segment {
        device,
        offset: (1 << 21) + chunk * K4,
        buffer_offset: piece * K4,
        length: K4,
    })
    .to_vec();
    assert_eq!(found, expected);
}

#[test]
fn nothing_is_allocated_when_there_is_room() {
    let layout = layout(4, K4, 4);
    let mut out = Vec::with_capacity(16);
    let before = out.as_ptr();
    layout.segments(0, layout.capacity_bytes(), 0, &mut out);
    assert_eq!((out.len(), out.as_ptr()), (16, before));
    layout.segments(0, 0, 0, &mut out);
    assert!(out.is_empty());
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    for (members, chunk_bytes, data_bytes) in [
        (0, K4, K4),
        (MEMBERS_MAX + 1, K4, K4),
        (1, 0, K4),
        (1, 512, K4),
        (1, K4 + 512, 8 * K4),
        (1, 2 * K4, K4),
        (1, K4, 0),
        (2, K4, 1 << 62),
        (3, K4, u64::MAX),
        (128, K4, u64::MAX / 128 + K4),
        (1, 1 << 63, 1 << 63),
    ] {
        let error = Layout::new(members, chunk_bytes, data_bytes).unwrap_err();
        assert_eq!(
            error.kind(),
            ErrorKind::InvalidInput,
            "{members} {chunk_bytes}"
        );
    }
}

#[test]
fn the_largest_volume_maps_its_last_byte() {
    for members in [1, 2, 3, 7, 127, MEMBERS_MAX] {
        let most = BYTES_MAX / u64::from(members);
        let layout = Layout::new(members, 3 * K4, most).unwrap();
        let last = layout.capacity_bytes() - 1;
        let place = layout.locate(last);
        assert_eq!(place, (members - 1, layout.member_data_bytes() - 1));
        assert_eq!(layout.logical(place.0, place.1), last);
        let segments = segments(&layout, last - 1, 2);
        assert_eq!(segments.len(), 1);
    }
}

#[test]
fn a_range_beyond_the_end_is_refused() {
    let layout = layout(2, K4, 2);
    assert!(layout.check_range(4 * K4, 0).is_ok());
    assert!(layout.check_range(0, 4 * K4).is_ok());
    for (offset, length) in [(0, 4 * K4 + 1), (4 * K4, 1), (u64::MAX, 1), (1, u64::MAX)] {
        let error = layout.check_range(offset, length).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfBounds);
        assert_eq!(error.range(), Some((offset, length)));
    }
}
