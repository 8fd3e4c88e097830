//! `syncline jobs`: all jobs in a table.

use syncline_engine::status::JobStatus;
use syncline_workers::client::Client;

use crate::cli::{
    ConnectionArgs, Failure, block_on, log_as_command, print, print_json, say, support::describe, table,
};

#[derive(Debug, clap::Args)]
pub struct JobsArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// One JSON array on stdout
    #[arg(long)]
    json: bool,
}

const COLUMNS: &[&str] =
    &["id", "state", "policy", ">epoch", ">samples/s", ">loss", ">workers", ">age", "waits for"];

pub(crate) fn run(args: &JobsArgs) -> Result<(), Failure> {
    log_as_command();
    let cluster = args.connection.find()?;
    let jobs = block_on(async { Ok(Client::connect(&cluster).await?.0.jobs().await?) })?;
    if args.json {
        return print_json(&jobs);
    }
    let row = |job: &JobStatus| {
        let speed = describe::samples_per_s_lately(job).unwrap_or(job.samples_per_s);
        vec![
            job.id.to_string(),
            job.state.word().to_owned(),
            job.policy.clone(),
            describe::epoch(job),
            format!("{speed:.1}"),
            describe::loss(job).unwrap_or_default(),
            job.workers.to_string(),
            describe::age(job),
            describe::waits_for(job),
        ]
    };
    let rows: Vec<Vec<String>> = jobs.iter().map(row).collect();
    if rows.is_empty() {
        say("no jobs yet; `syncline submit JOB.toml` submits one");
    }
    print(&table(COLUMNS, &rows))
}
