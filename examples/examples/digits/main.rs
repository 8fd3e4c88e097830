//! Trains a classifier of handwritten digits on a cluster in this process: Redis, engine, two parameter shards, four
//! workers, one of them slower.
//!
//! `cargo run --release -p syncline-examples --example digits -- --help`

mod report;

use std::{io::IsTerminal, process::ExitCode, time::Duration};

use anyhow::{Context, bail};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use report::Report;
use syncline_engine::rpc::JobFields;
use syncline_examples::digits;
use syncline_scheduler::spec::{InvalidPolicy, PolicySpec};
use syncline_workers::{
    backend::Device,
    local::{LocalCluster, LocalOptions},
    submit,
    worker::Pace,
};

/// Trains a classifier of handwritten digits on a whole cluster in one process.
#[derive(Parser)]
struct Flags {
    /// When workers meet: bsp, asp, ssp:3, dssp:3:15, elastic-bsp:15, lb-bsp, elastic-lb, local-sgd:8, diloco:8 or auto.
    #[arg(long, default_value = "elastic-bsp", value_parser = policy)]
    policy: Policy,
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    workers: u32,
    /// How much slower each worker is; the last value holds for the remaining workers.
    #[arg(long, value_delimiter = ',', default_value = "1,1,1,2.5")]
    slowdown: Vec<f64>,
    #[arg(long, default_value_t = digits::EPOCHS, value_parser = clap::value_parser!(u32).range(1..))]
    epochs: u32,
    /// A Redis server to use instead of one of our own.
    #[arg(long, env = "SYNCLINE_REDIS")]
    redis: Option<String>,
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Least time of an iteration on a whole batch before slowdown, the rest slept after compute; 0: full speed.
    #[arg(long, default_value_t = 10)]
    step_ms: u64,
    /// What the workers compute on: cpu, or cuda:N for an NVIDIA GPU, counted from 0.
    #[arg(long, default_value_t)]
    device: Device,
    /// Keep the trained weights here, as safetensors.
    #[arg(long)]
    save: Option<std::path::PathBuf>,
    /// Print one JSON object instead of the report.
    #[arg(long)]
    json: bool,
}

/// A policy, and how the user spelt it.
#[derive(Clone)]
struct Policy {
    text: String,
    spec: PolicySpec,
}

fn policy(text: &str) -> Result<Policy, InvalidPolicy> {
    Ok(Policy { text: text.to_owned(), spec: text.parse()? })
}

#[tokio::main]
async fn main() -> ExitCode {
    let flags = Flags::parse();
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("SYNCLINE_LOG").unwrap_or_else(|_| "warn".into()),
        )
        .with_writer(std::io::stderr)
        .init();
    match train(&flags).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(1)
        }
    }
}

async fn train(flags: &Flags) -> anyhow::Result<()> {
    let step = Duration::from_millis(flags.step_ms);
    let slow = |i: usize| flags.slowdown.get(i).or(flags.slowdown.last()).copied().unwrap_or(1.0);
    if let Some(bad) = flags.slowdown.iter().find(|s| !(s.is_finite() && **s > 0.0)) {
        bail!("--slowdown {bad}: expected positive numbers");
    }
    let options = LocalOptions {
        paces: (0..flags.workers as usize).map(|i| Pace { step, slowdown: slow(i) }).collect(),
        redis: flags.redis.clone(),
        device: flags.device,
        ..LocalOptions::default()
    };
    let cluster = LocalCluster::start(options, |line| eprintln!("{line}")).await?;
    let job = format!("digits-{}", std::process::id());
    let graph = digits::job(&job, flags.policy.spec, flags.epochs, flags.seed, flags.workers);
    let prepared = submit::prepare(cluster.runtime(), &graph)?;
    let id = prepared.spec.id.clone();
    let client = cluster.client();
    submit::submit(&client, cluster.token(), prepared).await?;

    eprintln!("while it runs: redis-cli -u {} HGETALL 'syncline:{{{id}}}:job'", cluster.redis_url());
    let progress = Progress::new(flags);
    let view = client.wait(&id, |view| progress.show(&view.job)).await?;
    progress.clear();
    let report = Report::of(&view, cluster.redis_url(), &flags.policy.text)
        .context("the job's record is incomplete")?;
    if let (Some(to), Some(weights)) = (&flags.save, view.job.get("snapshot")) {
        std::fs::copy(weights, to).with_context(|| format!("cannot keep the weights in {}", to.display()))?;
        eprintln!("weights: {}", to.display());
    }
    if flags.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{}", report.text(flags.step_ms));
    }
    cluster.stop().await;
    match view.job.get("state").map(String::as_str) {
        Some("done") => Ok(()),
        _ => bail!(
            "job {id} ended as {}: {}",
            view.job.get("state").map_or("?", |s| s),
            view.job.get("reason").map_or("", |s| s)
        ),
    }
}

/// A bar on a terminal, nothing elsewhere.
struct Progress(Option<ProgressBar>);

impl Progress {
    fn new(flags: &Flags) -> Self {
        if flags.json || !std::io::stderr().is_terminal() {
            return Self(None);
        }
        let style =
            ProgressStyle::with_template("{bar:30} {msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
        Self(Some(ProgressBar::new(1).with_style(style)))
    }

    fn show(&self, job: &JobFields) {
        let Some(bar) = &self.0 else { return };
        let text = |field: &str| job.get(field).map_or("", |s| s.as_str());
        let number = |field: &str| text(field).parse::<u64>().unwrap_or(0);
        bar.set_length(number("samples_total").max(1));
        bar.set_position(number("samples_applied"));
        bar.set_message(format!(
            "epoch {}/{}  {} samples/s  loss {}  barrier {}",
            text("epoch"),
            text("epochs"),
            text("samples_per_s"),
            text("loss"),
            text("next_barrier")
        ));
    }

    fn clear(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
