//! A live worker as it is shown to users.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use syncline_rpc::{Activity, status::SILENCE_SHOWN_AFTER};
use syncline_scheduler::{
    core::WorkerInfo,
    ids::{Incarnation, ProcessId},
};

/// A live worker as it is shown to users.
pub(super) struct WorkerStatus {
    pub worker: Incarnation,
    pub about: WorkerInfo,
    pub silent_for: Duration,
    pub activity: Arc<Activity>,
    /// It has been given an iteration or an evaluation, and nothing is known of how it went.
    pub is_busy: bool,
}

impl WorkerStatus {
    /// That nothing is heard of it, in words, if that is so.
    pub(super) fn silence(&self) -> Option<String> {
        let (name, worker, silent_s) = (&self.about.name, self.worker, self.silent_for.as_secs_f64());
        self.is_silent().then(|| format!("nothing was heard of {name} ({worker}) for {silent_s:.1} s"))
    }

    /// Whether it has said nothing for so long that people are told: what it said before is old.
    pub(super) fn is_silent(&self) -> bool {
        self.silent_for > SILENCE_SHOWN_AFTER
    }

    /// Its hash in Redis, see docs/redis-schema.md.
    pub(super) fn fields(self) -> Vec<(&'static str, String)> {
        let functions: BTreeSet<&str> =
            self.about.capacity.functions.iter().map(|function| function.name.as_str()).collect();
        let holding = self.activity.holding.len() + self.activity.tasks as usize;
        vec![
            ("name", self.about.name),
            ("host", self.about.host),
            ("device", self.about.device),
            ("pid", self.about.pid.to_string()),
            ("training_slot", self.about.training_slot.to_string()),
            (
                "training_job",
                self.activity.holding.first().map(|key| key.run.job.to_string()).unwrap_or_default(),
            ),
            ("slots", self.about.capacity.slots.to_string()),
            ("labels", serde_json::to_string(&self.about.capacity.labels).unwrap_or_default()),
            ("functions", functions.into_iter().collect::<Vec<_>>().join(" ")),
            ("memory_bytes", self.about.capacity.resources.memory_bytes.to_string()),
            ("gpus", self.about.capacity.resources.gpus.to_string()),
            ("holding", holding.to_string()),
            ("stopping", self.activity.stopping.to_string()),
            ("blocked_on", self.activity.blocked_on.clone().unwrap_or_default()),
            ("transport", self.activity.transport.clone().unwrap_or_default()),
            ("running_ms", self.activity.running_ms.to_string()),
            ("silent_ms", self.silent_for.as_millis().to_string()),
        ]
    }
}

/// How many workers these are, each with all its training slots.
pub(super) fn count_processes(slots: &[WorkerStatus]) -> usize {
    let alone = slots.iter().filter(|slot| slot.about.process.is_none()).count();
    let processes: BTreeSet<ProcessId> = slots.iter().filter_map(|slot| slot.about.process).collect();
    alone + processes.len()
}

/// How the bytes of some workers travel to the shards: in one word if it is the same for all, else whose go
/// how.
pub(super) fn transports<'a>(workers: impl Iterator<Item = &'a WorkerStatus>) -> Option<String> {
    let mut by_transport: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for seen in workers {
        if let Some(transport) = &seen.activity.transport {
            by_transport.entry(transport).or_default().push(seen.worker.to_string());
        }
    }
    match by_transport.len() {
        0 | 1 => by_transport.into_keys().next().map(str::to_owned),
        _ => {
            let each = by_transport.into_iter();
            Some(
                each.map(|(transport, who)| format!("{transport} for {}", who.join(", ")))
                    .collect::<Vec<_>>()
                    .join("; "),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::{
        core::TaskKey,
        ids::{Generation, RunId},
    };

    use super::*;

    #[test]
    fn workers_that_reach_the_shards_in_the_same_way_need_one_word() {
        let seen = |worker: u64, transport: Option<&str>| WorkerStatus {
            worker: Incarnation(worker),
            about: WorkerInfo::default(),
            silent_for: Duration::ZERO,
            activity: Arc::new(Activity { transport: transport.map(str::to_owned), ..Activity::default() }),
            is_busy: false,
        };
        let told = |all: &[WorkerStatus]| transports(all.iter());
        assert_eq!(told(&[seen(1, None)]), None);
        assert_eq!(told(&[seen(1, Some("shm")), seen(2, None), seen(3, Some("shm"))]).unwrap(), "shm");
        let mixed = [seen(1, Some("shm")), seen(2, Some("shm,tcp")), seen(3, Some("shm"))];
        assert_eq!(told(&mixed).unwrap(), "shm for w1, w3; shm,tcp for w2");
    }

    #[test]
    fn what_a_worker_holds_is_iterations_and_calls_and_what_it_waits_for_may_be_nothing() {
        let key = TaskKey {
            run: RunId { job: "job".parse().unwrap(), generation: Generation::default() },
            task: "it/w7/1".parse().unwrap(),
            attempt: 1,
        };
        let activity = Arc::new(Activity { holding: vec![key], tasks: 2, ..Activity::default() });
        let (worker, about) =
            (Incarnation(7), WorkerInfo { name: "a".into(), pid: 9, ..WorkerInfo::default() });
        let silent_for = Duration::from_millis(1_500);
        let status = WorkerStatus { worker, about, silent_for, activity, is_busy: false };
        assert_eq!(status.silence().unwrap(), "nothing was heard of a (w7) for 1.5 s");
        let fields = status.fields();
        for field in [
            ("holding", "3"),
            ("pid", "9"),
            ("silent_ms", "1500"),
            ("blocked_on", ""),
            ("training_job", "job"),
        ] {
            assert!(fields.contains(&(field.0, field.1.to_owned())), "{field:?}: {fields:?}");
        }
    }
}
