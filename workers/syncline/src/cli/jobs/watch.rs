//! `syncline watch`: follows a job until it is over.

use std::{
    io::{self, IsTerminal},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};
use syncline_rpc::status::JobView;
use syncline_scheduler::ids::JobId;
use syncline_workers::client::{Client, ClientError, Patience};

use super::problem::Problem;
use crate::cli::{
    ConnectionArgs, EngineClock, Failure, block_on, log_as_command, one_line, print, print_json,
    support::describe,
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
        follow(&client, EngineClock::of(&about), &args.job, args.json).await
    })
}

/// Shows the progress of a job until it is over; an error if it did not end well. While the engine is away, or has
/// trouble with Redis, it says so and goes on.
///
/// On a terminal one line that moves, elsewhere a line a second on stdout; the result on stdout at the end.
pub async fn follow(client: &Client, mut clock: EngineClock, job: &JobId, json: bool) -> Result<(), Failure> {
    let mut display = match (json, io::stderr().is_terminal() && io::stdout().is_terminal()) {
        (true, _) => Display::Silent { problem: Problem::default() },
        (false, true) => Display::bar(),
        (false, false) => Display::Lines { last: None, problem: Problem::default() },
    };
    let mut clock_until = Instant::now() + CLOCK_INTERVAL;
    let view = loop {
        match client.status_once(job).await {
            Ok(view) => {
                if Instant::now() >= clock_until {
                    clock = asked_again(client).await.unwrap_or(clock);
                    clock_until = Instant::now() + CLOCK_INTERVAL;
                }
                display.show(&view, clock.now_ms())?;
                if view.job.is_over() {
                    break view;
                }
            }
            // The job may still run, so watching goes on until the user ends it.
            Err(error) if error.is_passing() => {
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
        print(&describe::job(&view, None, clock.now_ms()))?
    }
    Ok(ClientError::of_outcome(&view.job)?)
}

/// The clock of the engine that leads now; `None` if it does not answer, which the next look at the job finds out.
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

    fn show(&mut self, view: &JobView, now_ms: u64) -> Result<(), Failure> {
        let job = &view.job;
        let line = describe::progress(view, now_ms);
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
