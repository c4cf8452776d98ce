//! What the commands for checkpoints refuse: with the reason, nothing lost, and nothing left behind.

use std::fs;
use std::os::unix::fs::symlink;

use swath_checkpoint::safetensors::{ExportOptions, ImportOptions, ImportPlan, export, import};
use swath_checkpoint::{BeginOptions, DType, ErrorKind};
use swath_volume::{OpenOptions, Volume};

use super::super::{contents, done, refused, text};
use super::{Shop, entry, listing, model, safetensors, same, sharded};

#[test]
fn a_set_that_does_not_agree_with_its_index_is_refused() {
    let shop = Shop::with_store();
    let files = sharded(&shop);
    let index = |map: &str| {
        let json = format!(r#"{{"weight_map":{{{map}}}}}"#);
        [shop.file("set/model.safetensors.index.json", json.as_bytes())]
    };
    let good = r#""a":"one.safetensors","b":"two.safetensors""#;
    for (map, parts) in [
        (
            format!(r#"{good},"c":"three.safetensors""#),
            &["three.safetensors", "not there"][..],
        ),
        (
            format!(r#"{good},"c":"one.safetensors""#),
            &["\"c\"", "the index says one"],
        ),
        (good.to_owned(), &["\"c\"", "does not know it"]),
        (
            format!(r#"{good},"c":"two.safetensors","d":"two.safetensors""#),
            &["\"d\"", "it has not"],
        ),
        (
            format!(r#"{good},"c":"../two.safetensors""#),
            &["separator"],
        ),
        (format!(r#"{good},"b":"two.safetensors""#), &["twice"]),
    ] {
        let index = index(&map);
        let parts = [parts, &[text(&index[0])]].concat();
        shop.save_is_refused(&index, &parts);
    }
    assert!(files[0].exists());
}

#[test]
fn files_that_cannot_be_are_refused_before_anything_is_written() {
    let shop = Shop::with_store();
    let whole = model();
    let header = |text: &str| safetensors(text, &[0; 8]);
    let u8s = |name, begin, end| entry(name, "U8", "[4]", begin, end);
    let mut oversized = whole.clone();
    oversized[..8].copy_from_slice(&100_000_001_u64.to_le_bytes());
    let longer = [&whole[..], b"x"].concat();
    for (name, bytes, part) in [
        ("cut", &whole[..whole.len() - 1], "cut short"),
        ("header-cut", &whole[..100], "cut short"),
        ("tiny", &whole[..7], "cut short"),
        ("longer", &longer, "goes on"),
        ("oversized", &oversized, "100000000 is the most"),
        ("text", b"not safetensors at all", "is the most"),
        (
            "twice",
            &header(&format!("{{{},{}}}", u8s("a", 0, 4), u8s("a", 4, 8))),
            "twice",
        ),
        (
            "overlap",
            &header(&format!("{{{},{}}}", u8s("a", 0, 4), u8s("b", 3, 7))),
            "overlaps",
        ),
        ("hole", &header(&format!("{{{}}}", u8s("a", 4, 8))), "hole"),
        (
            "shape",
            &header(&format!("{{{}}}", u8s("a", 0, 8))),
            "shape",
        ),
        (
            "own",
            &header(&format!("{{{},{}}}", u8s(".swath/a", 0, 4), u8s("b", 4, 8))),
            ".swath/",
        ),
    ] {
        let file = shop.file(&format!("bad/{name}.safetensors"), bytes);
        let good = shop.file("good.bin", b"good");
        shop.save_is_refused(&[good, file.clone()], &[text(&file), part]);
        // As it is, anything can be saved.
        let raw = ["--step", "1", "--raw", "--replace", text(&file)];
        done(shop.run("save", &raw));
    }
}

#[test]
fn what_is_no_file_or_is_there_twice_is_refused() {
    let shop = Shop::with_store();
    let model_file = shop.file("model.safetensors", &model());
    let absent = shop.rig.path("absent");
    shop.save_is_refused(&[model_file.clone(), absent.clone()], &[text(&absent)]);
    let directory = shop.rig.path("volume");
    shop.save_is_refused(&[directory], &["regular file"]);
    let pipe = shop.rig.path("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    shop.save_is_refused(std::slice::from_ref(&pipe), &[text(&pipe), "regular file"]);
    let member = shop.members[0].clone();
    shop.save_is_refused(std::slice::from_ref(&member), &[text(&member), "member"]);

    let other = shop.file("other/model.safetensors", &model());
    shop.save_is_refused(
        &[model_file.clone(), other.clone()],
        &[text(&other), "same name"],
    );
    let renamed = shop.file("renamed.safetensors", &model());
    let parts = [text(&renamed), "tensor \"", text(&model_file)];
    shop.save_is_refused(&[model_file.clone(), renamed.clone()], &parts);
    let bias = shop.file("bias", b"a file called as a tensor");
    shop.save_is_refused(&[model_file, bias], &["tensor \"bias\""]);
}

#[test]
fn a_save_that_does_not_fit_says_need_and_have_at_once() {
    let shop = Shop::with_store();
    let file = shop.file("large.bin", &[]);
    let large = fs::OpenOptions::new().write(true).open(&file).unwrap();
    large.set_len(1 << 40).unwrap();
    shop.save_is_refused(
        &[file],
        &["1099511", "are needed", "are free", "swath space"],
    );
}

#[test]
fn names_that_are_taken_or_cannot_be_are_refused() {
    let shop = Shop::with_store();
    let file = shop.file("a.bin", b"one");
    done(shop.save(9, std::slice::from_ref(&file)));
    shop.save_is_refused(std::slice::from_ref(&file), &["checkpoint 9", "--replace"]);
    fs::write(&file, b"two").unwrap();
    done(shop.run("save", &["--step", "9", "--replace", text(&file)]));
    let (output, out) = shop.load(&[]);
    done(output);
    same(&listing(&out), std::slice::from_ref(&file));
    assert_eq!(shop.steps(), [9]);

    let long = "n".repeat(4097);
    for name in ["007", "", &long] {
        refused(
            &shop.run("save", &["--name", name, text(&file)]),
            2,
            &["--name"],
        );
    }
    refused(&shop.run("save", &[text(&file)]), 2, &["--step", "--name"]);
    refused(&shop.run("save", &["--step", "1"]), 2, &["no files"]);
    let both = ["--step", "1", "--name", "x", text(&file)];
    refused(&shop.run("save", &both), 2, &["--name"]);
    refused(
        &shop.run("save", &["--step", "1", "--meta", "x", text(&file)]),
        2,
        &["--meta"],
    );
    let twice = ["--step", "1", "--meta", "a=1", "--meta", "a=2", text(&file)];
    refused(&shop.run("save", &twice), 1, &["twice"]);
}

#[test]
fn a_volume_without_a_store_says_so_and_stays_as_it_is() {
    let shop = Shop::new();
    let before = contents(&shop.members);
    let out = shop.rig.path("out");
    for (subcommand, options) in [
        ("ls", &[][..]),
        ("show", &[]),
        ("verify", &[]),
        ("space", &[]),
        ("load", &["--out", text(&out)]),
        ("rm", &["--step", "1"]),
        ("retain", &["--keep-last", "1"]),
    ] {
        let output = shop.run(subcommand, options);
        refused(&output, 1, &["no checkpoint store", "swath save"]);
    }
    // A save that cannot be done does not make a store either.
    refused(&shop.save(1, &[shop.rig.path("absent")]), 1, &["absent"]);
    assert!(before == contents(&shop.members));
    assert!(!out.exists());
}

#[test]
fn unknown_checkpoints_are_refused_by_every_command() {
    let shop = Shop::with_store();
    let out = shop.rig.path("out");
    for subcommand in ["show", "load"] {
        let options: &[&str] = if subcommand == "load" {
            &["--out", text(&out)]
        } else {
            &[]
        };
        refused(&shop.run(subcommand, options), 1, &["no checkpoint yet"]);
    }
    let file = shop.file("a.bin", b"a");
    done(shop.save(1, std::slice::from_ref(&file)));
    for (subcommand, options) in [
        ("show", &["--step", "2"][..]),
        ("verify", &["--step", "2"]),
        ("load", &["--step", "2", "--out", text(&out)]),
        ("show", &["--name", "2"]),
    ] {
        let output = shop.run(subcommand, options);
        refused(
            &output,
            1,
            &["checkpoint 2", "no such checkpoint", "newest is 1"],
        );
    }
    refused(
        &shop.run("rm", &["--step", "1,2"]),
        1,
        &["checkpoint 2", "nothing was removed"],
    );
    assert_eq!(shop.steps(), [1]);
    assert!(!out.exists());
}

#[test]
fn load_follows_no_link_in_place_of_the_directory() {
    let shop = Shop::with_store();
    done(shop.save(1, &[shop.file("in/a.bin", b"a")]));
    let elsewhere = shop.rig.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let link = shop.rig.path("link");
    for target in [elsewhere.clone(), shop.rig.path("nowhere")] {
        symlink(&target, &link).unwrap();
        // With a slash at its end a path leads through the link.
        for out in [text(&link).to_owned(), format!("{}/", text(&link))] {
            let output = shop.run("load", &["--out", &out]);
            refused(&output, 1, &["link", "symbolic link", "not followed"]);
        }
        fs::remove_file(&link).unwrap();
    }
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    assert!(!shop.rig.path("nowhere").exists());
}

#[test]
fn load_writes_over_nothing_and_follows_no_link() {
    let shop = Shop::with_store();
    let files = [shop.file("in/a.bin", b"a"), shop.file("in/b.bin", b"b")];
    done(shop.save(1, &files));
    let out = shop.rig.path("out");
    fs::create_dir(&out).unwrap();
    let elsewhere = shop.file("elsewhere", b"old");
    for target in [elsewhere.clone(), shop.rig.path("nowhere")] {
        symlink(&target, out.join("b.bin")).unwrap();
        let (output, _) = shop.load(&[]);
        refused(
            &output,
            1,
            &["b.bin", "symbolic link", "no file was written"],
        );
        fs::remove_file(out.join("b.bin")).unwrap();
        assert_eq!(fs::read_dir(&out).unwrap().count(), 0);
    }
    assert_eq!(fs::read(&elsewhere).unwrap(), b"old");
    assert!(!shop.rig.path("nowhere").exists());

    fs::write(out.join("b.bin"), "theirs").unwrap();
    let (output, _) = shop.load(&[]);
    refused(&output, 1, &["b.bin", "exists already"]);
    assert_eq!(listing(&out), [("b.bin".to_owned(), b"theirs".to_vec())]);
    // Other files in the directory are nobody's business.
    fs::rename(out.join("b.bin"), out.join("c.bin")).unwrap();
    done(shop.load(&[]).0);
    assert_eq!(listing(&out).len(), 3);

    let output = shop.run("load", &["--out", text(&elsewhere)]);
    refused(&output, 1, &[text(&elsewhere)]);
    let deep = shop.rig.path("not/there");
    refused(
        &shop.run("load", &["--out", text(&deep)]),
        1,
        &[text(&deep)],
    );
}

#[test]
fn names_of_a_strangers_volume_do_not_lead_out_of_the_directory() {
    let shop = Shop::with_store();
    let list = |name: &str, length: u64, kind: &str, tensor: &str| {
        format!(
            r#"{{"version":1,"files":[{{"name":"{name}","length":{length},"kind":"{kind}","tensor":"{tensor}"}}]}}"#
        )
    };
    let absolute = text(&shop.rig.path("absolute")).to_owned();
    let cases = [
        (list("../x", 1, "raw", "t"), "separator"),
        (list(&absolute, 1, "raw", "t"), "separator"),
        (list("..", 1, "raw", "t"), ".."),
        (list("a\\u0000b", 1, "raw", "t"), "NUL"),
        (list("x", 2, "raw", "t"), "2 bytes"),
        (list("x", 1, "raw", "u"), "does not have it"),
        (list("x", 1, "safetensors", "t"), "too short"),
        (
            r#"{"version":1,"files":[]}"#.to_owned(),
            "none of the files",
        ),
        (r#"{"version":9,"files":[]}"#.to_owned(), "version 9"),
        ("{".to_owned(), "makes no sense"),
    ];
    {
        let store = shop.store();
        for (step, (list, _)) in (0..).zip(&cases) {
            let session = store.begin(step, BeginOptions::default()).unwrap();
            let mut writer = session.writer().unwrap();
            writer.put("t", DType::U8, &[1], b"t").unwrap();
            let length = list.len() as u64;
            writer
                .put(".swath/files", DType::U8, &[length], list.as_bytes())
                .unwrap();
            writer.finish().unwrap();
            session.commit().unwrap();
        }
    }
    let before = shop.rig.names();
    for (step, (_, part)) in (0..).zip(&cases) {
        let (output, out) = shop.load(&["--step", &step.to_string()]);
        refused(&output, 1, &[part]);
        assert!(!out.exists(), "step {step}");
    }
    assert_eq!(shop.rig.names(), before);
}

#[test]
fn another_programs_root_record_is_left_alone() {
    let shop = Shop::new();
    let volume = Volume::open(&shop.members, &OpenOptions::default()).unwrap();
    volume.commit_root(b"another program").unwrap();
    volume.close().unwrap();
    let file = shop.file("a.bin", b"a");
    refused(&shop.save(1, &[file]), 1, &["store"]);
    refused(&shop.run("ls", &[]), 1, &["store"]);
    refused(&shop.run("format", &[]), 1, &["--force"]);
    let volume = Volume::open(&shop.members, &OpenOptions::default()).unwrap();
    assert_eq!(volume.root().unwrap().payload, b"another program");
}

#[test]
fn stopped_or_changed_under_way_nothing_is_there() {
    let shop = Shop::with_store();
    let path = shop.file("model.safetensors", &model());
    let paths = [path.clone()];
    let store = shop.store();
    let options = ImportOptions::default();
    let free = store.space().free_bytes;
    for stop_at in [0, 1 << 20, 5 << 20] {
        let mut go_on = |reached: swath_checkpoint::safetensors::FileProgress| {
            assert!(reached.done_bytes <= reached.total_bytes);
            reached.done_bytes < stop_at
        };
        let error = import(
            &store,
            1,
            BeginOptions::default(),
            &paths,
            &options,
            &mut go_on,
        );
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Cancelled);
        assert!(store.list().is_empty());
        assert_eq!(store.space().free_bytes, free);
    }

    let plan = ImportPlan::new(&paths, &options).unwrap();
    let mut changed = model();
    *changed.last_mut().unwrap() ^= 1;
    fs::write(&path, &changed).unwrap();
    let error = plan.save(&store, 1, BeginOptions::default(), &mut |_| true);
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Changed);
    let plan = ImportPlan::new(&paths, &options).unwrap();
    let mut change = |_| {
        fs::write(&path, model()).unwrap();
        true
    };
    let error = plan.save(&store, 1, BeginOptions::default(), &mut change);
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Changed);
    assert!(store.list().is_empty());
    assert_eq!(store.space().free_bytes, free);

    import(
        &store,
        1,
        BeginOptions::default(),
        &paths,
        &options,
        &mut |_| true,
    )
    .unwrap();
    let checkpoint = store.get(1).unwrap();
    let out = shop.rig.path("out");
    for stop_at in [0, 1, 1 << 30] {
        let mut calls = 0;
        let mut go_on = |_| {
            calls += 1;
            calls <= stop_at
        };
        let outcome = export(&checkpoint, &out, &ExportOptions::default(), &mut go_on);
        assert_eq!(outcome.is_ok(), stop_at > 1);
        assert_eq!(out.exists(), stop_at > 1);
    }
    same(&listing(&out), &paths);
}
