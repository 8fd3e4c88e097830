//! `syncline model export`: trained parameters back in the user's own forward model, in the form that predicts.

use std::path::PathBuf;

use syncline_rpc::status::{JobPhase, JobStatus};
use syncline_scheduler::ids::JobId;
use syncline_workers::{client::Client, export::fill};

use super::{read, write};
use crate::cli::{ConnectionArgs, Exit, Failure, block_on, exported::ExportError::Exists, print, say};

#[derive(Debug, clap::Args)]
#[command(allow_missing_positional = true)]
pub struct ExportArgs {
    /// A job that wrote a snapshot; its model and its snapshot come from the parameter server
    #[arg(value_name = "JOB", required_unless_present = "snapshot", conflicts_with = "snapshot")]
    job: Option<JobId>,
    /// Where to write the trained model
    #[arg(value_name = "OUT.onnx")]
    out: PathBuf,
    /// A snapshot file instead of a job's
    #[arg(long, value_name = "FILE", requires = "model")]
    snapshot: Option<PathBuf>,
    /// The forward model that was trained, with --snapshot
    #[arg(long, value_name = "FILE", requires = "snapshot")]
    model: Option<PathBuf>,
    /// Replace a file that is there
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// The last weights of a job that did not come to its end may be anything.
fn warn_if_cut_short(job: &JobStatus) {
    if let (JobPhase::Failed | JobPhase::Canceled, Some(outcome)) = (job.state, job.outcome()) {
        say(&format!("job {} is {outcome}; these are its last weights", job.id));
    }
}

pub(crate) fn run(args: &ExportArgs) -> Result<(), Failure> {
    if args.out.symlink_metadata().is_ok() && !args.force {
        return Err(Exists { path: args.out.clone() }.into());
    }
    let (source, trained) = match (&args.job, &args.snapshot, &args.model) {
        (Some(job), ..) => {
            let cluster = args.connection.find()?;
            let model = block_on(async {
                let (client, _) = Client::connect(&cluster).await?;
                let model = client.trained_model(job).await?;
                warn_if_cut_short(&client.status(job).await?.job);
                Ok(model)
            })?;
            (format!("job {job}"), model)
        }
        (None, Some(snapshot), Some(model)) => {
            let source = snapshot.display().to_string();
            let trained = fill(&read(model)?, &source, &read(snapshot)?)?;
            (source, trained)
        }
        _ => {
            let hint = "`syncline jobs` lists the jobs";
            return Err(Failure::new(Exit::Usage, "[E500] neither a job nor a snapshot is named", hint));
        }
    };
    write(&args.out, &trained.onnx)?;
    print(&format!("{} parameters of {source} in {}", trained.parameters, args.out.display()))
}
