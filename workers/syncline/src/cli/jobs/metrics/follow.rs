//! Looks again and again at trainings until they are over.

use std::{collections::BTreeSet, time::Duration};

use super::{Training, sources::Sources};
use crate::cli::{Exit, Failure, jobs::problem::Problem, say};

/// Pause between two looks.
const PAUSE: Duration = Duration::from_secs(2);

/// Loads trainings again and shows them until all are over. While the engine is away, or has trouble with Redis, it says so and goes on;
/// a job that was deleted stays as it was last seen.
pub(super) async fn until_over(
    sources: &Sources,
    trainings: &mut [Training],
    mut show: impl FnMut(&[Training]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut problem = Problem::default();
    let is_over = |of: &Training| of.job.is_over();
    let mut open: BTreeSet<usize> = (0..trainings.len()).filter(|n| !is_over(&trainings[*n])).collect();
    if !open.is_empty() {
        say("written again every 2 s until all is over; Ctrl-C ends it");
    }
    while !open.is_empty() {
        tokio::time::sleep(PAUSE).await;
        for n in open.clone() {
            match sources.load(n).await {
                Ok(now) => {
                    problem.passed();
                    if is_over(&now) {
                        open.remove(&n);
                    }
                    trainings[n] = now;
                }
                Err(failure) => match failure.exit() {
                    Exit::Unreachable | Exit::Redis => problem.say(&failure),
                    Exit::JobFailed => {
                        say(&failure.to_string());
                        open.remove(&n);
                    }
                    _ => return Err(failure),
                },
            }
        }
        show(trainings)?;
    }
    Ok(())
}
