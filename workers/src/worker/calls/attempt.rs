//! One attempt at a call, from its input to what is reported of it.

use std::{fmt, sync::Arc, time::Instant};

use syncline_ps::PsError;
use syncline_scheduler::{
    ids::ContentDigest,
    tasks::{Bytes, Gives, Outcome, Preview, Spawned, Value},
};
use tokio::runtime::Handle;
use tracing::warn;

use super::{
    held, input::input, kept_values, patient_store::PatientStore, pool::Pool, value_cache::ValueCache,
};
use crate::{
    client::Client,
    functions::{
        CallFault, CallOutput, Context, GraphParts, OwnCluster, StopFlag, ValueStore, added_bytes,
        move_large_constants, task_salt, to_value,
    },
};

/// Most bytes of calls that one task may add: they travel in one message, with others.
const MAX_ADDED_BYTES: usize = 16 << 20;

/// A call is given back so often because something is out of reach that it needs, which is an hour and more
/// at ten seconds each: then it has failed.
const MOST_GIVEN_BACK: u16 = 400;

/// What calls need beside their orders.
pub(in crate::worker) struct CallEnvironment {
    /// Where large values lie.
    store: ValueCache,
    /// For functions that are async, or start jobs.
    cluster: Arc<OwnCluster>,
}

impl CallEnvironment {
    /// Calls of `client` and async functions run in `runtime`.
    pub(in crate::worker) fn new(store: impl ValueStore + 'static, client: Client, runtime: Handle) -> Self {
        let cluster = Arc::new(OwnCluster::new(client, runtime));
        Self { store: ValueCache::new(Box::new(store)), cluster }
    }
}

/// How an attempt ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub outcome: Outcome,
    pub run_us: u64,
    /// What it gave, for tasks that wait here.
    pub value: Option<Bytes>,
    pub preview: Option<Preview>,
}

impl Ended {
    fn without_value(outcome: Outcome, run_us: u64) -> Self {
        Self { outcome, run_us, value: None, preview: None }
    }
}

/// Runs an attempt.
pub(super) fn run(
    attempt: &held::Attempt,
    stop: &Arc<StopFlag>,
    pool: &Pool,
    scratch: &mut Vec<u8>,
) -> Ended {
    let (group, order, around) = (&attempt.group, &attempt.order, pool.around());
    let failed = |fault: CallFault, run_us| Ended::without_value(fault.into(), run_us);
    let Some(function) = &group.function else {
        let what = "the function".to_owned();
        return failed(CallFault::Missing { function: group.id.to_string(), what }, 0);
    };
    // Nothing has run: a shard or an engine may be back for the next worker, or be within its reach.
    let given_back = |error: &dyn fmt::Display| {
        warn!(%error, task = %order.task, "what the call needs cannot be fetched now: it is given back");
        Ended::without_value(Outcome::NotBegun, 0)
    };
    let stopped = |run_us| Ended::without_value(Outcome::Stopped, run_us);
    // Its job may have told it to stop, or this worker, which is to leave.
    let stopped_unbegun = || match pool.is_closed() {
        true => Ended::without_value(Outcome::GivenBack, 0),
        false => stopped(0),
    };
    let ended_by = |fault: CallFault, run_us| match fault {
        CallFault::Store(PsError::Canceled) => stopped(run_us),
        CallFault::Store(error) if error.may_pass() && order.attempt < MOST_GIVEN_BACK => given_back(&error),
        fault => failed(fault, run_us),
    };
    let args = match kept_values::filled(&group.submission, &order.args, &around.cluster, stop) {
        Ok(Some(args)) if kept_values::are_whole(&args) => args,
        Ok(Some(_)) => return given_back(&"the engine does not have it, or not yet again"),
        Ok(None) => return stopped_unbegun(),
        Err(error) => return given_back(&error),
    };
    let input = match input(function.name, &args, &around.store, stop, scratch) {
        Ok(input) => input,
        Err(CallFault::Store(PsError::Canceled)) => return stopped_unbegun(),
        Err(fault) => return ended_by(fault, 0),
    };
    let (stop_of_call, progress) = (stop.clone(), attempt.progress.clone());
    let context =
        Context::new(group.submission.clone(), order, stop_of_call, progress, around.cluster.clone());
    if !pool.function_begins(attempt) {
        return stopped_unbegun();
    }
    let began = Instant::now();
    let called = function.call(&context, &input, around.cluster.runtime());
    let run_us = began.elapsed().as_micros() as u64;
    let mut given = match called {
        Ok(Some(given)) => given,
        Ok(None) => return stopped(run_us),
        // A function that has a fault of the store is one of ours, and fetches before it computes.
        Err(fault) => return ended_by(fault, run_us),
    };
    let preview = match &mut given {
        CallOutput::Value(_, preview) => preview.take(),
        CallOutput::Added(_) | CallOutput::Nothing => None,
    };
    let added = context.into_added().filter(|added| !added.tasks.is_empty());
    let runtime = around.cluster.runtime();
    let store = PatientStore { store: &around.store, stop, progress: &attempt.progress, runtime };
    match outcome(attempt, given, added, &store) {
        Ok((outcome, value)) => Ended { outcome, run_us, value, preview },
        Err(CallFault::Store(PsError::Canceled)) => stopped(run_us),
        Err(fault) => failed(fault, run_us),
    }
}

/// What is reported of what a call gave, and the value for tasks that wait here.
fn outcome(
    attempt: &held::Attempt,
    given: CallOutput,
    added: Option<GraphParts>,
    store: &PatientStore<'_>,
) -> Result<(Outcome, Option<Bytes>), CallFault> {
    let (submission, order) = (&attempt.group.submission, &attempt.order);
    let (gives, kept) = match given {
        CallOutput::Nothing => return Ok((Outcome::Skipped, None)),
        CallOutput::Added(place) => (Gives::New(place), None),
        CallOutput::Value(bytes, _) => {
            let (bytes, salt) = (Bytes::from(bytes), task_salt(submission.nonce, order.task, order.attempt));
            let value = to_value(salt, bytes.clone(), |salt, value| store.put(salt, value))?;
            (Gives::Value(value), Some(bytes))
        }
    };
    let outcome = match (added, gives) {
        (None, Gives::Value(value)) => Outcome::Value(value),
        (added, gives) => {
            let GraphParts { classes, mut tasks, .. } = added.unwrap_or_default();
            move_large_constants(&mut tasks, |salt, value| store.put(salt, value))?;
            let bytes = added_bytes(&classes, &tasks);
            if bytes > MAX_ADDED_BYTES {
                let function = attempt.group.id.name.to_string();
                return Err(CallFault::TooMuchAdded { function, calls: tasks.len(), bytes });
            }
            Outcome::Spawned(Box::new(Spawned { classes, tasks, gives }))
        }
    };
    Ok((outcome, kept))
}

/// About as many bytes as an outcome is in a message.
pub(super) fn outcome_bytes(outcome: &Outcome) -> usize {
    const END_BYTES: usize = 16;
    let value = Value::inline_bytes;
    END_BYTES
        + match outcome {
            Outcome::Value(given) => value(given),
            Outcome::Skipped | Outcome::Stopped | Outcome::NotBegun | Outcome::GivenBack => 0,
            Outcome::Failed(failure) | Outcome::FailedForGood(failure) => failure.reason.len(),
            Outcome::ArgumentsLost(lost) => {
                lost.failure.reason.len() + lost.digests.len() * ContentDigest::DIGITS
            }
            Outcome::Spawned(spawned) => {
                let Spawned { classes, tasks, gives } = &**spawned;
                added_bytes(classes, tasks) + gives.value().map_or(0, value)
            }
        }
}
