//! `syncline chaos`: random graphs on a cluster whose processes are killed and stopped at random, each result
//! of which is compared with what it has to be.

mod cluster;
mod faults;
mod functions;
mod graph;
mod network;
mod resume;
mod round_error;
mod rounds;
mod training;

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::atomic::AtomicU64,
    time::{Duration, Instant},
};

use syncline_scheduler::samples::splitmix64;

use syncline_workers::process::StopSignal;

use cluster::{ChaosCluster, ClusterSize};
use faults::{FaultCounts, FaultPlan, ProcessKind, cause_faults};
pub(crate) use functions::{ChaosWorkerArgs, run_worker};
use resume::ResumeTimes;
use rounds::{Checked, Rounds};

use crate::cli::{CliError, Exit, Failure, block_on, log_as_command, number, print, say};

#[derive(Debug, clap::Args)]
pub struct ChaosArgs {
    /// How long accidents happen; what runs then may end undisturbed
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = number::<f64>("minutes, such as 1, or 0.5 for half a minute"))]
    minutes: f64,
    /// Draws the graphs and the accidents; which accident meets what is up to the machine [default: another
    /// each time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Engines: with 2 one leads and the other stands by
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=2))]
    engines: u32,
    /// Processes of each shard: with 2 one serves and the other follows
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=2))]
    replicas: u32,
    /// Nothing but kills, and of these processes alone [default: accidents of every kind]
    #[arg(long, value_name = "KIND,...", value_delimiter = ',')]
    kill: Vec<ProcessKind>,
    /// From one accident to the next on average, such as 500ms
    #[arg(long, value_name = "TIME", default_value = "1250ms")]
    every: humantime::Duration,
    /// Folder of the cluster's state, which has to be empty [default: a new one, that is removed if all goes
    /// well]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

pub(crate) fn run(args: &ChaosArgs) -> Result<(), Failure> {
    log_as_command();
    let cannot_use = |path: PathBuf| move |source| CliError::Path { path, source };
    let plan = args.plan()?;
    let new = tempfile::Builder::new().prefix("syncline-chaos-").tempdir();
    let new = new.map_err(cannot_use(std::env::temp_dir()))?;
    let dir = args.state_dir.clone().unwrap_or_else(|| new.path().to_owned());
    make_empty(&dir).map_err(cannot_use(dir.clone()))?;
    let seed = args.seed.unwrap_or_else(rand::random);
    say(&format!("seed {seed}, state {}", dir.display()));

    let seen = Observed::default();
    let outcome = block_on(chaos(&dir, seed, args.size(), &plan, &seen));
    match outcome {
        Ok(Checked { graphs, values, trainings }) => print(&format!(
            "seed {seed}: {graphs} graphs with {values} values and {trainings} trainings are as they have to be\n{seen}"
        )),
        Err(failure) => {
            // What is left is what somebody will look at.
            if args.state_dir.is_none() {
                let _ = new.keep();
            }
            say(&format!("seed {seed}, state kept in {}\n{seen}", dir.display()));
            Err(failure)
        }
    }
}

/// What was seen of the accidents.
#[derive(Default)]
struct Observed {
    counts: FaultCounts,
    resume_times: ResumeTimes,
}

impl fmt::Display for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "accidents: {}\n{}", self.counts, self.resume_times)
    }
}

impl ChaosArgs {
    fn plan(&self) -> Result<FaultPlan, CliError> {
        let refuse = |what: String| Err(CliError::Setting { what });
        let time = Duration::try_from_secs_f64(self.minutes * 60.0).unwrap_or_default();
        if time.is_zero() || Instant::now().checked_add(time).is_none() {
            return refuse(format!("--minutes {} is no time; 0.5 is half a minute", self.minutes));
        }
        let every = Duration::from(self.every);
        if every.is_zero() {
            return refuse(format!("--every {} is no time between accidents; 500ms is short", self.every));
        }
        Ok(FaultPlan { kill: self.kill.clone(), every, time })
    }

    fn size(&self) -> ClusterSize {
        // Processes that shall be killed again and again must be there.
        let longest_pause = if self.kill.is_empty() { 5_000 } else { 100 };
        ClusterSize {
            engines: self.engines,
            replicas: self.replicas,
            longest_pause: Duration::from_millis(longest_pause),
        }
    }
}

/// Makes a folder; one that is there has to be empty.
fn make_empty(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    match fs::read_dir(dir)?.next() {
        None => Ok(()),
        Some(_) => Err(io::ErrorKind::DirectoryNotEmpty.into()),
    }
}

async fn chaos(
    dir: &Path,
    mut seed: u64,
    size: ClusterSize,
    plan: &FaultPlan,
    Observed { counts, resume_times }: &Observed,
) -> Result<Checked, Failure> {
    let mut stop =
        StopSignal::listen(false).map_err(|source| CliError::Path { path: "signals".into(), source })?;
    let cluster = ChaosCluster::start(dir, size).await?;
    let training = cluster.client.prepare_training(&training::counting_job()).await?;
    let (graphs_seed, faults_seed) = (splitmix64(&mut seed), splitmix64(&mut seed));
    let rounds = Rounds {
        client: &cluster.client,
        seed: graphs_seed,
        training: &training,
        end: Instant::now() + plan.time,
        begun: AtomicU64::default(),
        is_strict: plan.spares_redis(),
    };
    let faults = cause_faults(&cluster, plan, faults_seed, counts, resume_times);
    let mut checked = std::pin::pin!(rounds.run());
    let checked_with_faults = async {
        tokio::select! {
            // Faults end in time; what is different ends the run at once.
            checked = &mut checked => checked,
            caused = faults => match caused {
                Ok(()) => checked.await,
                Err(ended) => Err(ended),
            },
        }
    };
    let checked = tokio::select! {
        checked = checked_with_faults => checked,
        never = resume_times.watch(&cluster.client) => match never {},
        () = stop.requested() => return Err(stopped()),
    };
    checked.map_err(|what| {
        let hint = "the folder `logs` of the state directory tells what happened; `syncline up --state-dir` on it brings the cluster back";
        Failure::new(Exit::JobFailed, format!("[E540] the chaos run went wrong: {what}"), hint)
    })
}

/// Somebody wants the run to end; the cluster ends with it.
fn stopped() -> Failure {
    let what = "[E541] the chaos run was stopped; until then everything was as it has to be";
    Failure::new(Exit::JobFailed, what, "the same --seed draws the same graphs again")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        chaos: ChaosArgs,
    }

    #[test]
    fn a_run_takes_time_and_so_does_what_lies_between_accidents() {
        #[rustfmt::skip]
        let cases = [
            ("",                               Ok((60_000, 1_250))),
            ("--minutes 0.5 --every 500ms",    Ok((30_000, 500))),
            ("--minutes 0",                    Err("[E509] --minutes 0 is no time")),
            ("--minutes=-1",                   Err("[E509] --minutes -1 is no time")),
            ("--minutes NaN",                  Err("[E509] --minutes NaN is no time")),
            ("--minutes 1e300",                Err("[E509] --minutes 1")),
            ("--minutes 2e17",                 Err("[E509] --minutes 2")),
            ("--every 0ms",                    Err("[E509] --every 0s is no time")),
        ];
        for (line, want) in cases {
            let args = Line::try_parse_from(format!("chaos {line}").split_whitespace()).ok().unwrap().chaos;
            match (args.plan(), want) {
                (Ok(plan), Ok(want)) => assert_eq!((plan.time.as_millis(), plan.every.as_millis()), want),
                (Err(error), Err(want)) => assert!(error.to_string().starts_with(want), "{line}: {error}"),
                (plan, _) => panic!("{line}: {plan:?}"),
            }
        }
    }
}
