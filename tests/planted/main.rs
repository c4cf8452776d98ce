//! `cargo run -p swath-tests --bin planted`: does the suite notice?
//!
//! Plants known bugs, one at a time, in a copy of the source tree, and runs the tests over each. A
//! bug is caught when a test fails. One that no test notices is a gap in the suite, and fails this
//! program. So does one whose place in the code is not found any more: see `list.rs`.
//!
//! `--list` prints what there is; names choose some of it. Takes a minute or two for each bug: this
//! is no part of `cargo ci`.

mod list;

use std::collections::HashSet;
use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use self::list::{BUGS, Bug};

/// A run that takes longer has been caught: by a test that waits for what never comes.
const RUN_LIMIT: Duration = Duration::from_secs(900);

enum Verdict {
    /// By this command, after this long.
    Caught(&'static str, Duration),
    Missed,
    /// The tests could not be run over it, and why.
    Void(String),
}

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    if words.iter().any(|word| word == "--list") {
        for bug in BUGS {
            println!("{:28} {}", bug.name, bug.breaks);
        }
        return ExitCode::SUCCESS;
    }
    if let Some(unknown) = words
        .iter()
        .find(|word| BUGS.iter().all(|bug| bug.name != **word))
    {
        eprintln!("planted: there is no bug '{unknown}'; --list shows what there is");
        return ExitCode::from(2);
    }
    let chosen: Vec<&Bug> = BUGS
        .iter()
        .filter(|bug| words.is_empty() || words.iter().any(|word| word == bug.name))
        .collect();
    match run(&chosen) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("planted: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Tries the bugs and prints a line for each. Whether all were caught.
fn run(bugs: &[&Bug]) -> io::Result<bool> {
    let mut tree = Tree::copy()?;
    let mut caught = 0;
    for bug in bugs {
        let verdict = tree.try_bug(bug)?;
        let words = match verdict {
            Verdict::Caught(by, after) => {
                caught += 1;
                format!("caught in {} s by cargo test {by}", after.as_secs())
            }
            Verdict::Missed => "MISSED".to_owned(),
            Verdict::Void(why) => format!("VOID: {why}"),
        };
        println!("{:28} {words}", bug.name);
    }
    println!("{caught} of {} planted bugs caught", bugs.len());
    Ok(caught == bugs.len())
}

/// A copy of the source tree, with a target directory of its own.
struct Tree {
    root: PathBuf,
    target: PathBuf,
    /// The commands that pass without any bug: others would catch everything.
    green: HashSet<&'static str>,
}

impl Tree {
    /// Copies what git knows of, and what it does not ignore. Files that are the same are left
    /// alone, so that a second run need not build everything again.
    fn copy() -> io::Result<Self> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .ok_or_else(|| io::Error::other("the tests lie in a directory of the tree"))?;
        let place = source.join("target").join("planted");
        let root = place.join("tree");
        let listed = Command::new("git")
            .args([
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ])
            .current_dir(source)
            .output()?;
        if !listed.status.success() {
            return Err(io::Error::other(
                "git ls-files failed: this needs a checkout",
            ));
        }
        let names = String::from_utf8(listed.stdout).map_err(io::Error::other)?;
        for name in names.split('\0').filter(|name| !name.is_empty()) {
            let (from, to) = (source.join(name), root.join(name));
            // A file that was removed and not committed yet is listed, too.
            let Ok(bytes) = fs::read(&from) else {
                continue;
            };
            if fs::read(&to).is_ok_and(|old| old == bytes) {
                continue;
            }
            fs::create_dir_all(to.parent().unwrap_or(&root))?;
            fs::write(&to, bytes)?;
        }
        Ok(Self {
            root,
            target: place.join("build"),
            green: HashSet::new(),
        })
    }

    /// Plants a bug, runs the tests, and takes it out again.
    fn try_bug(&mut self, bug: &Bug) -> io::Result<Verdict> {
        let mut originals = Vec::new();
        let mut void = None;
        for edit in bug.edits {
            let path = self.root.join(edit.file);
            let text = fs::read_to_string(&path)?;
            let places = text.matches(edit.find).count();
            if places != 1 {
                void = Some(format!("{} has its place {places} times", edit.file));
                break;
            }
            fs::write(&path, text.replace(edit.find, edit.replace))?;
            originals.push((path, text));
        }
        let verdict = match void {
            Some(why) => Ok(Verdict::Void(why)),
            None => self.verdict(bug),
        };
        // The last edit first: a file may have had several.
        for (path, text) in originals.into_iter().rev() {
            fs::write(path, text)?;
        }
        let verdict = verdict?;
        if let Verdict::Caught(command, _) = &verdict
            && !self.green.contains(command)
        {
            if let Some(failure) = self.failure_of(command)? {
                return Ok(Verdict::Void(format!(
                    "cargo test {command}, as it is: {failure}"
                )));
            }
            self.green.insert(command);
        }
        Ok(verdict)
    }

    fn verdict(&self, bug: &Bug) -> io::Result<Verdict> {
        for command in bug.caught_by.iter().copied().chain(["--workspace"]) {
            let words = command.split(" -- ").next().unwrap_or(command);
            let mut build = self.cargo(&format!("{words} --no-run"));
            let build = build.stderr(Stdio::piped()).output()?;
            if !build.status.success() {
                let words = String::from_utf8_lossy(&build.stderr);
                let error = words.lines().find(|line| line.starts_with("error"));
                let why = error.unwrap_or("no error was told").to_owned();
                return Ok(Verdict::Void(format!("it does not compile: {why}")));
            }
            let started = Instant::now();
            if self.failure_of(command)?.is_some() {
                return Ok(Verdict::Caught(command, started.elapsed()));
            }
        }
        Ok(Verdict::Missed)
    }

    /// Runs `cargo test` with these words. None: all tests passed.
    fn failure_of(&self, words: &str) -> io::Result<Option<String>> {
        let mut child = self.cargo(words).spawn()?;
        let started = Instant::now();
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok((!status.success()).then(|| status.to_string()));
            }
            if started.elapsed() > RUN_LIMIT {
                end(&mut child)?;
                return Ok(Some("it does not end".to_owned()));
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn cargo(&self, words: &str) -> Command {
        let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command
            .arg("test")
            .args(words.split(' '))
            .current_dir(&self.root)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_INCREMENTAL", "0")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // Cargo and the tests that it starts end together.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command
    }
}

/// Ends cargo and whatever it started.
fn end(child: &mut Child) -> io::Result<()> {
    let group = i32::try_from(child.id()).map_err(io::Error::other)?;
    // SAFETY: the call touches no memory.
    unsafe { libc::kill(-group, libc::SIGKILL) };
    child.wait()?;
    Ok(())
}
