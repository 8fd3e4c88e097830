//! What tasks of one kind do, and the rules they follow.

use std::{
    cmp::Ordering,
    collections::BTreeMap,
    fmt,
    hash::{Hash, Hasher},
};

use serde::{Deserialize, Serialize};

use super::{PreparedTraining, Resources};
use crate::ids::Name;

/// A function that some workers have: its name, and a digest of its types, so that a graph and a worker that
/// were built from different definitions never meet. Two are the same if these are.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FunctionId {
    /// Name under which programs register and call it.
    pub name: Name,
    /// First four bytes of the BLAKE3 of its types' names.
    pub signature: u32,
    /// Their names as in `(u64, u64) -> u64`, for people, at most [`FunctionId::MAX_TYPES_CHARS`]; empty in what
    /// an earlier engine has stored.
    #[serde(default)]
    pub types: String,
}

impl FunctionId {
    /// Most characters of the names of its types that are kept.
    pub const MAX_TYPES_CHARS: usize = 100;

    fn key(&self) -> (&Name, u32) {
        (&self.name, self.signature)
    }
}

impl PartialEq for FunctionId {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for FunctionId {}

impl PartialOrd for FunctionId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for FunctionId {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl Hash for FunctionId {
    fn hash<H: Hasher>(&self, to: &mut H) {
        self.key().hash(to);
    }
}

impl fmt::Display for FunctionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{:08x}", self.name, self.signature)
    }
}

/// What a task does.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Work {
    /// Calls a function of the worker's binary.
    Call(FunctionId),
    /// Trains: the engine begins a training job for it. Its argument, if it has one, is a
    /// [`TrainingChanges`](super::TrainingChanges).
    Train(PreparedTraining),
}

impl Work {
    /// The function that it calls, if it does.
    pub fn function(&self) -> Option<&FunctionId> {
        match self {
            Self::Call(function) => Some(function),
            Self::Train(_) => None,
        }
    }

    /// What it does, in a word.
    pub fn name(&self) -> &str {
        match self {
            Self::Call(function) => function.name.as_str(),
            Self::Train(_) => "train",
        }
    }
}

/// What a worker must have for a task.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Needs {
    /// Slots that it takes up while it runs, at least 1.
    pub slots: u32,
    /// Labels that the worker must carry.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// What it takes of the worker's memory and GPUs while the worker has it.
    #[serde(default)]
    pub resources: Resources,
}

impl Default for Needs {
    fn default() -> Self {
        Self { slots: 1, labels: BTreeMap::new(), resources: Resources::default() }
    }
}

/// Pause before an attempt that follows a failed one: it doubles from `first_ms` up to `longest_ms`, and a
/// share of up to one half of it is left to chance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Backoff {
    /// Longest pause after the first failure.
    pub first_ms: u32,
    /// Longest pause after any number of failures.
    pub longest_ms: u32,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first_ms: 100, longest_ms: 30_000 }
    }
}

/// What a task that failed for good means for its job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// The job fails.
    #[default]
    FailJob,
    /// Whatever needs it is skipped, the rest goes on, and the job can still be done.
    SkipDependents,
}

/// How tasks of a class are treated.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Rules {
    /// What a worker must have for each of them.
    pub needs: Needs,
    /// Higher goes first, among the tasks of all jobs.
    pub priority: i16,
    /// How often a task is tried again after its worker was lost.
    pub crashes: u16,
    /// How often it is tried again after it said that it failed, or panicked, or took too long.
    pub errors: u16,
    /// Pauses between attempts.
    pub backoff: Backoff,
    /// Longest time for which one attempt may run.
    pub run_limit_ms: Option<u64>,
    /// Longest time for which it may be ready without a worker that begins it, at each attempt.
    #[serde(default)]
    pub queue_limit_ms: Option<u64>,
    /// What becomes of the job when no attempt is left.
    pub on_failure: OnFailure,
    /// Whether what it gives stays when the last task that takes it has ended, as if it had a name.
    #[serde(default)]
    pub keep_value: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            needs: Needs::default(),
            priority: 0,
            crashes: 3,
            errors: 0,
            backoff: Backoff::default(),
            run_limit_ms: None,
            queue_limit_ms: None,
            on_failure: OnFailure::default(),
            keep_value: false,
        }
    }
}

/// What all tasks of one kind have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskClass {
    /// What each of them does.
    pub work: Work,
    /// How each of them is treated.
    pub rules: Rules,
}

impl TaskClass {
    /// Calls of `function` under the usual rules.
    pub fn call(function: FunctionId) -> Self {
        Self { work: Work::Call(function), rules: Rules::default() }
    }
}
