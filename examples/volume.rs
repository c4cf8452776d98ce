//! One volume over four members: create, write, flush, and open it again to read.
//!
//! `cargo run -p swath-examples --example volume`

use swath_engine::{AlignedBuf, FileFill, LaneOptions, create_file};
use swath_volume::{CreateOptions, OpenOptions, Volume};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir_in(".")?;
    let members: Vec<_> = (0..4)
        .map(|number| directory.path().join(format!("member-{number}")))
        .collect();
    for member in &members {
        create_file(member, 16 << 20, FileFill::Zeroes)?;
    }

    let options = CreateOptions {
        name: "example".to_owned(),
        chunk_bytes: 64 << 10,
        ..CreateOptions::default()
    };
    let volume = Volume::create(&members, &options)?;
    println!("{} holds {} bytes", volume.name(), volume.capacity_bytes());

    // Any bytes at any offset, from any thread.
    volume.write_at(b"any bytes, at any offset", 12_345)?;

    // Or whole blocks at depth, from a lane of your own: one write over all four members here.
    let mut lane = volume.lane(&LaneOptions::default())?;
    lane.write(1 << 20, AlignedBuf::copy_of(&[42; 256 << 10])?, 1);
    let mut completions = Vec::new();
    lane.wait(1, &mut completions)?;
    for completion in completions {
        completion.result?;
    }
    drop(lane);

    // Durable on every member, or an error.
    volume.flush()?;
    drop(volume);

    // The members say where they belong: any order will do, or the directory that holds them.
    let volume = Volume::open(&[directory.path()], &OpenOptions::default())?;
    let mut text = [0; 24];
    volume.read_at(&mut text, 12_345)?;
    println!("{}", String::from_utf8_lossy(&text));
    assert_eq!(&text, b"any bytes, at any offset");
    Ok(())
}
