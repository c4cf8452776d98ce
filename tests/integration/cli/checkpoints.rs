//! `swath save`, `load`, `ls`, `show`, `verify`, `rm`, `retain`, `space`, `format`: files come back
//! byte for byte, damage is found and located, and rules remove what they should. What is refused is
//! in `refusals`.

mod refusals;

use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;
use swath_checkpoint::safetensors::Header;
use swath_checkpoint::{BeginOptions, DType, Store, StoreOptions};
use swath_tests::binaries::swath;
use swath_volume::{OpenOptions, Volume};

use super::{Rig, command, done, json, pattern, refused, run, stderr, stdout, text};

/// A directory with a volume in it, and one for files.
struct Shop {
    rig: Rig,
    volume: String,
    members: Vec<PathBuf>,
}

impl Shop {
    fn new() -> Self {
        let rig = Rig::new();
        let directory = rig.path("volume");
        fs::create_dir(&directory).unwrap();
        let members: Vec<PathBuf> = (0..3).map(|n| directory.join(format!("m{n}"))).collect();
        let options = ["--size", "20m", "--chunk", "64k", "--name", "shop"];
        done(run("create", &options, &members));
        let volume = text(&directory).to_owned();
        Self {
            rig,
            volume,
            members,
        }
    }

    fn with_store() -> Self {
        let shop = Self::new();
        done(shop.run("format", &[]));
        shop
    }

    fn run(&self, subcommand: &str, options: &[&str]) -> Output {
        let mut command = command(subcommand, &[&self.volume], &[]);
        command.args(options).output().unwrap()
    }

    fn json(&self, subcommand: &str, options: &[&str]) -> Value {
        let options: Vec<&str> = options.iter().copied().chain(["--json"]).collect();
        json(&done(self.run(subcommand, &options)))
    }

    fn save(&self, step: u64, files: &[PathBuf]) -> Output {
        let step = step.to_string();
        let files = files.iter().map(|file| text(file));
        let options: Vec<&str> = ["--step", &step].into_iter().chain(files).collect();
        self.run("save", &options)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.rig.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    fn load(&self, options: &[&str]) -> (Output, PathBuf) {
        let out = self.rig.path("out");
        let options: Vec<&str> = options
            .iter()
            .copied()
            .chain(["--out", text(&out)])
            .collect();
        (self.run("load", &options), out)
    }

    /// The volume's store, in this process.
    fn store(&self) -> Store {
        let volume = Volume::open(&self.members, &OpenOptions::default()).unwrap();
        Store::open(volume, &StoreOptions::default()).unwrap()
    }

    fn steps(&self) -> Vec<u64> {
        let listed = self.json("ls", &[]);
        let rows = listed["checkpoints"].as_array().unwrap();
        let step = |row: &Value| row["name"]["step"].as_u64().unwrap();
        rows.iter().map(step).collect()
    }

    /// A save that is refused costs nothing: the checkpoints and the free space are as before.
    #[track_caller]
    fn save_is_refused(&self, files: &[PathBuf], parts: &[&str]) {
        let before = self.json("ls", &[]);
        let space = self.json("space", &[]);
        refused(&self.save(9, files), 1, parts);
        assert_eq!(self.json("ls", &[]), before);
        assert_eq!(self.json("space", &[]), space);
    }
}

/// A safetensors file: header as given, and data.
fn safetensors(header: &str, data: &[u8]) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(data);
    file
}

fn entry(name: &str, dtype: &str, shape: &str, begin: usize, end: usize) -> String {
    format!(r#""{name}": {{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}"#)
}

/// A file with much that is allowed: types of all sizes, tensors of no bytes, of some and of
/// several blocks, a header in another order than the data, white space, escapes, metadata.
fn model() -> Vec<u8> {
    const BIG: usize = 5 * 1024 * 1024 + 12;
    let entries = [
        entry("tail", "F8_E4M3", "[5]", BIG + 20, BIG + 25),
        entry("layers.0.weight", "F32", "[2,655361]", 0, BIG - 16 + 12),
        entry("bias", "BF16", "[2,1,2]", BIG - 4, BIG + 4),
        entry("scalar", "F64", "[]", BIG + 4, BIG + 12),
        entry("none", "I64", "[7,0,2]", BIG + 12, BIG + 12),
        entry("\\u00e9\\n/../x", "BOOL", "[8]", BIG + 12, BIG + 20),
    ];
    let header = format!(
        "{{ \"__metadata__\" : {{\"format\":\"pt\",\"a\":\"\\u0041\"}},\n{} }}   \n",
        entries.join(",\n")
    );
    safetensors(&header, &pattern(BIG + 25))
}

/// What is in a directory, by name.
fn listing(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read(entry.path()).unwrap())
        })
        .collect();
    files.sort();
    files
}

fn same(found: &[(String, Vec<u8>)], expected: &[PathBuf]) {
    let mut expected: Vec<_> = expected
        .iter()
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            (name.to_owned(), fs::read(path).unwrap())
        })
        .collect();
    expected.sort();
    let names = |files: &[(String, Vec<u8>)]| -> Vec<String> {
        files.iter().map(|(name, _)| name.clone()).collect()
    };
    assert_eq!(names(found), names(&expected));
    assert!(found == expected, "a file differs");
}

#[test]
fn a_session_as_a_new_user_types_it() {
    let shop = Shop::new();
    let files = [
        shop.file("model.safetensors", &model()),
        shop.file("optimizer.pt", &pattern(2_345_678)),
        shop.file("empty.txt", &[]),
    ];
    let output = done(shop.save(100, &files));
    assert!(stderr(&output).contains("no checkpoint store: an empty one was made"));
    assert!(stdout(&output).contains("step 100: 3 files"));

    let listed = stdout(&done(shop.run("ls", &[])));
    assert!(listed.contains("100"), "{listed}");
    let shown = stdout(&done(shop.run("show", &[])));
    for part in [
        "layers.0.weight",
        "[2, 655361]",
        "5.0 MiB",
        "volume/m",
        "BF16",
        "optimizer.pt",
    ] {
        assert!(shown.contains(part), "{part:?} is not in {shown}");
    }
    assert!(shown.contains("é\\n/../x"), "{shown}");
    assert!(!shown.contains(".swath/"), "{shown}");
    let all = stdout(&done(shop.run("show", &["--all"])));
    assert!(all.contains(".swath/header/0"), "{all}");

    let verified = stdout(&done(shop.run("verify", &["--deep"])));
    assert!(verified.contains("1 checkpoint: "), "{verified}");
    let (output, out) = shop.load(&[]);
    let output = done(output);
    assert!(stdout(&output).contains("model.safetensors"));
    same(&listing(&out), &files);
    for file in fs::read_dir(&out).unwrap() {
        let mode = file.unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[test]
fn json_tells_the_same() {
    let shop = Shop::with_store();
    let file = shop.file("model.safetensors", &model());
    let saved = shop.json("save", &["--step", "7", text(&file), "--meta", "run=a=b"]);
    assert_eq!(saved["formatted"], false);
    assert_eq!(saved["checkpoint"]["name"]["step"], 7);
    assert_eq!(saved["checkpoint"]["metadata"][0][1], "a=b");
    assert_eq!(saved["bytes"], model().len());

    let shown = shop.json("show", &["--step", "7"]);
    let tensors = shown["tensors"].as_array().unwrap();
    assert_eq!(tensors.len(), 6);
    assert_eq!(shown["hidden_tensor_count"], 2);
    let big = tensors
        .iter()
        .find(|tensor| tensor["name"] == "layers.0.weight");
    let big = big.unwrap();
    assert_eq!(big["dtype"], "F32");
    assert_eq!(big["shape"], serde_json::json!([2, 655_361]));
    // The data is where it says.
    let data = &model()[model().len() - 5 * 1024 * 1024 - 37..];
    let place = &big["places"][0];
    let member = fs::read(place["path"].as_str().unwrap()).unwrap();
    let offset = usize::try_from(place["offset"].as_u64().unwrap()).unwrap();
    // A tensor begins at a block, and its first chunk may end with that.
    assert!(member[offset..offset + 4096] == data[..4096]);

    let verified = shop.json("verify", &["--deep", "--step", "7"]);
    assert_eq!(verified["clean"], true);
    assert_eq!(verified["bytes"], saved["checkpoint"]["data_bytes"]);
    let out = shop.rig.path("json");
    let loaded = shop.json("load", &["--out", text(&out)]);
    assert_eq!(loaded["files"][0]["bytes"], model().len());
    assert_eq!(shop.json("space", &[])["checkpoint_count"], 1);
}

/// Two shards and their index.
fn sharded(shop: &Shop) -> Vec<PathBuf> {
    let one = safetensors(
        &format!("{{{}}}", entry("a", "U8", "[1500000]", 0, 1_500_000)),
        &pattern(1_500_000),
    );
    let two = safetensors(
        &format!(
            "{{{},{}}}",
            entry("b", "F16", "[3]", 0, 6),
            entry("c", "I32", "[2]", 6, 14)
        ),
        &pattern(14),
    );
    let index = r#"{"metadata": {"total_size": 1500014},
        "weight_map": {"b": "two.safetensors", "a": "one.safetensors", "c": "two.safetensors"}}"#;
    vec![
        shop.file("set/one.safetensors", &one),
        shop.file("set/two.safetensors", &two),
        shop.file("set/model.safetensors.index.json", index.as_bytes()),
        shop.file("set/config.json", b"{}"),
    ]
}

#[test]
fn a_sharded_set_is_saved_by_its_index() {
    let shop = Shop::with_store();
    let files = sharded(&shop);
    // The index brings its shards; naming them as well does no harm, in any order.
    done(shop.save(1, &files[2..]));
    done(shop.save(2, &files));
    for step in ["1", "2"] {
        let shown = shop.json("show", &["--step", step]);
        let names: Vec<&str> = shown["tensors"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tensor| tensor["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["a", "b", "c", "config.json"]);
        let (output, out) = shop.load(&["--step", step]);
        done(output);
        same(&listing(&out), &files);
        fs::remove_dir_all(out).unwrap();
    }
    // Shards without an index are files like any others.
    done(shop.save(3, &files[..2]));
    let (output, out) = shop.load(&["--step", "3"]);
    done(output);
    same(&listing(&out), &files[..2]);
}

#[test]
fn a_flipped_bit_is_found_located_and_never_loaded() {
    let shop = Shop::with_store();
    let files = [shop.file("model.safetensors", &model())];
    done(shop.save(1, &files));
    done(shop.save(2, &[shop.file("small.bin", b"small")]));
    let shown = shop.json("show", &["--step", "1"]);
    let tensors = shown["tensors"].as_array().unwrap();
    let tensor = tensors
        .iter()
        .find(|tensor| tensor["name"] == "layers.0.weight");
    // The third block of the tensor, which lies in one piece: 2 MiB on are 32 chunks.
    let run = tensor.unwrap()["runs"][0]["offset"].as_u64().unwrap();
    let chunk = (run + (2 << 20) + 77) / 65536;
    let (member, stripe) = (chunk % 3, chunk / 3);
    let detail = json(&done(run_detail(&shop)));
    let member = &detail["volume"]["members"][usize::try_from(member).unwrap()];
    let offset = member["data_offset"].as_u64().unwrap() + stripe * 65536 + (run + 77) % 65536;
    let path = Path::new(member["path"].as_str().unwrap());
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], offset).unwrap();

    // The quick way does not read data; the deep one says where, also as JSON.
    done(shop.run("verify", &[]));
    let output = shop.run("verify", &["--deep"]);
    refused(&output, 1, &["1 damage found"]);
    let found = stdout(&output);
    for part in ["checkpoint 1", "layers.0.weight", "block 2", text(path)] {
        assert!(found.contains(part), "{part:?} is not in {found}");
    }
    let output = shop.run("verify", &["--deep", "--json"]);
    refused(&output, 1, &["1 damage found"]);
    let found = json(&output);
    assert_eq!(found["clean"], false);
    let damage = &found["damages"][0];
    assert_eq!(damage["checkpoint"]["step"], 1);
    assert_eq!(damage["block"], 2);
    let holds = |place: &Value| {
        let begin = place["offset"].as_u64().unwrap();
        let end = begin + place["length"].as_u64().unwrap();
        place["path"] == text(path) && (begin..end).contains(&offset)
    };
    assert!(
        damage["places"].as_array().unwrap().iter().any(holds),
        "{found}"
    );
    done(shop.run("verify", &["--deep", "--step", "2"]));

    let (output, out) = shop.load(&["--step", "1"]);
    refused(
        &output,
        1,
        &[
            "layers.0.weight",
            "block 2",
            text(path),
            "no file was written",
        ],
    );
    assert!(!out.exists());
    let (output, out) = shop.load(&["--step", "1", "--trust"]);
    done(output);
    let loaded = fs::read(out.join("model.safetensors")).unwrap();
    let differing = loaded
        .iter()
        .zip(model())
        .filter(|(a, b)| **a != *b)
        .count();
    assert_eq!(differing, 1);
}

fn run_detail(shop: &Shop) -> Output {
    run("detail", &["--json"], &shop.members)
}

#[test]
fn checkpoints_are_removed_by_hand_and_by_rule() {
    let shop = Shop::with_store();
    let file = [shop.file("a.bin", &pattern(100_000))];
    for step in [10, 20, 30, 40, 50] {
        done(shop.save(step, &file));
    }
    done(shop.run("save", &["--name", "best", text(&file[0])]));
    let options = ["--keep-last", "2", "--keep-every", "20"];
    let dry: Vec<&str> = options.iter().copied().chain(["--dry-run"]).collect();
    let before = super::contents(&shop.members);
    let would = shop.json("retain", &dry);
    assert!(before == super::contents(&shop.members));
    assert_eq!(would["kept"].as_array().unwrap().len(), 4);
    let removed = shop.json("retain", &options);
    assert_eq!(removed["removed"], would["removed"]);
    assert_eq!(removed["kept"], would["kept"]);
    let removed = shop.json("rm", &["--step", "20,40", "--name", "best"]);
    assert_eq!(removed["removed"].as_array().unwrap().len(), 3);
    assert_eq!(shop.steps(), [50]);
    refused(&shop.run("retain", &[]), 2, &["--keep-last"]);
    refused(
        &shop.run("retain", &["--keep-last", "0"]),
        2,
        &["--keep-last"],
    );
    refused(&shop.run("rm", &[]), 2, &["--step"]);

    refused(
        &shop.run("format", &[]),
        1,
        &["--force", "nothing was done"],
    );
    assert_eq!(shop.steps(), [50]);
    done(shop.run("format", &["--force"]));
    assert!(shop.steps().is_empty());
    assert!(stdout(&done(shop.run("ls", &[]))).contains("no checkpoints yet"));
}

#[test]
fn a_volume_is_named_by_its_members_too() {
    let shop = Shop::with_store();
    let file = shop.file("a.bin", b"a");
    let mut members: Vec<&str> = shop.members.iter().map(|member| text(member)).collect();
    members.reverse();
    let commas = members.join(",");
    let output = command("save", &["--step", "1", &commas, text(&file)], &[]).output();
    done(output.unwrap());
    let options: Vec<&str> = members
        .iter()
        .flat_map(|member| ["--member", member])
        .collect();
    let output = command("save", &options, &[])
        .args(["--step", "2", text(&file)])
        .output();
    done(output.unwrap());
    let listed = json(&done(
        command("ls", &options, &[]).arg("--json").output().unwrap(),
    ));
    assert_eq!(listed["checkpoints"].as_array().unwrap().len(), 2);
    refused(
        &command("ls", &options, &[])
            .arg(&shop.volume)
            .output()
            .unwrap(),
        2,
        &["--member"],
    );
    refused(&run("ls", &[], &[]), 2, &["VOLUME"]);
    let missing = members[..2].join(",");
    refused(&run("ls", &[&missing], &[]), 1, &["missing"]);
}

#[test]
fn help_with_examples_is_there_for_each_command() {
    for subcommand in [
        "save", "load", "ls", "show", "verify", "rm", "retain", "space", "format",
    ] {
        let help = stdout(&done(run(subcommand, &["--help"], &[])));
        assert!(help.contains("Example"), "{help}");
    }
}

#[test]
fn a_checkpoint_that_was_not_made_of_files_becomes_one() {
    let shop = Shop::with_store();
    let tensors: [(&str, DType, &[u64], Vec<u8>); 4] = [
        ("../x", DType::U8, &[3], pattern(3)),
        ("big", DType::F32, &[600_001], pattern(2_400_004)),
        ("empty", DType::F16, &[0], Vec::new()),
        ("scalar", DType::F64, &[], pattern(8)),
    ];
    {
        let store = shop.store();
        let begin = BeginOptions {
            metadata: vec![("run".into(), "7".into())],
            ..BeginOptions::default()
        };
        let session = store.begin(5, begin).unwrap();
        let mut writer = session.writer().unwrap();
        for (name, dtype, shape, bytes) in &tensors {
            writer.put(name, *dtype, shape, bytes).unwrap();
        }
        writer.finish().unwrap();
        session.commit().unwrap();
        store
            .begin(4, BeginOptions::default())
            .unwrap()
            .commit()
            .unwrap();
    }
    let (output, out) = shop.load(&["--step", "5"]);
    done(output);
    let path = out.join("model.safetensors");
    let file = fs::read(&path).unwrap();
    let (prefix, rest) = file.split_first_chunk::<8>().unwrap();
    let (json, data) = rest.split_at(Header::length_from(*prefix, file.len() as u64).unwrap());
    let header = Header::parse(json, data.len() as u64).unwrap();
    assert_eq!(header.metadata(), Some(&[("run".into(), "7".into())][..]));
    assert_eq!(header.tensors().len(), 4);
    for info in header.tensors() {
        let (.., bytes) = tensors
            .iter()
            .find(|(name, ..)| *name == info.name)
            .unwrap();
        let range = usize::try_from(info.begin).unwrap()..usize::try_from(info.end).unwrap();
        assert!(data[range] == *bytes, "{}", info.name);
    }
    // And that file comes back as any other.
    done(shop.save(6, std::slice::from_ref(&path)));
    let again = shop.rig.path("again");
    done(shop.run("load", &["--out", text(&again)]));
    same(&listing(&again), &[path]);

    let nothing = shop.rig.path("nothing");
    done(shop.run("load", &["--step", "4", "--out", text(&nothing)]));
    assert_eq!(
        fs::read(nothing.join("model.safetensors")).unwrap().len(),
        16
    );
}

#[test]
fn thousands_of_small_tensors_and_many_files_come_back() {
    let shop = Shop::with_store();
    let mut entries = Vec::new();
    let mut end = 0;
    for number in 0..3000 {
        let length = number % 977;
        let shape = format!("[{length}]");
        entries.push(entry(
            &format!("t{number}"),
            "I8",
            &shape,
            end,
            end + length,
        ));
        end += length;
    }
    let header = format!("{{{}}}", entries.join(","));
    let mut files = vec![shop.file("in/many.safetensors", &safetensors(&header, &pattern(end)))];
    for number in 0..150 {
        files.push(shop.file(&format!("in/{number}.bin"), &pattern(number)));
    }
    // With fewer descriptors than there are files.
    let few = |subcommand: &str, options: &[&str]| {
        let script = "ulimit -n 80 && exec \"$@\"";
        let mut shell = assert_cmd::Command::new("sh");
        shell.args(["-c", script, "sh"]).arg(swath());
        shell.args([subcommand, &shop.volume]).args(options);
        done(shell.output().unwrap());
    };
    let paths = files.iter().map(|file| text(file));
    let options: Vec<&str> = ["--step", "1"].into_iter().chain(paths).collect();
    few("save", &options);
    let out = shop.rig.path("out");
    few("load", &["--threads", "7", "--out", text(&out)]);
    same(&listing(&out), &files);
}
