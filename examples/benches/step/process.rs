//! This program again, in another part: the lean peer, or a service of `syncline`.

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader},
    process::{Child, ChildStdin, Command, ExitCode, Stdio},
};

use anyhow::{Context, Result};
use clap::Parser;
use syncline_engine::cli as engine;
use syncline_ps::cli as ps;
use syncline_workers::cli as workers;

use super::lean;

/// First argument of a child.
pub const PART: &str = "part";

/// The parts: the subcommands of `syncline`, and the lean peer.
#[derive(Parser)]
enum Part {
    #[command(flatten)]
    Engine(engine::Command),
    Ps(ps::PsArgs),
    #[command(flatten)]
    Workers(workers::Command),
    Lean,
}

/// Plays the part that the arguments name.
pub fn play(args: impl Iterator<Item = String>) -> ExitCode {
    match Part::parse_from(args) {
        Part::Engine(command) => engine::finish(command.run(), false),
        Part::Ps(args) => {
            engine::log_as_service();
            engine::finish(ps::run(&args).map_err(workers::ps_failure), false)
        }
        Part::Workers(command) => engine::finish(command.run(), false),
        Part::Lean => match lean::serve() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("lean peer: {error:#}");
                ExitCode::FAILURE
            }
        },
    }
}

/// A child that is killed when this is dropped, and ends by itself when this process does.
pub struct Process {
    child: Child,
    _stdin: Option<ChildStdin>,
}

impl Process {
    /// Starts a part.
    pub fn start<S: AsRef<OsStr>>(args: &[S]) -> Result<Self> {
        Self::spawn(args, &[], Stdio::null())
    }

    /// Starts a part and waits for its line `listening ADDRESS`.
    pub fn listening<S: AsRef<OsStr>>(args: &[S]) -> Result<(Self, String)> {
        Self::listening_with(args, &[])
    }

    /// The same with variables in its environment, for what not everybody may read.
    pub fn listening_with<S: AsRef<OsStr>>(args: &[S], env: &[(&str, &str)]) -> Result<(Self, String)> {
        let mut process = Self::spawn(args, env, Stdio::piped())?;
        let out = process.child.stdout.take().context("a piped child")?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        let address =
            line.trim().strip_prefix("listening ").with_context(|| format!("no address in {line:?}"))?;
        Ok((process, address.to_owned()))
    }

    fn spawn<S: AsRef<OsStr>>(args: &[S], env: &[(&str, &str)], out: Stdio) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(PART)
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

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
