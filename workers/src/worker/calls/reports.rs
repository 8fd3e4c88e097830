//! Ends of attempts on their way to the engine.

use std::collections::VecDeque;

use syncline_rpc::EndedTasks;
use syncline_scheduler::{
    ids::{EngineEpoch, SubmissionId},
    tasks::{ReportGroup, TaskEnd},
};

use super::{attempt::outcome_bytes, held::EndedKey};

/// Most ends in one message, and most bytes of what they give, beside the last.
const MAX_ENDS: usize = 2_048;
const MAX_BYTES: usize = 4 << 20;

/// Ends that are still to be sent, in the order in which they happened.
#[derive(Debug, Default)]
pub(super) struct Reports {
    waiting: VecDeque<(EndedKey, TaskEnd)>,
}

/// Ends that go in one message.
#[derive(Debug, Default)]
pub(in crate::worker) struct Batch {
    pub ended_tasks: EndedTasks,
    pub(super) ended: Vec<EndedKey>,
}

impl Batch {
    /// How many ends it has.
    pub(in crate::worker) fn count(&self) -> usize {
        self.ended.len()
    }
}

impl Reports {
    /// Adds an end; `true` if it is the first.
    pub(super) fn push(&mut self, key: EndedKey, end: TaskEnd) -> bool {
        self.waiting.push_back((key, end));
        self.waiting.len() == 1
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Drops those that the worker does not hold any more.
    pub(super) fn retain(&mut self, is_held: impl Fn(&EndedKey) -> bool) {
        self.waiting.retain(|(key, _)| is_held(key));
    }

    /// The next message, of a worker that holds what this engine has told it to; nothing if there is nothing
    /// to say.
    pub(super) fn take(&mut self, under: EngineEpoch) -> Option<Batch> {
        let ended_tasks = EndedTasks { under, groups: Vec::new() };
        let mut batch = Batch { ended_tasks, ..Batch::default() };
        let mut bytes = 0;
        while batch.ended.len() < MAX_ENDS && bytes < MAX_BYTES {
            let Some((key, end)) = self.waiting.pop_front() else { break };
            bytes += outcome_bytes(&end.outcome);
            bytes += end.preview.as_ref().map_or(0, |preview| preview.as_str().len());
            match batch.ended_tasks.groups.last_mut() {
                Some(last) if last.submission == *key.submission => last.ended.push(end),
                _ => {
                    let submission = SubmissionId::clone(&key.submission);
                    batch.ended_tasks.groups.push(ReportGroup { submission, ended: vec![end] });
                }
            }
            batch.ended.push(key);
        }
        (!batch.ended.is_empty()).then_some(batch)
    }
}
