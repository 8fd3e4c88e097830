//! The command line, and what it leads to.

use std::path::PathBuf;

use syncline_scheduler::ids::JobId;

use super::{Training, comparison, csv, files::Files, follow, one_job, sources::Sources};
use crate::cli::{
    CliError, ConnectionArgs, Exit, Failure, block_on, jobs::loss_curves::Over, log_as_command, print,
    print_json, say, svg_file, whole_file,
};

#[derive(Debug, clap::Args)]
pub struct MetricsArgs {
    /// Id of the job, which may be running or over; several are compared. With --from it may be left out
    #[arg(required_unless_present = "from", value_name = "JOB")]
    pub(super) jobs: Vec<JobId>,
    /// Show the evaluations instead, the best of them always among them; also what --csv writes
    #[arg(long)]
    evaluations: bool,
    /// Draw the losses into this file, as SVG, with the evaluations
    #[arg(long, value_name = "FILE", value_parser = svg_file)]
    pub(super) plot: Option<PathBuf>,
    /// What the picture goes over
    #[arg(long, value_enum, default_value_t, requires = "plot")]
    pub(super) over: Over,
    /// Write a row for each point of each job into this file, or to stdout if it is `-`
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write what TensorBoard reads below this folder, a folder for each job
    #[arg(long, value_name = "DIR")]
    pub(super) tensorboard: Option<PathBuf>,
    /// Go on until the jobs are over: draw anew (--plot), and add to the files of --tensorboard, every two
    /// seconds
    #[arg(long)]
    pub(super) follow: bool,
    /// Read the job of this file of `syncline export` from it, as of then, instead of asking a cluster; once
    /// for each file. A job that is named twice is shown beside its file
    #[arg(long, value_name = "FILE")]
    pub(super) from: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) connection: ConnectionArgs,
    /// One JSON array on stdout: every point that is kept of one job, or several jobs with their points
    #[arg(long)]
    json: bool,
}

impl MetricsArgs {
    /// Refuses what clap takes.
    fn check(&self) -> Result<(), CliError> {
        let refused = |what: String| Err(CliError::Setting { what });
        if self.follow {
            let besides = "--follow goes with --plot, with --tensorboard, or with both";
            if self.plot.is_none() && self.tensorboard.is_none() {
                return refused(format!("{besides}, which it writes again until the jobs are over"));
            }
            if self.csv.is_some() {
                return refused(format!(
                    "{besides}, and not with --csv: run that by itself when the jobs are over"
                ));
            }
            if !self.from.is_empty() {
                return refused(format!("{besides}, and not with --from: what a file holds does not change"));
            }
        }
        if self.json && self.csv_on_stdout() {
            return refused("--json and --csv - both take stdout".to_owned());
        }
        if self.csv.is_some() && self.csv == self.plot {
            return refused("--plot and --csv name the same file".to_owned());
        }
        Ok(())
    }

    fn csv_on_stdout(&self) -> bool {
        self.csv.as_ref().is_some_and(|path| path.as_os_str() == "-")
    }

    fn csv_of(&self, trainings: &[Training]) -> String {
        if self.evaluations { csv::evaluations(trainings) } else { csv::points(trainings) }
    }
}

pub(crate) fn run(args: &MetricsArgs) -> Result<(), Failure> {
    log_as_command();
    args.check()?;
    let (trainings, is_comparison, refused) = block_on(async {
        let sources = Sources::open(args).await?;
        let (mut trainings, refused) = load(&sources).await?;
        let mut files = Files::of(args);
        files.write(&trainings)?;
        if args.follow {
            // The command may go on for days until it ends with that.
            refused.iter().for_each(|failure| say(&failure.to_string()));
            follow::until_over(&sources, &mut trainings, |now| files.write(now)).await?;
        }
        files.say();
        Ok((trainings, sources.names().count() > 1, refused))
    })?;
    show(args, &trainings, is_comparison)?;
    refused.map_or(Ok(()), Err)
}

/// Loads all trainings. Where one of several cannot be, the others are shown all the same, and why it is not
/// is told: the last reason is returned.
async fn load(sources: &Sources) -> Result<(Vec<Training>, Option<Failure>), Failure> {
    let (mut trainings, mut refused) = (Vec::new(), None::<Failure>);
    for name in sources.names() {
        match sources.load(name).await {
            Ok(training) => trainings.push(training),
            Err(failure) if matches!(failure.exit(), Exit::JobFailed | Exit::Usage) => {
                if let Some(other) = refused.replace(failure) {
                    say(&other.to_string());
                }
            }
            Err(failure) => return Err(failure),
        }
    }
    match refused {
        Some(failure) if trainings.is_empty() => Err(failure),
        refused => Ok((trainings, refused)),
    }
}

/// `is_comparison`: several were asked for, however many can be shown.
fn show(args: &MetricsArgs, trainings: &[Training], is_comparison: bool) -> Result<(), Failure> {
    if let Some(path) = &args.csv {
        let text = args.csv_of(trainings);
        if args.csv_on_stdout() {
            return print(text.trim_end());
        }
        whole_file::replace(path, text.as_bytes())?;
        say(&format!("wrote {} rows to {}", text.lines().count() - 1, path.display()));
    }
    match (trainings, args.json) {
        (all, true) if is_comparison => print_json(&comparison::as_json(all)),
        (all, false) if is_comparison && args.evaluations => print(&one_job::evaluations_of_each(all)),
        (all, false) if is_comparison => {
            comparison::left_out(all).iter().for_each(|what| say(what));
            print(&comparison::in_words(all))
        }
        ([training], true) if args.evaluations => print_json(&training.evaluations),
        ([training], true) => print_json(&training.points),
        (all, _) => all.iter().try_for_each(|training| one_job::show(training, args.evaluations)),
    }
}
