//! The stripe map against the plainest one there is: a division for each byte.
//!
//! What could go wrong: two bytes in one place, a byte in none, a segment that reaches over a
//! border, into a neighbour or beyond the end, operations of different kinds with different maps,
//! numbers near 2^63 that wrap.

use proptest::prelude::*;
use proptest::sample::select;
use std::sync::Arc;
use swath_engine::{AlignedBuf, Geometry, LaneOptions, OpKind, Segment};
use swath_tests::seed::check;
use swath_tests::sim::{SimPlatform, Store};
use swath_volume::{CreateOptions, Layout, MEMBERS_MAX, Volume};

const CAPACITY_MAX: u64 = (1 << 63) - 1;

/// A layout that can be, with members up to 2^63 bytes and chunks of any whole number of blocks.
fn layouts() -> impl Strategy<Value = Layout> {
    let members = prop_oneof![4 => 1..=8_u32, 1 => 1..=MEMBERS_MAX];
    let chunk_blocks = prop_oneof![
        select(vec![1_u64, 2, 16, 256, 1024]),
        1..=1024_u64,
        select(vec![3_u64, 7, 1 << 20, (1 << 40) + 1]),
    ];
    (members, chunk_blocks, any::<u64>(), 0..64_u32).prop_map(|(members, blocks, size, shift)| {
        let chunk = blocks * 4096;
        let room = CAPACITY_MAX / u64::from(members);
        let data = chunk + (size >> shift) % (room - chunk + 1);
        Layout::new(members, chunk, data).unwrap()
    })
}

/// A range of a layout: anywhere, also at its very end, over no more than some hundred chunks.
fn ranges() -> impl Strategy<Value = (Layout, u64, u64)> {
    (
        layouts(),
        any::<u64>(),
        any::<u64>(),
        0..64_u32,
        any::<bool>(),
    )
        .prop_map(|(layout, place, length, shift, ends)| {
            let capacity = layout.capacity_bytes();
            let longest = capacity.min(layout.chunk_bytes().saturating_mul(300));
            let length = (length >> shift) % (longest + 1);
            let offset = if ends {
                capacity - length
            } else {
                place % (capacity - length + 1)
            };
            (layout, offset, length)
        })
}

/// Where a byte lies, the plain way.
fn plainly(layout: &Layout, offset: u64) -> (u32, u64) {
    let members = u64::from(layout.member_count());
    let chunk = offset / layout.chunk_bytes();
    let within = offset % layout.chunk_bytes();
    (
        (chunk % members) as u32,
        chunk / members * layout.chunk_bytes() + within,
    )
}

fn segments(layout: &Layout, offset: u64, length: u64, data_offset: u64) -> Vec<Segment> {
    let mut segments = vec![Segment::flush(9)];
    layout.segments(offset, length, data_offset, &mut segments);
    segments
}

#[test]
fn every_byte_has_one_place_and_every_place_one_byte() {
    check(2_000, (layouts(), any::<u64>()), |(layout, place)| {
        let offset = place % layout.capacity_bytes();
        let (member, member_offset) = layout.locate(offset);
        prop_assert_eq!((member, member_offset), plainly(&layout, offset));
        prop_assert!(member_offset < layout.member_data_bytes());
        prop_assert_eq!(layout.logical(member, member_offset), offset);

        let member = (place % u64::from(layout.member_count())) as u32;
        let member_offset = place % layout.member_data_bytes();
        let offset = layout.logical(member, member_offset);
        prop_assert!(offset < layout.capacity_bytes());
        prop_assert_eq!(layout.locate(offset), (member, member_offset));
        Ok(())
    });
}

#[test]
fn a_small_volume_is_covered_without_gap_or_overlap() {
    for members in 1..=5 {
        let layout = Layout::new(members, 4096, 3 * 4096 + 100).unwrap();
        assert_eq!(layout.capacity_bytes(), u64::from(members) * 3 * 4096);
        let mut is_taken = vec![[false; 3 * 4096]; members as usize];
        for offset in 0..layout.capacity_bytes() {
            let (member, member_offset) = layout.locate(offset);
            let taken = &mut is_taken[member as usize][member_offset as usize];
            assert!(
                !std::mem::replace(taken, true),
                "two bytes at {member}, {member_offset}"
            );
        }
        assert!(is_taken.iter().flatten().all(|&taken| taken));
    }
}

#[test]
fn segments_are_the_range_in_order_and_nothing_else() {
    let data_offsets = select(vec![0_u64, 2 << 20, 12_288]);
    check(
        2_000,
        (ranges(), data_offsets),
        |((layout, offset, length), data_offset)| {
            let mut segments = segments(&layout, offset, length, data_offset);
            prop_assert_eq!(segments.len() as u64, layout.segment_count(offset, length));
            for segment in &segments {
                prop_assert!(segment.length > 0);
                let last = segment.length - 1;
                for within in [0, last / 2, last] {
                    let (member, place) = plainly(&layout, offset + segment.buffer_offset + within);
                    prop_assert_eq!(segment.device, member);
                    prop_assert_eq!(segment.offset + within, data_offset + place);
                }
                let end = segment.offset + segment.length;
                prop_assert!(
                    end <= data_offset + layout.member_data_bytes(),
                    "beyond the data"
                );
                if layout.member_count() > 1 {
                    let chunk = |place: u64| (place - data_offset) / layout.chunk_bytes();
                    prop_assert_eq!(
                        chunk(segment.offset),
                        chunk(end - 1),
                        "over a chunk's border"
                    );
                }
            }
            segments.sort_by_key(|segment| segment.buffer_offset);
            let mut next = 0;
            for segment in &segments {
                prop_assert_eq!(segment.buffer_offset, next);
                next += segment.length;
            }
            prop_assert_eq!(next, length);
            Ok(())
        },
    );
}

#[test]
fn segments_are_one_run_on_each_member() {
    check(2_000, ranges(), |(layout, offset, length)| {
        let segments = segments(&layout, offset, length, 2 << 20);
        let runs: Vec<_> = segments.chunk_by(Segment::is_continued_by).collect();
        let mut members: Vec<_> = runs.iter().map(|run| run[0].device).collect();
        if let Some(&first) = members.first() {
            prop_assert_eq!(
                first,
                plainly(&layout, offset).0,
                "the first byte comes first"
            );
            let round = |step: usize| (first + step as u32) % layout.member_count();
            let expected: Vec<_> = (0..members.len()).map(round).collect();
            prop_assert_eq!(&members, &expected, "then round the members");
        }
        members.sort_unstable();
        members.dedup();
        prop_assert_eq!(members.len(), runs.len(), "each member is one operation");
        for run in runs {
            for pair in run.windows(2) {
                prop_assert_eq!(pair[0].offset + pair[0].length, pair[1].offset);
                prop_assert!(pair[0].buffer_offset < pair[1].buffer_offset);
            }
        }
        Ok(())
    });
}

#[test]
fn two_halves_of_a_range_lie_where_the_whole_lies() {
    check(
        1_000,
        (ranges(), any::<u64>()),
        |((layout, offset, length), cut)| {
            let cut = cut % (length + 1);
            let bytes_on = |parts: &[Vec<Segment>]| {
                let mut total = vec![0_u64; layout.member_count() as usize];
                for segment in parts.iter().flatten() {
                    total[segment.device as usize] += segment.length;
                }
                total
            };
            let whole = segments(&layout, offset, length, 0);
            let halves = [
                segments(&layout, offset, cut, 0),
                segments(&layout, offset + cut, length - cut, 0),
            ];
            prop_assert_eq!(bytes_on(&[whole]), bytes_on(&halves));
            Ok(())
        },
    );
}

#[test]
fn a_range_is_inside_or_refused_for_any_numbers() {
    check(
        2_000,
        (layouts(), any::<u64>(), any::<u64>()),
        |(layout, offset, length)| {
            let end = u128::from(offset) + u128::from(length);
            let is_inside = end <= u128::from(layout.capacity_bytes());
            prop_assert_eq!(layout.contains(offset, length), is_inside);
            prop_assert_eq!(layout.check_range(offset, length).is_ok(), is_inside);
            Ok(())
        },
    );
}

#[test]
fn any_numbers_make_a_layout_or_an_error() {
    let number = || {
        prop_oneof![
            any::<u64>(),
            (0..64_u32, 0..3_u64)
                .prop_map(|(bit, off)| { (1_u64 << bit).wrapping_add(off).wrapping_sub(1) })
        ]
    };
    let chunk = (number(), any::<bool>())
        .prop_map(|(chunk, rounds)| if rounds { chunk & !4095 } else { chunk });
    let members = prop_oneof![0..=130_u32, any::<u32>()];
    check(
        4_000,
        (members, chunk, number()),
        |(members, chunk, data)| {
            let whole = if chunk == 0 { 0 } else { data - data % chunk };
            let capacity = u128::from(whole) * u128::from(members);
            let can_be = (1..=MEMBERS_MAX).contains(&members)
                && chunk > 0
                && chunk % 4096 == 0
                && whole > 0
                && capacity <= u128::from(CAPACITY_MAX);
            let made = Layout::new(members, chunk, data);
            prop_assert_eq!(made.is_ok(), can_be, "{:?}", made);
            if let Ok(layout) = made {
                prop_assert_eq!(u128::from(layout.capacity_bytes()), capacity);
                prop_assert_eq!(layout.member_data_bytes(), whole);
                let last = layout.capacity_bytes() - 1;
                prop_assert_eq!(layout.locate(last), plainly(&layout, last));
            }
            Ok(())
        },
    );
}

/// Reads, writes, discards and zeroes of one range, as they arrive at the devices.
#[test]
fn every_kind_of_operation_goes_to_the_same_places() {
    let cases = (
        1..=8_usize,
        select(vec![4096_u64, 12_288, 65_536]),
        any::<u64>(),
        1..=150_u64,
    );
    check(100, cases, |(members, chunk_bytes, place, blocks)| {
        let platform = SimPlatform::new(place);
        let paths: Vec<_> = (0..members).map(|index| format!("m{index}")).collect();
        for path in &paths {
            platform.add(path, Geometry::uniform(6 << 20, 4096), Store::sparse());
        }
        let options = CreateOptions {
            chunk_bytes,
            ..CreateOptions::default()
        };
        let volume = Volume::create_on(Arc::new(platform.clone()), &paths, &options).unwrap();
        let mut lane = volume.lane(&LaneOptions::default()).unwrap();
        let length = blocks * 4096;
        let offset = place % ((volume.capacity_bytes() - length) / 4096 + 1) * 4096;
        let mut places = Vec::new();
        for kind in OpKind::ALL {
            platform.take_trace();
            let memory = || AlignedBuf::zeroed(length as usize).unwrap();
            match kind {
                OpKind::Read => lane.read(offset, memory(), 1),
                OpKind::Write => lane.write(offset, memory(), 1),
                OpKind::Discard => lane.discard(offset, length, 1),
                OpKind::WriteZeroes => lane.write_zeroes(offset, length, 1),
                OpKind::Flush => continue,
            }
            lane.drain(&mut Vec::new()).unwrap();
            let mut trace: Vec<_> = platform
                .take_trace()
                .into_iter()
                .map(|op| (op.device, op.offset, op.length))
                .collect();
            trace.sort();
            places.push(trace);
        }
        prop_assert_eq!(
            places[0].iter().map(|(_, _, length)| length).sum::<u64>(),
            length
        );
        for other in &places[1..] {
            prop_assert_eq!(other, &places[0]);
        }
        Ok(())
    });
}
