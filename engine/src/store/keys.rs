//! Every Redis key, spelled here and in docs/redis-schema.md and nowhere else; a test compares the two.

use syncline_scheduler::ids::{Incarnation, JobId, ShardIndex};

/// Hash: which engine is active. Fields `instance`, `epoch`, `until_ms`, `address`, and [`let_go`] of shards.
pub const ENGINE: &str = "syncline:engine";
/// Sorted set: job ids by the time they were submitted.
pub const JOBS: &str = "syncline:jobs";
/// Counter: the last worker incarnation that was given away.
pub const INCARNATIONS: &str = "syncline:incarnations";
/// Format of everything below; raised when it changes incompatibly. An engine leaves alone what has a higher one.
pub const SCHEMA: &str = "10";

/// Entries kept in each stream of a job.
pub const STREAM_ENTRIES: usize = 200;
/// How long the keys of an ended job stay.
pub const ENDED_JOB_EXPIRY_S: u64 = 7 * 24 * 3600;

/// The keys of one job; the hash tag keeps them in one slot of a cluster.
#[derive(Debug, Clone)]
pub struct JobKeys {
    /// Hash, for people: state, progress, results in plain text.
    pub job: String,
    /// Hash, internal: `epoch`, `seq`, `schema`, `spec`, `job_state`.
    pub state: String,
    /// Hash: task id to JSON.
    pub tasks: String,
    /// Hash: worker incarnation to JSON.
    pub workers: String,
    /// Hash: superstep to JSON, with what its barrier was decided on.
    pub supersteps: String,
    /// Capped stream: what happened.
    pub events: String,
    /// Capped stream: loss, step time, waiting, staleness.
    pub metrics: String,
    /// Capped stream: the barriers that closed, with predicted and actual waits.
    pub barriers: String,
    /// Capped stream: the newest results of general tasks.
    pub results: String,
    /// Hash: class of general tasks to JSON.
    pub classes: String,
    /// Hash: first of the general tasks that came together to JSON.
    pub graph: String,
    /// Hash: window of general tasks to their states, one letter each.
    pub states: String,
    /// Hash: general task to what it gave: a line for people, then any bytes.
    pub values: String,
    /// Hash: general task that had to be tried again, or failed, to JSON.
    pub faults: String,
    /// Hash: worker incarnation to the general tasks that it has.
    pub leases: String,
    /// Capped stream: what the model was worth on the test samples while it trained.
    pub evaluations: String,
}

impl JobKeys {
    /// The keys of `job`.
    pub fn new(job: &JobId) -> Self {
        let key = |name: &str| format!("syncline:{{{job}}}:{name}");
        Self {
            job: key("job"),
            state: key("state"),
            tasks: key("tasks"),
            workers: key("workers"),
            supersteps: key("supersteps"),
            events: key("events"),
            metrics: key("metrics"),
            barriers: key("barriers"),
            results: key("results"),
            classes: key("classes"),
            graph: key("graph"),
            states: key("states"),
            values: key("values"),
            faults: key("faults"),
            leases: key("leases"),
            evaluations: key("evaluations"),
        }
    }

    /// All of them, in the order in which the commit script expects them.
    pub fn all(&self) -> [&str; 16] {
        [
            &self.state,
            &self.job,
            &self.tasks,
            &self.workers,
            &self.supersteps,
            &self.events,
            &self.metrics,
            &self.barriers,
            &self.results,
            &self.classes,
            &self.graph,
            &self.states,
            &self.values,
            &self.faults,
            &self.leases,
            &self.evaluations,
        ]
    }
}

/// Hash with expiry: a live worker.
pub fn worker(worker: Incarnation) -> String {
    format!("syncline:worker:{worker}")
}

/// Text with expiry: what `syncline doctor` writes, reads and deletes to see whether it may.
pub fn probe(number: u64) -> String {
    format!("syncline:probe:{number}")
}

/// Field of [`ENGINE`]: the last term of a process that followed the shard and was let go. What it has is old.
pub fn let_go(shard: ShardIndex) -> String {
    format!("let_go_{shard}")
}

/// Hash with expiry: a live shard.
pub fn shard(shard: ShardIndex) -> String {
    format!("syncline:shard:{shard}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_document_names_every_key_and_no_other() {
        let text =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/redis-schema.md")).unwrap();
        let keys = JobKeys::new(&"JOB".to_lowercase().parse().unwrap());
        let mut ours: Vec<String> = keys.all().iter().map(|k| k.replace("{job}", "{JOB}")).collect();
        ours.extend([ENGINE, JOBS, INCARNATIONS].map(str::to_owned));
        ours.push(worker(Incarnation(0)).replace("w0", "WORKER"));
        ours.push(shard(ShardIndex(0)).replace("s0", "SHARD"));
        ours.push(probe(0).replace('0', "NUMBER"));
        ours.sort();
        let heading = |l: &str| l.strip_prefix("### `")?.strip_suffix('`').map(str::to_owned);
        let mut theirs: Vec<String> = text.lines().filter_map(heading).collect();
        theirs.sort();
        assert_eq!(ours, theirs);
    }
}
