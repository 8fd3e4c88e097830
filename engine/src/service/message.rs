//! Messages to the decision loop, and what those inputs are about.

use syncline_rpc::EngineFault;
use syncline_scheduler::{
    core::{Core, IfTaken, Input},
    ids::JobId,
    tasks::{Arg, NewTask, Outcome, TaskEnd, Value},
};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// Who waits for an answer.
pub(super) type Reply = oneshot::Sender<Result<(), EngineFault>>;

/// What somebody wants to see of what is committed.
pub(super) type Look = Box<dyn FnOnce(&Core) + Send>;

/// One message to the decision loop.
pub(super) enum Message {
    Input(Input),
    /// An input whose sender waits for the commit.
    Request {
        input: Input,
        reply: Reply,
        /// Its place in the queue, until it is handled.
        _room: OwnedSemaphorePermit,
    },
    /// Looks at what is committed.
    Query {
        look: Look,
        /// Its place in the queue, until it is handled.
        _room: OwnedSemaphorePermit,
    },
    /// Another engine is active: stop.
    Deposed,
}

/// The job that an input brings in, and what becomes of it where its name is that of another.
pub(super) fn submitted(input: &Input) -> Option<(&JobId, IfTaken)> {
    match input {
        Input::Submit(submission) => Some((&submission.spec.id, submission.if_taken)),
        Input::SubmitGraph(submission) => Some((&submission.spec.id, submission.if_taken)),
        _ => None,
    }
}

/// Bytes of values that count like a general task.
const BYTES_PER_PLACE: usize = 1 << 10;

/// What an input brings into a commit and into the queue: each general task counts one, those included that
/// others add, and so does each KiB of values.
pub(super) fn places(input: &Input) -> usize {
    match input {
        Input::TasksEnded { groups, .. } => {
            groups.iter().flat_map(|group| &group.ended).map(places_of_end).sum()
        }
        Input::SubmitGraph(submission) => places_of_tasks(&submission.spec.tasks),
        Input::ExtendGraph { tasks, .. } => places_of_tasks(tasks),
        _ => 0,
    }
}

fn places_of_end(end: &TaskEnd) -> usize {
    1 + match &end.outcome {
        Outcome::Value(value) => value.inline_bytes() / BYTES_PER_PLACE,
        Outcome::Spawned(spawned) => {
            let bytes = spawned.gives.value().map_or(0, Value::inline_bytes);
            places_of_tasks(&spawned.tasks) + bytes / BYTES_PER_PLACE
        }
        Outcome::Failed(failure) | Outcome::FailedForGood(failure) => failure.reason.len() / BYTES_PER_PLACE,
        Outcome::ArgumentsLost(lost) => lost.digests.len(),
        Outcome::Skipped | Outcome::Stopped | Outcome::NotBegun | Outcome::GivenBack => 0,
    }
}

fn places_of_tasks(tasks: &[NewTask]) -> usize {
    let bytes = |arg: &Arg| if let Arg::Value(value) = arg { value.len() } else { 0 };
    tasks.iter().map(|task| 1 + task.args.iter().map(bytes).sum::<usize>() / BYTES_PER_PLACE).sum()
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::{
        fault_code::FaultCode,
        ids::Incarnation,
        sim::{new_task, task_end, tasks_ended},
        tasks::{Failure, FailureCause, Gives, Spawned},
    };

    use super::*;

    #[test]
    fn what_a_task_adds_and_what_it_gives_takes_room_as_well() {
        let with_argument = NewTask { args: vec![Arg::Value(vec![0; 3 << 10].into())], ..new_task(0) };
        let spawned = |gives| {
            let tasks = vec![new_task(0), with_argument.clone()];
            Outcome::Spawned(Box::new(Spawned { classes: Vec::new(), tasks, gives }))
        };
        let failed = |bytes: usize| {
            let (code, reason) = (FaultCode::new("E440"), "a".repeat(bytes));
            Outcome::Failed(Failure { cause: FailureCause::Function, code, reason })
        };
        let value = |bytes: usize| Value::Inline(vec![0; bytes].into());
        #[rustfmt::skip]
        let cases = [
            (Outcome::Skipped,                       1),
            (failed(1_023),                          1),
            (failed(4 << 10),                        5),
            (Outcome::Value(value(1_023)),           1),
            (Outcome::Value(value(64 << 10)),       65),
            (spawned(Gives::New(0)),                 6),
            (spawned(Gives::Value(value(2 << 10))),  8),
        ];
        for (outcome, want) in cases {
            let ended = vec![task_end(0, 1, outcome)];
            assert_eq!(places(&tasks_ended(Incarnation(1), &"job".parse().unwrap(), 1, ended)), want);
        }
        assert_eq!(places(&Input::Tick), 0);
    }
}
