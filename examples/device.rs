//! One device, one queue: write a block, make it durable, read it back.
//!
//! `cargo run -p swath-examples --example device [FILE OR DEVICE]`
//!
//! Without an argument it makes a small file. WITH one, the first 64 KiB of it are overwritten.

use std::path::PathBuf;

use swath_engine::{
    AlignedBuf, FileFill, Kernel, Lane, LaneOptions, OpKind, OpenOptions, Platform, Request,
    Segment, create_file,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir_in(".")?;
    let path = match std::env::args().nth(1) {
        Some(path) => PathBuf::from(path),
        None => {
            let path = directory.path().join("device");
            create_file(&path, 1 << 20, FileFill::Zeroes)?;
            path
        }
    };

    // Opened once, past the page cache, and locked: a second opener is told that it is in use.
    let device = Kernel.open(&path, &OpenOptions::read_write())?;
    let geometry = device.geometry();
    println!(
        "{}: {} bytes, blocks of {}, memory aligned to {}",
        path.display(),
        geometry.capacity_bytes,
        geometry.offset_align_bytes,
        geometry.memory_align_bytes
    );

    // A lane belongs to the thread that makes it: no locks, no hand-over.
    let mut lane = Lane::open(&Kernel, &[device], &LaneOptions::default())?;
    println!("queue: {}", lane.description());

    // Sixteen writes in flight at once. Each takes its buffer and gives it back when it completes.
    for number in 0..16_u8 {
        let block = AlignedBuf::copy_of(&[number; 4096])?;
        let place = Segment::whole(0, u64::from(number) * 4096, 4096);
        lane.submit(Request::write(block, u64::from(number)), &[place]);
    }
    let mut completions = Vec::new();
    lane.drain(&mut completions)?;
    for completion in completions.drain(..) {
        completion.result?;
    }

    // A flush covers the writes whose completions were seen before it.
    let flush = Request::without_memory(OpKind::Flush, 0);
    lane.call(flush, &[Segment::flush(0)])?.result?;

    let mut block = AlignedBuf::zeroed(4096)?;
    lane.read_blocking(&mut block, &[Segment::whole(0, 7 * 4096, 4096)])?;
    assert!(block.iter().all(|&byte| byte == 7));

    let writes = lane.stats().total(OpKind::Write);
    println!(
        "{} writes, {} bytes, median {} ns",
        writes.count,
        writes.bytes,
        writes.latency_ns.value_at_quantile(0.5)
    );
    Ok(())
}
