//! One task: what it is called, what it does, and the only way its state may change.

use std::{fmt, num::NonZeroU32, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{
    fault_code::FaultCode,
    ids::{Incarnation, InvalidName, NodeName, Superstep},
};

/// Name of a task within its job; printed as `prepare/w3`, `it/w3/17`, `barrier/4`, `clock/12`,
/// `evaluation/2/0` or the name of a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum TaskId {
    /// What a worker does that joins others at work, before anybody waits for it.
    Prepare(Incarnation),
    /// The `seq`-th training iteration of one worker incarnation, from 1.
    Iteration {
        /// Incarnation that runs it; no other ever does.
        worker: Incarnation,
        /// Number among this incarnation's iterations; from 1 again once the job has been rolled back.
        seq: u64,
    },
    /// The barrier that ends a superstep.
    Barrier(Superstep),
    /// The moment at which every worker has finished this many iterations.
    Clock(u64),
    /// What one worker computes of an evaluation while the training runs.
    Evaluation {
        /// Number of the evaluation, from 0; none comes twice.
        number: u64,
        /// Which part of the test samples, from 0.
        part: u32,
    },
    /// A node that the user wrote.
    Node(NodeName),
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prepare(worker) => write!(f, "prepare/{worker}"),
            Self::Iteration { worker, seq } => write!(f, "it/{worker}/{seq}"),
            Self::Barrier(superstep) => write!(f, "barrier/{superstep}"),
            Self::Clock(clock) => write!(f, "clock/{clock}"),
            Self::Evaluation { number, part } => write!(f, "evaluation/{number}/{part}"),
            Self::Node(name) => write!(f, "{name}"),
        }
    }
}

/// Why a text is not a [`TaskId`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidTaskId {
    /// It begins like an iteration, a barrier, a clock, an evaluation or what a worker prepares, and goes on
    /// otherwise; cut to 80 characters.
    #[error(
        "[E002] `{0}` is not a task id: expected prepare/wN, it/wN/SEQ, barrier/N, clock/N, evaluation/N/PART or a node name"
    )]
    Form(String),
    /// It can only be the name of a node, and is no valid one.
    #[error(transparent)]
    Name(#[from] InvalidName),
}

impl InvalidTaskId {
    /// The stable code, as in the message.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Form(_) => "E002",
            Self::Name(source) => source.code(),
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        Some("copy the id from a log line, or from what `syncline explain` and Redis show".to_owned())
    }
}

impl FromStr for TaskId {
    type Err = InvalidTaskId;

    fn from_str(text: &str) -> Result<Self, InvalidTaskId> {
        let form = || InvalidTaskId::Form(text.chars().take(80).collect());
        if let Some(rest) = text.strip_prefix("it/") {
            let (worker, seq) = rest.split_once('/').ok_or_else(form)?;
            return Ok(Self::Iteration {
                worker: worker.parse().map_err(|_| form())?,
                seq: seq.parse().map_err(|_| form())?,
            });
        }
        if let Some(worker) = text.strip_prefix("prepare/") {
            return Ok(Self::Prepare(worker.parse().map_err(|_| form())?));
        }
        if let Some(n) = text.strip_prefix("barrier/") {
            return Ok(Self::Barrier(n.parse().map_err(|_| form())?));
        }
        if let Some(rest) = text.strip_prefix("evaluation/") {
            let (number, part) = rest.split_once('/').ok_or_else(form)?;
            return Ok(Self::Evaluation {
                number: number.parse().map_err(|_| form())?,
                part: part.parse().map_err(|_| form())?,
            });
        }
        match text.strip_prefix("clock/") {
            Some(n) => Ok(Self::Clock(n.parse().map_err(|_| form())?)),
            None => Ok(Self::Node(text.parse()?)),
        }
    }
}

impl TryFrom<String> for TaskId {
    type Error = InvalidTaskId;

    fn try_from(text: String) -> Result<Self, InvalidTaskId> {
        text.parse()
    }
}

impl From<TaskId> for String {
    fn from(id: TaskId) -> Self {
        id.to_string()
    }
}

/// Who works on a leased task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holder {
    /// One worker: what it prepares, an iteration or an evaluation.
    Worker(Incarnation),
    /// Every shard of the parameter server: a barrier or a snapshot.
    Shards,
    /// The planner itself: a training node while its rolling graph runs.
    Planner,
}

/// Life of one task of a training job: an iteration, a barrier, a node and so on. General tasks have
/// [`crate::tasks::TaskState`]. `Core` is the only caller of [`TrainingTaskState::apply`]; the store writes
/// what it decides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrainingTaskState {
    /// Some control edges are unmet.
    Waiting {
        /// Tasks that it comes after and that are not done.
        unmet: NonZeroU32,
    },
    /// Every control edge is met and nobody holds it: even in the pause after a failed attempt.
    Ready,
    /// Attempts count from 1; a report with an older one changes nothing.
    Leased {
        /// Who works on it.
        holder: Holder,
        /// The attempt under way.
        attempt: u32,
    },
    /// Its attempt has finished; of an iteration, every shard has what it pushed.
    Done,
    /// Its last attempt failed, and the job with it.
    Failed {
        /// Stable, see docs/errors.md.
        code: FaultCode,
        /// What went wrong, for people; the code may stand in it.
        reason: String,
    },
    /// The worker went away before any shard had applied anything: the samples of an iteration went back to
    /// the pool.
    Lost,
    /// The worker went away while its push had reached some shards and not all.
    Torn,
    /// Its job ended before it did.
    Canceled,
}

/// What happens to a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskEvent {
    /// A task that it comes after is done.
    InputDone,
    /// Its next attempt begins.
    Leased {
        /// Who works on it from now on.
        holder: Holder,
    },
    /// An attempt has succeeded: its holder says so, or every shard has its push.
    Finished {
        /// Which one; only the attempt under way counts.
        attempt: u32,
    },
    /// An attempt failed, and none is left.
    Failed {
        /// Which one; only the attempt under way counts.
        attempt: u32,
        /// Stable, see docs/errors.md.
        code: FaultCode,
        /// What went wrong, for people.
        reason: String,
    },
    /// The attempt came to nothing, and another one is to follow.
    Retried,
    /// The holder is gone before any shard has applied anything, and what it did is not repeated.
    Lost,
    /// The holder is gone, and its push has reached some shards and not all.
    TornApart,
    /// The job ends.
    Canceled,
}

impl TrainingTaskState {
    /// Where a task with this many unmet control edges starts.
    pub fn initial(unmet: u32) -> Self {
        NonZeroU32::new(unmet).map_or(Self::Ready, |unmet| Self::Waiting { unmet })
    }

    /// The state after `event`, given how many times the task was leased before (`attempts`); `None`: this
    /// one does not accept it.
    pub fn apply(&self, event: &TaskEvent, attempts: u32) -> Option<Self> {
        use {TaskEvent as E, TrainingTaskState as S};
        Some(match (self, event) {
            (S::Waiting { unmet }, E::InputDone) => S::initial(unmet.get() - 1),
            (S::Ready, E::Leased { holder }) => S::Leased { holder: *holder, attempt: attempts + 1 },
            (S::Leased { attempt, .. }, E::Finished { attempt: by }) if attempt == by => S::Done,
            (S::Leased { attempt, .. }, E::Failed { attempt: by, code, reason }) if attempt == by => {
                S::Failed { code: *code, reason: reason.clone() }
            }
            (S::Leased { .. }, E::Retried) => S::Ready,
            (S::Leased { .. }, E::Lost) => S::Lost,
            (S::Leased { .. }, E::TornApart) => S::Torn,
            (S::Waiting { .. } | S::Ready | S::Leased { .. }, E::Canceled) => S::Canceled,
            _ => return None,
        })
    }

    /// Whether nothing can follow.
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::Waiting { .. } | Self::Ready | Self::Leased { .. })
    }

    /// One word, as people see it in Redis.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Waiting { .. } => "waiting",
            Self::Ready => "ready",
            Self::Leased { .. } => "leased",
            Self::Done => "done",
            Self::Failed { .. } => "failed",
            Self::Lost => "lost",
            Self::Torn => "torn",
            Self::Canceled => "canceled",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const W: Holder = Holder::Worker(Incarnation(7));

    #[test]
    fn every_task_id_reads_what_it_prints() {
        for text in
            ["prepare/w3", "it/w3/17", "barrier/4", "clock/12", "evaluation/2/0", "train", "evaluate-2"]
        {
            assert_eq!(text.parse::<TaskId>().unwrap().to_string(), text);
        }
        for bad in ["prepare/x", "it/w3", "it/x/1", "barrier/-1", "clock/x", "", "a b"] {
            assert!(bad.parse::<TaskId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn moves_table() {
        use {TaskEvent as E, TrainingTaskState as S};
        let leased = |attempt| S::Leased { holder: W, attempt };
        #[rustfmt::skip]
        let cases: &[(&str, S, E, u32, Option<S>)] = &[
            ("last input makes ready",      S::initial(1),           E::InputDone,                     0, Some(S::Ready)),
            ("two inputs, one left",        S::initial(2),           E::InputDone,                     0, Some(S::initial(1))),
            ("first lease is attempt 1",    S::Ready,                E::Leased { holder: W },          0, Some(leased(1))),
            ("third lease is attempt 3",    S::Ready,                E::Leased { holder: W },          2, Some(leased(3))),
            ("current attempt finishes",    leased(2),               E::Finished { attempt: 2 },       2, Some(S::Done)),
            ("late attempt cannot finish",  leased(2),               E::Finished { attempt: 1 },       2, None),
            ("node is tried again",         leased(1),               E::Retried,                       1, Some(S::Ready)),
            ("iteration is never repeated", leased(1),               E::Lost,                          1, Some(S::Lost)),
            ("half applied push is torn",   leased(1),               E::TornApart,                     1, Some(S::Torn)),
            ("done is final",               S::Done,                 E::Canceled,                      1, None),
            ("waiting cannot be leased",    S::initial(1),           E::Leased { holder: W },          0, None),
            ("lost is final",               S::Lost,                 E::Finished { attempt: 1 },       1, None),
        ];
        for (name, from, event, attempts, want) in cases {
            assert_eq!(from.apply(event, *attempts), *want, "{name}");
        }
    }
}
