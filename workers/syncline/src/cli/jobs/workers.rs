//! `syncline workers`: all live workers in a table.

use syncline_engine::rpc::WorkerFields;

use crate::cli::{
    Connection, Failure, block_on, log_as_command, print, print_json, say, support::describe, table,
};

#[derive(Debug, clap::Args)]
pub struct WorkersArgs {
    #[command(flatten)]
    connection: Connection,
    /// One JSON array on stdout
    #[arg(long)]
    json: bool,
}

/// Fields of a worker in Redis, and how the table calls them.
const COLUMNS: [(&str, &str); 7] = [
    ("name", "worker"),
    ("id", "id"),
    ("host", "host"),
    ("device", "device"),
    ("pid", ">process"),
    ("holding", ">tasks"),
    ("blocked_on", "waits for"),
];

pub(crate) fn run(args: &WorkersArgs) -> Result<(), Failure> {
    log_as_command();
    let cluster = args.connection.find()?;
    let (workers, jobs) = block_on(async {
        let (client, _) = cluster.connect().await?;
        Ok((client.workers().await?, client.jobs().await?))
    })?;
    if args.json {
        return print_json(&workers);
    }
    if workers.is_empty() {
        say("no workers; `syncline worker` starts one");
    }
    let field = |worker: &WorkerFields, name: &str| worker.get(name).cloned().unwrap_or_default();
    let rows: Vec<Vec<String>> =
        workers.iter().map(|worker| COLUMNS.iter().map(|(name, _)| field(worker, name)).collect()).collect();
    let excluded = jobs.iter().filter(|job| !describe::is_over(job)).filter_map(|job| {
        let (id, who) = (describe::field(job, "id"), describe::field(job, "excluded"));
        (!who.is_empty()).then(|| format!("\njob {id} is not offered for now to {who}"))
    });
    print(&excluded.fold(table(&COLUMNS.map(|(_, title)| title), &rows), |text, line| text + &line))
}
