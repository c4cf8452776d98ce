//! Damage done to the members past the volume.

use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use swath_engine::fill_incompressible;

use super::{Place, Rig, UNIT, count};

/// Any unit in the middle of the volume.
const VICTIM: u64 = 1000;

/// Damages the victim, and puts it right again once that was found.
#[track_caller]
fn assert_found(rig: &Rig, kind: &str, words: &[&str], damage: impl FnOnce(&Place, &[u8])) {
    let place = rig.place(VICTIM);
    let good = place.read();
    damage(&place, &good);
    let verify = rig.fails(&["--verify-only"]);
    assert_eq!(verify["wrong_units"], 1, "{verify}");
    let wrong = &verify["wrong"][0];
    assert_eq!(wrong["kind"], kind, "{wrong}");
    assert_eq!(wrong["offset"], VICTIM * UNIT as u64, "{wrong}");
    assert!(place.is_named(wrong), "{place:?}, not {wrong}");
    let (confirmed, _) = rig.entries()[usize::try_from(VICTIM).unwrap()];
    assert_eq!(wrong["expected"], format!("generation {confirmed}"));
    for word in words {
        assert!(wrong["found"].as_str().unwrap().contains(word), "{wrong}");
    }
    place.write(&good);
    rig.passes(&["--verify-only"]);
}

#[test]
fn every_kind_of_damage_is_found_and_named_with_member_and_offset() {
    let rig = Rig::written();
    assert_found(
        &rig,
        "corrupt",
        &["1 bit wrong", "byte 2345"],
        |place, good| {
            let mut bytes = good.to_vec();
            bytes[2345] ^= 0x20;
            place.write(&bytes);
        },
    );
    assert_found(&rig, "zeroes", &["zeroes"], |place, _| {
        place.write(&[0; UNIT]);
    });
    let other = rig.place(VICTIM + 77);
    let from = format!("of volume offset {}", (VICTIM + 77) * UNIT as u64);
    assert_found(&rig, "misplaced", &[&from], |place, _| {
        place.write(&other.read());
    });
    assert_found(&rig, "foreign", &["no verifying run"], |place, _| {
        let mut bytes = [0; UNIT];
        fill_incompressible(&mut bytes, 5, 0);
        place.write(&bytes);
    });
}

#[test]
fn an_old_block_that_comes_back_is_stale_and_half_of_one_is_torn() {
    let rig = Rig::written();
    let old = rig.place(VICTIM).read();
    // Sequential, so that every unit is written again.
    rig.passes(&["--verify", "--rw", "write", "--runtime", "300ms"]);
    assert_ne!(rig.place(VICTIM).read(), old, "it was not written again");
    assert_found(&rig, "stale", &["stale"], |place, _| place.write(&old));
    assert_found(
        &rig,
        "torn",
        &["sectors 0-2: right", "stale"],
        |place, good| {
            let mut bytes = good.to_vec();
            bytes[3 * 512..].copy_from_slice(&old[3 * 512..]);
            place.write(&bytes);
        },
    );
}

#[test]
fn two_blocks_exchanged_are_both_found_and_nothing_is_written_over_them() {
    let rig = Rig::written();
    let places = [VICTIM, VICTIM + 500].map(|unit| rig.place(unit));
    let [one, other] = places.each_ref().map(Place::read);
    places[0].write(&other);
    places[1].write(&one);
    let before = rig.snapshot();
    // A run that would write looks first, and stops.
    let verify = rig.fails(&["--verify", "--fill", "written", "--destructive"]);
    assert_eq!(verify["wrong_units"], 2);
    for (place, wrong) in places.iter().zip(verify["wrong"].as_array().unwrap()) {
        assert!(place.is_named(wrong), "{place:?}, not {wrong}");
    }
    assert!(rig.report()["cells"].as_array().unwrap().is_empty());
    assert!(verify.get("after").is_none(), "{verify}");
    // But for the superblocks, where the opening for writing is noted.
    for unit in (0..3072).step_by(16) {
        let place = rig.place(unit);
        let member = rig.members.iter().position(|it| *it == place.path);
        let start = usize::try_from(place.offset).unwrap();
        let was = &before[member.unwrap()][start..start + UNIT];
        assert_eq!(place.read(), was, "unit {unit}");
    }
}

#[test]
fn of_many_wrong_units_ten_are_told_and_all_are_counted() {
    let rig = Rig::written();
    for unit in 100..125 {
        rig.place(unit).write(&[0; UNIT]);
    }
    let verify = rig.fails(&["--verify-only"]);
    assert_eq!(verify["wrong_units"], 25);
    assert_eq!(verify["wrong"].as_array().unwrap().len(), 10);
}

#[test]
fn damage_in_the_middle_of_a_run_is_found_by_its_reads() {
    let rig = Rig::written();
    let place = rig.place(VICTIM);
    let mut bytes = place.read();
    bytes[100] ^= 1;
    let more = [
        "--verify",
        "--rw",
        "read",
        "--bs",
        "64k",
        "--runtime",
        "60s",
    ];
    let mut command = rig.command(&more);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    // Past the check at the beginning, and then long enough to read everything again and again.
    sleep(Duration::from_secs(1));
    place.write(&bytes);
    sleep(Duration::from_secs(1));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    // What is wrong comes before what ended the run.
    assert_eq!(output.status.code(), Some(1), "{message}");
    let verify = rig.report()["verify"].clone();
    assert_eq!(verify["wrong_units"], 1, "{verify}");
    assert!(place.is_named(&verify["wrong"][0]), "{verify}");
    assert!(count(&verify["reads"], "checked_units") > 0);
    assert!(verify.get("after").is_none(), "{verify}");
}
