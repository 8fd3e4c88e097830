//! `syncline events`: what happened to a job.

use std::{
    fmt::Write,
    time::{Duration, UNIX_EPOCH},
};

use syncline_rpc::{
    StreamCursor,
    status::{Entry, JobEvent},
};
use syncline_scheduler::ids::JobId;
use syncline_workers::client::{Client, JobNews, Patience};

use super::{
    problem::Problem,
    source::{Source, SourceArgs},
};
use crate::cli::{Failure, block_on, log_as_command, one_line, print, print_json, print_json_line, say};

/// Pause before the engine is asked again that did not answer.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

#[derive(Debug, clap::Args)]
pub struct EventsArgs {
    /// Id of the job. With --from it may be left out
    #[arg(required_unless_present = "from")]
    job: Option<JobId>,
    /// Go on with what happens from now on, until the job is over
    #[arg(long, conflicts_with = "from")]
    follow: bool,
    /// Only what came after this position: `cursor` of an entry that was printed with --json
    #[arg(long, value_name = "CURSOR")]
    after: Option<StreamCursor>,
    #[command(flatten)]
    source: SourceArgs,
    /// One JSON array on stdout; with --follow one JSON object a line
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &EventsArgs) -> Result<(), Failure> {
    log_as_command();
    block_on(async {
        let (source, job) = args.source.open(args.job.as_ref()).await?;
        if !args.follow {
            let entries = source.events(&job, args.after).await?;
            return if args.json { print_json(&entries) } else { show(&entries, false) };
        }
        match &source {
            Source::Engine { client, .. } => follow(client, &job, args).await,
            // The command line takes no file where it follows.
            Source::File(_) => Ok(()),
        }
    })
}

/// Shows what happens until the job is over. While the engine is away, has trouble with Redis, or has just
/// taken the lead and does not know the job, it says so and goes on.
async fn follow(client: &Client, job: &JobId, args: &EventsArgs) -> Result<(), Failure> {
    // What is wrong is said at once, and the engine is asked again here.
    let client = client.clone().with_patience(Patience::all(Duration::ZERO));
    let (mut events, mut problem) = (client.watch(job, args.after), Problem::default());
    loop {
        match events.next_while_seen().await {
            Ok(None) => return Ok(()),
            Ok(Some(JobNews::Event(entry))) => {
                problem.passed();
                show(&[*entry], args.json)?;
            }
            Ok(Some(_)) => say("events are missing here: a job keeps its newest 200"),
            Err(error) if error.is_passing() || events.may_come_back(&error).await => {
                problem.say(&error.into());
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn show(entries: &[Entry<JobEvent>], json: bool) -> Result<(), Failure> {
    entries.iter().try_for_each(|entry| match json {
        true => print_json_line(entry),
        false => print(&in_words(&entry.value)),
    })
}

/// A moment as people and programs read it.
pub(super) fn moment(at_ms: u64) -> String {
    let mut text = String::new();
    // RFC 3339 cannot write what comes later.
    match write!(text, "{}", humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(at_ms))) {
        Ok(()) => text,
        Err(_) => "after the year 9999".to_owned(),
    }
}

/// When, what, and whatever else is known of it, in one line.
fn in_words(event: &JobEvent) -> String {
    let fields = serde_json::to_value(event).unwrap_or_default();
    let what = fields["what"].as_str().unwrap_or_default().to_owned();
    let known = fields.as_object().into_iter().flatten().filter_map(|(name, value)| {
        let is_known = !value.is_null() && !["what", "at_ms", "until_ms"].contains(&name.as_str());
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        (is_known && !text.is_empty()).then(|| format!("  {name} {}", one_line(&text)))
    });
    let line = known.fold(format!("{}  {what}", moment(event.at_ms)), |line, field| line + &field);
    match event.until_ms {
        Some(until_ms) => format!("{line}  until {}", moment(until_ms)),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_behind_the_year_9999_is_said_in_words() {
        assert_eq!(moment(253_402_300_799_999), "9999-12-31T23:59:59.999Z");
        for at_ms in [253_402_300_800_000, u64::MAX] {
            assert_eq!(moment(at_ms), "after the year 9999");
        }
    }

    #[test]
    fn an_event_is_a_line_of_what_is_known() {
        let event =
            r#"{"what": "training_begun", "at_ms": 1500, "task": "3 `rate-3`", "training": "sweep~3"}"#;
        let event: JobEvent = serde_json::from_str(event).unwrap();
        let line = "1970-01-01T00:00:01.500Z  training_begun  task 3 `rate-3`  training sweep~3";
        assert_eq!(in_words(&event), line);
        let event = r#"{"what": "canceling", "at_ms": 0, "until_ms": 10000, "reason": "too slow"}"#;
        let event: JobEvent = serde_json::from_str(event).unwrap();
        let line = "1970-01-01T00:00:00.000Z  canceling  reason too slow  until 1970-01-01T00:00:10.000Z";
        assert_eq!(in_words(&event), line);
        let event = r#"{"what": "task_failed", "at_ms": 0, "reason": "left: 1\nright: 2"}"#;
        let event: JobEvent = serde_json::from_str(event).unwrap();
        assert_eq!(in_words(&event), "1970-01-01T00:00:00.000Z  task_failed  reason left: 1 | right: 2");
    }
}
