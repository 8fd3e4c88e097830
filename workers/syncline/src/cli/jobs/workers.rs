//! `syncline workers`: all live workers in a table.

use std::time::Duration;

use syncline_rpc::status::{LiveWorker, SILENCE_SHOWN_AFTER};
use syncline_workers::client::Client;

use crate::cli::{
    ConnectionArgs, Failure, block_on, log_as_command, one_line, print, print_json, say, table,
};

#[derive(Debug, clap::Args)]
pub struct WorkersArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// One JSON array on stdout
    #[arg(long)]
    json: bool,
}

const COLUMNS: [&str; 11] = [
    "worker",
    "id",
    "host",
    "device",
    ">process",
    ">slot",
    "trains",
    "shards by",
    ">tasks",
    ">stopping",
    "waits for",
];

pub(crate) fn run(args: &WorkersArgs) -> Result<(), Failure> {
    log_as_command();
    let cluster = args.connection.find()?;
    let (workers, jobs) = block_on(async {
        let (client, _) = Client::connect(&cluster).await?;
        Ok((client.workers().await?, client.list_jobs(Some(0)).await?.jobs))
    })?;
    if args.json {
        return print_json(&workers);
    }
    if workers.is_empty() {
        say("no workers; `syncline worker` starts one");
    }
    let row = |worker: &LiveWorker| {
        vec![
            worker.name.clone(),
            worker.id.to_string(),
            worker.host.clone(),
            worker.device.clone(),
            worker.pid.to_string(),
            worker.training_slot.to_string(),
            worker.training_job.clone().unwrap_or_default(),
            worker.transport.clone().unwrap_or_default(),
            worker.holding.to_string(),
            worker.stopping.to_string(),
            waits_for(worker),
        ]
    };
    let table = table(&COLUMNS, &workers.iter().map(row).collect::<Vec<_>>());
    let excluded = jobs.iter().filter(|job| !job.is_over()).filter_map(|job| {
        Some(format!("\njob {} is not offered for now to {}", job.id, one_line(job.excluded.as_ref()?)))
    });
    print(&excluded.fold(table, |text, line| text + &line))
}

/// What its pull waits for, or that nothing is heard of it.
fn waits_for(worker: &LiveWorker) -> String {
    let silent_for = Duration::from_millis(worker.silent_ms);
    match silent_for > SILENCE_SHOWN_AFTER {
        true => format!("a sign of life, for {:.1} s", silent_for.as_secs_f64()),
        false => worker.blocked_on.clone().unwrap_or_default(),
    }
}
