//! `syncline simulate`: what a policy would do with these machines, on a virtual clock and without a cluster.

mod plot;
mod report;
mod scenario;

use std::path::PathBuf;

use scenario::Setup;
use syncline_scheduler::{
    predict::PredictorSpec,
    sim::{self, Burst, InvalidScenario, Outcome, Scenario},
    spec::PolicySpec,
};

use crate::cli::{Exit, Failure, log_as_command, number, print, print_json, say, svg_file, whole_file};

/// What is drawn unless the user says otherwise: this many of the slowest worker's iterations.
const PLOT_ITERATIONS: u64 = 15;

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  syncline simulate --intervals-ms 100x3,200 --jitter 0.05 --compare bsp,ssp:3,asp,elastic-bsp:15,lb-bsp

A worker waits from the end of an iteration to the start of its next one; `waiting` is the sum of all waits over the summed time for which workers were there.
Jitter multiplies each interval by max(0.2, N(1, sigma)). Every policy sees the same draws.")]
pub struct SimulateArgs {
    /// The policy [default: elastic-bsp:15]
    #[arg(long, value_name = "POLICY")]
    policy: Option<PolicySpec>,
    /// Several policies, one row each
    #[arg(long, value_name = "P,P,...", value_delimiter = ',', conflicts_with = "policy")]
    compare: Vec<PolicySpec>,
    /// Iterations predicted per worker, for every policy that predicts
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    lookahead: Option<u32>,
    /// How intervals are predicted: last, ema:ALPHA, mean:K, median:K or narx; for every policy
    #[arg(long, value_name = "PREDICTOR")]
    predictor: Option<PredictorSpec>,
    /// Milliseconds of one iteration of each worker; 100x3 is three workers of 100 [default: 100x3,200]
    #[arg(long, value_name = "MS,MS,...", value_delimiter = ',')]
    intervals_ms: Vec<String>,
    /// Standard deviation of the factor on each interval
    #[arg(long, value_name = "SIGMA", value_parser = number::<f64>("a share of the interval, such as 0.05 for 5 %"))]
    jitter: Option<f64>,
    /// Slow stretches: the probability that one begins with an iteration, the factor, and its iterations, as
    /// 0.02:5:3
    #[arg(long, value_name = "P:F:N", value_parser = scenario::burst)]
    burst: Option<Burst>,
    /// Relative change of every interval per second
    #[arg(long, value_name = "PER_S", allow_negative_numbers = true, value_parser = number::<f64>("a share of the interval per second, such as 0.01 for 1 %"))]
    drift: Option<f64>,
    /// Milliseconds of one pull and one push together
    #[arg(long, value_name = "MS", value_parser = number::<f64>("milliseconds, such as 20 or 0.5"))]
    network_ms: Option<f64>,
    /// A worker that comes later: number of the worker, from 1, @ seconds
    #[arg(long, value_name = "W@S", value_parser = scenario::moment)]
    join: Vec<(usize, f64)>,
    /// A worker that leaves: number of the worker, from 1, @ seconds
    #[arg(long, value_name = "W@S", value_parser = scenario::moment)]
    leave: Vec<(usize, f64)>,
    /// Samples per iteration and worker [default: 32]
    #[arg(long, value_name = "N")]
    batch: Option<u32>,
    /// Simulated seconds [default: 600]
    #[arg(long, value_name = "S", value_parser = number::<f64>("seconds, such as 600 or 0.5"))]
    duration_s: Option<f64>,
    /// Seed of all draws [default: 0]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Read the scenario from a TOML file; flags count more
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// Draw the beginning of the run as SVG
    #[arg(long, value_name = "FILE.svg", value_parser = svg_file)]
    plot: Option<PathBuf>,
    /// Seconds to draw [default: 15 iterations of the slowest worker]
    #[arg(long, value_name = "S", requires = "plot", value_parser = number::<f64>("seconds, such as 2 or 0.5"))]
    plot_s: Option<f64>,
    /// JSON on stdout: one object, or an array with --compare
    #[arg(long)]
    json: bool,
}

/// What is wrong with a simulation. Codes are stable, see docs/errors.md.
#[derive(Debug, thiserror::Error)]
enum SimulateError {
    #[error(transparent)]
    Invalid(#[from] InvalidScenario),
    #[error("[E571] cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("[E572] {} is not a scenario", path.display())]
    Toml {
        path: PathBuf,
        #[source]
        source: Box<toml::de::Error>,
    },
    #[error("[E573] {what}")]
    Flag { what: String },
}

impl From<SimulateError> for Failure {
    fn from(error: SimulateError) -> Self {
        let hint = match &error {
            SimulateError::Read { .. } | SimulateError::Toml { .. } => {
                "docs/policies.md lists the fields of a scenario; examples/scenarios holds some"
            }
            SimulateError::Invalid(_) | SimulateError::Flag { .. } => {
                "`syncline simulate --help` shows what is accepted"
            }
        };
        Self::new(Exit::Usage, error, hint)
    }
}

pub(crate) fn run(args: &SimulateArgs) -> Result<(), Failure> {
    log_as_command();
    let setup = Setup::read(args)?;
    let policies = match (args.compare.is_empty(), args.policy.or(setup.policy)) {
        (true, policy) => vec![policy.unwrap_or_default()],
        (false, _) => args.compare.clone(),
    };
    let plot_us = match (&args.plot, args.plot_s) {
        (None, _) => 0,
        (Some(_), Some(s)) => scenario::micros("--plot-s", s, 1e6)?,
        (Some(_), None) => PLOT_ITERATIONS * setup.workers.iter().map(|w| w.interval_us).max().unwrap_or(0),
    };
    let mut runs: Vec<Outcome> = Vec::with_capacity(policies.len());
    for mut policy in policies {
        if let Some(lookahead) = args.lookahead {
            policy = policy.with_lookahead(lookahead);
        }
        policy.predictor = args.predictor.unwrap_or(policy.predictor);
        let Setup { workers, batch, duration_us, seed, .. } = &setup;
        let scenario = Scenario {
            policy,
            workers: workers.clone(),
            batch: *batch,
            duration_us: *duration_us,
            seed: *seed,
        };
        runs.push(sim::simulate(&scenario, plot_us.min(*duration_us)).map_err(SimulateError::from)?);
    }
    if let Some(path) = &args.plot {
        let svg = plot::plot(&setup.caption(), &runs);
        whole_file::replace(path, svg.as_bytes())?;
        say(&format!("drew {}", path.display()));
    }
    match (args.json, args.compare.is_empty(), runs.as_slice()) {
        (true, true, [one]) => print_json(one),
        (true, _, all) => print_json(&all),
        (false, true, [one]) => print(&report::one(one)),
        (false, _, all) => print(&report::side_by_side(all)),
    }
}
