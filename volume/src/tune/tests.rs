//! What is chosen for given rates, without a drive.

use super::*;

const MIB: u64 = 1 << 20;
const KIB: u64 = 1 << 10;

/// 1 MiB at depths 1, 2, 4 and so on, with these rates.
fn curve(rates: &[f64]) -> Vec<Tried> {
    (0..)
        .zip(rates)
        .map(|(step, &bytes_per_s)| Tried {
            transfer_bytes: MIB,
            depth: 1 << step,
            bytes_per_s,
        })
        .collect()
}

#[track_caller]
fn chosen_depth(rates: &[f64]) -> u32 {
    choose(&curve(rates), TOLERANCE).unwrap().depth
}

#[test]
fn the_knee_of_a_curve_that_saturates_is_taken() {
    assert_eq!(chosen_depth(&[500.0, 900.0, 1900.0, 1980.0, 2000.0]), 4);
    // Never flat: the deepest is the only one near the best.
    assert_eq!(chosen_depth(&[100.0, 200.0, 400.0, 800.0]), 8);
}

#[test]
fn noise_within_the_tolerance_does_not_lead_deeper() {
    assert_eq!(chosen_depth(&[600.0, 1960.0, 2000.0, 1950.0, 1990.0]), 2);
    assert_eq!(chosen_depth(&[1000.0, 1010.0, 990.0, 1049.0]), 1);
}

#[test]
fn a_drop_behind_the_peak_is_left_alone() {
    assert_eq!(chosen_depth(&[400.0, 1000.0, 1500.0, 900.0, 700.0]), 4);
    assert_eq!(chosen_depth(&[1500.0, 1000.0, 700.0]), 1);
}

#[test]
fn one_setting_is_chosen_and_none_of_none() {
    assert_eq!(chosen_depth(&[5.0]), 1);
    // A probe that saw nothing complete still has to say something.
    assert_eq!(chosen_depth(&[0.0, 0.0]), 1);
    assert_eq!(choose(&[], TOLERANCE), None);
}

#[test]
fn of_sizes_the_least_in_flight_and_then_the_fewest_requests() {
    let tried = |transfer_bytes, depth, bytes_per_s| Tried {
        transfer_bytes,
        depth,
        bytes_per_s,
    };
    let rates = [
        tried(128 * KIB, 8, 700.0),
        tried(512 * KIB, 4, 980.0),
        tried(256 * KIB, 8, 985.0),
        tried(MIB, 4, 1000.0),
        tried(2 * MIB, 1, 970.0),
    ];
    assert_eq!(choose(&rates, TOLERANCE), Some(rates[4]));
    assert_eq!(choose(&rates[..4], TOLERANCE), Some(rates[1]));
    // The order in which they were tried does not matter.
    let mut backwards = rates;
    backwards.reverse();
    assert_eq!(choose(&backwards, TOLERANCE), Some(rates[4]));
}

#[test]
fn one_slow_round_is_not_the_middle_one() {
    assert_eq!(middle(vec![100.0, 2.0, 98.0]), 98.0);
    assert_eq!(middle(vec![3.0, 1.0]), 1.0);
    assert_eq!(middle(Vec::new()), 0.0);
}

#[test]
fn candidates_suit_the_layout_and_the_members() {
    let layout = Layout::new(4, MIB, 1 << 30).unwrap();
    let large = Candidates::large(&layout, 4096, Some(1280 * KIB));
    let sizes: Vec<_> = large.iter().map(|one| one.transfer_bytes).collect();
    assert_eq!(sizes, LARGE_BYTES, "2 MiB are two parts of a chunk each");
    assert_eq!(large[3].depths, [4, 8, 16, 32]);
    assert_eq!(large[4].depths, [4, 8, 16, 32]);
    let wide = Layout::new(4, 4 * MIB, 1 << 30).unwrap();
    let large = Candidates::large(&wide, 4096, Some(1280 * KIB));
    assert_eq!(large.last().unwrap().transfer_bytes, MIB);
    assert_eq!(
        Candidates::small(&layout, 512).depths,
        [4, 16, 64, 128, 256]
    );
    assert_eq!(Candidates::small(&layout, 4096).transfer_bytes, 4096);
}

#[test]
fn any_volume_has_candidates_within_bounds() {
    for members in [1, 2, 24, 128] {
        for chunk_bytes in [4 * KIB, 64 * KIB, MIB, 64 * MIB] {
            for chunks in [1, 3, 1000] {
                let layout = Layout::new(members, chunk_bytes, chunks * chunk_bytes).unwrap();
                for max in [None, Some(4096), Some(512 * KIB)] {
                    let mut all = Candidates::large(&layout, 4096, max);
                    all.push(Candidates::small(&layout, 4096));
                    for one in all {
                        assert!(one.transfer_bytes > 0 && !one.depths.is_empty());
                        assert!(one.transfer_bytes.is_multiple_of(4096));
                        assert!(one.transfer_bytes <= layout.capacity_bytes());
                        assert!(one.depths.is_sorted());
                        assert!(
                            one.depths
                                .iter()
                                .all(|&depth| (1..=DEPTH_MAX).contains(&depth))
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn a_request_over_several_chunks_counts_on_each_member() {
    let layout = Layout::new(4, 256 * KIB, 64 * MIB).unwrap();
    let tried = |transfer_bytes, depth| Tried {
        transfer_bytes,
        depth,
        bytes_per_s: 1.0,
    };
    assert_eq!(depth_per_member(&layout, tried(256 * KIB, 8)), 2);
    assert_eq!(depth_per_member(&layout, tried(512 * KIB, 8)), 4);
    assert_eq!(depth_per_member(&layout, tried(2 * MIB, 8)), 8);
    assert_eq!(depth_per_member(&layout, tried(4096, 1)), 1);
    assert_eq!((batch(1), batch(64), batch(1024)), (1, 16, 32));
}
