//! Binaries as a test runs them: with their output at hand, and killed whatever happens.

use crate::{poll, reaper};
use parking_lot::Mutex;
use std::ffi::OsStr;
use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Which stream a line came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// One line of output, without its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Where it was written.
    pub stream: Stream,
    /// The text; bytes that are no UTF-8 are replaced.
    pub text: String,
}

/// What to run.
#[derive(Debug)]
pub struct Launch(Command);

impl Launch {
    /// Adds arguments.
    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.0.args(args);
        self
    }

    /// Sets an environment variable; the others are inherited.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.0.env(name, value);
        self
    }

    /// Starts from an empty environment with `PATH` alone.
    #[must_use]
    pub fn clean_env(mut self) -> Self {
        self.0.env_clear();
        if let Some(path) = std::env::var_os("PATH") {
            self.0.env("PATH", path);
        }
        self
    }

    /// Sets the working folder.
    #[must_use]
    pub fn dir(mut self, folder: impl AsRef<Path>) -> Self {
        self.0.current_dir(folder);
        self
    }

    /// Starts it.
    ///
    /// # Panics
    /// When it cannot be run.
    #[must_use]
    pub fn spawn(mut self) -> Child9 {
        let spawned = self.0.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = spawned.unwrap_or_else(|e| panic!("{:?} cannot be run: {e}", self.0.get_program()));
        let lines = Arc::new(Mutex::new(Vec::new()));
        let readers = vec![
            reader(Stream::Out, child.stdout.take().expect("a pipe"), Arc::clone(&lines)),
            reader(Stream::Err, child.stderr.take().expect("a pipe"), Arc::clone(&lines)),
        ];
        let name = self.0.get_program().to_string_lossy().into_owned();
        // From here on a panic kills it.
        let mut child = Child9 { name, child, lines, readers, guard: None, exited: None };
        child.guard = Some(reaper::Reaper::guard(child.pid(), None).expect("a shell to guard the process"));
        child
    }
}

/// A running binary that a test may kill -9. Dropping it kills it.
///
/// ```
/// use std::time::Duration;
/// let mut child = strata_testkit::Child9::of("sh").args(["-c", "echo ready; exec sleep 60"]).spawn();
/// child.wait_for_line(Duration::from_secs(5), |line| line.contains("ready"));
/// child.kill_9();
/// assert!(!child.is_running());
/// ```
#[derive(Debug)]
pub struct Child9 {
    name: String,
    child: Child,
    lines: Arc<Mutex<Vec<Line>>>,
    readers: Vec<JoinHandle<()>>,
    guard: Option<reaper::Reaper>,
    exited: Option<ExitStatus>,
}

impl Child9 {
    /// A launch of `program`; for a binary of the package under test give `env!("CARGO_BIN_EXE_<name>")`.
    #[must_use]
    pub fn of(program: impl AsRef<OsStr>) -> Launch {
        Launch(Command::new(program))
    }

    /// Process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything written so far, both streams in the order they were read.
    #[must_use]
    pub fn lines(&self) -> Vec<Line> {
        self.lines.lock().clone()
    }

    /// The lines of one stream so far.
    #[must_use]
    pub fn output(&self, stream: Stream) -> Vec<String> {
        self.lines.lock().iter().filter(|line| line.stream == stream).map(|line| line.text.clone()).collect()
    }

    /// Whether any line so far holds `needle`: what must never be logged.
    #[must_use]
    pub fn printed(&self, needle: &str) -> bool {
        self.lines.lock().iter().any(|line| line.text.contains(needle))
    }

    /// Waits for a line, written already or still to come, that meets `wanted`, and returns it.
    ///
    /// # Panics
    /// When none comes within `timeout` or the process exits without it; the message holds its whole output.
    pub fn wait_for_line(&mut self, timeout: Duration, wanted: impl Fn(&str) -> bool) -> String {
        let found = poll::blocking(timeout, || {
            // Looked at before the lines: what an ended process wrote is all there by then.
            let over = !self.is_running();
            let line = self.lines.lock().iter().find(|line| wanted(&line.text)).map(|line| line.text.clone());
            line.map(Some).or_else(|| over.then_some(None))
        });
        match found {
            Ok(Some(line)) => line,
            Ok(None) => panic!("{self} exited without the line that was waited for"),
            Err(late) => panic!("{late}: {self}"),
        }
    }

    /// Whether it runs.
    pub fn is_running(&mut self) -> bool {
        if self.exited.is_none()
            && let Some(status) = self.child.try_wait().expect("a child of this process")
        {
            self.ended(status);
        }
        self.exited.is_none()
    }

    /// Kills it as a crash does: nothing of it runs any more. No effect on one that has ended.
    pub fn kill_9(&mut self) {
        if self.is_running() {
            drop(self.child.kill());
            let status = self.child.wait().expect("a child of this process");
            self.ended(status);
        }
    }

    /// Asks it to end (SIGTERM) and waits.
    ///
    /// # Panics
    /// When it has ended before, or has not ended after `timeout`; the message holds its whole output.
    pub fn terminate(&mut self, timeout: Duration) -> ExitStatus {
        assert!(self.is_running(), "{self} has ended before it was asked to");
        reaper::signal(self.pid(), "TERM");
        self.wait_exit(timeout)
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it has not ended after `timeout`; the message holds its whole output.
    pub fn wait_exit(&mut self, timeout: Duration) -> ExitStatus {
        let ended = poll::blocking(timeout, || (!self.is_running()).then_some(()));
        match (ended, self.exited) {
            (Ok(()), Some(status)) => status,
            (Ok(()), None) => unreachable!("one that does not run has a status"),
            (Err(late), _) => panic!("{late}: {self} still runs"),
        }
    }

    /// Stops it (SIGSTOP): it keeps its connections and answers nothing.
    ///
    /// # Panics
    /// When it has ended.
    pub fn stop_process(&self) {
        reaper::signal(self.pid(), "STOP");
    }

    /// Lets a stopped one go on (SIGCONT).
    ///
    /// # Panics
    /// When it has ended.
    pub fn cont(&self) {
        reaper::signal(self.pid(), "CONT");
    }

    /// Sends another signal, by its name without SIG: `HUP`, `INT`, `USR1`.
    ///
    /// # Panics
    /// When it has ended.
    pub fn signal(&self, name: &str) {
        reaper::signal(self.pid(), name);
    }

    fn ended(&mut self, status: ExitStatus) {
        self.exited = Some(status);
        // The id is free for others from now on.
        self.guard = None;
        // A grandchild may keep the pipes open for ever: give the readers time to finish what is there and no more.
        let done = || self.readers.iter().all(JoinHandle::is_finished).then_some(());
        drop(poll::blocking(Duration::from_secs(1), done));
    }
}

impl fmt::Display for Child9 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        if let Some(status) = self.exited {
            write!(f, " ({status})")?;
        }
        write!(f, " with the output:")?;
        for line in self.lines.lock().iter() {
            let stream = match line.stream {
                Stream::Out => "out",
                Stream::Err => "err",
            };
            write!(f, "\n  {stream}: {}", line.text)?;
        }
        Ok(())
    }
}

impl Drop for Child9 {
    fn drop(&mut self) {
        self.kill_9();
    }
}

fn reader(stream: Stream, pipe: impl Read + Send + 'static, into: Arc<Mutex<Vec<Line>>>) -> JoinHandle<()> {
    let read = move || {
        let mut pipe = BufReader::new(pipe);
        let mut bytes = Vec::new();
        while matches!(pipe.read_until(b'\n', &mut bytes), Ok(n) if n > 0) {
            let text = String::from_utf8_lossy(&bytes).trim_end_matches(['\r', '\n']).to_owned();
            into.lock().push(Line { stream, text });
            bytes.clear();
        }
    };
    std::thread::Builder::new().name("child-output".to_owned()).spawn(read).expect("a thread")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    fn sh(script: &str) -> Launch {
        Child9::of("sh").args(["-c", script])
    }

    #[test]
    fn output_arguments_and_environment_are_at_hand() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let mut child = sh("echo \"$GREETING $1\"; pwd; echo oops >&2; exit 3")
            .args(["sh", "you"])
            .env("GREETING", "hi")
            .dir(&folder)
            .spawn();
        assert_eq!(child.wait_exit(SOON).code(), Some(3));
        let out = child.output(Stream::Out);
        assert_eq!(out[0], "hi you");
        assert!(out[1].ends_with(folder.path().file_name().and_then(OsStr::to_str).expect("a name")), "{out:?}");
        assert_eq!(child.output(Stream::Err), ["oops"]);
        assert!(child.printed("oops") && !child.printed("secret"));
    }

    #[test]
    fn a_line_is_found_whether_it_came_before_or_comes_after() {
        let mut child = sh("echo ready on 127.0.0.1:1; read -r _ < /dev/null; exec sleep 60").spawn();
        let ready = |line: &str| line.starts_with("ready");
        assert_eq!(child.wait_for_line(SOON, ready), "ready on 127.0.0.1:1");
        assert_eq!(child.wait_for_line(Duration::ZERO, ready), "ready on 127.0.0.1:1");
    }

    #[test]
    #[should_panic(expected = "boom")]
    fn an_early_exit_shows_the_output() {
        sh("echo boom >&2; exit 1").spawn().wait_for_line(SOON, |line| line.contains("ready"));
    }

    #[test]
    fn terminate_gives_the_exit_code_and_a_bound() {
        let mut graceful = sh("trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.05; done").spawn();
        graceful.wait_for_line(SOON, |line| line == "ready");
        assert_eq!(graceful.terminate(SOON).code(), Some(7));
        assert!(graceful.printed("bye"));
        let mut deaf = sh("trap '' TERM; echo ready; while :; do sleep 0.05; done").spawn();
        deaf.wait_for_line(SOON, |line| line == "ready");
        let late = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| deaf.terminate(Duration::from_millis(100))));
        assert!(late.is_err() && deaf.is_running());
        deaf.kill_9();
        assert!(!deaf.is_running());
    }

    #[test]
    fn dropping_kills() {
        let mut child = sh("echo $$; exec sleep 60").spawn();
        let pid = child.wait_for_line(SOON, |_| true);
        let alive = || Command::new("sh").args(["-c", "kill -0 \"$1\" 2>/dev/null", "alive", &pid]).status();
        assert!(alive().expect("a shell").success());
        drop(child);
        assert!(!alive().expect("a shell").success());
    }

    #[test]
    fn a_killed_test_process_leaves_no_orphan() {
        // The guard sees its input end, as it does when its parent dies, and kills what it guards.
        let mut child = sh("exec sleep 60").spawn();
        let mut guard = Command::new("sh")
            .args(["-c", reaper::SCRIPT, "reaper", &child.pid().to_string(), ""])
            .stdin(Stdio::piped())
            .spawn()
            .expect("a shell");
        drop(guard.stdin.take());
        assert!(guard.wait().is_ok());
        assert_eq!(child.wait_exit(SOON).code(), None, "ended by a signal");
    }
}
