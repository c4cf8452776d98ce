//! Devices that want memory aligned to more than a block.
//!
//! What could go wrong: a short transfer that is continued at the next block, at an address that the
//! device refuses with `EINVAL`; bytes lost or moved twice where it is continued further back.

use swath_engine::{Geometry, LaneOptions, Request, Segment};
use swath_tests::sim::Fault;

use super::{BLOCK, DEVICE_BYTES, Rig, buffers, one, pattern};

/// Blocks of 512 bytes, memory aligned to 4096.
fn rig() -> Rig {
    let geometry = Geometry {
        memory_align_bytes: 4096,
        ..Geometry::uniform(DEVICE_BYTES, 512)
    };
    Rig::of(&geometry, &LaneOptions::default())
}

#[test]
fn a_short_transfer_is_continued_where_the_address_is_aligned() {
    let total = 16 * BLOCK;
    let place = [Segment::whole(0, 512, total as u64)];
    let bytes = pattern(total, 1);
    for short in (1..16).flat_map(|blocks| [blocks * 512, blocks * 512 + 1]) {
        for (vectored, repeats) in [(false, 1), (true, 1), (false, 3), (true, 3)] {
            let memory = |bytes: &[u8]| {
                if vectored {
                    buffers(bytes)
                } else {
                    vec![one(bytes)]
                }
            };
            let mut rig = rig();
            rig.platform.inject(Fault::short(short).times(repeats));
            let completion = rig.run(Request::write(memory(&bytes), 1), &place);
            assert_eq!(completion.result.unwrap(), total as u64, "short at {short}");
            assert_eq!(rig.platform.peek("m0", 512, total), bytes);

            rig.platform.heal();
            rig.platform.inject(Fault::short(short).times(repeats));
            let completion = rig.run(Request::read(memory(&vec![0; total]), 2), &place);
            assert_eq!(completion.result.unwrap(), total as u64, "short at {short}");
            let buffers = completion.buffers.iter();
            let read: Vec<u8> = buffers
                .flat_map(|buffer| buffer.as_slice().to_vec())
                .collect();
            assert_eq!(read, bytes, "short at {short}");
        }
    }
}
