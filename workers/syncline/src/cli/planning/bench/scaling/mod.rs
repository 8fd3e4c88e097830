//! `syncline bench scaling`: what several workers reach together under each policy, beside bare loops of ONNX
//! Runtime that run at the same time.

mod bare;
mod ddp;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::Serialize;
use syncline::{Entry, MetricsPoint, PolicySpec};
use syncline_ps::transport::TransportChoice;
use syncline_runtime::Runtime;
use syncline_scheduler::spec::DataSpec;
use syncline_workers::submit::PreparedJob;

use self::ddp::{DdpOrder, DdpRun};
use super::{
    cluster::{BenchCluster, Shards},
    median,
    model::BenchModel,
};
use crate::cli::{CliError, Failure, block_on, print, print_json, say};

/// Part of a run that counts as start-up and is left out.
const WARM_SHARE: f64 = 0.25;
const MAX_WORKERS: usize = 64;

#[derive(Debug, clap::Args)]
pub(super) struct ScalingArgs {
    /// What is trained
    #[arg(long, value_enum, default_value = "mlp")]
    model: BenchModel,
    /// Policies to try, with commas between them
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "asp,bsp,elastic-bsp:15")]
    policies: Vec<PolicySpec>,
    /// How many times slower each worker is made, by sleeping; as many as there are workers
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,1", value_parser = slowdown)]
    slow: Vec<f64>,
    /// How workers and shard are connected
    #[arg(long, value_name = "NAME", env = "SYNCLINE_TRANSPORT", default_value_t)]
    transport: TransportChoice,
    /// Processes of the shard; with 2 every policy also runs on a shard of one process, in turn
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=2))]
    replicas: u32,
    /// Length of each run
    #[arg(long, value_name = "S", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Rounds, in each of which the bare loops and every policy run in turn
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// A Python with torch, to run PyTorch's DistributedDataParallel on the same model beside
    #[arg(long, value_name = "PROGRAM")]
    python: Option<PathBuf>,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
}

fn slowdown(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("`{text}` is no number"))?;
    match (1.0..=1_000.0).contains(&number) {
        true => Ok(number),
        false => Err("a worker can be made 1 to 1000 times slower".into()),
    }
}

#[derive(Debug, Serialize)]
struct ScalingMeasured {
    model: BenchModel,
    batch: u32,
    slow: Vec<f64>,
    transport: String,
    rounds: u32,
    bare_samples_per_s: f64,
    policies: Vec<PolicyMeasured>,
    ddp: Option<DdpMeasured>,
}

/// PyTorch's DistributedDataParallel over gloo.
#[derive(Debug, Serialize)]
struct DdpMeasured {
    torch: String,
    /// Of PyTorch's own bare loops, running at the same time.
    bare_samples_per_s: f64,
    samples_per_s: f64,
    /// Of those.
    share_of_bare: f64,
}

#[derive(Debug, Serialize)]
struct PolicyMeasured {
    policy: String,
    /// Processes of the shard.
    replicas: u32,
    samples_per_s: f64,
    share_of_bare: f64,
    /// Of what the same policy reached on a shard of one process; of two processes only.
    share_of_one_process: Option<f64>,
    /// Processor time of each role for one step of one worker.
    cpu_ms: BTreeMap<&'static str, f64>,
}

/// What ran in turn, once.
struct Round {
    bare_samples_per_s: f64,
    /// Each policy on a shard of one process, or of two behind it.
    policies: Vec<Run>,
    ddp: Option<DdpRun>,
}

/// One run under one policy.
pub(super) struct Run {
    pub(super) samples_per_s: f64,
    pub(super) cpu_ms: BTreeMap<&'static str, f64>,
}

pub(super) fn scaling(args: &ScalingArgs) -> Result<(), Failure> {
    if args.slow.len() > MAX_WORKERS {
        let what = format!("{} workers are more than {MAX_WORKERS}", args.slow.len());
        return Err(CliError::Setting { what }.into());
    }
    let runtime = Runtime::load(&syncline_kit::onnxruntime(&say)?.path)?;
    let folder = tempfile::tempdir().map_err(|source| cannot_use(&std::env::temp_dir(), source))?;
    // An epoch is the least that a run can last.
    let samples = args.model.batch() * if args.model == BenchModel::Mlp { 64 } else { 16 };
    let data =
        args.model.write_data(folder.path(), samples).map_err(|source| cannot_use(folder.path(), source))?;
    let measured = block_on(measure(args, &runtime, &data))?;
    if args.json { print_json(&measured) } else { print(&describe(&measured)) }
}

async fn measure(args: &ScalingArgs, runtime: &Runtime, data: &DataSpec) -> Result<ScalingMeasured, Failure> {
    if let Some(python) = &args.python {
        ddp::check(python).await?;
    }
    let job = |id: &str, policy, epochs| {
        args.model.job(runtime, id, data, |settings| (settings.policy, settings.epochs) = (policy, epochs))
    };
    let first = args.policies.first().copied().unwrap_or_default();
    let bare_job = job("bare", first, 1)?;
    let samples = bare_job.spec.train().map_or(1, |(_, train)| train.data.train_samples.max(1));
    let mut clusters = Vec::new();
    for replicas in 1..=args.replicas {
        let shards = Shards { count: 1, replicas };
        clusters.push(BenchCluster::start_training(&args.slow, args.transport, shards).await?);
    }
    let order =
        DdpOrder { model: args.model, batch: args.model.batch(), slow: &args.slow, seconds: args.seconds };
    let mut rounds: Vec<Round> = Vec::new();
    for round in 1..=args.rounds {
        let bare = bare::samples_per_s(runtime, &bare_job, &args.slow, args.seconds)?;
        let of = format!("round {round} of {}", args.rounds);
        let epochs = (bare * f64::from(args.seconds) / samples as f64).ceil().max(1.0) as u32;
        let mut each = Vec::with_capacity(args.policies.len());
        for (index, policy) in args.policies.iter().enumerate() {
            for (cluster, processes) in clusters.iter().zip(["", " with two processes of the shard"]) {
                let prepared = job(&format!("scaling-{round}-{index}"), *policy, epochs)?;
                let run = train(cluster, prepared).await?;
                say(&format!("{of}: {policy}{processes} {:.0}, bare {bare:.0} samples/s", run.samples_per_s));
                each.push(run);
            }
        }
        let ddp = match &args.python {
            Some(python) => Some(ddp::run(python, &order).await?),
            None => None,
        };
        if let Some(DdpRun { torch, bare_samples_per_s, ddp_samples_per_s }) = &ddp {
            say(&format!(
                "{of}: PyTorch {torch} DDP {ddp_samples_per_s:.0}, its bare loops {bare_samples_per_s:.0} samples/s"
            ));
        }
        rounds.push(Round { bare_samples_per_s: bare, policies: each, ddp });
    }
    Ok(summarize(args, &rounds))
}

/// Medians over all rounds.
fn summarize(args: &ScalingArgs, rounds: &[Round]) -> ScalingMeasured {
    let rows = args.policies.iter().flat_map(|policy| (1..=args.replicas).map(move |n| (policy, n)));
    let policies = rows.enumerate().map(|(index, (policy, replicas))| {
        let rate = move |round: &Round| round.policies[index].samples_per_s;
        let one = (replicas > 1).then(|| index - 1);
        let share_of_one = |one: usize| rounds.iter().map(move |r| rate(r) / r.policies[one].samples_per_s);
        PolicyMeasured {
            policy: policy.to_string(),
            replicas,
            samples_per_s: median(rounds.iter().map(rate)),
            share_of_bare: median(rounds.iter().map(|round| rate(round) / round.bare_samples_per_s)),
            share_of_one_process: one.map(|one| median(share_of_one(one))),
            cpu_ms: medians(rounds.iter().map(|round| &round.policies[index].cpu_ms)),
        }
    });
    ScalingMeasured {
        model: args.model,
        batch: args.model.batch(),
        slow: args.slow.clone(),
        transport: args.transport.to_string(),
        rounds: args.rounds,
        bare_samples_per_s: median(rounds.iter().map(|round| round.bare_samples_per_s)),
        policies: policies.collect(),
        ddp: summarize_ddp(rounds.iter().filter_map(|round| round.ddp.as_ref())),
    }
}

fn summarize_ddp<'a>(runs: impl Iterator<Item = &'a DdpRun> + Clone) -> Option<DdpMeasured> {
    let torch = runs.clone().next()?.torch.clone();
    Some(DdpMeasured {
        torch,
        bare_samples_per_s: median(runs.clone().map(|run| run.bare_samples_per_s)),
        samples_per_s: median(runs.clone().map(|run| run.ddp_samples_per_s)),
        share_of_bare: median(runs.map(|run| run.ddp_samples_per_s / run.bare_samples_per_s)),
    })
}

/// Trains one job and says how many samples all its workers counted per second, once they were at it, and
/// what that took.
pub(super) async fn train(cluster: &BenchCluster, job: PreparedJob) -> Result<Run, Failure> {
    let (client, id, before) = (&cluster.client, job.spec.id.clone(), cluster.cpu_us_by_role());
    client.submit_prepared(job).await?;
    let view = client.wait(&id, |_| ()).await?;
    let after = cluster.cpu_us_by_role();
    let steps = view.workers.iter().map(|worker| worker.iterations).sum::<u64>().max(1) as f64;
    let points = client.metrics(&id, None).await?;
    let samples_per_s = steady_samples_per_s(&points).ok_or_else(|| CliError::Setting {
        what: "the runs are too short to measure: raise --seconds".into(),
    })?;
    let each_ms = |(role, us): (&&'static str, &u64)| (*role, (us - before[role]) as f64 / 1e3 / steps);
    Ok(Run { samples_per_s, cpu_ms: after.iter().map(each_ms).collect() })
}

/// The median of each role.
fn medians<'a>(
    rounds: impl Iterator<Item = &'a BTreeMap<&'static str, f64>> + Clone,
) -> BTreeMap<&'static str, f64> {
    let roles = rounds.clone().next().into_iter().flat_map(BTreeMap::keys);
    roles.map(|role| (*role, median(rounds.clone().map(|round| round[role])))).collect()
}

fn steady_samples_per_s(points: &[Entry<MetricsPoint>]) -> Option<f64> {
    let last = &points.last()?.value;
    let warm = last.samples as f64 * WARM_SHARE;
    let first = &points.iter().find(|point| point.value.samples as f64 >= warm)?.value;
    let (samples, lasted_ms) = (last.samples - first.samples, last.at_ms.checked_sub(first.at_ms)?);
    (samples > 0 && lasted_ms > 0).then(|| samples as f64 * 1e3 / lasted_ms as f64)
}

fn describe(m: &ScalingMeasured) -> String {
    let slow: Vec<String> = m.slow.iter().map(f64::to_string).collect();
    let head = format!(
        "{} workers ({} times slower), batch {}: bare loops {:.0} samples/s together",
        m.slow.len(),
        slow.join(", "),
        m.batch,
        m.bare_samples_per_s
    );
    let line = |policy: &PolicyMeasured| {
        let PolicyMeasured { policy, samples_per_s, share_of_bare, share_of_one_process, cpu_ms, .. } =
            policy;
        let cpu: Vec<String> = cpu_ms.iter().map(|(role, ms)| format!("{role} {ms:.3}")).collect();
        let (share, cpu) = (100.0 * share_of_bare, cpu.join(", "));
        let name = policy.clone() + if share_of_one_process.is_some() { ", replicas 2" } else { "" };
        let of_one = share_of_one_process.map(|share| format!(", {:.1} % of one process", 100.0 * share));
        let of_one = of_one.unwrap_or_default();
        format!(
            "{name:<20} {samples_per_s:>9.0} samples/s  {share:>5.1} %{of_one}   processor time per step: {cpu} ms"
        )
    };
    let ddp = m.ddp.as_ref().map(|ddp| {
        let DdpMeasured { torch, bare_samples_per_s, samples_per_s, share_of_bare } = ddp;
        let (name, share) = (format!("PyTorch {torch} DDP"), 100.0 * share_of_bare);
        format!(
            "{name:<20} {samples_per_s:>9.0} samples/s  {share:>5.1} % of its own bare loops ({bare_samples_per_s:.0} samples/s)"
        )
    });
    std::iter::once(head).chain(m.policies.iter().map(line)).chain(ddp).collect::<Vec<_>>().join("\n")
}

fn cannot_use(path: &Path, source: std::io::Error) -> CliError {
    CliError::Path { path: path.to_owned(), source }
}
