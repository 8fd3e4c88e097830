//! From samples to a table.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{super::median, Case};
use crate::cli::count;

/// One run of Syncline, per step.
#[derive(Debug, Clone)]
pub struct Sample {
    pub step_ms: f64,
    pub compute_ms: f64,
    pub pull_ms: f64,
    pub push_ms: f64,
    pub staleness: f64,
    pub steps: f64,
    /// Processor time by role.
    pub cpu_ms: BTreeMap<&'static str, f64>,
}

/// One round: everybody in turn.
pub struct Round {
    pub bare_ms: f64,
    pub lean_ms: f64,
    /// Syncline's tensor path without its control.
    pub direct_ms: f64,
    /// One for each number of shards, in the order of the arguments.
    pub syncline: Vec<Sample>,
}

/// Syncline with some number of shards, medians over the rounds.
#[derive(Debug, Serialize)]
pub struct StepLine {
    pub shards: u32,
    pub step_ms: f64,
    /// Medians of the ratios of each round, in percent.
    pub of_lean: f64,
    pub of_bare: f64,
    pub compute_ms: f64,
    pub pull_ms: f64,
    pub push_ms: f64,
    /// What is left of the step.
    pub control_ms: f64,
    pub staleness_max: f64,
    pub steps: f64,
    pub cpu_ms: BTreeMap<&'static str, f64>,
}

/// One case.
#[derive(Debug, Serialize)]
pub struct Report {
    pub case: &'static str,
    pub batch: u32,
    /// Between shard and worker.
    pub transport: String,
    pub rounds: usize,
    pub bare_ms: f64,
    pub lean_ms: f64,
    pub lean_of_bare: f64,
    pub direct_ms: f64,
    pub direct_of_lean: f64,
    pub direct_of_bare: f64,
    pub syncline: Vec<StepLine>,
}

impl Report {
    /// `shards`: number of shards of each cluster.
    pub fn new(case: &Case, transport: String, shards: &[u32], rounds: &[Round]) -> Self {
        let line = |(at, shards): (usize, &u32)| {
            let of = |f: &dyn Fn(&Sample) -> f64| median(rounds.iter().map(|r| f(&r.syncline[at])));
            let share = |f: &dyn Fn(&Round) -> f64| {
                100.0 * median(rounds.iter().map(|r| f(r) / r.syncline[at].step_ms))
            };
            let roles = rounds.first().into_iter().flat_map(|r| r.syncline[at].cpu_ms.keys());
            StepLine {
                shards: *shards,
                step_ms: of(&|s| s.step_ms),
                of_lean: share(&|r| r.lean_ms),
                of_bare: share(&|r| r.bare_ms),
                compute_ms: of(&|s| s.compute_ms),
                pull_ms: of(&|s| s.pull_ms),
                push_ms: of(&|s| s.push_ms),
                control_ms: of(&|s| s.step_ms - s.compute_ms - s.pull_ms - s.push_ms),
                staleness_max: rounds.iter().map(|r| r.syncline[at].staleness).fold(0.0, f64::max),
                steps: of(&|s| s.steps),
                cpu_ms: roles.map(|role| (*role, of(&|s| s.cpu_ms[role]))).collect(),
            }
        };
        Self {
            case: case.name,
            batch: case.batch,
            transport,
            rounds: rounds.len(),
            bare_ms: median(rounds.iter().map(|r| r.bare_ms)),
            lean_ms: median(rounds.iter().map(|r| r.lean_ms)),
            lean_of_bare: 100.0 * median(rounds.iter().map(|r| r.bare_ms / r.lean_ms)),
            direct_ms: median(rounds.iter().map(|r| r.direct_ms)),
            direct_of_lean: 100.0 * median(rounds.iter().map(|r| r.lean_ms / r.direct_ms)),
            direct_of_bare: 100.0 * median(rounds.iter().map(|r| r.bare_ms / r.direct_ms)),
            syncline: shards.iter().enumerate().map(line).collect(),
        }
    }

    /// The same as a table.
    pub fn table(&self) -> String {
        let mut lines = Vec::new();
        lines.push(format!(
            "{}: batch {}, shards reached by {}, medians of {} rounds, everybody in turn",
            self.case, self.batch, self.transport, self.rounds
        ));
        lines.push(format!("{:<22}{:>10}{:>10}{:>10}", "", "ms/step", "of lean", "of bare"));
        lines.push(format!("{:<22}{:>10.3}{:>10}{:>9.1}%", "bare loop", self.bare_ms, "", 100.0));
        lines.push(format!(
            "{:<22}{:>10.3}{:>9.1}%{:>9.1}%",
            "lean loop", self.lean_ms, 100.0, self.lean_of_bare
        ));
        let (of_lean, of_bare) = (self.direct_of_lean, self.direct_of_bare);
        lines.push(format!(
            "{:<22}{:>10.3}{of_lean:>9.1}%{of_bare:>9.1}%",
            "tensor path alone", self.direct_ms
        ));
        for line in &self.syncline {
            let name = format!("syncline, {}", count(line.shards, "shard"));
            lines.push(format!(
                "{name:<22}{:>10.3}{:>9.1}%{:>9.1}%",
                line.step_ms, line.of_lean, line.of_bare
            ));
        }
        for line in &self.syncline {
            lines.push(format!(
                "{} shard(s): compute {:.3} (bare loop's step {:.3}), pull {:.3}, push and update {:.3}, control {:.3} ms; staleness at most {}",
                line.shards,
                line.compute_ms,
                self.bare_ms,
                line.pull_ms,
                line.push_ms,
                line.control_ms,
                line.staleness_max,
            ));
            let cpu: Vec<String> = line.cpu_ms.iter().map(|(role, ms)| format!("{role} {ms:.3}")).collect();
            lines.push(format!("    processor time per step: {} ms", cpu.join(", ")));
        }
        lines.join("\n")
    }
}
