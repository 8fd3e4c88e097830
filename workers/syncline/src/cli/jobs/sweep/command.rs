//! The command line, and what it leads to.

use std::{
    io::{self, IsTerminal},
    path::PathBuf,
};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use syncline_scheduler::spec::Metric;
use syncline_workers::{
    client::{Client, Cluster},
    process::INTERRUPTED,
    submit::JobFile,
};

use super::{
    conduct::Conduct,
    display::Display,
    dry_run::DryRun,
    halving::Share,
    outcome::{Outcome, best, rank},
    plan::{self, Plan},
    report::{Report, in_words, reasons},
    room::Room,
    there,
};
use crate::cli::{
    CliError, ConnectionArgs, Failure, block_on, end_at_once, figure_in_words, hold_end, listen_for_stop,
    log_as_command, print, print_json, say,
};

#[derive(Debug, clap::Args)]
pub struct SweepArgs {
    /// Job file; examples/jobs/digits.toml is one
    #[arg(value_name = "JOB.toml")]
    pub(super) file: PathBuf,
    /// Try these values of a field: `settings.batch=16,32`, or a range for --samples,
    /// `settings.learning_rate=1e-4..0.1:log`. Keys and values are those of `submit --set`; commas in
    /// quotes, [] or {} separate nothing. Of several, every combination is tried
    #[arg(long, value_name = "KEY=VALUE,..")]
    pub(super) set: Vec<String>,
    /// Draw so many different trials at random instead of trying every combination
    #[arg(long, value_name = "N")]
    pub(super) samples: Option<u64>,
    /// With another number --samples draws other trials
    #[arg(long, value_name = "N", default_value_t = 0, requires = "samples")]
    pub(super) seed: u64,
    /// Name of the sweep: its trials are the jobs ID-NAME-1, ID-NAME-2 and so on
    #[arg(long, value_name = "NAME", default_value = "sweep")]
    pub(super) name: String,
    /// Most trials that train at the same time [default: as many as the workers serve]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    at_once: Option<u32>,
    /// The metric by which trials are compared: of validation samples, or else test samples; the loss also
    /// while it trains, where nothing is evaluated
    #[arg(long, value_name = "METRIC", default_value = "loss", value_parser = metric())]
    pub(super) by: Metric,
    /// Compare the trials after these epochs, and stop those that are not among the best (--keep):
    /// successive halving
    #[arg(long, value_name = "EPOCH,..", value_parser = rungs)]
    pub(super) rungs: Option<Rungs>,
    /// Share of the trials that goes on after each of --rungs
    #[arg(long, value_name = "SHARE", default_value = "1/3", requires = "rungs")]
    pub(super) keep: Share,
    /// Show what the cluster knows of the trials of this name, and submit nothing; --set and the like are
    /// not needed
    #[arg(long)]
    show: bool,
    /// Show the trials as they would train, and submit nothing; no cluster is needed
    #[arg(long, conflicts_with = "show")]
    dry_run: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Nothing but one JSON object on stdout, when all trials are over; at once with --show and --dry-run
    #[arg(long)]
    json: bool,
}

fn metric() -> impl TypedValueParser<Value = Metric> {
    PossibleValuesParser::new(Metric::ALL.map(Metric::name)).try_map(|name| name.parse::<Metric>())
}

/// Epochs after which trials are compared.
pub(super) type Rungs = Vec<u32>;

fn rungs(text: &str) -> Result<Rungs, String> {
    let rungs = text.split(',').map(|epoch| epoch.trim().parse().ok().filter(|epoch| *epoch > 0));
    let rungs = rungs.collect::<Option<Vec<u32>>>().filter(|rungs| rungs.is_sorted_by(|a, b| a < b));
    rungs.ok_or_else(|| "expected epochs from 1 that ascend, such as 1,3,9".to_owned())
}

pub(crate) fn run(args: &SweepArgs) -> Result<(), Failure> {
    log_as_command();
    if args.show {
        let cluster = args.connection.find()?;
        return block_on(show(args, cluster));
    }
    // What is cheap to refuse comes first.
    let values = plan::values(args)?;
    let graphs = plan::graphs(args, &values)?;
    let prefix = plan::prefix(&JobFile::load(&args.file)?, &args.name);
    if args.dry_run {
        let plan = block_on(plan::prepare(args, values, graphs))?;
        return print_plan(args, &plan, &prefix);
    }
    let cluster = args.connection.find()?;
    block_on(async {
        let mut stop = listen_for_stop(false)?;
        let sweep = async {
            let (client, _) = Client::connect(&cluster).await?;
            let plan = plan::prepare(args, values, graphs).await?;
            train(args, &client, &plan, &prefix).await
        };
        tokio::select! {
            done = sweep => done,
            () = stop.requested() => {
                let _ending = hold_end();
                if io::stderr().is_terminal() {
                    // Below the lines that move.
                    say("");
                }
                say("stopped watching: trials that have begun train on, and none is stopped; the same command goes on");
                end_at_once(INTERRUPTED)
            }
        }
    })
}

async fn show(args: &SweepArgs, cluster: Cluster) -> Result<(), Failure> {
    let prefix = plan::prefix(&JobFile::load(&args.file)?, &args.name);
    let (client, _) = Client::connect(&cluster).await?;
    let mut outcomes = there::load(&client, &prefix, args.by).await?;
    if outcomes.is_empty() {
        return Err(CliError::NoTrials { prefix }.into());
    }
    rank(&mut outcomes, args.by);
    print_outcomes(args, &prefix, &outcomes)
}

async fn train(args: &SweepArgs, client: &Client, plan: &Plan, prefix: &str) -> Result<(), Failure> {
    for trial in &plan.trials {
        client.check_prepared(&trial.job).await?;
    }
    let room = Room::of(&client.workers().await?);
    let max_workers = plan.trials.iter().map(|trial| trial.yardstick.max_workers).max().unwrap_or(u32::MAX);
    let at_once = args.at_once.unwrap_or_else(|| room.jobs(max_workers));
    let mut conduct = Conduct::new(client, plan, at_once, Display::new(args.json));
    let (over, going) = conduct.take_up().await?;
    if !args.json {
        say(&begin_in_words(plan, prefix, at_once, over, going));
        if over + going < plan.trials.len() && args.at_once.is_none() {
            room.for_more_in_words(max_workers).iter().for_each(|line| say(line));
        }
    }
    conduct.run().await?;
    let mut outcomes = conduct.outcomes();
    rank(&mut outcomes, plan.metric);
    print_outcomes(args, prefix, &outcomes)?;
    match best(&outcomes) {
        Some(_) => Ok(()),
        None => Err(CliError::NoBest { name: args.name.clone(), trials: outcomes.len() }.into()),
    }
}

/// The trials that nobody has submitted, as a table or JSON.
fn print_plan(args: &SweepArgs, plan: &Plan, prefix: &str) -> Result<(), Failure> {
    let dry_run = DryRun::of(&args.name, prefix, plan);
    if args.json {
        print_json(&dry_run)?;
    } else {
        print(&dry_run.in_words())?;
        let how = halving_in_words(plan).map(|how| format!("; {how}")).unwrap_or_default();
        say(&format!("{}{how}", count_in_words(plan, prefix)));
    }
    say("nothing was submitted, and no cluster was asked");
    Ok(())
}

/// How many trials there are.
fn count_in_words(plan: &Plan, prefix: &str) -> String {
    match plan.trials.len() {
        1 => format!("1 trial, {prefix}-1"),
        count => format!("{count} trials, {prefix}-1 to {prefix}-{count}"),
    }
}

/// How many trials there are, and how they are compared.
fn begin_in_words(plan: &Plan, prefix: &str, at_once: u32, over: usize, going: usize) -> String {
    let mut parts = vec![format!("{}, at most {at_once} at a time", count_in_words(plan, prefix))];
    if over + going > 0 {
        parts.push(format!("{over} are over and {going} go on from before"));
    }
    parts.extend(halving_in_words(plan));
    parts.join("; ")
}

/// How they are compared before their end, if they are.
fn halving_in_words(plan: &Plan) -> Option<String> {
    plan.halving.as_ref().map(|halving| {
        let on = plan.trials.first().and_then(|trial| trial.yardstick.on).map_or("training", |on| on.name());
        let rungs = halving.rungs.iter().zip(halving.room(plan.trials.len()));
        let rungs: Vec<String> = rungs.map(|(epoch, room)| format!("{room} beyond epoch {epoch}")).collect();
        let (name, rungs) = (plan.metric.name(), rungs.join(", "));
        format!("compared by {on} {name}, of which at most so many go on: {rungs}")
    })
}

/// The table, or JSON, and what to do next. `outcomes`: best first.
fn print_outcomes(args: &SweepArgs, prefix: &str, outcomes: &[Outcome]) -> Result<(), Failure> {
    if args.json {
        return print_json(&Report::of(&args.name, prefix, args.by, outcomes));
    }
    print(&in_words(outcomes, args.by))?;
    reasons(outcomes).iter().for_each(|reason| say(reason));
    if let Some(best) = best(outcomes)
        && let (Some(result), Some(on), Some(job)) = (best.result, best.measured_on, &best.job)
    {
        let is_ready = job.settings.iter().any(|own| own.name.starts_with("model.ready"));
        let ending = if is_ready { "safetensors" } else { "onnx" };
        let (id, metric, to_repeat) = (&best.id, args.by, args.connection.to_repeat());
        say(&format!(
            "best: {id}, {on} {} {}; `syncline model export {id} {id}.{ending}{to_repeat}`, `syncline predict {id}{to_repeat}`",
            metric.name(),
            figure_in_words(metric, result),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_compares_trials_and_an_unknown_one_tells_all() {
        let by = |name: &str| {
            let arg = clap::Arg::new("by").value_parser(metric());
            let matches = clap::Command::new("sweep").arg(arg).try_get_matches_from(["sweep", name])?;
            Ok::<_, clap::Error>(matches.get_one::<Metric>("by").copied())
        };
        let told = by("f1").unwrap_err().to_string();
        for metric in Metric::ALL {
            assert_eq!(by(metric.name()).unwrap(), Some(metric));
            assert!(told.contains(metric.name()), "{told}");
        }
    }

    #[test]
    fn rungs_are_epochs_that_ascend_table() {
        for (text, want) in [
            ("1,3,9", Some(vec![1, 3, 9])),
            ("2", Some(vec![2])),
            ("1, 3", Some(vec![1, 3])),
            ("", None),
            ("0,1", None),
            ("3,1", None),
            ("1,1", None),
            ("1,x", None),
        ] {
            assert_eq!(rungs(text).ok(), want, "{text}");
        }
    }
}
