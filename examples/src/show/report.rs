//! What came out, for people and for programs.

use std::fmt::Write;

use serde::Serialize;
use syncline_engine::rpc::JobView;
use syncline_scheduler::core::Member;

/// The result of one run.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    test_accuracy: Option<f64>,
    test_loss: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    test_perplexity: Option<f64>,
    epochs: u64,
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
    state: String,
    #[serde(skip)]
    job: String,
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
    /// Reads the report from a job's record; `None` if a field is missing. `policy` is shown as the user spelt it.
    pub(super) fn of(view: &JobView, redis_cli: &str, policy: &str) -> Option<Self> {
        let text = |field: &str| view.job.get(field).cloned();
        let number = |field: &str| text(field)?.parse::<u64>().ok();
        let started = number("started_ms").unwrap_or(0);
        let trained = number("trained_ms").unwrap_or(started);
        let mut workers: Vec<(u64, WorkerLine)> =
            view.workers.iter().filter_map(|(id, record)| worker(id, record)).collect();
        workers.sort_by_key(|(number, _)| *number);
        Some(Self {
            test_accuracy: text("test_accuracy").and_then(|a| a.parse().ok()),
            test_loss: text("test_loss").and_then(|loss| loss.parse().ok()),
            test_perplexity: text("test_perplexity").and_then(|value| value.parse().ok()),
            epochs: number("epochs")?,
            seconds: trained.saturating_sub(started) as f64 / 1e3,
            policy: policy.to_owned(),
            samples_per_s: text("samples_per_s")?.parse().ok()?,
            samples_applied: number("samples_applied")?,
            torn_pushes: number("iterations_torn")?,
            barriers: number("barriers")?,
            predicted_wait_ms: number("predicted_wait_ms")?,
            actual_wait_ms: number("actual_wait_ms")?,
            workers: workers.into_iter().map(|(_, line)| line).collect(),
            redis_cli: redis_cli.to_owned(),
            state: text("state")?,
            job: text("id")?,
        })
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
            self.policy, self.state, self.epochs
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

fn worker(id: &str, record: &str) -> Option<(u64, WorkerLine)> {
    let member: Member = serde_json::from_str(record).ok()?;
    let number = id.trim_start_matches('w').parse().ok()?;
    let s = member.spent;
    let line = WorkerLine {
        name: member.about.name,
        id: id.to_owned(),
        iterations: s.iterations,
        compute_ms: s.compute_us / 1000,
        pull_ms: s.pull_us / 1000,
        push_ms: s.push_us / 1000,
        wait_ms: s.wait_us / 1000,
    };
    Some((number, line))
}
