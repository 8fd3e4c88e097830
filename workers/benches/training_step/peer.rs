//! PyTorch in a process of its own, which answers one question at a time.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::Outcome;

pub struct Peer {
    process: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Peer {
    /// Exports the models that the folder has not yet, and waits for questions.
    pub fn start(python: &Path, folder: &Path) -> Outcome<Self> {
        let script: PathBuf =
            [env!("CARGO_MANIFEST_DIR"), "benches", "training_step", "peer.py"].iter().collect();
        let exported = Command::new(python).arg(&script).arg("--export").arg(folder).status()?;
        if !exported.success() {
            return Err(format!("{} could not export the models", python.display()).into());
        }
        let mut serving = Command::new(python);
        serving.arg(script).arg("--serve").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = serving.spawn()?;
        let answers = process.stdout.take().ok_or("no answers from Python")?;
        Ok(Self { questions: process.stdin.take(), answers: BufReader::new(answers), process })
    }

    /// Median time of a step of the model.
    pub fn step_ms(&mut self, model: &str, threads: usize, steps: usize) -> Outcome<f64> {
        let questions = self.questions.as_mut().ok_or("no way to ask Python")?;
        writeln!(questions, "{model} {threads} {steps}")?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        Ok(answer.trim().parse()?)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It ends at the end of its input.
        self.questions.take();
        let _ = self.process.wait();
    }
}
