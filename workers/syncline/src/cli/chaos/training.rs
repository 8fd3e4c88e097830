//! A training whose weights count what was applied to them.

use syncline::{JobGraph, Model, Settings, Trained, Training};
use syncline_onnx as onnx;
use syncline_scheduler::spec::{DataSpec, Source};
use syncline_workers::client::Client;

use super::round_error::RoundError;

/// Samples of one training.
const SAMPLES: u64 = 1_000;
const WEIGHTS: usize = 50_000;

/// Imaginary samples, one to three workers, under ASP.
pub(super) fn counting_job() -> JobGraph {
    let data = DataSpec { train_samples: SAMPLES, ..DataSpec::new(Source::csv("nothing.csv")) };
    let training = Training::new(Model::ready(onnx::counting(WEIGHTS).to_bytes()), data).with(
        |settings: &mut Settings| {
            settings.learning_rate = Some(1.0);
            settings.policy = "asp".parse().unwrap_or_default();
            settings.batch = 10;
            settings.min_workers = 1;
            // Its "gradient" counts; it is that of no loss.
            settings.check = false;
        },
    );
    let mut job = JobGraph::new("unnamed");
    let train = job.train("train", training);
    job.snapshot("weights", &train);
    job
}

/// Every sample was counted once, and every push was applied once to every weight.
pub(super) async fn check(client: &Client, trained: &Trained) -> Result<(), RoundError> {
    let job = client.status(&trained.job).await?.job;
    let weights = client.weights(&trained.job).await?.tensors()?;
    let counts = weights.get("w").map(|w| w.values.iter().map(|value| -f64::from(*value)));
    let (low, high) = counts
        .into_iter()
        .flatten()
        .fold((f64::INFINITY, 0.0f64), |(low, high), count| (low.min(count), high.max(count)));
    let (done, torn) = (job.iterations_done as f64, job.iterations_torn as f64);
    if trained.samples == SAMPLES && job.samples_applied == SAMPLES && low >= done && high <= done + torn {
        return Ok(());
    }
    Err(RoundError::Different(format!(
        "training {} has counted {} and {} of {SAMPLES} samples; {done} iterations are done and {torn} torn, and its weights have {low} to {high} of them",
        trained.job, trained.samples, job.samples_applied,
    )))
}
