//! Turns a commit into one call of the commit script.

use redis::{Cmd, ToRedisArgs};
use syncline_rpc::status::event_fields;
use syncline_scheduler::{
    core::{Commit, GraphChanges, SERIES_POINTS},
    ids::EngineEpoch,
};

use super::keys::{ENDED_JOB_EXPIRY_S, FENCE_EXPIRY_S, JobKey, JobKeys, SCHEMA, STREAM_ENTRIES};

/// Fields per Redis call inside the script; Lua's `unpack` has a limit of about 8,000.
const FIELDS_PER_CALL: usize = 1_000;

/// Most fields of hashes that travel as arguments of their own.
const FIELDS_UNPACKED: usize = 100_000;
/// Packed fields end an argument at so many bytes: Redis takes 512 MiB in one.
const PACKED_BYTES: usize = 16 << 20;

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

/// By what the store refuses a commit that comes late or out of turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fence {
    /// Of the engine that decided it: once a later one has the job, it is refused.
    pub epoch: EngineEpoch,
    /// Its number among the commits of its job; the same one again changes nothing.
    pub seq: u64,
    /// How it relates to what is stored.
    pub mode: CommitMode,
}

/// What becomes of a commit while Redis is at its memory limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MemoryLimit {
    /// It is refused, unless all that it does is to remove a job or to write one anew.
    #[default]
    Within,
    /// It is written: what frees memory waits for it.
    Beyond,
}

impl MemoryLimit {
    fn word(self) -> &'static str {
        match self {
            Self::Within => "within",
            Self::Beyond => "beyond",
        }
    }
}

/// The call as commit.lua documents it. What is written goes straight into the command that is sent: a part
/// of a graph may have a megabyte.
pub(super) fn commit_call(
    script_hash: &str,
    job: &JobKeys,
    Fence { epoch, seq, mode }: Fence,
    limit: MemoryLimit,
    commit: &Commit,
) -> Cmd {
    let mode = match (commit.gone, mode) {
        (true, _) => "gone",
        (false, CommitMode::Whole) => "whole",
        (false, CommitMode::New) => "new",
        (false, CommitMode::Next) => "next",
    };
    let nonce = commit.summary_field("nonce").filter(|_| mode == "whole").unwrap_or_default();
    let all = mode != "next" || commit.expires;
    let (mut positions, mut keys, mut kinds) = ([0; JobKey::COUNT], Vec::new(), String::new());
    for key in JobKey::ALL.into_iter().filter(|key| all || is_touched(*key, commit)) {
        keys.push(job.of(key));
        kinds.push(key.letter());
        positions[key as usize] = keys.len();
    }
    let mut call = redis::cmd("EVALSHA");
    call.arg(script_hash)
        .arg(keys.len())
        .arg(&keys)
        .arg(epoch.0)
        .arg(seq)
        .arg(mode)
        .arg(kinds)
        .arg(limit.word())
        .arg(nonce);
    let packs = mode == "whole" || hash_fields(commit) > FIELDS_UNPACKED;
    let mut operations = Operations { call, positions, packs };
    if commit.gone {
        operations.begin("E", JobKey::State, 1).arg(FENCE_EXPIRY_S);
        return operations.call;
    }
    operations.add(commit);
    if commit.expires {
        for key in JobKey::ALL {
            operations.begin("E", key, 1).arg(ENDED_JOB_EXPIRY_S);
        }
    }
    operations.call
}

/// Whether a commit writes this key. The script looks at each that it is given, so it is given no others.
fn is_touched(key: JobKey, commit: &Commit) -> bool {
    let GraphChanges { classes, chunks, windows, values, faults, leases } = &commit.graph;
    match key {
        // Epoch and seq lie in the one; the other counts what streams drop.
        JobKey::State | JobKey::Job => true,
        JobKey::Tasks => !commit.tasks.is_empty(),
        JobKey::Workers => !commit.workers.is_empty(),
        JobKey::Supersteps => !commit.supersteps.is_empty(),
        JobKey::Events => !commit.events.is_empty(),
        JobKey::Metrics => !commit.metrics.is_empty(),
        JobKey::Barriers => !commit.barriers.is_empty(),
        JobKey::Results => !commit.results.is_empty(),
        JobKey::Classes => !classes.is_empty(),
        JobKey::Graph => !chunks.is_empty(),
        JobKey::States => !windows.is_empty(),
        JobKey::Values => !values.is_empty(),
        JobKey::Faults => !faults.is_empty(),
        JobKey::Leases => !leases.is_empty(),
        JobKey::Evaluations => !commit.evaluations.is_empty(),
    }
}

/// The command with its operations: code, key, number of arguments, arguments.
struct Operations {
    call: Cmd,
    /// Where each key is among those that the script is given, from 1.
    positions: [usize; JobKey::COUNT],
    /// Whether fields of hashes travel packed. Redis 6 closes the connection of a command with more than a
    /// million arguments, and all of a job, what a pause changes of a large graph, or a long round of
    /// local steps may have more; most commits are far smaller, and need no unpacking.
    packs: bool,
}

impl Operations {
    fn add(&mut self, commit: &Commit) {
        let schema = commit.spec.is_some().then_some(("schema", SCHEMA));
        let spec = commit.spec.as_deref().map(|spec| ("spec", spec));
        let job_state = commit.job_state.as_deref().map(|state| ("job_state", state));
        self.set(JobKey::State, [schema, spec, job_state].into_iter().flatten());
        self.set(JobKey::Job, commit.summary.iter().map(|(k, v)| (*k, v.as_str())));
        self.change(JobKey::Tasks, &commit.tasks);
        self.change(JobKey::Workers, &commit.workers);
        self.change(JobKey::Supersteps, &commit.supersteps);
        self.add_graph(&commit.graph);
        // Before the new points come: what is newest always stays.
        if commit.metrics.halve {
            self.begin("M", JobKey::Metrics, 0);
        }
        if commit.evaluations.halve {
            self.begin("H", JobKey::Evaluations, 0);
        }
        let events: Vec<_> = commit.events.iter().map(event_fields).collect();
        for (key, entries, kept, dropped) in [
            (JobKey::Events, &events, STREAM_ENTRIES, "events_dropped"),
            (JobKey::Metrics, &commit.metrics.points, SERIES_POINTS as usize, "metrics_dropped"),
            (JobKey::Evaluations, &commit.evaluations.points, SERIES_POINTS as usize, "evaluations_dropped"),
            (JobKey::Barriers, &commit.barriers, STREAM_ENTRIES, "barriers_dropped"),
            (JobKey::Results, &commit.results, STREAM_ENTRIES, "results_dropped"),
        ] {
            // What the stream would not keep does not travel: a moment may have as many events as a graph has
            // tasks.
            let untold = entries.len().saturating_sub(kept);
            if untold > 0 {
                self.begin("C", JobKey::Job, 2).arg(dropped).arg(untold);
            }
            for entry in &entries[untold..] {
                let call = self.begin("X", key, 2 + 2 * entry.len()).arg(kept).arg(dropped);
                for (field, value) in entry {
                    call.arg(*field).arg(value);
                }
            }
        }
    }

    fn add_graph(&mut self, graph: &GraphChanges) {
        self.set(JobKey::Classes, graph.classes.iter().map(|(k, v)| (k.as_str(), v)));
        self.set(JobKey::Graph, graph.chunks.iter().map(|(k, v)| (k.as_str(), v)));
        self.set(JobKey::States, graph.windows.iter().map(|(k, v)| (k.as_str(), v)));
        self.change(JobKey::Values, &graph.values);
        self.change(JobKey::Faults, &graph.faults);
        self.change(JobKey::Leases, &graph.leases);
    }

    /// Sets and removes fields of a hash.
    fn change<V>(&mut self, key: JobKey, fields: &[(String, Option<V>)])
    where
        for<'a> &'a V: ToRedisArgs,
    {
        self.set(key, fields.iter().filter_map(|(k, v)| Some((k.as_str(), v.as_ref()?))));
        let removed: Vec<&str> =
            fields.iter().filter(|(_, v)| v.is_none()).map(|(k, _)| k.as_str()).collect();
        for part in removed.chunks(FIELDS_PER_CALL) {
            if self.packs {
                let fields = part.iter().map(|field| field.as_bytes().to_vec()).collect::<Vec<_>>();
                self.begin("R", key, 1).arg(packed(&fields));
                continue;
            }
            self.begin("D", key, part.len()).arg(part);
        }
    }

    fn set<'a, V: ToRedisArgs>(&mut self, key: JobKey, fields: impl Iterator<Item = (&'a str, V)>) {
        if self.packs {
            return self.set_packed(key, fields);
        }
        let fields: Vec<_> = fields.collect();
        for part in fields.chunks(FIELDS_PER_CALL) {
            let call = self.begin("S", key, 2 * part.len());
            for (field, value) in part {
                call.arg(*field).arg(value);
            }
        }
    }

    fn set_packed<'a, V: ToRedisArgs>(&mut self, key: JobKey, fields: impl Iterator<Item = (&'a str, V)>) {
        let (mut part, mut bytes) = (Vec::new(), 0);
        for (field, value) in fields {
            part.push(field.as_bytes().to_vec());
            part.extend(value.to_redis_args());
            bytes += part.iter().rev().take(2).map(Vec::len).sum::<usize>();
            if part.len() >= 2 * FIELDS_PER_CALL || bytes >= PACKED_BYTES {
                self.begin("P", key, 1).arg(packed(&part));
                part.clear();
                bytes = 0;
            }
        }
        if !part.is_empty() {
            self.begin("P", key, 1).arg(packed(&part));
        }
    }

    fn begin(&mut self, code: &str, key: JobKey, arguments: usize) -> &mut Cmd {
        self.call.arg(code).arg(self.positions[key as usize]).arg(arguments)
    }
}

/// What a commit changes in hashes that may be large, in fields: of a graph, or of a training whose round of
/// local steps is long.
fn hash_fields(commit: &Commit) -> usize {
    let Commit { tasks, workers, supersteps, graph, .. } = commit;
    let GraphChanges { classes, chunks, windows, values, faults, leases } = graph;
    let of_training = tasks.len() + workers.len() + supersteps.len();
    let of_graph = classes.len() + chunks.len() + windows.len() + values.len() + faults.len() + leases.len();
    of_training + of_graph
}

/// One array of strings in MessagePack, which scripts of Redis read. Source: msgpack/spec.md, `array 32` and
/// `str 32`.
fn packed(strings: &[Vec<u8>]) -> Vec<u8> {
    let length = |bytes: usize| u32::try_from(bytes).expect("Redis takes no 4 GiB").to_be_bytes();
    let mut packed = vec![0xdd];
    packed.extend(length(strings.len()));
    for bytes in strings {
        packed.push(0xdb);
        packed.extend(length(bytes.len()));
        packed.extend(bytes);
    }
    packed
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::{
        core::{Event, Happening, TaskFault},
        fault_code::FaultCode,
    };

    use super::*;

    fn arguments(commit: &Commit, mode: CommitMode) -> usize {
        let job = JobKeys::new(&"many".parse().unwrap());
        commit_call("hash", &job, Fence { epoch: EngineEpoch(1), seq: 1, mode }, MemoryLimit::Within, commit)
            .args_iter()
            .count()
    }

    #[test]
    fn no_change_of_a_million_tasks_has_more_arguments_than_redis_6_takes() {
        let tasks = || (0..1_000_000).map(|task: u32| task.to_string());
        let values = || tasks().map(|task| (task, Some(b"=x".to_vec()))).collect();
        let (faults, gone) = (tasks().map(|t| (t, Some("{}".into()))), tasks().map(|t| (t, None)));
        for (graph, mode) in [
            (GraphChanges { values: values(), ..GraphChanges::default() }, CommitMode::Whole),
            (GraphChanges { faults: faults.collect(), ..GraphChanges::default() }, CommitMode::Next),
            (GraphChanges { values: gone.collect(), ..GraphChanges::default() }, CommitMode::Next),
        ] {
            assert!(arguments(&Commit { graph, ..Commit::default() }, mode) < 1024 * 1024, "{mode:?}");
        }
        let (given, over) = (tasks().map(|t| (t, Some("{}".into()))), tasks().map(|t| (t, None)));
        for changed in [given.collect(), over.collect()] {
            let commit = Commit { tasks: changed, ..Commit::default() };
            assert!(arguments(&commit, CommitMode::Next) < 1024 * 1024);
        }
        let failed = |task| {
            let fault = TaskFault { code: FaultCode::new("E060"), reason: "nobody has begun it".into() };
            Event { at_us: 7, what: Happening::TaskFailed { task, fault } }
        };
        let commit = Commit { events: tasks().map(failed).collect(), ..Commit::default() };
        assert!(arguments(&commit, CommitMode::Next) < 1024 * 1024);
    }

    #[test]
    fn a_packed_argument_ends_before_redis_refuses_it() {
        let chunks = (0..40).map(|chunk| (chunk.to_string(), "x".repeat(1 << 20))).collect();
        let graph = GraphChanges { chunks, ..GraphChanges::default() };
        let commit = Commit { graph, ..Commit::default() };
        let job = JobKeys::new(&"large".parse().unwrap());
        let call = commit_call(
            "hash",
            &job,
            Fence { epoch: EngineEpoch(1), seq: 1, mode: CommitMode::Whole },
            MemoryLimit::Within,
            &commit,
        );
        let largest = call.args_iter().map(|arg| match arg {
            redis::Arg::Simple(bytes) => bytes.len(),
            _ => 0,
        });
        assert!(largest.max().unwrap() < 2 * PACKED_BYTES);
    }
}
