//! An event as the text that is written down of it, in one place. [`JobEvent`](super::JobEvent) reads it.

use std::fmt::Display;

use syncline_scheduler::core::{Assignee, Begun, Event, Happening, Submitted};

/// Fields of an entry, by name and in order.
type Fields = Vec<(&'static str, String)>;

macro_rules! fields {
    ($($name:literal: $value:expr),*) => { vec![$(($name, $value.to_string())),*] };
}

/// The fields of an event as docs/redis-schema.md names them: `what`, `at_ms`, and what is told of it.
pub fn event_fields(Event { at_us, what }: &Event) -> Fields {
    [fields!["what": what.kind(), "at_ms": at_us / 1000], told(what)].concat()
}

fn told(what: &Happening) -> Fields {
    use Happening as H;
    match what {
        H::JobSubmitted(Submitted::Training { nodes }) => fields!["nodes": nodes],
        H::JobSubmitted(Submitted::Tasks) | H::Paused | H::Resumed => Vec::new(),
        H::Started(Begun::Workers(workers)) => fields!["workers": workers],
        H::Started(Begun::Tasks(tasks)) => fields!["tasks": tasks],
        H::WorkerJoined(w) | H::WorkerPrepared(w) => fields!["worker": w.id, "name": w.name],
        H::WorkerLost { worker: w, reason } => fields!["worker": w.id, "name": w.name, "reason": reason],
        H::WorkerSealed { worker: w, applied } => fields!["worker": w.id, "name": w.name, "applied": applied],
        H::WorkerSlow { worker: w, speed } | H::WorkerRecovered { worker: w, speed } => fields![
            "worker": w.id, "name": w.name, "factor": format!("{:.2}", speed.factor),
            "interval_us": speed.interval_us, "median_interval_us": speed.median_interval_us
        ],
        H::WorkerExcluded { worker: w, host, fault, again_in_ms } => fields![
            "worker": w.id, "name": w.name, "host": host,
            "code": fault.code, "reason": fault.reason, "again_in_ms": again_in_ms
        ],
        H::SuperstepReplanned { barrier, shortened } => fields!["barrier": barrier, "shortened": shortened],
        H::IterationTorn { task } => fields!["task": task],
        H::CheckpointKept { checkpoint, samples, bytes, rest_ms } => {
            fields!["checkpoint": checkpoint, "samples": samples, "bytes": bytes, "rest_ms": rest_ms]
        }
        H::CheckpointFailed { checkpoint, fault } | H::BestUnreadable { checkpoint, fault } => {
            fields!["checkpoint": checkpoint, "code": fault.code, "reason": fault.reason]
        }
        H::Evaluated { samples, set, evaluation } => {
            [fields!["samples": samples], evaluation.fields(*set)].concat()
        }
        H::LearningRateReduced { samples, learning_rate } => {
            fields!["samples": samples, "learning_rate": learning_rate]
        }
        H::StoppedEarly { samples, reason } => fields!["samples": samples, "reason": reason],
        H::BestRestored { checkpoint, samples, reason } => {
            fields!["checkpoint": checkpoint, "samples": samples, "reason": reason]
        }
        H::EvaluationFailed { task, fault } => {
            fields!["task": task, "code": fault.code, "reason": fault.reason]
        }
        H::RolledBack { iterations, samples, reason, checkpoint } => [
            fields!["iterations": iterations, "samples": samples, "reason": reason],
            if_any("checkpoint", checkpoint.as_ref()),
        ]
        .concat(),
        H::ShardLost { shard, reason } => fields!["shard": shard, "reason": reason],
        H::ShardTakenOver { shard, address } => fields!["shard": shard, "address": address],
        H::NodeFailed { task, attempt, fault } | H::SnapshotPutOff { task, attempt, fault } => {
            fields!["task": task, "attempt": attempt, "code": fault.code, "reason": fault.reason]
        }
        H::AttemptFailed { task, attempt, by, fault } => {
            let why = fields!["code": fault.code, "reason": fault.reason];
            [fields!["task": task, "attempt": attempt], whose(by), why].concat()
        }
        H::AttemptDone { task, attempt, by } => {
            [fields!["task": task, "attempt": attempt], whose(by)].concat()
        }
        H::TaskFailed { task, fault } => fields!["task": task, "code": fault.code, "reason": fault.reason],
        H::WorkerGone { worker, tasks } => fields!["worker": worker, "tasks": tasks],
        H::TrainingBegun { task, training } => fields!["task": task, "training": training],
        H::Canceling { until_ms, reason } => {
            [fields!["until_ms": until_ms], if_any("reason", Some(reason))].concat()
        }
        H::Trained { barriers } => fields!["barriers": barriers],
        H::JobEnded { phase, cancel_reason } => {
            let (code, reason) = phase.why_ended(cancel_reason);
            let why = [if_any("code", code), if_any("reason", Some(reason))].concat();
            [fields!["state": phase.shown()], why].concat()
        }
        H::WeightsKept { path } => fields!["path": path],
        H::WeightsLost(fault) => fields!["code": fault.code, "reason": fault.reason],
        H::WrittenAgain { reason } => fields!["reason": reason],
    }
}

/// Who had an attempt at a general task.
fn whose(by: &Assignee) -> Fields {
    match by {
        Assignee::Worker(worker) => fields!["worker": worker],
        Assignee::Training(job) => fields!["training": job],
    }
}

/// A field that is left out where there is nothing to say.
fn if_any(name: &'static str, value: Option<impl Display>) -> Fields {
    let text = value.map(|value| value.to_string()).filter(|text| !text.is_empty());
    text.map(|text| (name, text)).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::{
        core::{Evaluation, EvaluationSet, NamedWorker, Phase, RelativeSpeed, TaskFault},
        fault_code::FaultCode,
        graph::TaskId,
        ids::{Incarnation, ShardIndex, Superstep},
    };

    use super::*;
    use crate::{
        StreamCursor, StreamEntry,
        status::{Entry, JobEvent},
    };

    fn fault() -> TaskFault {
        TaskFault { code: FaultCode::new("E406"), reason: "no space".into() }
    }

    fn failed() -> Phase {
        Phase::Failed { code: FaultCode::new("E220"), reason: "gone".into() }
    }

    /// Every event, with its fields behind `what` and `at_ms`, as docs/redis-schema.md says.
    fn all() -> Vec<(Happening, &'static str)> {
        use Happening as H;
        let worker = || NamedWorker { id: Incarnation(3), name: "a".into() };
        let (task, training) = (|| TaskId::Node("save".parse().unwrap()), || "sweep~1".parse().unwrap());
        let by = || Assignee::Worker(Incarnation(3));
        let speed = |factor: f64| {
            let (interval_us, median_interval_us) = ((2_000.0 * factor) as u64, 2_000);
            RelativeSpeed { factor, interval_us, median_interval_us }
        };
        let evaluation = Evaluation { loss: 0.5, accuracy: Some(0.25), samples: 8, ..Evaluation::default() };
        let (shard, address, reason) = (ShardIndex(1), || "b:2".to_owned(), || "why".to_owned());
        #[rustfmt::skip]
        let all = vec![
            (H::JobSubmitted(Submitted::Training { nodes: 2 }), "job_submitted nodes=2"),
            (H::JobSubmitted(Submitted::Tasks), "job_submitted"),
            (H::Started(Begun::Workers(2)), "started workers=2"),
            (H::Started(Begun::Tasks(9)), "started tasks=9"),
            (H::WorkerJoined(worker()), "worker_joined worker=w3 name=a"),
            (H::WorkerPrepared(worker()), "worker_prepared worker=w3 name=a"),
            (H::WorkerLost { worker: worker(), reason: reason() }, "worker_lost worker=w3 name=a reason=why"),
            (H::WorkerSealed { worker: worker(), applied: 7 }, "worker_sealed worker=w3 name=a applied=7"),
            (H::WorkerSlow { worker: worker(), speed: speed(2.5) },
             "worker_slow worker=w3 name=a factor=2.50 interval_us=5000 median_interval_us=2000"),
            (H::WorkerRecovered { worker: worker(), speed: speed(1.0) },
             "worker_recovered worker=w3 name=a factor=1.00 interval_us=2000 median_interval_us=2000"),
            (H::WorkerExcluded { worker: worker(), host: "h".into(), fault: fault(), again_in_ms: 30 },
             "worker_excluded worker=w3 name=a host=h code=E406 reason=no space again_in_ms=30"),
            (H::SuperstepReplanned { barrier: Superstep(4), shortened: "a (w3) ends at 9".into() },
             "superstep_replanned barrier=4 shortened=a (w3) ends at 9"),
            (H::IterationTorn { task: TaskId::Iteration { worker: Incarnation(3), seq: 8 } }, "iteration_torn task=it/w3/8"),
            (H::CheckpointKept { checkpoint: 1, samples: 2, bytes: 3, rest_ms: 4 },
             "checkpoint_kept checkpoint=1 samples=2 bytes=3 rest_ms=4"),
            (H::CheckpointFailed { checkpoint: 1, fault: fault() }, "checkpoint_failed checkpoint=1 code=E406 reason=no space"),
            (H::Evaluated { samples: 7, set: EvaluationSet::Validation, evaluation: evaluation.clone() },
             "evaluated samples=7 validation_loss=0.500000 validation_samples=8 validation_accuracy=0.250000"),
            (H::LearningRateReduced { samples: 7, learning_rate: 0.01 }, "learning_rate_reduced samples=7 learning_rate=0.01"),
            (H::StoppedEarly { samples: 7, reason: reason() }, "stopped_early samples=7 reason=why"),
            (H::BestRestored { checkpoint: 1, samples: 7, reason: reason() },
             "best_restored checkpoint=1 samples=7 reason=why"),
            (H::BestUnreadable { checkpoint: 1, fault: fault() }, "best_unreadable checkpoint=1 code=E406 reason=no space"),
            (H::Evaluated { samples: 7, set: EvaluationSet::Test, evaluation },
             "evaluated samples=7 test_loss=0.500000 test_samples=8 test_accuracy=0.250000"),
            (H::EvaluationFailed { task: task(), fault: fault() }, "evaluation_failed task=save code=E406 reason=no space"),
            (H::RolledBack { iterations: 1, samples: 2, reason: reason(), checkpoint: Some(0) },
             "rolled_back iterations=1 samples=2 reason=why checkpoint=0"),
            (H::RolledBack { iterations: 1, samples: 2, reason: reason(), checkpoint: None },
             "rolled_back iterations=1 samples=2 reason=why"),
            (H::ShardLost { shard, reason: reason() }, "shard_lost shard=s1 reason=why"),
            (H::ShardTakenOver { shard, address: address() }, "shard_taken_over shard=s1 address=b:2"),
            (H::NodeFailed { task: task(), attempt: 1, fault: fault() },
             "attempt_failed task=save attempt=1 code=E406 reason=no space"),
            (H::AttemptFailed { task: "3".into(), attempt: 1, by: by(), fault: fault() },
             "attempt_failed task=3 attempt=1 worker=w3 code=E406 reason=no space"),
            (H::AttemptFailed { task: "3".into(), attempt: 1, by: Assignee::Training(training()), fault: fault() },
             "attempt_failed task=3 attempt=1 training=sweep~1 code=E406 reason=no space"),
            (H::AttemptDone { task: "3".into(), attempt: 2, by: by() }, "attempt_done task=3 attempt=2 worker=w3"),
            (H::TaskFailed { task: "3".into(), fault: fault() }, "task_failed task=3 code=E406 reason=no space"),
            (H::WorkerGone { worker: Incarnation(3), tasks: 5 }, "worker_gone worker=w3 tasks=5"),
            (H::TrainingBegun { task: "3".into(), training: training() }, "training_begun task=3 training=sweep~1"),
            (H::Paused, "paused"),
            (H::Resumed, "resumed"),
            (H::Canceling { until_ms: 9, reason: reason() }, "canceling until_ms=9 reason=why"),
            (H::Canceling { until_ms: 9, reason: String::new() }, "canceling until_ms=9"),
            (H::SnapshotPutOff { task: task(), attempt: 2, fault: fault() },
             "snapshot_put_off task=save attempt=2 code=E406 reason=no space"),
            (H::Trained { barriers: 6 }, "trained barriers=6"),
            (H::JobEnded { phase: Phase::Done, cancel_reason: String::new() }, "job_ended state=done"),
            (H::JobEnded { phase: failed(), cancel_reason: String::new() }, "job_ended state=failed code=E220 reason=gone"),
            (H::JobEnded { phase: Phase::Canceled, cancel_reason: reason() }, "job_ended state=canceled reason=why"),
            (H::WeightsKept { path: "p".into() }, "weights_kept path=p"),
            (H::WeightsLost(fault()), "weights_lost code=E406 reason=no space"),
            (H::WrittenAgain { reason: reason() }, "written_again reason=why"),
        ];
        all
    }

    #[test]
    fn every_event_is_written_with_its_fields_in_their_order_and_read_back_as_what_it_is() {
        for (what, text) in all() {
            let kind = what.kind();
            let fields = event_fields(&Event { at_us: 7_999, what });
            let (head, told) = fields.split_at(2);
            assert_eq!(head[1], ("at_ms", "7".to_owned()), "{text}");
            let told = told.iter().map(|(name, value)| format!(" {name}={value}"));
            assert_eq!(format!("{}{}", head[0].1, told.collect::<String>()), text);
            let at = StreamCursor { at_ms: 7, number: 0 };
            let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            let read = Entry::<JobEvent>::read(&StreamEntry { at, fields }).unwrap().value;
            assert_eq!((read.what, read.at_ms), (kind, 7), "{text}");
        }
    }
}
