//! Every Redis key, spelled here and in docs/redis-schema.md and nowhere else; a test compares the two.

use syncline_scheduler::ids::{Incarnation, JobId, ShardIndex};

/// Hash: which engine is active. Fields `instance`, `epoch`, `until_ms`, `address`, [`let_go`] and
/// [`taken_over`] of shards.
pub const ENGINE: &str = "syncline:engine";
/// Sorted set: job ids by the time they were submitted.
pub const JOBS: &str = "syncline:jobs";
/// Counter: the last worker incarnation that was given away.
pub const INCARNATIONS: &str = "syncline:incarnations";
/// Format of everything below; raised when it changes incompatibly. An engine leaves alone what has a higher
/// one.
pub const SCHEMA: &str = "17";

/// Entries kept in each stream of a job.
pub const STREAM_ENTRIES: usize = 200;
/// How long the keys of an ended job stay.
pub const ENDED_JOB_EXPIRY_S: u64 = 7 * 24 * 3600;
/// How long the fence of a job stays that has no other keys: longer than any command can be on its way.
pub const FENCE_EXPIRY_S: u64 = 3600;

/// What a key of a job holds, and thereby what becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holds {
    /// Hash from which the job is loaded; written anew where a store has lost some of it.
    Records,
    /// Hash for people, which nothing is read back from; written anew as well.
    Summary,
    /// Capped stream of what happened; it stays where the rest is written anew.
    Stream,
}

/// Declares the keys of a job once. Names, what each holds, which a commit writes, what expires, is deleted
/// and is read back follow from this table and its order, in which the scripts are given them as well.
macro_rules! job_keys {
    ($($(#[$about:meta])* $name:ident, $key:ident: $holds:ident;)+) => {
        /// The keys of one job; the hash tag keeps them in one slot of a cluster.
        #[derive(Debug, Clone)]
        pub struct JobKeys {
            $($(#[$about])* pub $name: String,)+
        }

        impl JobKeys {
            /// The keys of `job`.
            pub fn new(job: &JobId) -> Self {
                Self { $($name: format!("syncline:{{{job}}}:{}", stringify!($name)),)+ }
            }

            /// All of them, in the order of the table.
            pub fn all(&self) -> [&str; JobKey::COUNT] {
                [$(&self.$name),+]
            }
        }

        /// Which of the keys of a job.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum JobKey {
            $($key,)+
        }

        impl JobKey {
            pub(super) const ALL: [Self; Self::COUNT] = [$(Self::$key),+];
            pub(super) const COUNT: usize = [$(stringify!($key)),+].len();

            pub(super) fn holds(self) -> Holds {
                match self {
                    $(Self::$key => Holds::$holds,)+
                }
            }
        }
    };
}

job_keys! {
    /// Hash, internal: `epoch`, `seq`, `schema`, `spec`, `job_state`. The scripts expect it first.
    state, State: Records;
    /// Hash, for people: state, progress, results in plain text. The scripts expect it second.
    job, Job: Summary;
    /// Hash: task id to JSON.
    tasks, Tasks: Records;
    /// Hash: worker incarnation to JSON.
    workers, Workers: Records;
    /// Hash: superstep to JSON, with what its barrier was decided on.
    supersteps, Supersteps: Records;
    /// Capped stream: what happened.
    events, Events: Stream;
    /// Capped stream: loss, step time, waiting, staleness.
    metrics, Metrics: Stream;
    /// Capped stream: the barriers that closed, with predicted and actual waits.
    barriers, Barriers: Stream;
    /// Capped stream: the newest results of general tasks.
    results, Results: Stream;
    /// Hash: class of general tasks to JSON.
    classes, Classes: Records;
    /// Hash: first of the general tasks that came together to JSON.
    graph, Graph: Records;
    /// Hash: window of general tasks to their states, one letter each.
    states, States: Records;
    /// Hash: general task to what it gave: a line for people, then any bytes.
    values, Values: Records;
    /// Hash: general task that had to be tried again, or failed, to JSON.
    faults, Faults: Records;
    /// Hash: worker incarnation to the general tasks that it has.
    leases, Leases: Records;
    /// Capped stream: what the model was worth on the test samples while it trained.
    evaluations, Evaluations: Stream;
}

impl JobKeys {
    pub(super) fn of(&self, key: JobKey) -> &str {
        self.all()[key as usize]
    }
}

impl JobKey {
    /// The type of the value, as the scripts are told it.
    pub(super) fn letter(self) -> char {
        match self.holds() {
            Holds::Records | Holds::Summary => 'h',
            Holds::Stream => 's',
        }
    }

    /// The letters of all keys of a job, in their order.
    pub(super) fn letters() -> String {
        Self::ALL.map(Self::letter).iter().collect()
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

/// Field of [`ENGINE`]: the last term of a process that followed the shard and was let go. What it has is
/// old.
pub fn let_go(shard: ShardIndex) -> String {
    format!("let_go_{shard}")
}

/// Field of [`ENGINE`]: the last term under which a process took the shard over. What served it before has an
/// older state.
pub fn taken_over(shard: ShardIndex) -> String {
    format!("taken_over_{shard}")
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
        assert!(text.contains(&format!("`schema` is the format ({SCHEMA};")));
    }
}
