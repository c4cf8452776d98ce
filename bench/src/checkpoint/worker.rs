//! A process that works for a run when it is told to: a line of JSON to it, a line back.
//!
//! - It is never waited for longer than the run lasts: an interrupt ends the wait.
//! - It is gone when this is dropped: killed, and waited for. What it did until then is not relied
//!   on by anybody.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, ErrorKind, Result};
use crate::interrupt::Interrupt;

/// How often an interrupt is looked for. An answer is not delayed by it.
const TICK: Duration = Duration::from_millis(50);

/// How long one that closed its output may take to end.
const LEAVE_TO_END: Duration = Duration::from_secs(5);

/// The process.
pub(crate) struct Worker {
    /// What errors call it.
    name: String,
    child: Child,
    /// None when it was told to end.
    input: Option<ChildStdin>,
    lines: Receiver<io::Result<String>>,
}

impl Worker {
    /// Starts it. To be called on a thread that lasts as long as the run: a process that asks to die
    /// with its parent dies with the thread.
    pub(crate) fn start(name: impl Into<String>, mut command: Command) -> io::Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take();
        let output = child.stdout.take();
        let (sender, lines) = mpsc::channel();
        let reader = thread::Builder::new().spawn(move || {
            for line in output.into_iter().flat_map(|it| BufReader::new(it).lines()) {
                let is_broken = line.is_err();
                if sender.send(line).is_err() || is_broken {
                    break;
                }
            }
        });
        let worker = Self {
            name: name.into(),
            child,
            input,
            lines,
        };
        reader.map(|_| worker)
    }

    /// Tells it something.
    ///
    /// # Errors
    ///
    /// It has ended.
    pub(crate) fn tell(&mut self, value: &impl Serialize) -> Result<()> {
        let input = self.input.as_mut();
        let input = input.ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe));
        let written = input.and_then(|input| {
            let mut line = serde_json::to_vec(value)?;
            line.push(b'\n');
            input.write_all(&line)?;
            input.flush()
        });
        written.map_err(|cause| self.has_ended(Some(cause)))
    }

    /// Waits for what it answers.
    ///
    /// # Errors
    ///
    /// It has ended, answers what makes no sense, or the run was interrupted.
    pub(crate) fn hear<T: DeserializeOwned>(&mut self, interrupt: &Interrupt) -> Result<T> {
        loop {
            interrupt.check()?;
            match self.lines.recv_timeout(TICK) {
                Ok(Ok(line)) => {
                    return serde_json::from_str(&line).map_err(|cause| {
                        let name = &self.name;
                        let shown: String = line.chars().take(200).collect();
                        Error::failed(
                            format!("{name} answers what is not understood: {shown:?}"),
                            cause,
                        )
                    });
                }
                Ok(Err(cause)) => return Err(self.has_ended(Some(cause))),
                Err(RecvTimeoutError::Disconnected) => return Err(self.has_ended(None)),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// What to say of one that does not listen or answer any more.
    fn has_ended(&mut self, cause: Option<io::Error>) -> Error {
        self.input.take();
        let began = Instant::now();
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) if began.elapsed() < LEAVE_TO_END => {
                    thread::sleep(Duration::from_millis(5));
                }
                _ => break None,
            }
        };
        let how = match status {
            Some(status) => format!("{} has ended: {status}", self.name),
            None => format!("{} does not answer any more", self.name),
        };
        self.end();
        match cause {
            Some(cause) => Error::failed(how, cause),
            None => Error::new(ErrorKind::Failed, how),
        }
    }

    /// Ends it, now.
    pub(crate) fn end(&mut self) {
        self.input.take();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Worker {
        let mut command = Command::new("sh");
        command.arg("-c").arg(script);
        Worker::start("the shell", command).unwrap()
    }

    #[test]
    fn lines_go_there_and_back() {
        let mut worker = shell("while read line; do echo \"[$line, 1]\"; done");
        for value in [1_u64, 22, 333] {
            worker.tell(&value).unwrap();
            let answer: [u64; 2] = worker.hear(&Interrupt::new()).unwrap();
            assert_eq!(answer, [value, 1]);
        }
    }

    #[test]
    fn one_that_ends_is_told_with_how_it_ended() {
        let mut worker = shell("read line; exit 3");
        worker.tell(&1).unwrap();
        let error = worker.hear::<u64>(&Interrupt::new()).unwrap_err();
        assert!(
            error
                .chain()
                .contains("the shell has ended: exit status: 3"),
            "{}",
            error.chain()
        );
        // And still is, when it is told something.
        assert!(worker.tell(&vec![1; 100_000]).is_err());
    }

    #[test]
    fn nonsense_is_shown() {
        let mut worker = shell("echo Traceback; cat");
        let error = worker.hear::<u64>(&Interrupt::new()).unwrap_err();
        assert!(error.to_string().contains("Traceback"), "{error}");
    }

    #[test]
    fn an_interrupt_ends_the_wait_and_the_drop_ends_the_process() {
        let interrupt = Interrupt::new();
        let mut worker = shell("exec sleep 1000");
        let began = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(20));
                interrupt.set();
            });
            let error = worker.hear::<u64>(&interrupt).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Interrupted);
        });
        let process = worker.child.id();
        drop(worker);
        assert!(!std::path::Path::new(&format!("/proc/{process}")).exists());
        assert!(began.elapsed() < Duration::from_secs(100));
    }
}
