//! Turns a commit into one call of the commit script.

use redis::{Cmd, ToRedisArgs};
use syncline_scheduler::{
    core::{CURVE_POINTS, Commit, GraphChanges},
    ids::EngineEpoch,
};

use super::keys::{ENDED_JOB_EXPIRY_S, JobKeys, SCHEMA, STREAM_ENTRIES, TRAINING_KEYS};

/// Fields per Redis call inside the script; Lua's `unpack` has a limit of about 8,000.
const FIELDS_PER_CALL: usize = 1_000;

const STATE: usize = 1;
const JOB: usize = 2;
const TASKS: usize = 3;
const WORKERS: usize = 4;
const SUPERSTEPS: usize = 5;
const EVENTS: usize = 6;
const METRICS: usize = 7;
const BARRIERS: usize = 8;
const CLASSES: usize = 9;
const GRAPH: usize = 10;
const STATES: usize = 11;
const VALUES: usize = 12;
const FAULTS: usize = 13;
const LEASES: usize = 14;

/// How a commit relates to what is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitMode {
    /// The changes since the commit before.
    Next,
    /// All of a job that takes the place of whatever has its name.
    New,
    /// All of a job, after the store has lost some.
    Whole,
}

/// The call as commit.lua documents it. What is written goes straight into the command that is sent: a part of a graph
/// may have a megabyte.
pub(super) fn commit_call(
    script_hash: &str,
    job: &JobKeys,
    (epoch, seq, mode): (EngineEpoch, u64, CommitMode),
    commit: &Commit,
) -> Cmd {
    let mode = match (commit.gone, mode) {
        (true, _) => "gone",
        (false, CommitMode::Whole) => "whole",
        (false, CommitMode::New) => "new",
        (false, CommitMode::Next) => "next",
    };
    let leaves_graph_alone = mode == "next" && !commit.over && commit.graph == GraphChanges::default();
    let keys = &job.all()[..if leaves_graph_alone { TRAINING_KEYS } else { job.all().len() }];
    let mut call = redis::cmd("EVALSHA");
    call.arg(script_hash).arg(keys.len()).arg(keys).arg(epoch.0).arg(seq).arg(mode);
    let mut operations = Operations(call);
    operations.add(commit);
    if commit.over {
        for key in 1..=keys.len() {
            operations.begin("E", key, 1).arg(ENDED_JOB_EXPIRY_S);
        }
    }
    operations.0
}

/// The command with its operations: code, key, number of arguments, arguments.
struct Operations(Cmd);

impl Operations {
    fn add(&mut self, commit: &Commit) {
        let schema = commit.spec.is_some().then_some(("schema", SCHEMA));
        let spec = commit.spec.as_deref().map(|spec| ("spec", spec));
        let job_state = commit.job_state.as_deref().map(|state| ("job_state", state));
        self.set(STATE, [schema, spec, job_state].into_iter().flatten());
        self.set(JOB, commit.summary.iter().map(|(k, v)| (*k, v.as_str())));
        self.change(TASKS, &commit.tasks);
        self.change(WORKERS, &commit.workers);
        self.change(SUPERSTEPS, &commit.supersteps);
        self.add_graph(&commit.graph);
        for (key, entries, kept) in [
            (EVENTS, &commit.events, STREAM_ENTRIES),
            (METRICS, &commit.metrics, CURVE_POINTS as usize),
            (BARRIERS, &commit.barriers, STREAM_ENTRIES),
        ] {
            for entry in entries {
                let call = self.begin("X", key, 1 + 2 * entry.len()).arg(kept);
                for (field, value) in entry {
                    call.arg(*field).arg(value);
                }
            }
        }
        if commit.halve_metrics {
            self.begin("H", METRICS, 0);
        }
    }

    fn add_graph(&mut self, graph: &GraphChanges) {
        self.set(CLASSES, graph.classes.iter().map(|(k, v)| (k.as_str(), v)));
        self.set(GRAPH, graph.chunks.iter().map(|(k, v)| (k.as_str(), v)));
        self.set(STATES, graph.windows.iter().map(|(k, v)| (k.as_str(), v)));
        self.change(VALUES, &graph.values);
        self.change(FAULTS, &graph.faults);
        self.change(LEASES, &graph.leases);
    }

    /// Sets and removes fields of a hash.
    fn change<V>(&mut self, key: usize, fields: &[(String, Option<V>)])
    where
        for<'a> &'a V: ToRedisArgs,
    {
        self.set(key, fields.iter().filter_map(|(k, v)| Some((k.as_str(), v.as_ref()?))));
        let removed: Vec<&str> =
            fields.iter().filter(|(_, v)| v.is_none()).map(|(k, _)| k.as_str()).collect();
        for part in removed.chunks(FIELDS_PER_CALL) {
            self.begin("D", key, part.len()).arg(part);
        }
    }

    fn set<'a, V: ToRedisArgs>(&mut self, key: usize, fields: impl Iterator<Item = (&'a str, V)>) {
        let fields: Vec<_> = fields.collect();
        for part in fields.chunks(FIELDS_PER_CALL) {
            let call = self.begin("S", key, 2 * part.len());
            for (field, value) in part {
                call.arg(*field).arg(value);
            }
        }
    }

    fn begin(&mut self, code: &str, key: usize, arguments: usize) -> &mut Cmd {
        self.0.arg(code).arg(key).arg(arguments)
    }
}
