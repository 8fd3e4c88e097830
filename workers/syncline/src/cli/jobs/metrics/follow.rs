//! Looks again and again at trainings until they are over.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use syncline_rpc::status::JobPhase;

use super::{Training, sources::Sources};
use crate::cli::{CliError, Exit, Failure, jobs::problem::Problem, say};

/// Pause between two looks.
const PAUSE: Duration = Duration::from_secs(2);

/// Loads trainings again and shows them until all are over. While the engine is away, has trouble with Redis,
/// or has just taken the lead and does not know a job, or what is shown cannot be written, it says so and
/// goes on; a job that was deleted, or submitted
/// anew, stays as it was last seen.
pub(super) async fn until_over(
    sources: &Sources,
    trainings: &mut [Training],
    mut show: impl FnMut(&[Training]) -> Result<(), CliError>,
) -> Result<(), Failure> {
    let (mut unseen, mut unwritten) = (Problem::default(), Problem::default());
    let is_over = |of: &Training| of.job.is_over();
    let mut seen = vec![Instant::now(); trainings.len()];
    let mut open: BTreeSet<usize> = (0..trainings.len()).filter(|n| !is_over(&trainings[*n])).collect();
    if open.is_empty() {
        return Ok(());
    }
    say("written again every 2 s until all is over; Ctrl-C ends it");
    loop {
        tokio::time::sleep(PAUSE).await;
        for n in open.clone() {
            match sources.load(&trainings[n].name).await {
                Ok(now) => {
                    unseen.passed();
                    seen[n] = Instant::now();
                    if now.job.state == JobPhase::Damaged {
                        let reason = now.job.reason.as_deref().unwrap_or_default();
                        say(&format!("job {} is damaged: {reason}", now.job.id));
                        open.remove(&n);
                        continue;
                    }
                    if now.job.submitted_ms != trainings[n].job.submitted_ms {
                        say(&format!(
                            "job {} was submitted anew: what is shown is the one before",
                            now.job.id
                        ));
                        open.remove(&n);
                        continue;
                    }
                    if is_over(&now) {
                        open.remove(&n);
                    }
                    trainings[n] = now;
                }
                Err(failure) => match failure.exit() {
                    Exit::Unreachable | Exit::Redis => unseen.say(&failure),
                    _ if sources.may_come_back(&failure, seen[n].elapsed()).await => unseen.say(&failure),
                    Exit::JobFailed => {
                        say(&failure.to_string());
                        open.remove(&n);
                    }
                    _ => return Err(failure),
                },
            }
        }
        match show(trainings) {
            Ok(()) => {
                unwritten.passed_with("it is written again");
            }
            Err(error) => {
                let failure = Failure::from(error);
                if open.is_empty() || failure.exit() == Exit::Ok {
                    return Err(failure);
                }
                unwritten.say_line(format!("not written, trying again: {failure}"));
            }
        }
        if open.is_empty() {
            return Ok(());
        }
    }
}
