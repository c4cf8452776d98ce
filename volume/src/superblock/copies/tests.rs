//! What could go wrong: a crash, rot, an old copy or a wrong set of devices leads to a mix of two
//! generations, to the loss of an acknowledged one, or to a volume that does not open although it
//! could. The rule is small enough to try everything: all states of all copies of up to three
//! members, then the same through whole superblocks.

use super::super::{encode, fixtures};
use super::*;
use crate::superblock::decode;
use uuid::Uuid;

const OLD: u64 = 4;
const NEW: u64 = 5;

/// Calls `visit` with every way to choose one of `options` for each place of `places`.
fn for_each_choice<T: Copy>(places: usize, options: &[T], mut visit: impl FnMut(&[T])) {
    let count = options.len().pow(u32::try_from(places).unwrap());
    for number in 0..count {
        let mut rest = number;
        let choice: Vec<T> = (0..places)
            .map(|_| {
                let option = options[rest % options.len()];
                rest /= options.len();
                option
            })
            .collect();
        visit(&choice);
    }
}

/// Calls `visit` with `before` and every subset of the writes to `copies` of all members done,
/// torn or not done.
fn for_each_crash(
    before: &[Generations],
    copies: [usize; 2],
    generation: u64,
    mut visit: impl FnMut(&[Generations]),
) {
    let writes: Vec<(usize, usize)> = (0..before.len())
        .flat_map(|member| copies.map(|copy| (member, copy)))
        .filter(|(member, copy)| before[*member][*copy] != Some(generation))
        .collect();
    for_each_choice(writes.len(), &['-', 'x', '~'], |choice| {
        let mut state = before.to_vec();
        for (&(member, copy), what) in writes.iter().zip(choice) {
            match what {
                'x' => state[member][copy] = Some(generation),
                '~' => state[member][copy] = None,
                _ => {}
            }
        }
        visit(&state);
    });
}

fn with_copies(before: &[Generations], copies: [usize; 2], generation: u64) -> Vec<Generations> {
    let mut state = before.to_vec();
    for member in &mut state {
        for copy in copies {
            member[copy] = Some(generation);
        }
    }
    state
}

fn generation_of(decision: &Decision) -> Option<u64> {
    match decision {
        Decision::Forward(generation) | Decision::Back(generation) => Some(*generation),
        Decision::Stale { .. } => None,
    }
}

/// Every state a crash during an update can leave; the flag says whether step 1 was flushed.
fn for_each_crashed_update(members: usize, mut visit: impl FnMut(&[Generations], bool)) {
    let before = vec![[Some(OLD); COPY_COUNT]; members];
    for_each_crash(&before, UPDATE_STEPS[0], NEW, |state| visit(state, false));
    let between = with_copies(&before, UPDATE_STEPS[0], NEW);
    for_each_crash(&between, UPDATE_STEPS[1], NEW, |state| visit(state, true));
}

#[test]
fn every_crash_of_an_update_opens_at_one_of_its_two_generations() {
    for members in 1..=4 {
        for_each_crashed_update(members, |state, step_1_flushed| {
            let decision = decide(state);
            if step_1_flushed {
                assert_eq!(decision, Decision::Forward(NEW), "{state:?}");
            } else {
                assert!(generation_of(&decision).is_some(), "{state:?}");
            }
        });
    }
}

#[test]
fn one_damaged_copy_on_each_member_never_makes_a_refusal() {
    let none = COPY_COUNT;
    for members in 1..=3 {
        for_each_crashed_update(members, |state, step_1_flushed| {
            for_each_choice(members, &[0, 1, 2, 3, none], |damaged| {
                let mut state = state.to_vec();
                for (member, &copy) in state.iter_mut().zip(damaged) {
                    if copy != none {
                        member[copy] = None;
                    }
                }
                let generation = generation_of(&decide(&state));
                if step_1_flushed {
                    assert_eq!(generation, Some(NEW), "{state:?}");
                } else {
                    assert!(generation.is_some(), "{state:?}");
                }
            });
        });
    }
}

/// All the ways to damage copies of members that leave each one good copy.
fn for_each_damage(before: &[Generations], mut visit: impl FnMut(&[Generations])) {
    let kept: Vec<u32> = (1..1 << COPY_COUNT).collect();
    for_each_choice(before.len(), &kept, |kept| {
        let mut state = before.to_vec();
        for (member, kept) in state.iter_mut().zip(kept) {
            for (copy, generation) in member.iter_mut().enumerate() {
                if kept & (1 << copy) == 0 {
                    *generation = None;
                }
            }
        }
        visit(&state);
    });
}

#[test]
fn no_damage_takes_an_acknowledged_update_back() {
    for members in 1..=3 {
        for_each_damage(&vec![[Some(NEW); COPY_COUNT]; members], |state| {
            assert_eq!(decide(state), Decision::Forward(NEW), "{state:?}");
        });
    }
}

#[test]
fn an_old_copy_beside_an_acknowledged_update_is_refused_whatever_is_damaged() {
    for members in 2..=3 {
        for old_copies in 1..(1_u32 << members) - 1 {
            for old_generation in [OLD, OLD - 1] {
                let state: Vec<Generations> = (0..members)
                    .map(|member| {
                        let is_old = old_copies & (1 << member) != 0;
                        [Some(if is_old { old_generation } else { NEW }); COPY_COUNT]
                    })
                    .collect();
                for_each_damage(&state, |state| match decide(state) {
                    Decision::Stale { newest, behind } => {
                        assert_eq!(newest, NEW);
                        let bits: u32 = behind.iter().map(|member| 1 << member).sum();
                        assert_eq!(bits, old_copies);
                    }
                    other => panic!("{other:?} of {state:?}"),
                });
            }
        }
    }
}

#[test]
fn an_old_copy_is_refused_once_the_second_step_of_an_update_began() {
    let old = [Some(OLD); COPY_COUNT];
    for_each_crashed_update(2, |state, step_1_flushed| {
        let began = state
            .iter()
            .any(|member| member[1] == Some(NEW) || member[3] == Some(NEW));
        if step_1_flushed && began {
            let state = [state[0], state[1], old];
            assert!(matches!(decide(&state), Decision::Stale { behind, .. } if behind == [2]));
        }
    });
}

/// A volume that opens must still open, at the same generation, after a crash at any write of the
/// healing. Every state of two members that opens at all is tried, so crashes of the healing after
/// a crash of the healing are covered too.
#[test]
fn every_crash_of_healing_opens_at_the_same_generation() {
    let mut healed_back_from_the_second_step = false;
    for_each_choice(2 * COPY_COUNT, &[Some(OLD), Some(NEW), None], |copies| {
        let state: Vec<Generations> = copies
            .chunks(COPY_COUNT)
            .map(|member| member.try_into().unwrap())
            .collect();
        if state
            .iter()
            .any(|member| member.iter().all(Option::is_none))
        {
            return;
        }
        let decision = decide(&state);
        let Some(generation) = generation_of(&decision) else {
            return;
        };
        let mut steps = UPDATE_STEPS;
        if matches!(decision, Decision::Back(_)) {
            steps.reverse();
            healed_back_from_the_second_step |= state[0][1] == Some(NEW);
        }
        for_each_crash(&state, steps[0], generation, |crashed| {
            assert_eq!(
                generation_of(&decide(crashed)),
                Some(generation),
                "{state:?} {crashed:?}"
            );
        });
        let between = with_copies(&state, steps[0], generation);
        for_each_crash(&between, steps[1], generation, |crashed| {
            assert_eq!(
                generation_of(&decide(crashed)),
                Some(generation),
                "{state:?} {crashed:?}"
            );
        });
    });
    assert!(
        healed_back_from_the_second_step,
        "the case that needs the opposite order is reached"
    );
}

// From here on with whole superblocks, as they come from the media.

fn candidates(volume: u128, generations: &[Generations]) -> Vec<Candidate> {
    let members = u32::try_from(generations.len()).unwrap();
    (0..generations.len())
        .map(|index| {
            let copies = std::array::from_fn(|copy| match generations[index][copy] {
                Some(generation) => {
                    let superblock = fixtures::volume(volume, members, generation).remove(index);
                    let offset = MemberMap::new(superblock.device_bytes)
                        .unwrap()
                        .copy_offset(copy);
                    let block = encode(&superblock, u32::try_from(copy).unwrap(), offset);
                    decode(&block, offset).map_err(CopyFault::Decode)
                }
                None => Err(DecodeError::Checksum.into()),
            });
            Candidate {
                path: PathBuf::from(format!("/dev/{volume}-{index}")),
                device_bytes: fixtures::DEVICE_BYTES,
                copies,
            }
        })
        .collect()
}

fn healthy(volume: u128, members: usize) -> Vec<Candidate> {
    candidates(volume, &vec![[Some(NEW); COPY_COUNT]; members])
}

fn permutations(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    permutations(count - 1)
        .into_iter()
        .flat_map(|shorter| {
            (0..count).map(move |place| {
                let mut longer = shorter.clone();
                longer.insert(place, count - 1);
                longer
            })
        })
        .collect()
}

fn refusal(candidates: &[Candidate]) -> (ErrorKind, String, Vec<String>) {
    let error = assemble(candidates).unwrap_err();
    let paths = error
        .paths()
        .map(|path| path.display().to_string())
        .collect();
    (error.kind(), error.to_string(), paths)
}

#[test]
fn members_in_any_order_find_their_places() {
    for members in 1..=5 {
        let sorted = healthy(1, members);
        for permutation in permutations(members) {
            let given: Vec<Candidate> = permutation
                .iter()
                .map(|&index| sorted[index].clone())
                .collect();
            let assembly = assemble(&given).unwrap();
            for (index, superblock) in (0_u32..).zip(&assembly.superblocks) {
                assert_eq!(superblock.member_index, index);
                assert_eq!(permutation[assembly.order[index as usize]], index as usize);
            }
            assert_eq!(assembly.superblocks.len(), members);
            assert_eq!(assembly.generation(), NEW);
            assert_eq!(assembly.unknown_ro_compat, 0);
            assert!(assembly.heal.is_empty());
        }
    }
}

#[test]
fn every_missing_subset_is_refused_and_named() {
    for members in 2..=5 {
        let whole = healthy(1, members);
        for given in 1..(1_u32 << members) - 1 {
            let is_given = |index: &usize| given & (1 << index) != 0;
            let subset: Vec<Candidate> = (0..members)
                .filter(is_given)
                .map(|index| whole[index].clone())
                .collect();
            let (kind, message, paths) = refusal(&subset);
            assert_eq!(kind, ErrorKind::Missing);
            assert_eq!(paths.len(), subset.len());
            for index in 0..members {
                let uuid =
                    fixtures::volume(1, u32::try_from(members).unwrap(), NEW)[index].member_uuid;
                let named = message.contains(&format!("{index} ({uuid})"));
                assert_eq!(named, !is_given(&index), "{message}");
            }
        }
    }
}

#[test]
fn an_interrupted_update_is_rolled_back_in_the_opposite_order() {
    let crashed = [
        [Some(NEW), Some(OLD), None, Some(OLD)],
        [Some(OLD); COPY_COUNT],
    ];
    let assembly = assemble(&candidates(1, &crashed)).unwrap();
    assert_eq!(assembly.generation(), OLD);
    assert_eq!(assembly.superblocks[0].name, "volume 1 generation 4");
    assert!(assembly.heal.steps[0].is_empty());
    let map = MemberMap::new(fixtures::DEVICE_BYTES).unwrap();
    let rewrite = |copy_number| Rewrite {
        member_index: 0,
        copy_number,
        offset: map.copy_offset(copy_number),
    };
    assert_eq!(assembly.heal.steps[1], [rewrite(0), rewrite(2)]);
}

#[test]
fn an_interrupted_update_is_rolled_forward_when_every_member_has_it() {
    let crashed = [
        [Some(NEW), Some(OLD), None, Some(OLD)],
        [None, Some(OLD), Some(NEW), Some(OLD)],
    ];
    let assembly = assemble(&candidates(1, &crashed)).unwrap();
    assert_eq!(assembly.generation(), NEW);
    assert_eq!(assembly.superblocks[0].name, "volume 1 generation 5");
    let [first, second] = assembly.heal.steps.map(|step| {
        let pair = |rewrite: &Rewrite| (rewrite.member_index, rewrite.copy_number);
        step.iter().map(pair).collect::<Vec<_>>()
    });
    assert_eq!(first, [(0, 2), (1, 0)]);
    assert_eq!(second, [(0, 1), (0, 3), (1, 1), (1, 3)]);
}

#[test]
fn an_old_copy_is_stale_and_named_with_both_generations() {
    let state = [[Some(NEW); COPY_COUNT], [Some(OLD); COPY_COUNT]];
    let (kind, message, paths) = refusal(&candidates(1, &state));
    assert_eq!(kind, ErrorKind::Stale);
    assert_eq!(paths, ["/dev/1-1"]);
    assert!(
        message.contains("generation 5") && message.contains("at 4"),
        "{message}"
    );
}

#[test]
fn two_devices_with_one_member_are_a_duplicate_even_when_one_is_old_or_another_is_missing() {
    let whole = healthy(1, 3);
    for mut twin in [
        whole[1].clone(),
        candidates(1, &[[Some(OLD); COPY_COUNT]; 3]).remove(1),
    ] {
        twin.path = PathBuf::from("/dev/copy");
        let full = [
            whole[0].clone(),
            whole[1].clone(),
            whole[2].clone(),
            twin.clone(),
        ];
        for given in [&full[..], &[whole[1].clone(), twin.clone()]] {
            let (kind, message, paths) = refusal(given);
            assert_eq!(kind, ErrorKind::Duplicate);
            assert_eq!(paths, ["/dev/1-1", "/dev/copy"]);
            let uuid = Uuid::from_u128((1 << 32) + 2).to_string();
            assert!(message.contains(&uuid), "{message}");
        }
    }
}

#[test]
fn a_member_of_another_volume_is_foreign_in_any_position() {
    for position in 0..3 {
        let mut given = healthy(1, 3);
        given[position] = healthy(2, 3).remove(position);
        let (kind, message, paths) = refusal(&given);
        assert_eq!(kind, ErrorKind::Foreign);
        assert_eq!(paths, [format!("/dev/2-{position}")]);
        for volume in [1, 2] {
            let uuid = Uuid::from_u128(volume).to_string();
            assert!(message.contains(&uuid), "{message}");
        }
    }
}

#[test]
fn a_shrunk_device_is_refused_and_a_grown_one_is_not() {
    let mut given = healthy(1, 2);
    given[1].device_bytes += 4096;
    assert!(assemble(&given).is_ok());
    given[1].device_bytes = fixtures::DEVICE_BYTES - 1;
    let (kind, message, paths) = refusal(&given);
    assert_eq!(kind, ErrorKind::Shrunk);
    assert_eq!(paths, ["/dev/1-1"]);
    assert!(
        message.contains("16777215") && message.contains("16777216"),
        "{message}"
    );
}

#[test]
fn a_device_without_a_good_copy_is_refused_with_the_reason() {
    let unreadable = || {
        let cause = Error::new(ErrorKind::Device, "I/O error");
        CopyFault::Unreadable(cause)
    };
    let version = |intact| CopyFault::from(DecodeError::Version { found: 2, intact });
    let cases: Vec<(ErrorKind, [CopyFault; COPY_COUNT], &str)> = vec![
        (
            ErrorKind::NotAMember,
            [(); 4].map(|()| DecodeError::Blank.into()),
            "blank",
        ),
        (
            ErrorKind::NotAMember,
            [(); 4].map(|()| DecodeError::NotSwath.into()),
            "not a Swath",
        ),
        (
            ErrorKind::Damaged,
            [(); 4].map(|()| DecodeError::Checksum.into()),
            "copy 3 checksum",
        ),
        (
            ErrorKind::Device,
            [(); 4].map(|()| unreadable()),
            "unreadable",
        ),
        (
            ErrorKind::Unsupported,
            [(); 4].map(|()| version(true)),
            "unsupported version 2",
        ),
        (
            ErrorKind::Unsupported,
            [(); 4].map(|()| version(false)),
            "unsupported version 2",
        ),
    ];
    for (expected, faults, words) in cases {
        let mut given = healthy(1, 2);
        given[0].copies = faults.map(Err);
        let (kind, message, paths) = refusal(&given);
        assert_eq!(kind, expected, "{message}");
        assert_eq!(paths, ["/dev/1-0"]);
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn an_intact_copy_of_a_newer_program_refuses_and_a_damaged_one_is_healed() {
    for (fault, refused) in [
        (
            DecodeError::Version {
                found: 2,
                intact: true,
            },
            true,
        ),
        (DecodeError::Features { unknown: 1 }, true),
        (DecodeError::Layout { found: 3 }, true),
        (
            DecodeError::Version {
                found: 2,
                intact: false,
            },
            false,
        ),
        (DecodeError::NotSwath, false),
        (
            DecodeError::Misplaced {
                expected: 0,
                found: 1,
            },
            false,
        ),
    ] {
        let mut given = healthy(1, 2);
        given[1].copies[2] = Err(fault.into());
        if refused {
            assert_eq!(refusal(&given).0, ErrorKind::Unsupported);
        } else {
            let heal = assemble(&given).unwrap().heal;
            assert_eq!((heal.steps[0].len(), heal.steps[1].len()), (1, 0));
        }
    }
}

#[test]
fn an_unknown_ro_compat_feature_is_reported() {
    let mut given = healthy(1, 2);
    for copy in given
        .iter_mut()
        .flat_map(|candidate| candidate.copies.iter_mut())
    {
        copy.as_mut().unwrap().features_ro_compat = 8;
    }
    assert_eq!(assemble(&given).unwrap().unknown_ro_compat, 8);
}

#[test]
fn copies_of_two_volumes_on_one_device_are_damage() {
    let mut given = healthy(1, 2);
    given[1].copies[3] = healthy(2, 2).remove(1).copies[3].clone();
    let (kind, message, paths) = refusal(&given);
    assert_eq!(kind, ErrorKind::Damaged);
    assert_eq!(paths, ["/dev/1-1"]);
    assert!(message.contains("copies 0 and 3"), "{message}");
}

#[test]
fn members_that_describe_the_volume_differently_are_damage() {
    let mut given = healthy(1, 2);
    for copy in &mut given[1].copies {
        copy.as_mut().unwrap().chunk_bytes *= 2;
    }
    let (kind, _, paths) = refusal(&given);
    assert_eq!((kind, paths.len()), (ErrorKind::Damaged, 2));
}

#[test]
fn one_generation_with_two_names_is_refused() {
    let mut given = healthy(1, 2);
    for copy in &mut given[1].copies {
        copy.as_mut().unwrap().name = "other".into();
    }
    let (kind, message, _) = refusal(&given);
    assert_eq!(kind, ErrorKind::Damaged);
    assert!(message.contains("other"), "{message}");
}

#[test]
fn no_devices_are_no_volume() {
    assert_eq!(refusal(&[]).0, ErrorKind::InvalidInput);
}
