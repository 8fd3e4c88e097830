//! `syncline doctor`: checks this machine and the cluster, and says what to do.

mod cluster;
mod folders;
mod machine;
mod redis;
mod transports;

use std::path::PathBuf;

use serde::Serialize;
use syncline_kit::Device;
use syncline_ps::transport::TransportChoice;

use crate::cli::{CliError, ConnectionArgs, Exit, Failure, block_on, log_as_command, print, print_json};

#[derive(Debug, clap::Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// What workers shall compute on here: cpu, or cuda:N for an NVIDIA GPU, counted from 0
    #[arg(long, value_name = "DEVICE", default_value_t)]
    device: Device,
    /// How parameters and gradients shall travel to and from the shards: shm for shared memory, unix or tcp;
    /// auto takes the fastest that works
    #[arg(long, value_name = "NAME", env = "SYNCLINE_TRANSPORT", default_value_t)]
    transport: TransportChoice,
    /// Address of the Redis server, if it is not the one that `syncline up` started
    #[arg(long, value_name = "URL", env = "SYNCLINE_REDIS", hide_env_values = true)]
    redis: Option<String>,
    /// A file with the password of that server
    #[arg(long, value_name = "FILE", env = "SYNCLINE_REDIS_PASSWORD_FILE")]
    redis_password_file: Option<PathBuf>,
    /// One JSON array on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Warn,
    Fail,
}

/// One line of the report.
#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    verdict: Verdict,
    found: String,
    /// What to do; empty if nothing.
    hint: String,
    /// Exit code if this fails.
    #[serde(skip)]
    exit: Exit,
}

impl Finding {
    fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Ok, found: found.into(), hint: String::new(), exit: Exit::Ok }
    }

    fn warn(check: &'static str, found: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Warn, found: found.into(), hint: hint.into(), exit: Exit::Ok }
    }

    fn fail(check: &'static str, exit: Exit, found: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Fail, found: found.into(), hint: hint.into(), exit }
    }

    fn line(&self) -> String {
        let verdict = match self.verdict {
            Verdict::Ok => "ok  ",
            Verdict::Warn => "warn",
            Verdict::Fail => "fail",
        };
        let line = format!("{verdict}  {:<13} {}", self.check, self.found);
        if self.hint.is_empty() { line } else { format!("{line}\n      -> {}", self.hint) }
    }
}

pub(crate) fn run(args: &DoctorArgs) -> Result<(), Failure> {
    log_as_command();
    let mut findings = machine::check(&args.connection, args.device);
    findings.extend(folders::check());
    findings.extend(block_on(async { Ok(cluster::check(args).await) })?);
    if args.json {
        print_json(&findings)?;
    } else {
        print(&findings.iter().map(Finding::line).collect::<Vec<_>>().join("\n"))?;
    }
    let failed: Vec<&Finding> = findings.iter().filter(|f| f.verdict == Verdict::Fail).collect();
    match failed.first() {
        None => Ok(()),
        Some(first) => {
            let (failed, checks, exit) = (failed.len(), findings.len(), first.exit);
            Err(CliError::Unhealthy { failed, checks, exit }.into())
        }
    }
}
