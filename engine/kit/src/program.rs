//! Other programs: where they are, and what they answer to a short question.

use std::ffi::OsStr;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Every executable file called `name` in the folders of `path` (spelled like `PATH`), in that order.
pub(super) fn on_path(path: &OsStr, name: &str) -> Vec<PathBuf> {
    let executable =
        |file: &PathBuf| file.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    // An empty entry means the current folder; a program found there by accident is not the system's.
    let folders = std::env::split_paths(path).filter(|folder| !folder.as_os_str().is_empty());
    folders.map(|folder| folder.join(name)).filter(executable).collect()
}

/// Starts `command`, even if its file was written a moment ago.
///
/// A child that another thread of ours is just forking holds, until its exec, a copy of every file we had
/// open; while one of these is the program, open for writing, the kernel refuses to run it.
pub(super) fn spawn(command: &mut Command) -> io::Result<Child> {
    let since = Instant::now();
    loop {
        match command.spawn() {
            Err(e)
                if e.kind() == ErrorKind::ExecutableFileBusy && since.elapsed() < Duration::from_secs(2) =>
            {
                thread::sleep(Duration::from_millis(2));
            }
            done => return done,
        }
    }
}

/// Runs `command` to its end and returns what it wrote to stdout and stderr, in `Err` if it failed.
///
/// A program that does not close its output within `limit` is killed.
pub(super) fn ask(mut command: Command, limit: Duration) -> Result<String, String> {
    let run = || -> io::Result<_> {
        let (mut output, input) = io::pipe()?;
        command.stdin(Stdio::null()).stdout(input.try_clone()?).stderr(input);
        let child = spawn(&mut command)?;
        drop(command); // holds the pipe open
        // A thread, because reading has no time limit. It ends with the last process that holds the pipe.
        let (said, hear) = mpsc::channel();
        thread::Builder::new().spawn(move || {
            let mut text = Vec::new();
            let _ = output.read_to_end(&mut text);
            let _ = said.send(String::from_utf8_lossy(&text).trim().to_owned());
        })?;
        Ok((child, hear))
    };
    let (mut child, hear) = run().map_err(|e| e.to_string())?;
    let said = hear.recv_timeout(limit);
    if said.is_err() {
        let _ = child.kill();
    }
    let status = child.wait().map_err(|e| e.to_string())?;
    match said {
        Ok(said) if status.success() => Ok(said),
        Ok(said) if said.is_empty() => Err(status.to_string()),
        Ok(said) => Err(said),
        Err(_) => Err(format!("no answer within {} s", limit.as_secs())),
    }
}

/// Major and minor number at the beginning of `text`, such as 9 and 1 in `9.1.2 sha=0`.
pub(super) fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}
