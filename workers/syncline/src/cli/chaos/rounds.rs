//! One graph after the other through a cluster to which accidents happen.

use std::time::{Duration, Instant};

use syncline::PreparedTraining;
use syncline_scheduler::ids::JobId;
use syncline_workers::{
    client::{Client, ClientError, FetchError, TaskError},
    export::ExportError,
};
use tokio::time::{sleep, timeout};

use super::{
    graph::{KnownGraph, known_graph},
    training,
};

/// A graph that is not done after so long stands still.
const ROUND_LIMIT: Duration = Duration::from_secs(240);
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Why a step of a round did not come to its end.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Somebody was away: it is asked again.
    Passing(String),
    /// What came is not what has to come.
    Different(String),
}

impl From<ClientError> for Trouble {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::JobFailed { .. } | ClientError::JobCanceled { .. } => {
                Self::Different(error.to_string())
            }
            other => Self::Passing(other.to_string()),
        }
    }
}

impl From<TaskError> for Trouble {
    fn from(error: TaskError) -> Self {
        match error {
            TaskError::Engine(error) => error.into(),
            TaskError::Shard(error) => Self::Passing(error.to_string()),
            other => Self::Different(other.to_string()),
        }
    }
}

impl From<FetchError> for Trouble {
    fn from(error: FetchError) -> Self {
        Self::Passing(error.to_string())
    }
}

impl From<ExportError> for Trouble {
    fn from(error: ExportError) -> Self {
        Self::Different(error.to_string())
    }
}

/// What went through the cluster, and was right.
#[derive(Debug, Default)]
pub(super) struct Checked {
    pub graphs: u64,
    pub values: u64,
    pub trainings: u64,
}

/// Graphs until `end`, each of which is whole and right. An error tells what is different, or that one stands still.
pub(super) async fn run_rounds(
    client: &Client,
    seed: u64,
    training: &PreparedTraining,
    end: Instant,
) -> Result<Checked, String> {
    let mut checked = Checked::default();
    while checked.graphs == 0 || Instant::now() < end {
        let number = checked.graphs;
        let id = format!("chaos-{number}");
        let known = known_graph(&id, seed.wrapping_add(number), Some(training).filter(|_| number % 2 == 0));
        let last = std::sync::Mutex::new(String::new());
        let round = timeout(ROUND_LIMIT, round(client, &known, &last)).await;
        let step = round.map_err(|_| {
            let last = last.lock().map(|last| last.clone()).unwrap_or_default();
            format!(
                "graph {id} stands still: not done after {} s; the last error was: {last}",
                ROUND_LIMIT.as_secs()
            )
        })?;
        step.map_err(|different| format!("graph {id}: {different}"))?;
        checked.graphs += 1;
        checked.values += known.expected.len() as u64;
        checked.trainings += u64::from(known.training.is_some());
    }
    Ok(checked)
}

/// Repeats a step until it is not hindered by anybody who is away.
async fn until_answered<T>(
    last: &std::sync::Mutex<String>,
    step: impl AsyncFn() -> Result<T, Trouble>,
) -> Result<T, String> {
    loop {
        match step().await {
            Ok(value) => return Ok(value),
            Err(Trouble::Different(what)) => return Err(what),
            Err(Trouble::Passing(what)) => {
                if let Ok(mut last) = last.lock() {
                    *last = what;
                }
                sleep(RETRY_PAUSE).await;
            }
        }
    }
}

async fn round(client: &Client, known: &KnownGraph, last: &std::sync::Mutex<String>) -> Result<(), String> {
    let id: JobId = until_answered(last, async || Ok(client.submit_tasks(&known.graph).await?)).await?;
    until_answered(last, async || Ok(client.wait(&id, |_| {}).await?)).await?;
    for (number, (handle, expected)) in known.expected.iter().enumerate() {
        let value = until_answered(last, async || Ok(client.get(&id, handle).await?)).await?;
        if value != *expected {
            return Err(format!("task t{number} gave {value}, and has to give {expected}"));
        }
    }
    if let Some(training) = &known.training {
        let trained = until_answered(last, async || Ok(client.get(&id, training).await?)).await?;
        until_answered(last, async || training::check(client, &trained).await).await?;
    }
    until_answered(last, async || match client.delete(&id).await {
        // The answer to the first try was lost.
        Err(ClientError::Refused(syncline_engine::rpc::EngineFault::UnknownJob { .. })) => Ok(()),
        other => Ok(other?),
    })
    .await
}
