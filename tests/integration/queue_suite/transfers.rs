//! Bytes to a device and back, from every kind of memory, in one piece and in many.

use bytes::Bytes;
use swath_engine::{AlignedBuf, Buffer, OpKind, Request, Segment};
use swath_tests::fixtures::MIB;

use super::{BLOCK, DEPTH, DEVICE_BYTES, for_each_rig, pattern};

#[test]
fn what_is_written_at_any_offset_and_length_is_read_back() {
    for_each_rig(|rig| {
        let places = [
            (0, 0, BLOCK),
            (1, BLOCK as u64, 3 * BLOCK),
            (0, 3 * MIB, 1 << 20),
            (1, 2 * MIB + 4096, (2 << 20) + BLOCK),
            (0, DEVICE_BYTES - 4096, BLOCK),
        ];
        for (mark, (device, offset, length)) in (1..).zip(places) {
            rig.write(device, offset, &pattern(length, mark));
        }
        for (mark, (device, offset, length)) in (1..).zip(places) {
            assert_eq!(rig.read(device, offset, length), pattern(length, mark));
        }
        assert_eq!(rig.read(1, 0, BLOCK), [0; BLOCK], "a neighbour was written");
    });
}

#[test]
fn every_kind_of_memory_is_written_and_read() {
    for_each_rig(|rig| {
        let length = 16 * BLOCK;
        let bytes = pattern(length, 1);
        let mut pooled = rig.pool.take().unwrap();
        pooled.copy_from_slice(&bytes);
        let shared = AlignedBuf::copy_of(&bytes).unwrap().into_bytes();
        let owned = AlignedBuf::copy_of(&bytes).unwrap();
        let memory = [
            Buffer::from(pooled),
            Buffer::from(shared),
            Buffer::from(owned),
        ];
        for (slot, buffer) in (0_u64..).zip(memory) {
            let place = [Segment::whole(0, slot * length as u64, length as u64)];
            let completion = rig.run(Request::write(buffer, 1), &place);
            assert_eq!(completion.result.unwrap(), length as u64);
            let pooled = rig.pool.take().unwrap();
            let completion = rig.run(Request::read(pooled, 2), &place);
            assert_eq!(completion.buffers.into_one().unwrap().as_slice(), bytes);
        }
        let mut borrowed = AlignedBuf::zeroed(length).unwrap();
        let place = [Segment::whole(1, 0, length as u64)];
        rig.lane
            .write_blocking(&bytes_aligned(&bytes), true, &place)
            .unwrap();
        rig.lane.read_blocking(&mut borrowed, &place).unwrap();
        assert_eq!(&borrowed[..], bytes);
    });
}

fn bytes_aligned(bytes: &[u8]) -> AlignedBuf {
    AlignedBuf::copy_of(bytes).unwrap()
}

#[test]
fn a_part_of_a_pools_piece_moves_just_that_part() {
    for_each_rig(|rig| {
        rig.write(0, 0, &pattern(4 * BLOCK, 1));
        let mut piece = rig.pool.take().unwrap();
        piece.fill(0xee);
        piece.set_len(BLOCK);
        let completion = rig.run(Request::read(piece, 1), &[Segment::whole(0, 4096, 4096)]);
        assert_eq!(completion.result.unwrap(), 4096);
        let buffer = completion.buffers.into_one().unwrap();
        let Ok(mut piece) = swath_engine::PoolBuf::try_from(buffer) else {
            panic!("a piece")
        };
        piece.set_len(2 * BLOCK);
        assert_eq!(piece[..BLOCK], pattern(4 * BLOCK, 1)[BLOCK..2 * BLOCK]);
        assert!(
            piece[BLOCK..].iter().all(|&byte| byte == 0xee),
            "bytes beyond were touched"
        );
    });
}

#[test]
fn zeroes_are_written_just_where_asked() {
    for_each_rig(|rig| {
        let bytes = pattern(8 * BLOCK, 4);
        rig.write(0, 0, &bytes);
        if !rig.without_memory(
            OpKind::WriteZeroes,
            &[Segment::whole(0, 2 * 4096, 3 * 4096)],
        ) {
            return;
        }
        let read = rig.read(0, 0, bytes.len());
        assert_eq!(read[..2 * BLOCK], bytes[..2 * BLOCK]);
        assert!(read[2 * BLOCK..5 * BLOCK].iter().all(|&byte| byte == 0));
        assert_eq!(read[5 * BLOCK..], bytes[5 * BLOCK..]);
    });
}

#[test]
fn a_discard_leaves_its_neighbours_and_the_size_alone() {
    for_each_rig(|rig| {
        let bytes = pattern(8 * BLOCK, 5);
        rig.write(1, 0, &bytes);
        let last = DEVICE_BYTES - 4096;
        let places = [Segment::whole(1, 4096, 4096), Segment::whole(1, last, 4096)];
        if !rig.without_memory(OpKind::Discard, &places) {
            return;
        }
        let read = rig.read(1, 0, bytes.len());
        assert_eq!(read[..BLOCK], bytes[..BLOCK]);
        assert_eq!(read[2 * BLOCK..], bytes[2 * BLOCK..]);
        // What was discarded can be written and read again.
        rig.write(1, last, &bytes[..BLOCK]);
        assert_eq!(rig.read(1, last, BLOCK), bytes[..BLOCK]);
    });
}

#[test]
fn many_buffers_are_one_run_of_bytes() {
    for_each_rig(|rig| {
        let bytes = pattern(10 * BLOCK, 6);
        let mut buffers = Vec::new();
        let mut rest = &bytes[..];
        for blocks in [1, 3, 2, 4] {
            let (part, left) = rest.split_at(blocks * BLOCK);
            buffers.push(Buffer::from(AlignedBuf::copy_of(part).unwrap()));
            rest = left;
        }
        let place = [Segment::whole(0, 8192, bytes.len() as u64)];
        let completion = rig.run(Request::write(buffers, 1), &place);
        assert_eq!(completion.result.unwrap(), bytes.len() as u64);
        assert_eq!(rig.read(0, 8192, bytes.len()), bytes);

        let mut pooled = rig.pool.take().unwrap();
        pooled.set_len(5 * BLOCK);
        let buffers = vec![
            Buffer::from(AlignedBuf::zeroed(2 * BLOCK).unwrap()),
            Buffer::from(pooled),
            Buffer::from(AlignedBuf::zeroed(3 * BLOCK).unwrap()),
        ];
        let completion = rig.run(Request::read(buffers, 2), &place);
        let read: Vec<u8> = completion
            .buffers
            .iter()
            .flat_map(|buffer| buffer.as_slice().to_vec())
            .collect();
        assert_eq!(read, bytes);
    });
}

#[test]
fn segments_on_two_devices_cut_buffers_wherever_they_like() {
    for_each_rig(|rig| {
        let bytes = pattern(12 * BLOCK, 7);
        let block = BLOCK as u64;
        // Stripes of two blocks; the buffers' borders lie elsewhere.
        let segments: Vec<_> = [
            (0, 0, 0),
            (0, 2, 4),
            (0, 4, 8),
            (1, 0, 2),
            (1, 2, 6),
            (1, 4, 10),
        ]
        .map(|(device, place, from)| Segment {
            device,
            offset: 4096 + place * block,
            buffer_offset: from * block,
            length: 2 * block,
        })
        .to_vec();
        let buffers = |parts: &[usize]| -> Vec<Buffer> {
            let mut rest = &bytes[..];
            parts
                .iter()
                .map(|blocks| {
                    let (part, left) = rest.split_at(blocks * BLOCK);
                    rest = left;
                    Buffer::from(AlignedBuf::copy_of(part).unwrap())
                })
                .collect()
        };
        let completion = rig.run(Request::write(buffers(&[3, 5, 1, 3]), 1), &segments);
        assert_eq!(completion.result.unwrap(), bytes.len() as u64);
        for segment in &segments {
            let from = segment.buffer_offset as usize;
            assert_eq!(
                rig.read(segment.device, segment.offset, 2 * BLOCK),
                bytes[from..from + 2 * BLOCK]
            );
        }
        let target = AlignedBuf::zeroed(bytes.len()).unwrap();
        let completion = rig.run(Request::read(target, 2), &segments);
        assert_eq!(completion.buffers.into_one().unwrap().as_slice(), bytes);
    });
}

#[test]
fn more_pieces_of_memory_than_the_kernel_takes_are_one_request() {
    for_each_rig(|rig| {
        let count = 2100;
        let bytes = pattern(count * BLOCK, 8);
        let whole = AlignedBuf::copy_of(&bytes).unwrap().into_bytes();
        // From last to first, so that no two of them are neighbours in memory.
        let buffers: Vec<Buffer> = (0..count)
            .rev()
            .map(|index| whole.slice(index * BLOCK..(index + 1) * BLOCK).into())
            .collect();
        let place = [Segment::whole(0, 0, bytes.len() as u64)];
        let completion = rig.run(Request::write(buffers, 1), &place);
        assert_eq!(completion.result.unwrap(), bytes.len() as u64);
        assert_eq!(completion.buffers.into_vec().len(), count);

        let buffers: Vec<Buffer> = (0..count)
            .map(|_| AlignedBuf::zeroed(BLOCK).unwrap().into())
            .collect();
        let completion = rig.run(Request::read(buffers, 2), &place);
        assert_eq!(completion.result.unwrap(), bytes.len() as u64);
        for (index, buffer) in completion.buffers.iter().enumerate() {
            let from = (count - 1 - index) * BLOCK;
            assert_eq!(
                buffer.as_slice(),
                &bytes[from..from + BLOCK],
                "piece {index}"
            );
        }
    });
}

#[test]
fn one_run_of_shared_bytes_is_written_to_many_places_at_once() {
    for_each_rig(|rig| {
        let bytes: Bytes = AlignedBuf::copy_of(&pattern(BLOCK, 9))
            .unwrap()
            .into_bytes();
        for token in 0..u64::from(DEPTH) {
            let place = [Segment::whole((token % 2) as u32, token * 4096, 4096)];
            rig.lane
                .submit(Request::write(bytes.clone(), token), &place);
        }
        let mut completions = Vec::new();
        rig.lane.drain(&mut completions).unwrap();
        assert!(
            completions
                .iter()
                .all(|completion| completion.result.is_ok())
        );
        for token in 0..u64::from(DEPTH) {
            assert_eq!(rig.read((token % 2) as u32, token * 4096, BLOCK), bytes);
        }
    });
}
