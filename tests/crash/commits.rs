//! Two commits, crashed at every moment, and their recoveries, crashed at every moment.

use std::env;

use swath_tests::seed::Seed;

use super::explore::{Count, Depth, explore};
use super::plan::Reach;
use super::scenario::{Kind, Scenario};

const EVERYTHING: u64 = u64::MAX;

/// The kinds of members, and how many: 1 to 3, with blocks of 512 and of 4096 bytes, which tear
/// between these or within; with rings of root records that have gone round, or have not.
fn kinds() -> Vec<Kind> {
    let mut kinds = Vec::new();
    for members in 1..=3 {
        for (block_bytes, tear_bytes, rings_are_full) in [
            (512, 512, true),
            (512, 512, false),
            (4096, 4096, true),
            (4096, 512, true),
        ] {
            kinds.push(Kind {
                members,
                block_bytes,
                tear_bytes,
                rings_are_full,
            });
        }
    }
    kinds
}

/// What a full run looks at.
fn full(kind: &Kind) -> Vec<Depth> {
    let is_main = kind.block_bytes == 512 && kind.rings_are_full;
    let commits = Depth {
        reach: Reach {
            // Every subset of index and catalog, and of the root records of one or two members.
            all_up_to: if is_main { 16 } else { 8 },
            in_turn: true,
            classes: if kind.members == 3 { 5 } else { 7 },
        },
        sample: EVERYTHING,
        deeper_classes: if kind.members == 1 { 6 } else { 3 },
        deeper_one_in: 1,
    };
    let recoveries = Depth {
        reach: Reach {
            all_up_to: 8,
            in_turn: is_main && kind.members < 3,
            classes: 3,
        },
        sample: EVERYTHING,
        deeper_classes: 3,
        deeper_one_in: [1, 1, 1, 10][kind.members],
    };
    let their_recoveries = Depth {
        reach: Reach {
            all_up_to: 8,
            in_turn: false,
            classes: 3,
        },
        sample: EVERYTHING,
        deeper_classes: 0,
        deeper_one_in: 1,
    };
    vec![commits, recoveries, their_recoveries]
}

/// The same moments, and few states of each.
fn sample(kind: &Kind) -> Vec<Depth> {
    let mut depths = full(kind);
    for (depth, (states, one_in)) in depths.iter_mut().zip([(80, 2), (8, 8), (4, 1)]) {
        depth.sample = states;
        depth.deeper_one_in = one_in;
    }
    depths
}

#[test]
fn a_crash_leaves_the_last_commit_or_the_one_under_way() {
    let is_full = match env::var("SWATH_CRASH_STATES") {
        Ok(value) if value == "full" => true,
        Ok(value) => panic!("SWATH_CRASH_STATES={value}: it can be `full`"),
        Err(_) => false,
    };
    let seed = Seed::new();
    let mut total = 0;
    let mut seconds = 0.0;
    for kind in kinds() {
        let scenario = Scenario::record(kind, &seed);
        let depths = if is_full { full(&kind) } else { sample(&kind) };
        let count: Count =
            explore(&scenario, &depths).unwrap_or_else(|failure| panic!("{failure}"));
        println!(
            "{} members, blocks of {}, torn at {}, rings {}: {count}",
            kind.members,
            kind.block_bytes,
            kind.tear_bytes,
            if kind.rings_are_full { "full" } else { "new" },
        );
        total += count.total();
        seconds += count.took.as_secs_f64();
    }
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = total as f64 / seconds;
    println!("{total} distinct crash states in {seconds:.1} s: {rate:.0}/s");
    if is_full {
        assert!(total >= 1_000_000, "{total} states");
    }
}
