//! `syncline delete`: forgets jobs that are over, so that their ids are free again.

use syncline_scheduler::ids::JobId;
use syncline_workers::client::Client;

use crate::cli::{ConnectionArgs, Exit, Failure, block_on, log_as_command, print_json, print_json_line, say};

#[derive(Debug, clap::Args)]
pub struct DeleteArgs {
    /// Id of the job; of several, those that can be deleted are, and why others cannot is told
    #[arg(required = true, value_name = "JOB")]
    jobs: Vec<JobId>,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// One JSON object on stdout; of several jobs one for each, in a line of its own
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &DeleteArgs) -> Result<(), Failure> {
    log_as_command();
    let cluster = args.connection.find()?;
    block_on(async {
        let (client, _) = Client::connect(&cluster).await?;
        let mut refused = None::<Failure>;
        for job in &args.jobs {
            match client.delete(job).await.map_err(Failure::from) {
                Ok(()) => {}
                Err(failure) if failure.exit() == Exit::JobFailed => {
                    if let Some(other) = refused.replace(failure) {
                        say(&other.to_string());
                    }
                    continue;
                }
                Err(failure) => {
                    refused.iter().for_each(|other| say(&other.to_string()));
                    return Err(failure);
                }
            }
            let deleted = serde_json::json!({ "id": job, "state": "deleted" });
            match (args.json, args.jobs.len()) {
                (false, _) => {
                    say(&format!("job {job} is deleted; snapshot files that it wrote stay where they are"))
                }
                (true, 1) => print_json(&deleted)?,
                (true, _) => print_json_line(&deleted)?,
            }
        }
        refused.map_or(Ok(()), Err)
    })
}
