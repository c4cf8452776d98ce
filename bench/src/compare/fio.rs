//! fio, the program: finding it, seeing that it is one that can be compared with, and running it.
//!
//! - A run is bounded: one that does not end some time after it should is ended.
//! - An interrupt ends it at once; it leaves nothing behind, since it makes no files.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::compare::memory::{FioMemory, TRANSPARENT_BY, huge_bytes_of};
use crate::compare::output::{Done, parse};
use crate::environment::quote_command;
use crate::error::{Error, ErrorKind, Result};
use crate::interrupt::Interrupt;

/// How to come by it.
pub const HOW_TO_GET_FIO: &str =
    "install it (Debian and Ubuntu: apt install fio), or name it with --fio";

/// Registered files and fixed buffers of io_uring are older; times in milliseconds and the fields
/// of the report are as we read them since then.
const VERSION_MIN: (u32, u32) = (3, 20);

/// How often to look whether it has ended.
const TICK: Duration = Duration::from_millis(50);

/// How much longer than its time a run may take.
const LEAVE_TO_END: Duration = Duration::from_secs(30);

/// fio, found and fit to be compared with.
#[derive(Debug, Clone)]
pub struct Fio {
    path: PathBuf,
    version: String,
}

/// What one run gave.
#[derive(Debug)]
pub(crate) struct FioRun {
    pub(crate) done: Done,
    /// CPU time of the whole process over its whole life, in milliseconds: of kernel workers, too,
    /// which fio's own figure leaves out. Known to ten.
    pub(crate) process_cpu_ms: Option<u64>,
    /// Bytes of its memory in huge pages while it ran, if that was looked at.
    pub(crate) huge_bytes: Option<u64>,
}

impl Fio {
    /// Finds it, by `name`: on the PATH, or where a path leads.
    ///
    /// # Errors
    ///
    /// It is not there, too old, or without io_uring.
    pub fn find(name: &Path) -> Result<Self> {
        let path = locate(name).ok_or_else(|| {
            refused(format!(
                "there is no {}; {HOW_TO_GET_FIO}",
                match name.components().count() {
                    1 => format!("{} on the PATH", name.display()),
                    _ => name.display().to_string(),
                }
            ))
        })?;
        let version = ask(&path, "--version")?;
        let version = version.trim().to_owned();
        if !is_new_enough(&version) {
            return Err(refused(format!(
                "{} is {version:?}; fio {}.{} or newer is needed",
                path.display(),
                VERSION_MIN.0,
                VERSION_MIN.1
            )));
        }
        if !ask(&path, "--enghelp")?
            .lines()
            .any(|line| line.trim() == "io_uring")
        {
            return Err(refused(format!(
                "{} ({version}) was built without io_uring: what it can do at its best is not to be \
                 seen",
                path.display()
            )));
        }
        Ok(Self { path, version })
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// As it says: `fio-3.33`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The command of a run, as a shell would take it.
    pub(crate) fn command_line(&self, arguments: &[String], memory: FioMemory) -> String {
        let program = self.path.display().to_string();
        let words = std::iter::once(program).chain(arguments.iter().cloned());
        let command = quote_command(words);
        match environment(memory) {
            Some((name, value)) => format!("{name}={value} {command}"),
            None => command,
        }
    }

    /// Runs it for about `lasts`; `tick` is told how long it has run. With `look_at_memory` it is
    /// seen what its memory is made of, once, before its window begins.
    ///
    /// # Errors
    ///
    /// It fails: the last line it said and its command. Or the run was interrupted.
    pub(crate) fn run(
        &self,
        arguments: &[String],
        memory: FioMemory,
        lasts: Duration,
        look_at_memory: bool,
        interrupt: &Interrupt,
        tick: &mut dyn FnMut(Duration),
    ) -> Result<FioRun> {
        interrupt.check()?;
        let cpu_before = children_cpu_ms();
        let mut command = Command::new(&self.path);
        command.args(arguments).env("LC_ALL", "C");
        if let Some((name, value)) = environment(memory) {
            command.env(name, value);
        }
        let run = run_bounded(
            command,
            lasts + LEAVE_TO_END,
            look_at_memory,
            interrupt,
            tick,
        );
        let failed = |message: String| {
            let command = self.command_line(arguments, memory);
            Error::new(
                ErrorKind::Failed,
                format!("fio failed: {message}; its command: {command}"),
            )
        };
        let run = match run {
            Ok(Some(run)) => run,
            Ok(None) => {
                interrupt.check()?;
                return Err(failed("it did not end and was ended".to_owned()));
            }
            Err(cause) => return Err(failed(cause.to_string())),
        };
        // A signal to all of a terminal's programs may have ended it before we saw it.
        interrupt.check()?;
        let last_line = run
            .errors
            .lines()
            .rev()
            .find(|line| !line.trim().is_empty());
        if !run.status.success() {
            let said = last_line.map_or_else(|| run.status.to_string(), str::to_owned);
            return Err(failed(said));
        }
        let done = parse(&run.output).map_err(|error| {
            let said = last_line.map_or_else(String::new, |line| format!(" ({line})"));
            failed(format!("{}{said}", error.chain()))
        })?;
        let cpu_after = children_cpu_ms();
        Ok(FioRun {
            done,
            process_cpu_ms: cpu_before
                .zip(cpu_after)
                .map(|(before, after)| after.saturating_sub(before)),
            huge_bytes: run.huge_bytes,
        })
    }
}

/// What a process said and how it ended.
struct Ended {
    status: ExitStatus,
    output: String,
    errors: String,
    huge_bytes: Option<u64>,
}

/// Ends the process when dropped early.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a command to its end; none if that did not come in time, or before an interrupt.
fn run_bounded(
    mut command: Command,
    longest: Duration,
    look_at_memory: bool,
    interrupt: &Interrupt,
    tick: &mut dyn FnMut(Duration),
) -> io::Result<Option<Ended>> {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut running = Running(child);
    let output = read_aside(running.0.stdout.take());
    let errors = read_aside(running.0.stderr.take());
    let began = Instant::now();
    let mut huge_bytes = None;
    let status = loop {
        if let Some(status) = running.0.try_wait()? {
            break status;
        }
        let elapsed = began.elapsed();
        if interrupt.is_set() || elapsed > longest {
            return Ok(None);
        }
        // Looked at until there is something: it takes its memory some time after it starts.
        if look_at_memory && huge_bytes.is_none_or(|bytes| bytes == 0) {
            huge_bytes = huge_bytes_of(running.0.id()).or(huge_bytes);
        }
        tick(elapsed);
        thread::sleep(TICK);
    };
    let gather = |reader: thread::JoinHandle<String>| reader.join().unwrap_or_default();
    Ok(Some(Ended {
        status,
        output: gather(output),
        errors: gather(errors),
        huge_bytes,
    }))
}

/// Reads on a thread, so that a process that says much does not wait for us.
fn read_aside(from: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            // What came before an error is what there is.
            let _ = from.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn environment(memory: FioMemory) -> Option<(&'static str, &'static str)> {
    (memory == FioMemory::Transparent).then_some(TRANSPARENT_BY)
}

fn refused(message: String) -> Error {
    Error::new(ErrorKind::Refused, message)
}

/// What a program prints when asked; nothing is measured with it.
fn ask(path: &Path, argument: &str) -> Result<String> {
    let output = Command::new(path)
        .arg(argument)
        .stdin(Stdio::null())
        .output()
        .map_err(|cause| Error::failed(format!("cannot start {}", path.display()), cause))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Where `name` lies, as a shell would find it.
fn locate(name: &Path) -> Option<PathBuf> {
    if name.components().count() > 1 {
        return is_program(name).then(|| name.to_path_buf());
    }
    let places = env::var_os("PATH").unwrap_or_default();
    locate_in(name, &places)
}

fn locate_in(name: &Path, places: &OsStr) -> Option<PathBuf> {
    env::split_paths(places)
        .map(|place| place.join(name))
        .find(|path| is_program(path))
}

fn is_program(path: &Path) -> bool {
    let metadata = fs::metadata(path);
    metadata.is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
}

/// Of `fio-3.33`, or `fio-3.36-14-g1234`.
fn is_new_enough(version: &str) -> bool {
    let numbers = version.strip_prefix("fio-").and_then(|rest| {
        let mut parts = rest.split(['.', '-']).map(str::parse::<u32>);
        Some((
            parts.next()?.ok()?,
            parts.next().and_then(|it| it.ok()).unwrap_or(0),
        ))
    });
    numbers.is_some_and(|numbers| numbers >= VERSION_MIN)
}

/// CPU time of all children that have ended, with theirs: see proc_pid_stat(5).
fn children_cpu_ms() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    // The name, in brackets, may hold anything.
    let (_, fields) = text.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(13);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((user + system) * 1000 / rustix::param::clock_ticks_per_second().max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.arg("-c").arg(script);
        command
    }

    #[test]
    fn versions_are_compared_by_number() {
        for good in [
            "fio-3.33",
            "fio-3.20",
            "fio-3.36-14-gabc",
            "fio-4.0",
            "fio-10",
        ] {
            assert!(is_new_enough(good), "{good}");
        }
        for bad in ["fio-3.19", "fio-3.9.1", "fio-2.99", "fio", "", "bash 5"] {
            assert!(!is_new_enough(bad), "{bad}");
        }
    }

    #[test]
    fn a_program_that_is_not_there_is_told_with_how_to_get_it() {
        for name in ["no-such-fio", "/nowhere/fio"] {
            let error = Fio::find(Path::new(name)).unwrap_err();
            let text = error.to_string();
            assert!(
                text.contains(name) && text.contains("apt install fio"),
                "{text}"
            );
        }
    }

    #[test]
    fn another_program_is_not_fio() {
        let error = Fio::find(Path::new("sh")).unwrap_err();
        assert!(error.to_string().contains("newer is needed"), "{error}");
    }

    #[test]
    fn what_a_process_says_is_gathered_however_much() {
        let script = "head -c 300000 /dev/zero | tr '\\0' x; echo broken >&2; exit 3";
        let longest = Duration::from_secs(60);
        let ended = run_bounded(
            shell(script),
            longest,
            false,
            &Interrupt::new(),
            &mut |_| (),
        );
        let ended = ended.unwrap().unwrap();
        assert_eq!(ended.output.len(), 300_000);
        assert_eq!(ended.errors, "broken\n");
        assert_eq!(ended.status.code(), Some(3));
    }

    #[test]
    fn one_that_does_not_end_is_ended() {
        let began = Instant::now();
        let longest = Duration::from_millis(30);
        let run = |interrupt: &Interrupt, longest| {
            run_bounded(
                shell("exec sleep 1000"),
                longest,
                false,
                interrupt,
                &mut |_| (),
            )
        };
        assert!(run(&Interrupt::new(), longest).unwrap().is_none());
        let interrupt = Interrupt::new();
        interrupt.set();
        assert!(run(&interrupt, Duration::MAX).unwrap().is_none());
        assert!(began.elapsed() < Duration::from_secs(100));
    }

    #[test]
    fn a_failure_shows_the_last_line_and_the_command() {
        let fio = Fio {
            path: "/bin/sh".into(),
            version: "fio-3.33".to_owned(),
        };
        let arguments = ["-c", "echo first >&2; echo 'no memory' >&2; exit 1"];
        let arguments = arguments.map(str::to_owned);
        let error = fio
            .run(
                &arguments,
                FioMemory::Transparent,
                Duration::from_secs(1),
                false,
                &Interrupt::new(),
                &mut |_| (),
            )
            .unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("fio failed: no memory; its command: "),
            "{text}"
        );
        assert!(
            text.contains("GLIBC_TUNABLES=glibc.malloc.hugetlb=1 /bin/sh -c"),
            "{text}"
        );
    }

    #[test]
    fn cpu_time_of_children_is_told() {
        assert!(children_cpu_ms().is_some());
    }
}
