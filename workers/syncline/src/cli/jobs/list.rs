//! `syncline jobs`: all jobs in a table.

use syncline_rpc::status::{JobList, JobStatus};
use syncline_workers::client::Client;

use crate::cli::{
    ConnectionArgs, EngineClock, Failure, block_on, log_as_command, print, print_json, say,
    support::{describe, describe_age::age},
    table,
};

#[derive(Debug, clap::Args)]
pub struct JobsArgs {
    /// Most jobs to list that are over, the newest; without it all of the last seven days
    #[arg(long, value_name = "N")]
    over: Option<u32>,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// One JSON array on stdout
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &JobsArgs) -> Result<(), Failure> {
    log_as_command();
    let cluster = args.connection.find()?;
    let (JobList { jobs, left_out, .. }, now_ms) = block_on(async {
        let (client, about) = Client::connect(&cluster).await?;
        let clock = EngineClock::of(&about);
        Ok((client.list_jobs(args.over).await?, clock.now_ms()))
    })?;
    if left_out > 0 {
        say(&format!("{left_out} older ones are left out"));
    }
    if args.json {
        return print_json(&jobs);
    }
    if jobs.is_empty() && left_out == 0 {
        say("no jobs yet; `syncline submit JOB.toml` submits one");
    }
    print(&in_words(&jobs, now_ms))
}

/// Heading, whether only training fills it, and what stands there at a moment.
type Column = (&'static str, bool, fn(&JobStatus, u64) -> String);

const COLUMNS: [Column; 9] = [
    ("id", false, |job, _| job.id.to_string()),
    ("state", false, |job, _| job.state.word().to_owned()),
    ("work", false, |job, _| describe::work(job)),
    (">progress", false, |job, _| describe::extent(job)),
    (">samples/s", true, |job, now_ms| {
        format!("{:.1}", describe::samples_per_s_lately(job, now_ms).unwrap_or(job.samples_per_s))
    }),
    (">loss", true, |job, _| describe::loss(job).unwrap_or_default()),
    (">workers", false, |job, _| job.workers.to_string()),
    (">age", false, age),
    ("waits for", false, |job, _| describe::waits_for(job)),
];

/// A table without the columns of training if no job trains.
fn in_words(jobs: &[JobStatus], now_ms: u64) -> String {
    let trains = |job: &JobStatus| job.tasks.is_none();
    let training = jobs.is_empty() || jobs.iter().any(trains);
    let shown = COLUMNS.iter().filter(|(_, only_training, _)| training || !only_training);
    let columns: Vec<&str> = shown.clone().map(|(heading, ..)| *heading).collect();
    let row = |job: &JobStatus| {
        let cell = |(_, only_training, text): &Column| match trains(job) || !only_training {
            true => text(job, now_ms),
            false => String::new(),
        };
        shown.clone().map(cell).collect()
    };
    table(&columns, &jobs.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::support::describe::tests::job;

    #[test]
    fn jobs_of_tasks_have_no_columns_of_training() {
        let tasks = job(&[("id", "words"), ("state", "running"), ("tasks_total", "9"), ("tasks_done", "4")]);
        let training = job(&[
            ("id", "digits"),
            ("state", "done"),
            ("policy", "bsp"),
            ("epochs", "3"),
            ("epochs_complete", "3"),
        ]);
        let alone = in_words(std::slice::from_ref(&tasks), 0);
        let lines: Vec<&str> = alone.lines().map(str::trim_end).collect();
        assert_eq!(
            lines,
            [
                "id     state    work    progress  workers  age  waits for",
                "words  running  tasks  4/9 tasks        0    -"
            ]
        );
        let both = in_words(&[tasks, training], 0);
        let lines: Vec<&str> = both.lines().collect();
        assert!(lines[0].contains("samples/s  loss  workers"), "{both}");
        assert!(lines[2].starts_with("digits  done     bsp    epoch 3/3"), "{both}");
    }
}
