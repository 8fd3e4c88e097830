//! Syncline for real: Redis, the engine, shards and one worker, each a process of its own.

use syncline::{Entry, MetricsPoint};
use syncline_workers::submit::PreparedJob;

use super::{super::cluster::BenchCluster, Case, report::Sample};
use crate::cli::{CliError, Failure};

/// Part of a run that counts as start-up and is left out of the step time.
const WARM_SHARE: f64 = 0.25;

/// An entry of the metrics stream.
#[derive(Clone, Copy)]
struct MetricsSample {
    at_ms: f64,
    /// Since the start of the job.
    samples: f64,
    /// In this report.
    iterations: f64,
    compute_us: f64,
}

/// Trains one job and reads from Redis what its worker reported.
pub(super) async fn train(cluster: &BenchCluster, case: &Case, job: PreparedJob) -> Result<Sample, Failure> {
    let id = job.spec.id.clone();
    let before = cluster.cpu_us_by_role();
    cluster.client.submit_prepared(job).await?;
    let view = cluster.client.wait(&id, |_| ()).await?;
    let after = cluster.cpu_us_by_role();
    let points = cluster.client.metrics(&id, None).await?;
    let beat = |point: &Entry<MetricsPoint>| MetricsSample {
        at_ms: point.value.at_ms as f64,
        samples: point.value.samples as f64,
        iterations: point.value.averaged_iterations as f64,
        compute_us: point.value.compute_us as f64,
    };
    let beats: Vec<MetricsSample> = points.iter().map(beat).collect();
    let too_few = || CliError::Setting { what: "there were too few reports to measure".into() };
    let (step_ms, compute_ms) = steady(&beats, case).ok_or_else(too_few)?;
    let staleness = points.iter().map(|point| point.value.staleness_max as f64).fold(0.0, f64::max);
    let spent = view.workers.into_iter().next().ok_or_else(too_few)?;
    let steps = spent.iterations as f64;
    let each = |us: u64| us as f64 / 1e3 / steps;
    Ok(Sample {
        step_ms,
        compute_ms,
        pull_ms: each(spent.pull_us + spent.wait_us),
        push_ms: each(spent.push_us),
        staleness,
        steps,
        cpu_ms: after.iter().map(|(role, us)| (*role, each(us - before[role]))).collect(),
    })
}

/// Time of one step and of its compute part, in ms, between the first kept report behind the start-up and the
/// last.
fn steady(beats: &[MetricsSample], case: &Case) -> Option<(f64, f64)> {
    let last = beats.last()?;
    let first = beats.iter().position(|b| b.samples >= last.samples * WARM_SHARE)?;
    let (first, kept) = (&beats[first], &beats[first + 1..]);
    let steps = (last.samples - first.samples) / case.batch as f64;
    let compute_us: f64 = kept.iter().map(|b| b.iterations * b.compute_us).sum();
    (steps > 0.0).then(|| ((last.at_ms - first.at_ms) / steps, compute_us / 1e3 / steps))
}
