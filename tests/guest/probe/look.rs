//! Short looks: facts of a device, a lane and its description, one operation, a drive that is held
//! and one that is let go of.

use std::fs;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use swath_engine::{
    AlignedBuf, Kernel, Lane, OpenOptions as DeviceOptions, Platform, QueueOptions,
};
use swath_volume::{OpenOptions, Volume};

use crate::{Result, lane_options, open_devices, outcome};

pub(crate) fn facts(paths: &[&str]) -> Result<()> {
    for device in open_devices(paths, &DeviceOptions::look())? {
        println!(
            "{}: {:?} direct={} {:?}",
            device.path().display(),
            device.kind(),
            device.is_direct(),
            device.geometry()
        );
    }
    Ok(())
}

pub(crate) fn queue(options: &QueueOptions, paths: &[&str]) -> Result<()> {
    let devices = open_devices(paths, &DeviceOptions::read_write())?;
    let lane = Lane::open(&Kernel, &devices, &lane_options(options))?;
    println!("{}", lane.description());
    Ok(())
}

pub(crate) fn hold(seconds: u64, path: &str) -> Result<()> {
    let _device = Kernel.open(path.as_ref(), &DeviceOptions::read_write())?;
    println!("held");
    thread::sleep(Duration::from_secs(seconds));
    Ok(())
}

/// One operation on an open volume, and whether it poisoned it.
pub(crate) fn at(what: &str, offset: u64, length: usize, members: &[&str]) -> Result<()> {
    let members: Vec<PathBuf> = members.iter().map(PathBuf::from).collect();
    let volume = Volume::open(&members, &OpenOptions::default())?;
    let result = match what {
        "read" => volume.read_at(&mut vec![0; length], offset),
        "write" => volume.write_at(&vec![1; length], offset),
        "flush" => volume.flush(),
        _ => return Err("read, write or flush".into()),
    };
    let is_poisoned = volume.poisoned().is_some();
    println!(
        "{what} {offset}+{length}: {}; poisoned={is_poisoned}",
        outcome(result)
    );
    Ok(())
}

/// How often, and for how long, a drive cannot be claimed after its volume has been dropped: the
/// kernel may let go of a ring's files a moment later. A second is too long.
pub(crate) fn release(options: &QueueOptions, rounds: u32, members: &[&str]) -> Result<()> {
    /// `O_EXCL`, which on a block device claims it.
    const CLAIM: i32 = 0o200;
    let (mut busy, mut longest) = (0, Duration::ZERO);
    for _ in 0..rounds {
        let volume = Volume::open(members, &OpenOptions::default())?;
        let mut lane = volume.lane(&lane_options(options))?;
        lane.read(0, AlignedBuf::zeroed(4096)?, 1);
        lane.drain(&mut Vec::new())?;
        drop((lane, volume));
        let start = Instant::now();
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).custom_flags(CLAIM);
        if options.open(members[0]).is_err() {
            busy += 1;
            while options.open(members[0]).is_err() {
                thread::sleep(Duration::from_micros(100));
            }
        }
        longest = longest.max(start.elapsed());
    }
    println!(
        "{busy} of {rounds} times busy after the drop, for {} us at most",
        longest.as_micros()
    );
    if longest < Duration::from_secs(1) {
        Ok(())
    } else {
        Err("a closed volume keeps its drives".into())
    }
}
