//! `syncline export`: one file of a job, to be read where there is no cluster.

use std::path::{Path, PathBuf};

use serde::Serialize;
use syncline_rpc::{
    JobStream, StreamEntry,
    status::{JobPhase, JobView},
};
use syncline_scheduler::{
    ids::{JobId, JobRef},
    tasks::{TaskIndex, TaskQuery},
};
use syncline_workers::client::{Client, ClientError};

use crate::cli::{
    CliError, ConnectionArgs, EngineClock, Exit, Failure, block_on_until_stopped,
    connection::shell_word,
    exported::{Line, STDOUT, Writer},
    log_as_command, print, print_json, say,
};

/// Tasks that are fetched, and held, at a time.
const PAGE_TASKS: u32 = 5_000;

/// Names that end so are those of what a job has learned.
const MODEL_EXTENSIONS: [&str; 3] = ["onnx", "safetensors", "st"];

#[derive(Debug, clap::Args)]
pub struct ExportArgs {
    /// Id of the job, which may be running or over
    job: JobId,
    /// Where to write it, - for stdout; `status`, `tasks`, `events`, `explain` and `metrics` read it with
    /// --from
    file: PathBuf,
    /// Replace a file that is there
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// What is in the file.
#[derive(Debug, Default, Serialize)]
struct Exported {
    job: String,
    file: String,
    /// Of the job when it was asked for.
    state: &'static str,
    bytes: u64,
    events: u64,
    /// Of the loss curve of a training.
    points: u64,
    evaluations: u64,
    /// General tasks.
    tasks: u64,
    barriers: u64,
    /// Iterations, barriers, clocks and nodes of a training.
    nodes: u64,
}

pub(crate) fn run(args: &ExportArgs) -> Result<(), Failure> {
    log_as_command();
    if let Some(extension) = args.file.extension().filter(|e| MODEL_EXTENSIONS.iter().any(|of| e == of)) {
        return Err(name_of_a_model(args, &extension.to_string_lossy()));
    }
    let on_stdout = args.file == Path::new(STDOUT);
    if on_stdout && args.json {
        return Err(CliError::Setting { what: "--json and - both take stdout".to_owned() }.into());
    }
    let cluster = args.connection.find()?;
    let exported = block_on_until_stopped(async {
        let (client, about) = Client::connect(&cluster).await?;
        export(&client, EngineClock::of(&about), args).await
    })?;
    if args.json {
        return print_json(&exported);
    }
    let Exported { job, file, state, bytes, events, points, evaluations, tasks, barriers, nodes } = exported;
    let held = match tasks {
        0 => {
            format!(
                "{points} points, {evaluations} evaluations, {barriers} barriers, {nodes} of its own tasks"
            )
        }
        _ => format!("{tasks} tasks"),
    };
    match on_stdout {
        true => say(&format!("{job} ({state}), {events} events, {held}, {bytes} bytes")),
        false => print(&format!("{job} ({state}), {events} events, {held} in {file}, {bytes} bytes"))?,
    }
    Ok(())
}

/// Somebody wants what a job has learned, and this command writes what it went through.
fn name_of_a_model(args: &ExportArgs, extension: &str) -> Failure {
    let (job, file) = (&args.job, shell_word(&args.file.display().to_string()));
    let text = format!(
        "[E538] `syncline export` writes what happened to a job, and .{extension} is for models and weights"
    );
    let hint = format!(
        "`syncline model export {job} {file}` writes what it has learned; name this file otherwise, such as {job}.export"
    );
    Failure::new(Exit::Usage, text, hint)
}

async fn export(client: &Client, clock: EngineClock, args: &ExportArgs) -> Result<Exported, Failure> {
    let record = client.record(&args.job).await?;
    let job = JobView::read(&record).map_err(ClientError::from)?.job;
    let mut to = Writer::create(&args.file, args.force, &args.job, clock.now_ms())?;
    let mut exported = Exported {
        job: job.id.to_string(),
        file: args.file.display().to_string(),
        state: job.state.word(),
        ..Exported::default()
    };
    to.line(&Line::Job(record))?;
    exported.events = stream(client, &args.job, JobStream::Events, Line::Event, &mut to).await?;
    match (job.state, job.tasks) {
        // Nothing more of it can be read.
        (JobPhase::Damaged, _) => {}
        (_, Some(_)) => exported.tasks = tasks(client, &job.job_ref(), &mut to).await?,
        (_, None) => {
            exported.points = stream(client, &args.job, JobStream::Metrics, Line::Point, &mut to).await?;
            exported.evaluations =
                stream(client, &args.job, JobStream::Evaluations, Line::Evaluation, &mut to).await?;
            let kept = client.explain_kept(&args.job).await?;
            (exported.barriers, exported.nodes) = (kept.barriers.len() as u64, kept.tasks.len() as u64);
            let barriers = kept.barriers.into_iter().map(Line::Barrier);
            barriers.chain(kept.tasks.into_iter().map(Line::Node)).try_for_each(|line| to.line(&line))?;
        }
    }
    // Streams are read by the name: by now they may be those of another job.
    client.is_over(&job.job_ref()).await?;
    exported.bytes = to.finish()?;
    Ok(exported)
}

/// Writes all that is kept of a stream; how many entries.
async fn stream(
    client: &Client,
    job: &JobId,
    stream: JobStream,
    line: fn(StreamEntry) -> Line,
    to: &mut Writer,
) -> Result<u64, Failure> {
    let entries = client.stream_entries(job, stream, None).await?;
    let count = entries.len() as u64;
    entries.into_iter().map(line).try_for_each(|line| to.line(&line))?;
    Ok(count)
}

/// Writes all general tasks of a job, page by page; how many.
async fn tasks(client: &Client, job: &JobRef, to: &mut Writer) -> Result<u64, Failure> {
    let mut query = TaskQuery { limit: PAGE_TASKS, ..TaskQuery::default() };
    let mut tasks = 0;
    loop {
        let page = client.tasks_of(job, &query).await?;
        let Some(last) = page.last() else { return Ok(tasks) };
        query.first = TaskIndex(last.task.0 + 1);
        tasks += page.len() as u64;
        page.into_iter().map(Line::Task).try_for_each(|line| to.line(&line))?;
    }
}
