//! The processes of a round: the services of `syncline`, and the lean peer, which is this program again.

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
};

use anyhow::{Context, Result};

/// First argument of this program as the lean peer.
pub const LEAN: &str = "lean-peer";

/// A child that is killed when this is dropped, and ends by itself when this process does.
pub struct Process {
    child: Child,
    _stdin: Option<ChildStdin>,
}

impl Process {
    /// Starts a subcommand of `syncline`.
    pub fn start<S: AsRef<OsStr>>(args: &[S]) -> Result<Self> {
        Self::spawn(syncline(), args, &[], Stdio::null())
    }

    /// Starts a subcommand of `syncline` and waits for its line `listening ADDRESS`.
    pub fn listening<S: AsRef<OsStr>>(args: &[S]) -> Result<(Self, String)> {
        Self::listening_with(args, &[])
    }

    /// Starts the lean peer and waits for the same line.
    pub fn lean_peer() -> Result<(Self, String)> {
        Self::spawn(std::env::current_exe()?, &[LEAN], &[], Stdio::piped())?.address()
    }

    /// The same with variables in its environment, for what not everybody may read.
    pub fn listening_with<S: AsRef<OsStr>>(args: &[S], env: &[(&str, &str)]) -> Result<(Self, String)> {
        Self::spawn(syncline(), args, env, Stdio::piped())?.address()
    }

    fn address(mut self) -> Result<(Self, String)> {
        let out = self.child.stdout.take().context("a piped child")?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        let address =
            line.trim().strip_prefix("listening ").with_context(|| format!("no address in {line:?}"))?;
        Ok((self, address.to_owned()))
    }

    fn spawn<S: AsRef<OsStr>>(
        program: PathBuf,
        args: &[S],
        env: &[(&str, &str)],
        out: Stdio,
    ) -> Result<Self> {
        let mut child = Command::new(program)
            .args(args)
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(out)
            .spawn()?;
        let stdin = child.stdin.take();
        Ok(Self { child, _stdin: stdin })
    }

    /// The process's number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

fn syncline() -> PathBuf {
    env!("CARGO_BIN_EXE_syncline").into()
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
