//! What came out, for people and for programs.

use std::fmt::Write;

use serde::Serialize;
use syncline::{JobId, JobPhase, JobView, MemberStatus, Metric};

/// The result of one run.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    test_accuracy: Option<f64>,
    test_loss: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    test_perplexity: Option<f64>,
    epochs: u32,
    seconds: f64,
    policy: String,
    samples_per_s: f64,
    samples_applied: u64,
    torn_pushes: u64,
    barriers: u64,
    predicted_wait_ms: u64,
    actual_wait_ms: u64,
    workers: Vec<WorkerLine>,
    redis_cli: String,
    #[serde(skip)]
    state: JobPhase,
    #[serde(skip)]
    job: JobId,
}

#[derive(Debug, Serialize)]
struct WorkerLine {
    name: String,
    /// The incarnation under which it took part.
    id: String,
    iterations: u64,
    compute_ms: u64,
    pull_ms: u64,
    push_ms: u64,
    wait_ms: u64,
}

impl Report {
    /// `policy` is shown as the user spelt it.
    pub(super) fn of(view: JobView, redis_cli: &str, policy: &str) -> Self {
        let job = view.job;
        Self {
            test_accuracy: job.test[Metric::Accuracy],
            test_loss: job.test[Metric::Loss],
            test_perplexity: job.test[Metric::Perplexity],
            epochs: job.epochs,
            seconds: job.training_seconds.unwrap_or(0.0),
            policy: policy.to_owned(),
            samples_per_s: job.samples_per_s,
            samples_applied: job.samples_applied,
            torn_pushes: job.iterations_torn,
            barriers: job.barriers,
            predicted_wait_ms: job.predicted_wait_ms,
            actual_wait_ms: job.actual_wait_ms,
            workers: view.workers.into_iter().map(WorkerLine::of).collect(),
            redis_cli: redis_cli.to_owned(),
            state: job.state,
            job: job.id,
        }
    }

    /// The report for people. `redis_stays`: the job can be looked at when this program has ended.
    pub(super) fn text(&self, step_ms: u64, redis_stays: bool) -> String {
        let mut out = String::new();
        let accuracy = self.test_accuracy.map_or("-".into(), |a| format!("{:.2} %", a * 100.0));
        let loss = self.test_loss.map_or("-".into(), |loss| format!("{loss:.4}"));
        let perplexity =
            self.test_perplexity.map_or(String::new(), |value| format!(", perplexity {value:.2}"));
        let _ = writeln!(
            out,
            "{} {}: test accuracy {accuracy}, loss {loss}{perplexity} after {} epochs",
            self.policy,
            self.state.word(),
            self.epochs
        );
        let _ = writeln!(
            out,
            "{:.1} s of training, {:.0} samples/s, {} samples applied, {} torn pushes",
            self.seconds, self.samples_per_s, self.samples_applied, self.torn_pushes
        );
        if step_ms > 0 {
            let _ = writeln!(
                out,
                "pace is emulated: each iteration on a whole batch lasts at least {step_ms} ms x slowdown (--step-ms 0 turns it off)"
            );
        }
        let _ = writeln!(
            out,
            "\n{:<12}{:<4}{:>11}{:>12}{:>10}{:>10}{:>10}",
            "worker", "id", "iterations", "compute ms", "pull ms", "push ms", "wait ms"
        );
        for w in &self.workers {
            let _ = writeln!(
                out,
                "{:<12}{:<4}{:>11}{:>12}{:>10}{:>10}{:>10}",
                w.name, w.id, w.iterations, w.compute_ms, w.pull_ms, w.push_ms, w.wait_ms
            );
        }
        let _ = writeln!(
            out,
            "\n{} barriers; waiting at them, all workers together: predicted {} ms, actual {} ms",
            self.barriers, self.predicted_wait_ms, self.actual_wait_ms
        );
        if redis_stays {
            let _ =
                writeln!(out, "look at the job: {} HGETALL 'syncline:{{{}}}:job'", self.redis_cli, self.job);
        }
        out
    }
}

impl WorkerLine {
    fn of(worker: MemberStatus) -> Self {
        Self {
            name: worker.name,
            id: worker.id.to_string(),
            iterations: worker.iterations,
            compute_ms: worker.compute_us / 1000,
            pull_ms: worker.pull_us / 1000,
            push_ms: worker.push_us / 1000,
            wait_ms: worker.wait_us / 1000,
        }
    }
}
