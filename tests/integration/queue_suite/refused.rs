//! What a lane refuses before a device sees it, and buffers that come back all the same.

use swath_engine::{AlignedBuf, Buffer, Buffers, ErrorKind, OpKind, Request, Segment};

use super::{BLOCK, DEVICE_BYTES, for_each_rig};

fn address(buffer: &Buffer) -> usize {
    buffer.as_slice().as_ptr().addr()
}

#[test]
fn buffers_come_back_in_place_on_success_and_on_error() {
    for_each_rig(|rig| {
        let piece = rig.pool.take().unwrap();
        let buffers = vec![
            Buffer::from(AlignedBuf::zeroed(2 * BLOCK).unwrap()),
            Buffer::from(piece),
        ];
        let addresses: Vec<_> = buffers.iter().map(address).collect();
        let length = 18 * BLOCK as u64;
        let beyond = DEVICE_BYTES - length + 4096;
        let mut buffers = Buffers::from(buffers);
        for (kind, offset, succeeds) in [
            (OpKind::Write, 0, true),
            (OpKind::Read, 0, true),
            (OpKind::Write, beyond, false),
            (OpKind::Read, beyond, false),
            (OpKind::Read, 1, false),
            (OpKind::Discard, 0, false),
        ] {
            let request = Request {
                kind,
                fua: false,
                buffers,
                token: 1,
            };
            let completion = rig.run(request, &[Segment::whole(0, offset, length)]);
            assert_eq!(
                completion.result.is_ok(),
                succeeds,
                "{:?}",
                completion.result
            );
            buffers = completion.buffers;
            assert_eq!(buffers.iter().map(address).collect::<Vec<_>>(), addresses);
        }
        assert_eq!(rig.pool.available(), rig.pool.count() - 1);
        drop(buffers);
        assert_eq!(rig.pool.available(), rig.pool.count());
    });
}

#[test]
fn requests_that_make_no_sense_are_refused_and_nothing_is_written() {
    for_each_rig(|rig| {
        let before = rig.read(0, 0, 4 * BLOCK);
        let block = || Buffer::from(AlignedBuf::copy_of(&[0xaa; BLOCK]).unwrap());
        let geometry = rig.devices[0].geometry().clone();
        let shared = AlignedBuf::copy_of(&[0xaa; 4 * BLOCK])
            .unwrap()
            .into_bytes();
        let odd_offset = u64::from(geometry.offset_align_bytes) / 2;
        let odd_address = geometry.memory_align_bytes as usize / 2;
        let whole = |offset, length| vec![Segment::whole(0, offset, length)];
        let cases: Vec<(&str, Request, Vec<Segment>, ErrorKind)> = vec![
            (
                "offset",
                Request::write(block(), 1),
                whole(odd_offset, 4096),
                ErrorKind::Misaligned,
            ),
            (
                "length",
                Request::write(shared.slice(..odd_offset as usize), 1),
                whole(0, odd_offset),
                ErrorKind::Misaligned,
            ),
            (
                "memory",
                Request::write(shared.slice(odd_address..odd_address + BLOCK), 1),
                whole(0, 4096),
                ErrorKind::Misaligned,
            ),
            (
                "a buffer's length in the middle",
                Request::write(
                    vec![
                        Buffer::from(shared.slice(..odd_offset as usize)),
                        Buffer::from(shared.slice(..BLOCK - odd_offset as usize)),
                    ],
                    1,
                ),
                whole(0, 4096),
                ErrorKind::Misaligned,
            ),
            (
                "over the end",
                Request::write(shared.clone(), 1),
                whole(DEVICE_BYTES - 4096, 4 * 4096),
                ErrorKind::OutOfBounds,
            ),
            (
                "beyond the end",
                Request::write(block(), 1),
                whole(DEVICE_BYTES, 4096),
                ErrorKind::OutOfBounds,
            ),
            (
                "an end that wraps",
                Request::write(block(), 1),
                whole(u64::MAX - 4095, 4096),
                ErrorKind::OutOfBounds,
            ),
            (
                "a discard beyond the end",
                Request::without_memory(OpKind::Discard, 1),
                whole(0, DEVICE_BYTES + 4096),
                ErrorKind::OutOfBounds,
            ),
            (
                "a read into shared bytes",
                Request::read(shared.slice(..BLOCK), 1),
                whole(0, 4096),
                ErrorKind::InvalidInput,
            ),
            (
                "an unknown device",
                Request::write(block(), 1),
                vec![Segment::whole(2, 0, 4096)],
                ErrorKind::InvalidInput,
            ),
            (
                "no length",
                Request::write(block(), 1),
                whole(0, 0),
                ErrorKind::InvalidInput,
            ),
            (
                "no length to discard",
                Request::without_memory(OpKind::Discard, 1),
                whole(0, 0),
                ErrorKind::InvalidInput,
            ),
            (
                "a flush of a range",
                Request::without_memory(OpKind::Flush, 1),
                whole(0, 4096),
                ErrorKind::InvalidInput,
            ),
            (
                "more memory than place",
                Request::write(shared.clone(), 1),
                whole(0, 4096),
                ErrorKind::InvalidInput,
            ),
            (
                "more place than memory",
                Request::write(block(), 1),
                whole(0, 2 * 4096),
                ErrorKind::InvalidInput,
            ),
            (
                "no place",
                Request::write(block(), 1),
                Vec::new(),
                ErrorKind::InvalidInput,
            ),
            (
                "a good segment before a bad one",
                Request::write(shared.slice(..2 * BLOCK), 1),
                vec![
                    Segment::whole(0, 0, 4096),
                    Segment {
                        device: 0,
                        offset: DEVICE_BYTES,
                        buffer_offset: 4096,
                        length: 4096,
                    },
                ],
                ErrorKind::OutOfBounds,
            ),
        ];
        for (what, request, segments, kind) in cases {
            let completion = rig.run(request, &segments);
            let error = completion.result.unwrap_err();
            assert_eq!(error.kind(), kind, "{what}: {error}");
            assert!(!error.to_string().is_empty());
        }
        assert_eq!(rig.read(0, 0, 4 * BLOCK), before);
    });
}
