//! PyTorch's DistributedDataParallel on the same model, beside PyTorch's own bare loops.

use std::{fs, io, path::Path, process::Stdio, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::Command,
    time::timeout,
};

use super::super::model::BenchModel;
use crate::cli::CliError;

/// Needs torch; it brings its own processes.
const SCRIPT: &str = include_str!("ddp.py");
/// Begins and ends as the script does, and measures nothing.
const CHECK: &str = "import torch, torch.distributed";
/// A traceback ends with its reason.
const SHOWN_LINES: usize = 3;
/// More than it has to say.
const MOST_BYTES: u64 = 64 << 10;
/// For the start of its processes, which load torch, and for steps to become warm.
const START_LIMIT: Duration = Duration::from_secs(120);

/// What PyTorch is told to do.
#[derive(Debug, Serialize)]
pub(super) struct DdpOrder<'a> {
    pub model: BenchModel,
    pub batch: u32,
    /// How many times slower each worker is.
    pub slow: &'a [f64],
    pub seconds: u32,
}

/// One run of it.
#[derive(Debug, Deserialize)]
pub(super) struct DdpRun {
    /// The version.
    pub torch: String,
    /// Of all workers together, each in a loop of its own.
    pub bare_samples_per_s: f64,
    pub ddp_samples_per_s: f64,
}

/// Sees whether that Python has torch.
pub(super) async fn check(python: &Path) -> Result<(), CliError> {
    let mut command = Command::new(python);
    command.args(["-W", "ignore", "-c", CHECK]);
    ask(command, "", START_LIMIT).await.map(drop).map_err(|what| failed(python, what))
}

/// Runs bare loops and DistributedDataParallel, for `seconds` each.
pub(super) async fn run(python: &Path, order: &DdpOrder<'_>) -> Result<DdpRun, CliError> {
    let folder = tempfile::tempdir().map_err(|e| failed(python, e.to_string()))?;
    let script = folder.path().join("ddp.py");
    fs::write(&script, SCRIPT).map_err(|e| failed(python, e.to_string()))?;
    let order_line = serde_json::to_string(order).map_err(|e| failed(python, e.to_string()))?;
    let mut command = Command::new(python);
    command.args(["-W", "ignore"]).arg(&script).arg(folder.path());
    // Both loops, and as much again for a machine that is busy.
    let limit = START_LIMIT + Duration::from_secs(4 * u64::from(order.seconds));
    let said = ask(command, &order_line, limit).await.map_err(|what| failed(python, what))?;
    serde_json::from_str(said.trim())
        .map_err(|_| failed(python, format!("it printed {:?}", shortened(&said))))
}

fn failed(python: &Path, what: String) -> CliError {
    CliError::Torch { python: python.to_owned(), what }
}

/// Runs a program that is given one line, and returns what it prints. It is killed where it takes too long or
/// prints too much. An error is what it said last.
async fn ask(mut command: Command, line: &str, limit: Duration) -> Result<String, String> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|e| e.to_string())?;
    let (Some(mut stdin), Some(out), Some(err)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err("it has no pipes".into());
    };
    let answered = async {
        // One that has ended already says why. The pipe stays open until it has answered: it takes the end of
        // its input for the end of this process.
        let _ = stdin.write_all(format!("{line}\n").as_bytes()).await;
        let (out, err) = tokio::try_join!(read_all(out), read_all(err))?;
        Ok::<_, io::Error>((out, err, child.wait().await?))
    };
    let answered = timeout(limit, answered).await;
    let (out, err, status) = answered
        .map_err(|_| format!("it was not done after {} s", limit.as_secs()))?
        .map_err(|e| e.to_string())?;
    match status.success() {
        true => Ok(out),
        false if err.trim().is_empty() => Err(format!("it ended with {status}")),
        false => Err(last_lines(&err)),
    }
}

async fn read_all(from: impl AsyncRead + Unpin) -> io::Result<String> {
    let mut bytes = Vec::new();
    let count = from.take(MOST_BYTES + 1).read_to_end(&mut bytes).await?;
    if count as u64 > MOST_BYTES {
        return Err(io::Error::other(format!("it prints more than {} KiB", MOST_BYTES >> 10)));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn last_lines(said: &str) -> String {
    let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
}

/// The beginning of a text, in a message.
fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::PermissionsExt as _, path::PathBuf};

    use super::*;

    const ORDER: DdpOrder<'_> = DdpOrder { model: BenchModel::Mlp, batch: 8, slow: &[1.0, 4.0], seconds: 1 };

    /// A program in the place of Python.
    fn python(folder: &Path, body: &str) -> PathBuf {
        let path = folder.join("python");
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[tokio::test]
    async fn the_order_goes_in_and_the_figures_come_out() {
        let folder = tempfile::tempdir().unwrap();
        let answer = r#"{"torch": "9", "bare_samples_per_s": 2.5, "ddp_samples_per_s": 1.5}"#;
        let asked = folder.path().join("asked");
        let body = format!("read line; echo \"$line\" > {}; echo '{answer}'", asked.display());
        let run = run(&python(folder.path(), &body), &ORDER).await.unwrap();
        assert_eq!((run.torch.as_str(), run.bare_samples_per_s, run.ddp_samples_per_s), ("9", 2.5, 1.5));
        let asked = fs::read_to_string(asked).unwrap();
        assert_eq!(asked.trim(), r#"{"model":"mlp","batch":8,"slow":[1.0,4.0],"seconds":1}"#);
    }

    #[tokio::test]
    async fn a_python_that_is_of_no_use_is_told_with_its_reason() {
        let folder = tempfile::tempdir().unwrap();
        let no_torch = "echo \"ModuleNotFoundError: No module named 'torch'\" >&2; exit 1";
        #[rustfmt::skip]
        let cases = [
            (no_torch,        "No module named 'torch'"),
            ("exit 3",        "it ended with exit status: 3"),
            ("echo figures",  "it printed \"figures\\n\""),
            ("yes garbage",   "it prints more than 64 KiB"),
        ];
        for (body, want) in cases {
            let error = run(&python(folder.path(), body), &ORDER).await.unwrap_err().to_string();
            assert!(error.starts_with("[E519]") && error.ends_with(want), "{error}");
        }
        let error = check(&folder.path().join("nobody")).await.unwrap_err().to_string();
        assert!(error.contains("[E519]") && error.contains("No such file"), "{error}");
        assert!(check(&python(folder.path(), no_torch)).await.is_err());
    }

    #[tokio::test]
    async fn a_program_that_hangs_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let (pid, hangs) = (folder.path().join("pid"), folder.path().join("hangs"));
        let body = format!("echo $$ > {}; touch {}; exec sleep 1000", pid.display(), hangs.display());
        let program = python(folder.path(), &body);
        let mut asking = Box::pin(ask(Command::new(&program), "", Duration::from_secs(1_000)));
        while !hangs.exists() {
            let _ = timeout(Duration::from_millis(5), &mut asking).await;
        }
        drop(asking);
        let proc = format!("/proc/{}/stat", fs::read_to_string(&pid).unwrap().trim());
        // Gone, or a zombie that nobody has asked for yet.
        while fs::read_to_string(&proc).is_ok_and(|stat| !stat.contains(") Z")) {
            tokio::task::yield_now().await;
        }
        let limit = Duration::from_millis(1);
        let error = ask(Command::new(&program), "", limit).await.unwrap_err();
        assert_eq!(error, "it was not done after 0 s");
    }
}
