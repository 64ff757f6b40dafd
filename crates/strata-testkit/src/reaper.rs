//! No orphans: a started process dies with the test process, however that ends.

use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Waits for the end of standard input, kills process `$1`, removes folder `$2` unless that is empty.
pub const SCRIPT: &str = "read -r _; kill -9 \"$1\" 2>/dev/null; [ -z \"$2\" ] || rm -rf -- \"$2\"";

/// A guard process that waits for the end of its standard input, which the kernel closes when the test process is gone (a
/// crash and a kill -9 of the test run included), and then kills the process it guards and removes its folder.
#[derive(Debug)]
pub struct Reaper(Child);

impl Reaper {
    /// Guards the process `pid`; `folder` is removed with it.
    pub fn guard(pid: u32, folder: Option<&Path>) -> io::Result<Self> {
        Command::new("sh")
            .args(["-c", SCRIPT, "reaper", &pid.to_string()])
            .arg(folder.unwrap_or(Path::new("")))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map(Self)
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        // Killed before its input closes, so it never signals an id that the system may have given to another process.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Sends `signal` (`STOP`, `CONT`, `TERM` ...) to the process `pid`.
///
/// # Panics
/// When the process is gone.
pub fn signal(pid: u32, signal: &str) {
    // The shell's own `kill`: the kit needs neither unsafe code nor another package for a signal.
    let sent = Command::new("sh").args(["-c", "kill -s \"$1\" \"$2\"", "signal", signal, &pid.to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()), "could not send SIG{signal} to process {pid}");
}
