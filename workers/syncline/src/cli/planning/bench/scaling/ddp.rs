//! PyTorch's DistributedDataParallel on the same model, beside PyTorch's own bare loops.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde::{Deserialize, Serialize};

use super::super::model::BenchModel;
use crate::cli::CliError;

/// Needs torch; it brings its own processes.
const SCRIPT: &str = include_str!("ddp.py");
/// A traceback ends with its reason.
const SHOWN_LINES: usize = 3;

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

/// Runs bare loops and DistributedDataParallel, for `seconds` each.
pub(super) fn run(python: &Path, order: &DdpOrder<'_>) -> Result<DdpRun, CliError> {
    let failed = |what: String| CliError::Torch { python: python.to_owned(), what };
    let output = ask(python, order).map_err(|error| failed(error.to_string()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    match serde_json::from_str(said.trim()) {
        Ok(run) if output.status.success() => Ok(run),
        _ => Err(failed(end_of(&String::from_utf8_lossy(&output.stderr), &output))),
    }
}

fn ask(python: &Path, order: &DdpOrder<'_>) -> io::Result<Output> {
    let folder = tempfile::tempdir()?;
    let script: PathBuf = folder.path().join("ddp.py");
    fs::write(&script, SCRIPT)?;
    let mut child = Command::new(python)
        .args(["-W", "ignore"])
        .arg(&script)
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    // Open until it has answered: it takes the end of its input for the end of this process.
    let mut stdin = child.stdin.take();
    if let Some(stdin) = &mut stdin {
        // One that has ended already says why.
        let _ = writeln!(stdin, "{}", serde_json::to_string(order)?);
    }
    let output = child.wait_with_output();
    drop(stdin);
    output
}

/// The last lines of what it said, or how it ended.
fn end_of(said: &str, output: &Output) -> String {
    let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    match lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n") {
        said if said.is_empty() => format!("it ended with {}", output.status),
        said => said,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const ORDER: DdpOrder<'_> = DdpOrder { model: BenchModel::Mlp, batch: 8, slow: &[1.0, 4.0], seconds: 1 };

    /// A program in the place of Python.
    fn python(folder: &Path, body: &str) -> PathBuf {
        let path = folder.join("python");
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn the_order_goes_in_and_the_figures_come_out() {
        let folder = tempfile::tempdir().unwrap();
        let answer = r#"{"torch": "9", "bare_samples_per_s": 2.5, "ddp_samples_per_s": 1.5}"#;
        let asked = folder.path().join("asked");
        let body = format!("read line; echo \"$line\" > {}; echo '{answer}'", asked.display());
        let run = run(&python(folder.path(), &body), &ORDER).unwrap();
        assert_eq!((run.torch.as_str(), run.bare_samples_per_s, run.ddp_samples_per_s), ("9", 2.5, 1.5));
        let asked = fs::read_to_string(asked).unwrap();
        assert_eq!(asked.trim(), r#"{"model":"mlp","batch":8,"slow":[1.0,4.0],"seconds":1}"#);
    }

    #[test]
    fn a_python_that_is_not_there_or_has_no_torch_is_told_with_its_reason() {
        let folder = tempfile::tempdir().unwrap();
        let missing = run(&folder.path().join("nobody"), &ORDER).unwrap_err().to_string();
        assert!(missing.contains("[E519]") && missing.contains("No such file"), "{missing}");
        let body = "echo \"ModuleNotFoundError: No module named 'torch'\" >&2; exit 1";
        let without = run(&python(folder.path(), body), &ORDER).unwrap_err().to_string();
        assert!(without.ends_with("No module named 'torch'"), "{without}");
        let silent = run(&python(folder.path(), "exit 3"), &ORDER).unwrap_err().to_string();
        assert!(silent.contains("exit status: 3"), "{silent}");
    }
}
