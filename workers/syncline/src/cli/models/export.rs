//! `syncline model export`: trained parameters back in the user's own forward model, in the form that predicts, or alone.

use std::path::{Path, PathBuf};

use syncline_rpc::status::{JobPhase, JobStatus};
use syncline_scheduler::ids::JobId;
use syncline_workers::{client::Client, export::fill};

use super::{read, write};
use crate::cli::{
    ConnectionArgs, Exit, Failure, block_on_until_stopped, exported::ExportError::Exists, print, say,
};

#[derive(Debug, clap::Args)]
#[command(allow_missing_positional = true)]
pub struct ExportArgs {
    /// A job that wrote a snapshot, or that failed or was canceled and left its last weights; its model and its snapshot come from the parameter server
    #[arg(value_name = "JOB", required_unless_present = "snapshot", conflicts_with = "snapshot")]
    job: Option<JobId>,
    /// Where to write the trained model; of a job, a name that ends with .safetensors gets what was trained alone
    #[arg(value_name = "OUT.onnx")]
    out: PathBuf,
    /// A file of a snapshot or a checkpoint, instead of a job
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
    let wrote = match (&args.job, &args.snapshot, &args.model) {
        (Some(job), ..) => {
            let cluster = args.connection.find()?;
            block_on_until_stopped(async {
                let (client, _) = Client::connect(&cluster).await?;
                let exported = export_job(&client, job, &args.out, args.force).await?;
                warn_if_cut_short(&client.status(job).await?.job);
                Ok::<_, Failure>(exported)
            })?
        }
        (None, Some(snapshot), Some(model)) => {
            let source = snapshot.display().to_string();
            let trained = fill(&read(model)?, &source, &read(snapshot)?)?;
            write(&args.out, &trained.onnx, args.force)?;
            format!("{} parameters of {source}", trained.parameters)
        }
        _ => {
            let hint = "`syncline jobs` lists the jobs";
            return Err(Failure::new(Exit::Usage, "[E500] neither a job nor a snapshot is named", hint));
        }
    };
    print(&format!("{wrote} in {}", args.out.display()))
}

/// Writes what a job has trained, and says what that is.
async fn export_job(client: &Client, job: &JobId, out: &Path, replaces: bool) -> Result<String, Failure> {
    if out.extension().is_some_and(|extension| extension == "safetensors") {
        let weights = client.weights(job).await?;
        write(out, weights.as_bytes(), replaces)?;
        return Ok(format!("the weights of job {job}"));
    }
    let trained = client.trained_model(job).await?;
    write(out, &trained.onnx, replaces)?;
    Ok(format!("{} parameters of job {job}", trained.parameters))
}
