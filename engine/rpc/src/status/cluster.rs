//! Live workers, and engines about themselves.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, de::Error};
use syncline_scheduler::ids::{EngineEpoch, Incarnation, as_text};

use super::text::{self, UnknownFields, parsed_option, printed_option};
use crate::WorkerFields;

/// A worker speaks several times a second; a longer silence is shown.
pub const SILENCE_SHOWN_AFTER: Duration = Duration::from_secs(1);

/// The function that runs ONNX models as general tasks: every worker with ONNX Runtime has it.
pub const RUN_MODEL: &str = "syncline.run-model";

/// One worker that is connected, whether it works on a job or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LiveWorker {
    /// Number of its process, its incarnation: one that comes back has another.
    #[serde(with = "as_text")]
    pub id: Incarnation,
    /// As people call it.
    pub name: String,
    /// Name of its machine.
    pub host: String,
    /// `cpu`, or `cuda:N`.
    pub device: String,
    /// Of its process; 0: not known.
    pub pid: u32,
    /// Which of the training slots of its process it is, from 1.
    #[serde(default)]
    pub training_slot: u32,
    /// The job that it trains for, while it has an iteration or an evaluation of it.
    #[serde(default)]
    pub training_job: Option<String>,
    /// General tasks that it runs at the same time.
    #[serde(default)]
    pub slots: u32,
    /// With which it was started, by name.
    #[serde(default, deserialize_with = "labels")]
    pub labels: BTreeMap<String, String>,
    /// Names of the functions that it has, in their order; none: it only trains.
    #[serde(default, deserialize_with = "words")]
    pub functions: Vec<String>,
    /// Memory that general tasks may take together.
    pub memory_bytes: u64,
    /// GPUs that they may take.
    pub gpus: u32,
    /// Tasks that it has been leased.
    pub holding: u32,
    /// Functions of general tasks that were told to stop and have not returned.
    pub stopping: u32,
    /// What one of them waits for, in words.
    pub blocked_on: Option<String>,
    /// How its bytes travel to the shards of the job that it trains: `shm`, `unix` or `tcp`, for each shard
    /// where they differ.
    #[serde(default)]
    pub transport: Option<String>,
    /// How long it has been busy with the task that it runs.
    pub running_ms: u64,
    /// Since it was heard last.
    pub silent_ms: u64,
}

impl LiveWorker {
    /// Whether it takes part in trainings, for which it has ONNX Runtime: one with nothing but functions of a
    /// user does not.
    pub fn trains(&self) -> bool {
        let only_trains = self.functions.is_empty();
        only_trains || self.functions.iter().any(|function| function == RUN_MODEL)
    }

    /// From the fields of its hash in Redis.
    ///
    /// # Errors
    /// E143 if this release cannot read them.
    #[doc(hidden)]
    pub fn read(fields: &WorkerFields) -> Result<Self, UnknownFields> {
        text::read("a worker", fields)
    }
}

/// An engine about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EngineStatus {
    /// Release.
    pub version: String,
    /// Where it listens.
    pub address: String,
    /// Name under which it takes the lead.
    pub instance: String,
    /// Address of the Redis server, without password.
    pub redis: String,
    /// Now on its clock, by which moments of jobs are told, in milliseconds since the epoch of Unix; `None`
    /// from an earlier release.
    #[serde(default)]
    pub now_ms: Option<u64>,
    /// Number of parameter shards that it wants.
    pub shards: u32,
    /// Term of its lead; `None`: it does not lead.
    #[serde(default, deserialize_with = "parsed_option", serialize_with = "printed_option")]
    pub epoch: Option<EngineEpoch>,
    /// Why it does not lead; `None`: it leads.
    #[serde(default)]
    pub idle: Option<String>,
    /// Where the engine listens that leads instead, as far as that is known.
    #[serde(default)]
    pub leader: Option<String>,
    /// While it takes the lead: how many jobs it has claimed and read, each counted for itself. It grows as
    /// long as that goes on.
    #[serde(default)]
    pub load_steps: Option<u64>,
    /// Bytes of its own files that Redis has read since its start, while it answers nothing else.
    #[serde(default)]
    pub redis_loaded_bytes: Option<u64>,
    /// What is wrong with Redis.
    #[serde(default)]
    pub store_problem: Option<String>,
    /// Shards that are served; 0 if it does not lead.
    #[serde(default)]
    pub shards_present: u32,
    /// Which shards are missing, silent, or not reached by this engine or by any worker: jobs wait for them.
    #[serde(default)]
    pub shard_problem: Option<String>,
    /// How many of these have a process that was told to stop, and is not done with writing its jobs to its
    /// disk.
    #[serde(default)]
    pub shards_stopping: u32,
    /// How many of these have no process.
    #[serde(default)]
    pub shards_missing: u32,
    /// How many of these have a process that is silent, or not reached.
    #[serde(default)]
    pub shards_unreached: u32,
    /// Which shards are without the standby that they should have: no job waits for it.
    #[serde(default)]
    pub standby_problem: Option<String>,
    /// Which processes of shards have little room on their disks.
    #[serde(default)]
    pub disk_problem: Option<String>,
    /// Live workers, each with all its training slots.
    #[serde(default)]
    pub workers: u32,
    /// Numbers of their processes, one for each training slot; 0: not known.
    #[serde(default, deserialize_with = "numbers")]
    pub worker_pids: Vec<u32>,
}

/// Numbers with spaces between.
fn numbers<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u32>, D::Error> {
    let text = String::deserialize(from)?;
    text.split_whitespace().map(|number| number.parse().map_err(D::Error::custom)).collect()
}

/// Words with spaces between.
fn words<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let text = String::deserialize(from)?;
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

/// Texts by name, as JSON.
fn labels<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    serde_json::from_str(&String::deserialize(from)?).map_err(D::Error::custom)
}

impl EngineStatus {
    /// From what it answers.
    ///
    /// # Errors
    /// E143 if this release cannot read them.
    #[doc(hidden)]
    pub fn read(fields: &BTreeMap<String, String>) -> Result<Self, UnknownFields> {
        text::read("itself", fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> BTreeMap<String, String> {
        let pairs = text.split(' ').map(|pair| pair.split_once('=').unwrap());
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn an_engine_that_leads_and_one_that_stands_by_are_read() {
        const ALL: &str = "version=0.1.0 address=127.0.0.1:7461 instance=a redis=redis://r shards=2";
        let led = fields(&format!("{ALL} epoch=e7 shards_present=1 workers=2 worker_pids=4 store_problem="));
        let led = EngineStatus::read(&led).unwrap();
        assert_eq!((led.epoch, led.shards_present, led.idle), (Some(EngineEpoch(7)), 1, None));
        assert_eq!(led.worker_pids, [4]);
        let idle = EngineStatus::read(&fields(&format!("{ALL} idle=waits leader=127.0.0.1:1"))).unwrap();
        assert_eq!((idle.epoch, idle.leader.as_deref()), (None, Some("127.0.0.1:1")));
    }

    #[test]
    fn a_worker_has_its_number_as_it_is_printed() {
        const ABOUT: &str = "id=w3 name=n host=h device=cpu pid=0 memory_bytes=4096 gpus=0 slots=2";
        let now = "holding=1 stopping=0 blocked_on= running_ms=0 silent_ms=2";
        let mut told = fields(&format!("{ABOUT} {now}"));
        told.insert("functions".to_owned(), "add sub".to_owned());
        told.insert("labels".to_owned(), r#"{"rack":"a b"}"#.to_owned());
        let worker = LiveWorker::read(&told).unwrap();
        assert_eq!((worker.slots, &*worker.labels["rack"]), (2, "a b"));
        assert_eq!(worker.functions, ["add", "sub"]);
        assert!(!worker.trains());
        for functions in ["", "add syncline.run-model"] {
            told.insert("functions".to_owned(), functions.to_owned());
            assert!(LiveWorker::read(&told).unwrap().trains(), "{functions}");
        }
        assert_eq!((worker.id, worker.blocked_on, worker.memory_bytes), (Incarnation(3), None, 4096));
    }
}
