//! Cuts names and texts of workers when they arrive: what is kept of them, written down, and shown must not
//! be as long as somebody likes.

use syncline_rpc::{
    Activity, MAX_NAME_CHARS, MAX_RUNNING_TOLD, MAX_STOPPING_NAMED, MAX_TEXT_CHARS, MAX_UNREACHED_TOLD, cut,
    shortened,
};
use syncline_scheduler::{
    core::{self, TaskReport, WorkerInfo},
    tasks::{self, FunctionId, MAX_LOST_VALUES, Progress, ReportGroup},
};

/// What a worker says, with names and texts of any length.
pub(super) trait Arrival: Sized {
    /// Cuts each of them.
    fn cut(&mut self);

    /// What it says, as it is kept.
    fn arrived(mut self) -> Self {
        self.cut();
        self
    }
}

impl<T: Arrival> Arrival for Vec<T> {
    fn cut(&mut self) {
        self.iter_mut().for_each(T::cut);
    }
}

impl Arrival for WorkerInfo {
    fn cut(&mut self) {
        for name in [&mut self.name, &mut self.host, &mut self.device] {
            cut(name, MAX_NAME_CHARS);
        }
        let short = |text| shortened(text, MAX_NAME_CHARS);
        let labels = std::mem::take(&mut self.capacity.labels);
        self.capacity.labels = labels.into_iter().map(|(name, value)| (short(name), short(value))).collect();
        let short = |types| shortened(types, FunctionId::MAX_TYPES_CHARS);
        let functions = std::mem::take(&mut self.capacity.functions).into_iter();
        self.capacity.functions = functions.map(|f| FunctionId { types: short(f.types), ..f }).collect();
    }
}

impl Arrival for Activity {
    fn cut(&mut self) {
        for text in self.blocked_on.iter_mut().chain(&mut self.transport) {
            cut(text, MAX_TEXT_CHARS);
        }
        self.stopping_functions.truncate(MAX_STOPPING_NAMED);
        self.unreached.truncate(MAX_UNREACHED_TOLD);
        self.unreached.iter_mut().for_each(|lost| cut(&mut lost.address, MAX_TEXT_CHARS));
        if let Some(calls) = &mut self.calls {
            calls.truncate(MAX_RUNNING_TOLD);
            for progress in calls.iter_mut().filter_map(|call| call.progress.as_mut()) {
                cut(&mut progress.text, Progress::MAX_TEXT_CHARS);
            }
        }
    }
}

impl Arrival for TaskReport {
    fn cut(&mut self) {
        if let core::Outcome::Failed { reason, .. } = &mut self.outcome {
            cut(reason, MAX_TEXT_CHARS);
        }
    }
}

impl Arrival for ReportGroup {
    fn cut(&mut self) {
        for end in &mut self.ended {
            let failure = match &mut end.outcome {
                tasks::Outcome::Failed(failure) | tasks::Outcome::FailedForGood(failure) => failure,
                tasks::Outcome::ArgumentsLost(lost) => {
                    lost.digests.truncate(MAX_LOST_VALUES);
                    &mut lost.failure
                }
                _ => continue,
            };
            cut(&mut failure.reason, MAX_TEXT_CHARS);
        }
    }
}

#[cfg(test)]
mod tests {
    use syncline_rpc::UnreachedShard;
    use syncline_scheduler::{
        core::{Blame, TaskKey},
        fault_code::FaultCode,
        graph::TaskId,
        ids::{Generation, Incarnation, RunId, ShardIndex, SubmissionId},
        sim::task_end,
        tasks::{Capacity, Failure, FailureCause, RunningCall, TaskIndex},
    };

    use super::*;

    fn long() -> String {
        "ä".repeat(1 << 20)
    }

    #[test]
    fn nothing_that_a_worker_says_stays_longer_than_it_may_be() {
        let is_cut = |text: &str, chars| assert_eq!(text.chars().count(), chars);
        let function = FunctionId { name: "f".parse().unwrap(), signature: 1, types: long() };
        let (labels, functions) = ([(long(), long())].into(), [function].into());
        let capacity = Capacity { labels, functions, ..Capacity::default() };
        let about =
            WorkerInfo { name: long(), host: long(), device: long(), capacity, ..WorkerInfo::default() };
        let WorkerInfo { name, host, device, capacity, .. } = about.arrived();
        let (label, value) = capacity.labels.first_key_value().unwrap();
        for text in [&name, &host, &device, label, value] {
            is_cut(text, MAX_NAME_CHARS);
        }
        is_cut(&capacity.functions.first().unwrap().types, FunctionId::MAX_TYPES_CHARS);

        let progress = Some(Progress { text: long(), ..Progress::default() });
        let (task, attempt) = (TaskIndex(0), 1);
        let submission = SubmissionId { job: "job".parse().unwrap(), nonce: 1 };
        let call = RunningCall { submission: submission.clone(), task, attempt, running_ms: 0, progress };
        let calls = Some(vec![call; MAX_RUNNING_TOLD + 1]);
        let (blocked_on, transport) = (Some(long()), Some(long()));
        let lost = UnreachedShard {
            shard: ShardIndex(0),
            address: long(),
            job: "job".parse().unwrap(),
            lost_ms: 1,
            tried_ms: 1,
        };
        let unreached = vec![lost; MAX_UNREACHED_TOLD + 1];
        let activity = Activity { blocked_on, transport, calls, unreached, ..Activity::default() };
        let Activity { blocked_on, transport, calls, unreached, .. } = activity.arrived();
        assert_eq!(unreached.len(), MAX_UNREACHED_TOLD);
        is_cut(&unreached[0].address, MAX_TEXT_CHARS);
        let calls = calls.unwrap();
        assert_eq!(calls.len(), MAX_RUNNING_TOLD);
        is_cut(&calls[0].progress.as_ref().unwrap().text, Progress::MAX_TEXT_CHARS);
        for text in [blocked_on, transport] {
            is_cut(&text.unwrap(), MAX_TEXT_CHARS);
        }

        let task = TaskId::Prepare(Incarnation(1));
        let run = RunId { job: "job".parse().unwrap(), generation: Generation(1) };
        let key = TaskKey { run, task, attempt: 1 };
        let outcome =
            core::Outcome::Failed { code: FaultCode::new("E327"), reason: long(), blame: Blame::Job };
        let report = TaskReport { key, ended_ago_us: 0, outcome };
        let core::Outcome::Failed { reason, .. } = vec![report].arrived().remove(0).outcome else {
            unreachable!("it failed")
        };
        is_cut(&reason, MAX_TEXT_CHARS);

        let failure = Failure { cause: FailureCause::Function, code: FaultCode::new("E440"), reason: long() };
        let ended = vec![task_end(0, 1, tasks::Outcome::Failed(failure))];
        let group = ReportGroup { submission, ended };
        let tasks::Outcome::Failed(failure) = group.arrived().ended.remove(0).outcome else {
            unreachable!("it failed")
        };
        is_cut(&failure.reason, MAX_TEXT_CHARS);
    }
}
