//! Turns a commit into one call of the commit script.

use redis::{Cmd, ToRedisArgs};
use syncline_rpc::status::event_fields;
use syncline_scheduler::{
    core::{Commit, GraphChanges, SERIES_POINTS},
    ids::EngineEpoch,
};

use super::keys::{ENDED_JOB_EXPIRY_S, JobKeys, SCHEMA, STREAM_ENTRIES};

/// Fields per Redis call inside the script; Lua's `unpack` has a limit of about 8,000.
const FIELDS_PER_CALL: usize = 1_000;

// Positions among all keys of a job, from 0.
const STATE: usize = 0;
const JOB: usize = 1;
const TASKS: usize = 2;
const WORKERS: usize = 3;
const SUPERSTEPS: usize = 4;
const EVENTS: usize = 5;
const METRICS: usize = 6;
const BARRIERS: usize = 7;
const RESULTS: usize = 8;
const CLASSES: usize = 9;
const GRAPH: usize = 10;
const STATES: usize = 11;
const VALUES: usize = 12;
const FAULTS: usize = 13;
const LEASES: usize = 14;
const EVALUATIONS: usize = 15;
const KEYS: usize = 16;

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
    let all = mode != "next" || commit.over;
    let touched = touched(commit).map(|touched| touched || all);
    let (names, mut positions, mut keys, mut kinds) = (job.all(), [0; KEYS], Vec::new(), String::new());
    for key in (0..KEYS).filter(|key| touched[*key]) {
        keys.push(names[key]);
        kinds.push(kind(key));
        positions[key] = keys.len();
    }
    let mut call = redis::cmd("EVALSHA");
    call.arg(script_hash).arg(keys.len()).arg(&keys).arg(epoch.0).arg(seq).arg(mode).arg(kinds);
    let mut operations = Operations { call, positions };
    operations.add(commit);
    if commit.over {
        for key in 0..KEYS {
            operations.begin("E", key, 1).arg(ENDED_JOB_EXPIRY_S);
        }
    }
    operations.call
}

/// What a key holds, as the scripts are told it.
fn kind(key: usize) -> char {
    if [EVENTS, METRICS, BARRIERS, RESULTS, EVALUATIONS].contains(&key) { 's' } else { 'h' }
}

/// The same of all keys of a job.
pub(super) fn kinds() -> String {
    (0..KEYS).map(kind).collect()
}

/// Which keys a commit writes. The script looks at each that it is given, so it is given no others.
fn touched(commit: &Commit) -> [bool; KEYS] {
    let mut touched = [false; KEYS];
    // Epoch and seq lie in the one; the other counts what streams drop.
    (touched[STATE], touched[JOB]) = (true, true);
    touched[TASKS] = !commit.tasks.is_empty();
    touched[WORKERS] = !commit.workers.is_empty();
    touched[SUPERSTEPS] = !commit.supersteps.is_empty();
    touched[EVENTS] = !commit.events.is_empty();
    touched[METRICS] = !commit.metrics.is_empty();
    touched[EVALUATIONS] = !commit.evaluations.is_empty();
    touched[BARRIERS] = !commit.barriers.is_empty();
    touched[RESULTS] = !commit.results.is_empty();
    let GraphChanges { classes, chunks, windows, values, faults, leases } = &commit.graph;
    touched[CLASSES] = !classes.is_empty();
    touched[GRAPH] = !chunks.is_empty();
    touched[STATES] = !windows.is_empty();
    touched[VALUES] = !values.is_empty();
    touched[FAULTS] = !faults.is_empty();
    touched[LEASES] = !leases.is_empty();
    touched
}

/// The command with its operations: code, key, number of arguments, arguments.
struct Operations {
    call: Cmd,
    /// Where each key is among those that the script is given, from 1.
    positions: [usize; KEYS],
}

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
        for (key, series) in [(METRICS, &commit.metrics), (EVALUATIONS, &commit.evaluations)] {
            // What is newest always stays.
            if series.halve {
                self.begin("H", key, 0);
            }
        }
        let events: Vec<_> = commit.events.iter().map(event_fields).collect();
        for (key, entries, kept, dropped) in [
            (EVENTS, &events, STREAM_ENTRIES, "events_dropped"),
            (METRICS, &commit.metrics.points, SERIES_POINTS as usize, "metrics_dropped"),
            (EVALUATIONS, &commit.evaluations.points, SERIES_POINTS as usize, "evaluations_dropped"),
            (BARRIERS, &commit.barriers, STREAM_ENTRIES, "barriers_dropped"),
            (RESULTS, &commit.results, STREAM_ENTRIES, "results_dropped"),
        ] {
            for entry in entries {
                let call = self.begin("X", key, 2 + 2 * entry.len()).arg(kept).arg(dropped);
                for (field, value) in entry {
                    call.arg(*field).arg(value);
                }
            }
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
        self.call.arg(code).arg(self.positions[key]).arg(arguments)
    }
}
