//! Members that were copied and written to apart from each other are never mixed.

use std::sync::Arc;

use swath_tests::seed::Seed;
use swath_tests::sim::{Image, SimPlatform, SimWorld, Store};
use swath_volume::{CreateOptions, ErrorKind, OpenOptions, Volume};

use super::scenario::images_of;

fn platform(world: &SimWorld, images: &[Image]) -> SimPlatform {
    let platform = SimPlatform::new(1);
    for ((path, geometry), image) in world.sim().devices().iter().zip(images) {
        platform.add(path, geometry.clone(), Store::Kept(image.clone()));
    }
    platform
}

fn open(world: &SimWorld, platform: &SimPlatform, read_only: bool) -> swath_volume::Result<Volume> {
    let options = OpenOptions {
        read_only,
        ..OpenOptions::default()
    };
    Volume::open_on(Arc::new(platform.clone()), world.paths(), &options)
}

/// Both copies are opened, which gives both the same epoch, and commit: one and the same sequence
/// with two contents. Every mix of the members of both is refused, and left as it is.
#[test]
fn two_histories_of_one_epoch_are_a_fork() {
    let seed = Seed::new();
    for members in 2..=3 {
        let world = SimWorld::new(seed.value(), members, 5 << 20);
        let options = CreateOptions {
            chunk_bytes: 4096,
            ..CreateOptions::default()
        };
        let volume = Volume::create_on(world.platform(), world.paths(), &options).unwrap();
        volume.commit_root(b"common").unwrap();
        drop(volume);
        let common = images_of(world.sim(), world.paths());
        let copy = |words: &[u8], commits: usize| {
            let platform = platform(&world, &common);
            let volume = open(&world, &platform, false).unwrap();
            for _ in 0..commits {
                volume.commit_root(words).unwrap();
            }
            images_of(&platform, world.paths())
        };
        for (ours, theirs) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
            let (ours, theirs) = (copy(b"ours", ours), copy(b"theirs", theirs));
            for mix in 1..(1 << members) - 1 {
                let pick = |member: usize| {
                    let side = if mix >> member & 1 == 1 {
                        &theirs
                    } else {
                        &ours
                    };
                    side[member].clone()
                };
                let images: Vec<_> = (0..members).map(pick).collect();
                for read_only in [false, true] {
                    let platform = platform(&world, &images);
                    let error = open(&world, &platform, read_only).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::Damaged, "{error:?}");
                    assert!(error.to_string().contains("one history"), "{error}");
                    let after = images_of(&platform, world.paths());
                    assert_eq!(after, images);
                }
            }
            for images in [ours, theirs] {
                open(&world, &platform(&world, &images), false).unwrap();
            }
        }
    }
}
