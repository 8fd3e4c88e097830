//! `syncline watch`: follows a job until it is over.

use std::{
    io::{self, IsTerminal},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};
use syncline_rpc::status::JobView;
use syncline_scheduler::{
    ids::{JobId, JobRef},
    tasks::{TaskQuery, TaskState, TaskView},
};
use syncline_workers::client::{Client, ClientError, Patience};

use super::problem::Problem;
use crate::cli::{
    ConnectionArgs, EngineClock, Failure, block_on, log_as_command, one_line, print, print_json,
    support::{describe, describe_job},
};

/// Pause between two looks.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How long the engine's clock is taken to go on with ours: either may be set, and another engine may lead.
const CLOCK_INTERVAL: Duration = Duration::from_secs(60);
/// Pause between two lines when nobody sits at a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
pub struct WatchArgs {
    /// Id of the job
    job: JobId,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Nothing but one JSON object on stdout, when the job is over
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &WatchArgs) -> Result<(), Failure> {
    log_as_command();
    let cluster = args.connection.find()?;
    block_on(async {
        let (client, about) = Client::connect(&cluster).await?;
        follow(&client, EngineClock::of(&about), args.job.clone().into(), args.json).await
    })
}

/// Shows the progress of a job until it is over and its last weights are kept; an error if it did not end
/// well. While the engine is away, or has trouble with Redis, it says so and goes on. It keeps to the job of
/// its first look: what becomes of another one that takes the name is none of its business.
///
/// On a terminal one line that moves, elsewhere a line a second on stdout; the result on stdout at the end.
pub async fn follow(
    client: &Client,
    mut clock: EngineClock,
    mut job: JobRef,
    json: bool,
) -> Result<(), Failure> {
    let mut display = match (json, io::stderr().is_terminal() && io::stdout().is_terminal()) {
        (true, _) => Display::Silent { problem: Problem::default() },
        (false, true) => Display::bar(),
        (false, false) => Display::Lines { last: None, problem: Problem::default() },
    };
    let mut clock_until = Instant::now() + CLOCK_INTERVAL;
    let mut calls = CallProgress::default();
    let mut seen: Option<Instant> = None;
    let view = loop {
        match client.status_once(&job).await {
            Ok(view) => {
                seen = Some(Instant::now());
                job.nonce = job.nonce.or(view.job.nonce);
                if Instant::now() >= clock_until {
                    clock = asked_again(client).await.unwrap_or(clock);
                    clock_until = Instant::now() + CLOCK_INTERVAL;
                }
                calls.look(client, &view).await;
                display.show(&view, &calls.line, clock.now_ms())?;
                if view.job.is_settled() {
                    break view;
                }
            }
            // The job may still run, so watching goes on until the user ends it.
            Err(error) if error.is_passing() || may_come_back(client, &error, seen).await => {
                // The engine that answers next may be another one.
                clock_until = Instant::now();
                display.problem(&Failure::from(error));
            }
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    };
    display.close();
    if json {
        print_json(&view)?
    } else {
        print(&describe_job::job(&view, None, clock.now_ms()))?
    }
    Ok(ClientError::of_outcome(&view.job)?)
}

/// Whether a job that was seen may be there though it is not known.
async fn may_come_back(client: &Client, error: &ClientError, seen: Option<Instant>) -> bool {
    match seen {
        Some(seen) => client.may_come_back(error, seen.elapsed()).await,
        None => false,
    }
}

/// How far a call says it is, of a graph of which some run.
#[derive(Default)]
struct CallProgress {
    asked: Option<Instant>,
    /// Empty where none says so.
    line: String,
}

impl CallProgress {
    /// Asks what workers have told, as often as they tell it. Where nobody answers, it stays as it was.
    async fn look(&mut self, client: &Client, view: &JobView) {
        let job = &view.job;
        if job.tasks.as_ref().is_none_or(|counts| counts.leased == 0) {
            return self.line.clear();
        }
        if self.asked.is_some_and(|asked| asked.elapsed() < LINE_INTERVAL) {
            return;
        }
        self.asked = Some(Instant::now());
        let client = client.clone().with_patience(Patience::all(Duration::ZERO));
        let query = TaskQuery { state: Some(TaskState::Leased), ..TaskQuery::default() };
        if let Ok(views) = client.tasks(&job.id, &query).await {
            self.line = longest_with_progress(&views).unwrap_or_default();
        }
    }
}

/// Of the tasks that say how far they are, the one that has run longest.
fn longest_with_progress(views: &[TaskView]) -> Option<String> {
    let telling = views.iter().filter_map(|view| Some((view, view.progress.as_ref()?)));
    let (view, progress) = telling.min_by_key(|(view, _)| view.running_since_ms)?;
    let name = view.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
    Some(format!("task {}{name}: {}", view.task, one_line(&progress.to_string())))
}

/// The clock of the engine that leads now; `None` if it does not answer, which the next look at the job finds
/// out.
async fn asked_again(client: &Client) -> Option<EngineClock> {
    let client = client.clone().with_patience(Patience::all(Duration::ZERO));
    client.engine().await.ok().map(|about| EngineClock::of(&about))
}

enum Display {
    Silent { problem: Problem },
    Bar(ProgressBar),
    Lines { last: Option<(Instant, String)>, problem: Problem },
}

impl Display {
    fn bar() -> Self {
        let bar = ProgressBar::new(1);
        // The template is fixed, so it cannot be wrong; without it the bar would still be one.
        if let Ok(style) = ProgressStyle::with_template("{bar:16.cyan/blue} {percent:>3} %  {msg}") {
            bar.set_style(style);
        }
        Self::Bar(bar)
    }

    /// Says once what is wrong, for as long as it is.
    fn problem(&mut self, failure: &Failure) {
        match self {
            Self::Bar(bar) => bar.set_message(one_line(&Problem::line(failure)).into_owned()),
            Self::Silent { problem } | Self::Lines { problem, .. } => problem.say(failure),
        }
    }

    fn show(&mut self, view: &JobView, calls: &str, now_ms: u64) -> Result<(), Failure> {
        let job = &view.job;
        let mut line = describe::progress(view, now_ms);
        if !calls.is_empty() {
            line += &format!("  {calls}");
        }
        match self {
            Self::Silent { problem } => {
                problem.passed();
                Ok(())
            }
            Self::Bar(bar) => {
                let (done, all) = describe::share(job);
                bar.set_length(all.max(1));
                bar.set_position(done);
                bar.set_message(line);
                Ok(())
            }
            Self::Lines { last, problem } => {
                if problem.passed() {
                    *last = None;
                }
                let due = |(at, said): &(Instant, String)| {
                    *said != line && (at.elapsed() >= LINE_INTERVAL || job.is_over())
                };
                if last.as_ref().is_none_or(due) {
                    print(&line)?;
                    *last = Some((Instant::now(), line));
                }
                Ok(())
            }
        }
    }

    fn close(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}
