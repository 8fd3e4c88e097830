//! The part of a job of general tasks that a commit writes.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{TaskJob, changes::Changes, job::JobState, record::TaskRecord};
use crate::{
    core::{Commit, GraphChanges, commit::json},
    ids::JobId,
};

/// Tasks of one field in the store.
const CHUNK_TASKS: u32 = 1_024;
/// Bytes of their records, unless one task alone has more: as JSON they are up to five times as many, and Redis
/// closes the connection of whoever sends it an argument of 512 MB.
const CHUNK_BYTES: usize = 16 << 20;

/// What says that a job is one of general tasks, see
/// [`StoredJob::holds_tasks`](crate::core::StoredJob::holds_tasks).
#[derive(Serialize, Deserialize)]
pub(super) struct Header {
    pub graph: JobId,
}

impl TaskJob {
    fn has_changed(&self) -> bool {
        let changes = &self.changes;
        changes.spec
            || changes.job_state
            || changes.stored_tasks < self.graph.len()
            || self.graph.has_dirty_windows()
            || self.values.has_changed()
            || !changes.faults.is_empty()
            || !changes.leases.is_empty()
            || !changes.workers.is_empty()
            || !changes.events.is_empty()
    }

    /// Takes what changed since the last call; `None` if nothing did.
    pub(in crate::core) fn take_commit(&mut self) -> Option<Commit> {
        if !self.has_changed() {
            return None;
        }
        let changes = std::mem::take(&mut self.changes);
        self.changes.stored_tasks = self.graph.len();
        self.changes.stored_classes = self.classes.len();
        self.leases.retain(|_, tasks| !tasks.is_empty());
        let spec = changes.spec.then(|| json(&Header { graph: self.id.clone() }));
        let state: &JobState = &self.state;
        Some(Commit {
            spec,
            job_state: changes.job_state.then(|| json(state)),
            summary: self.summary(),
            workers: (changes.workers.iter())
                .map(|worker| (worker.to_string(), self.workers.get(worker).map(json)))
                .collect(),
            results: changes.results.iter().map(|task| self.result(*task)).collect(),
            events: changes.events,
            graph: GraphChanges {
                classes: (changes.stored_classes..self.classes.len())
                    .map(|class| (class.to_string(), json(&self.classes[class].class)))
                    .collect(),
                chunks: self.chunks(changes.stored_tasks),
                windows: self.graph.take_dirty_windows(),
                values: self.values.take_changes(),
                faults: (changes.faults.iter())
                    .map(|task| (task.to_string(), self.faults.get(task).map(json)))
                    .collect(),
                leases: (changes.leases.iter())
                    .map(|worker| (worker.to_string(), self.leases.get(worker).map(ranges)))
                    .collect(),
            },
            over: self.state.phase.is_over(),
            expires: self.state.phase.is_over(),
            ..Commit::default()
        })
    }

    /// What is told of a result: task, name if it has one, what it looks like, and its size.
    fn result(&self, task: u32) -> Vec<(&'static str, String)> {
        let mut fields = vec![("task", task.to_string())];
        fields.extend(self.graph.record(task).name.map(|name| ("name", name.to_string())));
        let given = self.values.kept(task);
        let preview = given.and_then(|given| given.preview.as_ref());
        fields.extend(preview.map(|preview| ("value", preview.to_string())));
        fields.extend(given.map(|given| ("bytes", given.value.bytes().to_string())));
        fields
    }

    /// The tasks from `stored` on, as they are written.
    fn chunks(&self, stored: u32) -> Vec<(String, String)> {
        let (mut first, mut chunks) = (stored, Vec::new());
        while first < self.graph.len() {
            let last = self.graph.chunk_end(first, CHUNK_TASKS, CHUNK_BYTES);
            let records: Vec<TaskRecord> = (first..last).map(|task| self.graph.record(task)).collect();
            chunks.push((first.to_string(), json(&records)));
            first = last;
        }
        chunks
    }

    /// Marks everything as changed: the next commit holds the whole job.
    pub(in crate::core) fn mark_all_changed(&mut self) {
        let Changes { events, attempts_told, results, .. } = std::mem::take(&mut self.changes);
        self.changes = Changes {
            spec: true,
            job_state: true,
            stored_tasks: 0,
            stored_classes: 0,
            faults: self.faults.keys().copied().collect(),
            leases: self.leases.keys().copied().collect(),
            workers: self.workers.keys().copied().collect(),
            events,
            attempts_told,
            results,
        };
        self.graph.mark_all_dirty();
        self.values.mark_all_changed();
    }
}

/// `1-3,7` of 1, 2, 3 and 7.
fn ranges(tasks: &BTreeSet<u32>) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    let mut tasks = tasks.iter().copied().peekable();
    while let Some(first) = tasks.next() {
        let mut last = first;
        while let Some(next) = tasks.next_if(|next| *next == last + 1) {
            last = next;
        }
        let comma = if text.is_empty() { "" } else { "," };
        let _ = match first == last {
            true => write!(text, "{comma}{first}"),
            false => write!(text, "{comma}{first}-{last}"),
        };
    }
    text
}

/// The reverse of [`ranges`], of a job of `len` tasks. Ranges ascend and are of tasks that there are: a
/// damaged text of a few bytes must not stand for more than the job has.
pub(super) fn parse_ranges(text: &str, len: u32) -> Option<BTreeSet<u32>> {
    let mut tasks = BTreeSet::new();
    let mut next = 0;
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first < next || first > last || last >= len {
            return None;
        }
        tasks.extend(first..=last);
        next = last + 1;
    }
    Some(tasks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_table() {
        for text in ["0", "1-3,7", "0-1,3,5-9"] {
            assert_eq!(ranges(&parse_ranges(text, 10).unwrap()), text);
        }
        for bad in ["", "x", "3-1", "1,", "1-", "0-10", "0-4294967295", "0-9,0-9", "5,3", "2-4,4"] {
            assert_eq!(parse_ranges(bad, 10), None, "{bad}");
        }
    }
}
