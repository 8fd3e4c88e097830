//! One run on a cluster in this process.

use std::{
    io::{IsTerminal, stderr},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, bail};
use syncline::{JobGraph, LocalCluster, LocalOptions, worker::Throttle};
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    fmt,
    prelude::*,
};

use super::{Extent, Flags, progress::Progress, report::Report};
use crate::Run;

/// Trains `job` on a whole cluster, with a bar while it lasts, and prints a report. `name` begins the job's
/// id.
pub fn show(
    name: &str,
    flags: &Flags,
    extent: &Extent,
    job: impl FnOnce(&Run<'_>) -> anyhow::Result<JobGraph>,
) -> ExitCode {
    let wanted = std::env::var("SYNCLINE_LOG").ok().and_then(|levels| levels.parse().ok());
    let levels = wanted.unwrap_or_else(|| Targets::new().with_default(LevelFilter::WARN));
    let lines = fmt::layer().with_writer(stderr).with_ansi(stderr().is_terminal());
    tracing_subscriber::registry().with(lines).with(levels).init();
    let done = tokio::runtime::Runtime::new()
        .context("cannot start the runtime")
        .and_then(|runtime| runtime.block_on(train(name, flags, extent, job)));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(1)
        }
    }
}

async fn train(
    name: &str,
    flags: &Flags,
    extent: &Extent,
    job: impl FnOnce(&Run<'_>) -> anyhow::Result<JobGraph>,
) -> anyhow::Result<()> {
    if let Some(bad) = flags.slowdown.iter().find(|s| !(s.is_finite() && **s > 0.0)) {
        bail!("--slowdown {bad}: expected positive numbers");
    }
    let id = format!("{name}-{}", std::process::id());
    // What is cheap to refuse comes before the cluster.
    let graph = job(&Run {
        id: &id,
        policy: extent.policy.spec,
        epochs: extent.epochs,
        seed: flags.seed,
        workers: flags.workers,
    })?;
    let cluster = LocalCluster::start_with(options(flags, extent), |line| eprintln!("{line}")).await?;
    let client = cluster.client();
    let id = client.submit(&graph).await?.id;

    eprintln!("while it runs: {} HGETALL 'syncline:{{{id}}}:job'", cluster.redis_cli());
    let progress = Progress::new(flags.json);
    let outcome = client.wait(&id, |view| progress.show(&view.job)).await;
    progress.clear();
    // What a job that failed has done is worth a look, too.
    let view = client.status(&id).await?;
    if let (Some(to), Ok(_)) = (&flags.save, &outcome) {
        let weights = client.weights(&id).await?;
        weights.save(to).with_context(|| format!("cannot keep the weights in {}", to.display()))?;
        eprintln!("weights: {}", to.display());
    }
    let report = Report::of(view, &cluster.redis_cli(), &extent.policy.text);
    if flags.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{}", report.text(extent.step_ms, flags.redis.is_some()));
    }
    cluster.stop().await?;
    outcome?;
    Ok(())
}

fn options(flags: &Flags, extent: &Extent) -> LocalOptions {
    let step = Duration::from_millis(extent.step_ms);
    let slow = |i: usize| match extent.step_ms {
        0 => 1.0,
        _ => flags.slowdown.get(i).or(flags.slowdown.last()).copied().unwrap_or(1.0),
    };
    LocalOptions {
        workers: (0..flags.workers as usize).map(|i| Throttle { step, slowdown: slow(i) }).collect(),
        redis: flags.redis.clone(),
        device: flags.device,
        ..LocalOptions::default()
    }
}
