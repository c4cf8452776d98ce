//! `cargo ci`: what CI runs, in order, on stable Rust. Stops at the first step that fails.
//!
//! `cargo ci` runs every step; `cargo ci test docs` runs just these. `cargo ci full` is not among the
//! steps: it runs the suites that try crashes, faults and kills as far as they go, for hours.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

/// A step: its name, and the commands in it.
struct Step {
    name: &'static str,
    commands: Vec<Command>,
}

fn main() -> ExitCode {
    let root = workspace_root();
    let wanted: Vec<String> = env::args().skip(1).collect();
    let steps = if wanted == ["full"] {
        vec![full_run()]
    } else {
        steps(&root)
    };
    if let Some(unknown) = wanted
        .iter()
        .find(|name| steps.iter().all(|step| step.name != **name))
    {
        let names: Vec<_> = steps.iter().map(|step| step.name).collect();
        eprintln!(
            "ci: there is no step '{unknown}'; the steps are {}, and 'full' alone",
            names.join(", ")
        );
        return ExitCode::from(2);
    }
    for Step { name, commands } in steps {
        if !wanted.is_empty() && !wanted.iter().any(|wanted| wanted == name) {
            continue;
        }
        let started = Instant::now();
        for mut command in commands {
            eprintln!("ci: {name}: {}", shown(&command));
            match command.current_dir(&root).status() {
                Ok(status) if status.success() => {}
                Ok(status) => {
                    eprintln!("ci: {name} failed: {status}");
                    return ExitCode::FAILURE;
                }
                Err(error) => {
                    eprintln!("ci: {name} could not be started: {error}");
                    return ExitCode::FAILURE;
                }
            }
        }
        eprintln!("ci: {name} took {:.1} s", started.elapsed().as_secs_f64());
    }
    eprintln!("ci: all is well");
    ExitCode::SUCCESS
}

fn steps(root: &Path) -> Vec<Step> {
    let tests = cargo(&["test", "--workspace", "--no-fail-fast"]);
    let mut docs = cargo(&["doc", "--workspace", "--no-deps", "--quiet"]);
    docs.env("RUSTDOCFLAGS", "--deny warnings");
    vec![
        Step {
            name: "fmt",
            commands: vec![cargo(&["fmt", "--all", "--check"])],
        },
        Step {
            name: "clippy",
            commands: vec![cargo(&[
                "clippy",
                "--workspace",
                "--all-targets",
                "--quiet",
                "--",
                "--deny",
                "warnings",
            ])],
        },
        Step {
            name: "test",
            commands: vec![tests],
        },
        Step {
            name: "docs",
            commands: vec![docs],
        },
        Step {
            name: "examples",
            commands: rust_files(&root.join("examples"))
                .iter()
                .map(|name| cargo(&["run", "--quiet", "-p", "swath-examples", "--example", name]))
                .collect(),
        },
        Step {
            name: "benches",
            commands: tiny_benches(),
        },
        Step {
            name: "instructions",
            commands: vec![cargo(&[
                "bench",
                "--quiet",
                "-p",
                "swath-bench",
                "--bench",
                "instructions",
            ])],
        },
    ]
}

/// Every crash state, ten thousand seeds, a million flips, a thousand kills, every planted bug.
fn full_run() -> Step {
    let suite = |variables: &[(&str, &str)], suite: &str, filter: &[&str]| {
        let test = ["test", "--release", "-p", "swath-tests", "--test", suite];
        let mut command = cargo(&[&test[..], filter, &["--", "--nocapture"]].concat());
        command.envs(variables.iter().copied());
        command
    };
    Step {
        name: "full",
        commands: vec![
            suite(&[("SWATH_CRASH_STATES", "full")], "crash", &[]),
            suite(&[("SWATH_SEEDS", "10000")], "simulation", &[]),
            suite(
                &[("SWATH_FLIPS", "1000000"), ("SWATH_CASES", "64")],
                "integration",
                &["store::bits"],
            ),
            suite(&[("SWATH_CASES", "50")], "property", &[]),
            suite(&[("SWATH_KILLS", "1000")], "integration", &["kills::"]),
            cargo(&["run", "-p", "swath-tests", "--bin", "planted"]),
        ],
    }
}

/// Every bench binary, once, as small as it gets.
fn tiny_benches() -> Vec<Command> {
    let run = ["run", "--quiet", "--release", "--bin"];
    let matrix = [
        "swath-matrix",
        "--",
        "--size",
        "64m",
        "--runtime",
        "50ms",
        "--ramp-time",
        "10ms",
    ];
    let cells = ["--bs", "4k,1m", "--baseline"];
    let swept = [
        "--bs",
        "4k",
        "--rw",
        "randwrite",
        "--iodepth",
        "1,8",
        "--numjobs",
        "1,2",
        "--steady-state=window:2,rounds:3",
        "--precondition=random",
    ];
    let checkpoint = [
        "swath-checkpoint",
        "--",
        "--size",
        "32m",
        "--member-size",
        "64m",
    ];
    let compare = [
        "swath-compare",
        "--",
        "--size",
        "64m",
        "--cells",
        "4k-randread,1m-write",
        "--iodepth",
        "2",
    ];
    let short = [
        "--rounds",
        "1",
        "--runtime",
        "50ms",
        "--ramp-time",
        "10ms",
        "--probe-time",
        "20ms",
    ];
    let once = ["--saves", "1", "--rounds", "1"];
    let processes = ["--ranks", "2", "--processes"];
    let small = [
        "--",
        "--size",
        "64m",
        "--runtime",
        "50ms",
        "--ramp-time",
        "10ms",
    ];
    let threads = ["--threads", "1,4", "--bs", "4k,1m"];
    let curve = ["--curve", "50,120", "--profile", "4k-randread,oltp"];
    let pure = ["-p", "swath-bench", "--bench", "pure", "--", "--test"];
    let mut benches = vec![
        cargo(&[&run[..], &matrix[..], &cells[..]].concat()),
        cargo(&[&run[..], &matrix[..], &swept[..]].concat()),
        cargo(&[&run[..], &checkpoint[..], &once[..]].concat()),
        cargo(&[&run[..], &checkpoint[..], &once[..], &processes[..]].concat()),
        cargo(&[&run[..], &["swath-threads"], &small, &threads].concat()),
        cargo(&[&run[..], &["swath-curve"], &small, &curve].concat()),
        cargo(&[&["bench", "--quiet"], &pure[..]].concat()),
    ];
    if Command::new("fio").arg("--version").output().is_ok() {
        benches.push(cargo(&[&run[..], &compare[..], &short[..]].concat()));
    } else {
        eprintln!("ci: benches: skipped: swath-compare, for there is no fio here");
    }
    benches
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments);
    command
}

fn shown(command: &Command) -> String {
    let words = command
        .get_args()
        .map(|word| word.to_string_lossy().into_owned());
    std::iter::once("cargo".to_owned())
        .chain(words)
        .collect::<Vec<_>>()
        .join(" ")
}

/// The names, without their ending, of the Rust files in a directory.
fn rust_files(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "rs"))
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    names
}

fn workspace_root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package
        .parent()
        .expect("the tests package lies in the workspace")
        .to_path_buf()
}
