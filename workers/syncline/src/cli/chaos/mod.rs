//! `syncline chaos`: random graphs on a cluster whose processes are killed and stopped at random, each result of which is
//! compared with what it has to be.

mod cluster;
mod faults;
mod functions;
mod graph;
mod rounds;
mod training;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use syncline_scheduler::samples::splitmix64;

use syncline_workers::process::StopSignal;

use cluster::ChaosCluster;
use faults::{FaultCounts, cause_faults};
pub(crate) use functions::{ChaosWorkerArgs, run_worker};
use rounds::{Checked, run_rounds};

use crate::cli::{CliError, Exit, Failure, block_on, log_as_command, print, say};

#[derive(Debug, clap::Args)]
pub struct ChaosArgs {
    /// How long accidents happen; what runs then may end in peace
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    minutes: f64,
    /// Draws the graphs and the accidents; which accident meets what is up to the machine [default: another each time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Folder of the cluster's state, which has to be empty [default: a new one, that is removed if all goes well]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

pub(crate) fn run(args: &ChaosArgs) -> Result<(), Failure> {
    log_as_command();
    let cannot_use = |path: PathBuf| move |source| CliError::Path { path, source };
    let fault_time = Duration::try_from_secs_f64(args.minutes * 60.0)
        .map_err(|_| CliError::Setting { what: format!("--minutes {} is no time", args.minutes) })?;
    let new = tempfile::Builder::new().prefix("syncline-chaos-").tempdir();
    let new = new.map_err(cannot_use(std::env::temp_dir()))?;
    let dir = args.state_dir.clone().unwrap_or_else(|| new.path().to_owned());
    std::fs::create_dir_all(&dir).map_err(cannot_use(dir.clone()))?;
    let seed = args.seed.unwrap_or_else(rand::random);
    say(&format!("seed {seed}, state {}", dir.display()));

    let counts = FaultCounts::default();
    let outcome = block_on(chaos(&dir, seed, fault_time, counts.clone()));
    match outcome {
        Ok(Checked { graphs, values, trainings }) => print(&format!(
            "seed {seed}: {graphs} graphs with {values} values and {trainings} trainings are as they have to be\naccidents: {counts}"
        )),
        Err(failure) => {
            // What is left is what somebody will look at.
            if args.state_dir.is_none() {
                let _ = new.keep();
            }
            say(&format!("seed {seed}, state kept in {}\naccidents: {counts}", dir.display()));
            Err(failure)
        }
    }
}

async fn chaos(
    dir: &std::path::Path,
    mut seed: u64,
    fault_time: Duration,
    counts: FaultCounts,
) -> Result<Checked, Failure> {
    let mut stop =
        StopSignal::listen(false).map_err(|source| CliError::Path { path: "signals".into(), source })?;
    let cluster = ChaosCluster::start(dir)?;
    let training = cluster.client.prepare_training(&training::counting_job()).await?;
    let begin = Instant::now();
    let end = begin + fault_time;
    let (graphs_seed, faults_seed) = (splitmix64(&mut seed), splitmix64(&mut seed));
    let rounds = run_rounds(&cluster.client, graphs_seed, &training, end);
    let faults = cause_faults(&cluster, faults_seed, begin, end, counts);
    let mut rounds = std::pin::pin!(rounds);
    let checked = tokio::select! {
        // Faults end in time; what is different ends the run at once.
        checked = &mut rounds => checked,
        caused = faults => match caused {
            Ok(()) => tokio::select! {
                checked = rounds => checked,
                () = stop.requested() => return Err(stopped()),
            },
            Err(ended) => Err(ended),
        },
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
