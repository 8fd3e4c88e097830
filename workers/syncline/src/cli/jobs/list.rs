//! `syncline jobs`: all jobs in a table.

use crate::cli::{
    Connection, Failure, block_on, log_as_command, print, print_json, say, support::describe, table,
};

#[derive(Debug, clap::Args)]
pub struct JobsArgs {
    #[command(flatten)]
    connection: Connection,
    /// One JSON array on stdout
    #[arg(long)]
    json: bool,
}

const COLUMNS: &[&str] =
    &["id", "state", "policy", ">epoch", ">samples/s", ">loss", ">workers", ">age", "waits for"];

pub(crate) fn run(args: &JobsArgs) -> Result<(), Failure> {
    log_as_command();
    let cluster = args.connection.find()?;
    let jobs = block_on(async { Ok(cluster.connect().await?.0.jobs().await?) })?;
    if args.json {
        return print_json(&jobs);
    }
    let rows: Vec<Vec<String>> = jobs
        .iter()
        .map(|job| {
            let f = |name| describe::field(job, name).to_owned();
            let (epoch, age) = (describe::epoch(job), describe::age(job));
            let speed = describe::samples_per_s_lately(job).unwrap_or_else(|| f("samples_per_s"));
            let waits = describe::waits_for(job);
            vec![f("id"), f("state"), f("policy"), epoch, speed, f("loss"), f("workers"), age, waits]
        })
        .collect();
    if rows.is_empty() {
        say("no jobs yet; `syncline submit JOB.toml` submits one");
    }
    print(&table(COLUMNS, &rows))
}
