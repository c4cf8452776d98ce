//! The processes that are killed: how they are started, heard and told, and when their end comes.

use std::env;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Instant;

use swath_checkpoint::StoreOptions;
use swath_engine::Backend;
use swath_tests::{checkpoints, fixtures};

/// The test that is started as another process.
pub(super) const NAME: &str = "kills::a_process_of_these_tests";

/// What another process is to do.
#[derive(Debug, Clone)]
pub(super) struct Role {
    pub(super) name: String,
    pub(super) members: Vec<PathBuf>,
    pub(super) backend: Backend,
    /// What its own choices follow from.
    pub(super) seed: u64,
}

impl Role {
    const VARIABLES: [&str; 4] = [
        "SWATH_TEST_ROLE",
        "SWATH_TEST_MEMBERS",
        "SWATH_TEST_BACKEND",
        "SWATH_TEST_SEED",
    ];

    /// The role of the process that runs this.
    pub(super) fn of_this_process() -> Self {
        let [name, members, backend, seed] =
            Self::VARIABLES.map(|variable| env::var_os(variable).unwrap());
        let text = |value: OsString| value.into_string().unwrap();
        Self {
            name: text(name),
            members: env::split_paths(&members).collect(),
            backend: text(backend).parse().unwrap(),
            seed: text(seed).parse().unwrap(),
        }
    }

    /// Gives a command this role.
    pub(super) fn give<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let values = [
            self.name.clone().into(),
            env::join_paths(&self.members).unwrap(),
            self.backend.to_string().into(),
            self.seed.to_string().into(),
        ];
        command.envs(Self::VARIABLES.into_iter().zip(values))
    }

    /// Options of a store in this role.
    pub(super) fn store_options(&self) -> StoreOptions {
        checkpoints::store_options(self.backend)
    }
}

/// What came from a process.
#[derive(Debug)]
pub(super) enum Word {
    Line(String),
    /// It has closed its standard output: it has ended.
    End,
}

/// What came from which process, and when.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) who: usize,
    pub(super) word: Word,
    pub(super) at: Instant,
}

/// Another process. Killed when it is dropped.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    input: Option<ChildStdin>,
}

impl Process {
    /// Starts one; what it says goes to `to`, as from `who`.
    pub(super) fn start(role: &Role, who: usize, to: Sender<Heard>) -> Self {
        let mut child = role
            .give(&mut fixtures::alone(NAME))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        thread::spawn(move || {
            let heard = |word| Heard {
                who,
                word,
                at: Instant::now(),
            };
            for line in lines.map_while(Result::ok) {
                // Nobody listens any more when a test has failed.
                let _ = to.send(heard(Word::Line(line)));
            }
            let _ = to.send(heard(Word::End));
        });
        Self {
            input: child.stdin.take(),
            child,
        }
    }

    /// Tells it a line. It may have been killed meanwhile.
    pub(super) fn tell(&mut self, line: &str) {
        if let Some(input) = &mut self.input {
            let _ = writeln!(input, "{line}");
        }
    }

    /// Lets it know that no more lines come.
    pub(super) fn leave(&mut self) {
        self.input = None;
    }

    /// Kills it with SIGKILL.
    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    /// Waits for its end, by a kill and not by itself.
    pub(super) fn assert_killed(&mut self) {
        let status = self.child.wait().unwrap();
        assert_eq!(status.signal(), Some(libc::SIGKILL), "it ended: {status}");
    }

    /// Waits for its end, by itself.
    pub(super) fn assert_ended(&mut self) {
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Tells the test that started this process: in one piece, at once, and at the start of a line.
pub(super) fn tell(line: &str) {
    let mut out = std::io::stdout();
    out.write_all(format!("\n{line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// The next line that this process is told; none when no more come.
pub(super) fn next_line() -> Option<String> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    (!line.is_empty()).then(|| line.trim().to_owned())
}
