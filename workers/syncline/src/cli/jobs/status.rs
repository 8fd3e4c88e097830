//! `syncline status`: one job with its workers.

use syncline_scheduler::ids::JobId;
use syncline_workers::client::Client;

use crate::cli::{ConnectionArgs, Failure, block_on, log_as_command, print, print_json, support::describe};

#[derive(Debug, clap::Args)]
pub struct StatusArgs {
    /// Id of the job
    job: JobId,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &StatusArgs) -> Result<(), Failure> {
    log_as_command();
    let cluster = args.connection.find()?;
    let (view, about) = block_on(async {
        let (client, about) = Client::connect(&cluster).await?;
        Ok((client.status(&args.job).await?, about))
    })?;
    if args.json {
        return print_json(&view);
    }
    let look = describe::redis_commands(&view.job, &args.connection.redis_cli(&about.redis));
    print(&format!("{}\n\nlook at it with\n{look}", describe::job(&view)))
}
