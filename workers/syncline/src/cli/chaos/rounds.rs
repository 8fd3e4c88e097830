//! One graph after the other through a cluster to which accidents happen.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use syncline::PreparedTraining;
use syncline_rpc::EngineFault;
use syncline_scheduler::ids::JobId;
use syncline_workers::client::{Client, ClientError};
use tokio::time::{sleep, timeout};

use super::{
    graph::{KnownGraph, known_graph},
    round_error::RoundError,
    training,
};

/// A graph that is not done after so long stands still.
const ROUND_LIMIT: Duration = Duration::from_secs(240);
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// What went through the cluster, and was right.
#[derive(Debug, Default)]
pub(super) struct Checked {
    pub graphs: u64,
    pub values: u64,
    pub trainings: u64,
}

/// What every round needs.
pub(super) struct Rounds<'a> {
    pub client: &'a Client,
    pub seed: u64,
    pub training: &'a PreparedTraining,
    /// No round begins later, apart from the first.
    pub end: Instant,
    /// How many have begun.
    pub begun: AtomicU64,
    /// What was seen to be done is never seen to be undone, not even for a moment.
    pub is_strict: bool,
}

impl Rounds<'_> {
    /// Two graphs at a time, one after the other, each of which is whole and right. An error tells what is
    /// different, or that one stands still.
    pub(super) async fn run(&self) -> Result<Checked, String> {
        let (first, second) = tokio::try_join!(self.one_after_another(), self.one_after_another())?;
        Ok(Checked {
            graphs: first.graphs + second.graphs,
            values: first.values + second.values,
            trainings: first.trainings + second.trainings,
        })
    }

    async fn one_after_another(&self) -> Result<Checked, String> {
        let mut checked = Checked::default();
        while checked.graphs == 0 || Instant::now() < self.end {
            let number = self.begun.fetch_add(1, Ordering::Relaxed);
            let id = format!("chaos-{number}");
            // In pairs, so that graphs that run at the same time train at the same time.
            let training = Some(self.training).filter(|_| (number / 2).is_multiple_of(2));
            let known = known_graph(&id, self.seed.wrapping_add(number), training);
            let last = std::sync::Mutex::new(String::new());
            let round = timeout(ROUND_LIMIT, self.round(&known, &last)).await;
            let step = round.map_err(|_| {
                let last = last.lock().map(|last| last.clone()).unwrap_or_default();
                format!(
                    "graph {id} stands still: not done after {} s; the last error was: {last}",
                    ROUND_LIMIT.as_secs()
                )
            })?;
            step.map_err(|different| format!("graph {id}: {different}"))?;
            checked.graphs += 1;
            checked.values += (known.expected.len() + known.attempts.len()) as u64;
            checked.trainings += u64::from(known.training.is_some());
        }
        Ok(checked)
    }

    async fn round(&self, known: &KnownGraph, last: &std::sync::Mutex<String>) -> Result<(), String> {
        let client = self.client;
        let run = until_answered(last, async || Ok(client.submit_tasks(&known.graph).await?)).await?;
        let id = run.id();
        // From here on the job was acknowledged.
        until_answered(last, async || {
            if !self.is_strict {
                // The same job, unless Redis has lost it and the engine that knew it was killed, too.
                client.submit_tasks(&known.graph).await?;
            }
            until_over(client, id, self.is_strict).await
        })
        .await?;
        for (number, (handle, expected)) in known.expected.iter().enumerate() {
            let value = until_answered(last, async || Ok(run.get(handle).await?)).await?;
            if value != *expected {
                return Err(format!("task t{number} gave {value}, and has to give {expected}"));
            }
        }
        for (task, handle) in &known.attempts {
            let by = until_answered(last, async || Ok(run.get(handle).await?)).await?;
            let view = until_answered(last, async || Ok(client.task(id, *task).await?)).await?;
            if by != u64::from(view.attempts) {
                let attempts = view.attempts;
                return Err(format!("task {task} has the value of attempt {by}, and {attempts} were made"));
            }
        }
        if let Some(training) = &known.training {
            let trained = until_answered(last, async || Ok(run.get(training).await?)).await?;
            until_answered(last, async || training::check(client, &trained).await).await?;
        }
        until_answered(last, async || match client.delete(id).await {
            // The answer to the first try was lost.
            Err(ClientError::Refused(EngineFault::UnknownJob { .. })) => Ok(()),
            other => Ok(other?),
        })
        .await
    }
}

/// Repeats a step until it is not hindered by anybody who is away.
async fn until_answered<T>(
    last: &std::sync::Mutex<String>,
    step: impl AsyncFn() -> Result<T, RoundError>,
) -> Result<T, String> {
    loop {
        match step().await {
            Ok(value) => return Ok(value),
            Err(RoundError::Different(what)) => return Err(what),
            Err(RoundError::Passing(what)) => {
                if let Ok(mut last) = last.lock() {
                    *last = what;
                }
                sleep(RETRY_PAUSE).await;
            }
        }
    }
}

/// Waits until an acknowledged job is over. What was seen to be done stays done, whoever leads; a Redis that
/// was killed may show an older state until the engine has written all again.
async fn until_over(client: &Client, id: &JobId, is_strict: bool) -> Result<(), RoundError> {
    let (mut most, mut undone) = (0, None);
    let waited = client.wait(id, |view| {
        let done = view.job.tasks.map_or(0, |tasks| tasks.done);
        if is_strict && done < most {
            undone = Some((most, done));
        }
        most = most.max(done);
    });
    match waited.await {
        Err(ClientError::Refused(EngineFault::UnknownJob { .. })) if is_strict => {
            return Err(RoundError::Different("it was acknowledged, and is not there".into()));
        }
        other => other.map_err(RoundError::from)?,
    };
    match undone {
        Some((most, done)) => {
            Err(RoundError::Different(format!("{most} tasks were done, and {done} of them later")))
        }
        None => Ok(()),
    }
}
