//! A job in a line, and the words that it is made of.

use syncline_rpc::status::{JobPhase, JobStatus, JobView};
use syncline_scheduler::core::significant;

use super::{
    describe_evaluations::{best_in_short, test, validation},
    describe_lines::{Line, UNKNOWN},
    describe_tasks,
};
use crate::cli::one_line;

/// After this long without a new sample the speed lately is none.
const STALE_AFTER_MS: u64 = 10_000;

/// Samples per second over the last seconds; nothing unless it trains.
pub(crate) fn samples_per_s_lately(job: &JobStatus, now_ms: u64) -> Option<f64> {
    let lately = job.samples_per_s_lately?;
    // The engine writes a job when something happens to it: the figure of one that stands still is old.
    let still = now_ms.saturating_sub(job.progress_ms) > STALE_AFTER_MS;
    Some(if still { 0.0 } else { lately })
}

/// What the job waits for, and what is wrong with the cluster, in words.
pub(crate) fn obstacles(view: &JobView) -> Vec<(&'static str, String)> {
    // What goes on from a job that is done would go on from a checkpoint before its end; one that failed or
    // was canceled had no more.
    let matters = !view.job.is_over() || view.job.state == JobPhase::Done;
    let checkpoints = view.job.checkpoint_problem.iter().filter(|_| matters);
    let checkpoints =
        checkpoints.map(|why| ("problem", format!("the last checkpoint could not be kept: {why}")));
    if view.job.is_over() {
        return weights(&view.job).into_iter().chain(checkpoints).collect();
    }
    let waits = view.job.waiting_for.iter().map(|text| ("waits for", text.clone()));
    waits.chain(view.notes.iter().map(|note| ("problem", note.clone()))).chain(checkpoints).collect()
}

/// What keeps the last weights of a job that is over from being there, in words.
fn weights(job: &JobStatus) -> Option<Line> {
    match (&job.weights_lost, &job.weights_problem) {
        (Some(why), _) => Some(("problem", format!("its last weights are lost: {why}"))),
        (None, Some(why)) => Some(("problem", format!("its last weights are not written yet: {why}"))),
        (None, None) => {
            job.weights_pending.then(|| ("waits for", "its last weights to be written".to_owned()))
        }
    }
}

/// The same in one cell of a table, or why it has failed.
pub(crate) fn waits_for(job: &JobStatus) -> String {
    let failed = matches!(job.state, JobPhase::Damaged | JobPhase::Failed);
    let reason = job.coded_reason().filter(|_| failed);
    let told = job.waiting_for.iter().chain(&job.problem).filter(|_| !job.is_over());
    let weights = weights(job).map(|(_, text)| text);
    reason.into_iter().chain(told.cloned()).chain(weights).collect::<Vec<_>>().join("; ")
}

/// What a job does: the policy of one that trains.
pub(crate) fn work(job: &JobStatus) -> String {
    if job.tasks.is_some() { "tasks".to_owned() } else { job.policy.clone() }
}

/// How far it is: `epoch 3/20`, `57/100 tasks`.
pub(crate) fn extent(job: &JobStatus) -> String {
    match &job.tasks {
        Some(counts) => describe_tasks::extent(counts),
        None => format!("epoch {}", epoch(job)),
    }
}

/// How much of how much is behind it, for a bar.
pub(crate) fn share(job: &JobStatus) -> (u64, u64) {
    match &job.tasks {
        Some(counts) => (counts.ended(), counts.total),
        None => (job.samples_applied, job.samples_total),
    }
}

/// `3/20`, the epoch that runs of all; `0/20` before the first. Of a job that is over, those that are
/// complete.
pub(super) fn epoch(job: &JobStatus) -> String {
    match job.state {
        JobPhase::Damaged => UNKNOWN.to_owned(),
        phase if phase.is_over() => format!("{}/{}", job.epochs_complete, job.epochs),
        _ if job.started_ms.is_none() => format!("{}/{}", job.epoch, job.epochs),
        _ => format!("{}/{}", job.epoch.saturating_add(1).min(job.epochs), job.epochs),
    }
}

/// The newest loss of a job.
pub(crate) fn loss(job: &JobStatus) -> Option<String> {
    job.loss.map(significant)
}

/// The line of progress that `watch` shows: epoch, samples/s, loss, next barrier, or tasks by state, and what
/// stands in the way.
pub(crate) fn progress(view: &JobView, now_ms: u64) -> String {
    let obstacles = obstacles(view).into_iter().map(|(what, text)| format!("{what}: {}", one_line(&text)));
    std::iter::once(progress_alone(&view.job, now_ms)).chain(obstacles).collect::<Vec<_>>().join("  ")
}

/// The same without what stands in the way.
pub(crate) fn progress_alone(job: &JobStatus, now_ms: u64) -> String {
    let progress = match &job.tasks {
        Some(counts) => describe_tasks::progress(job, counts, now_ms),
        None => training_progress(job, now_ms),
    };
    std::iter::once(job.state.word().to_owned()).chain(progress).collect::<Vec<_>>().join("  ")
}

fn training_progress(job: &JobStatus, now_ms: u64) -> Vec<String> {
    let speed = samples_per_s_lately(job, now_ms).unwrap_or(job.samples_per_s);
    let loss = loss(job).map(|loss| format!("loss {loss}"));
    let barrier = job.next_barrier.as_ref().filter(|_| !job.is_over());
    let barrier = barrier.map(|next| format!("next barrier {next}"));
    let validation = validation(job).map(|validation| format!("validation {validation}"));
    let best = best_in_short(job).filter(|_| !job.is_over());
    let test = test(job).map(|test| format!("test {test}"));
    let stopped = job.stopped_early.as_ref().map(|why| format!("stopped early: {why}"));
    [extent(job), format!("{speed:.1} samples/s")]
        .into_iter()
        .chain(loss)
        .chain(validation)
        .chain(test)
        .chain(best)
        .chain(stopped)
        .chain(barrier)
        .collect()
}

#[cfg(test)]
pub(in crate::cli) mod tests {
    use super::*;

    /// A job `a` that runs, and of which these fields are known besides, or otherwise.
    pub(in crate::cli) fn job(fields: &[(&str, &str)]) -> JobStatus {
        let known = [("id", "a"), ("state", "running")];
        let fields =
            known.iter().chain(fields).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        JobStatus::read(&fields.collect()).unwrap()
    }

    #[test]
    fn progress_names_what_is_known() {
        let known = [("epoch", "0"), ("epochs", "3"), ("samples_per_s", "9.5")];
        let mut view = JobView { job: job(&known), workers: Vec::new(), notes: Vec::new() };
        assert_eq!(progress(&view, 0), "running  epoch 0/3  9.5 samples/s", "nothing has begun");
        view.job.started_ms = Some(1);
        assert_eq!(progress(&view, 0), "running  epoch 1/3  9.5 samples/s");
        view.job.loss = Some(0.5);
        view.job.next_barrier = Some("2: planning".into());
        let line = "running  epoch 1/3  9.5 samples/s  loss 0.500000  next barrier 2: planning";
        assert_eq!(progress(&view, 0), line);
        view.job.waiting_for = Some("room on the disk".into());
        view.notes.push("shard 1 is silent".into());
        assert!(progress(&view, 0).ends_with("  waits for: room on the disk  problem: shard 1 is silent"));
        (view.job.state, view.job.epoch, view.job.epochs_complete) = (JobPhase::Done, 2, 2);
        assert_eq!(progress(&view, 0), "done  epoch 2/3  9.5 samples/s  loss 0.500000");
    }

    #[test]
    fn a_table_says_what_a_job_waits_for_and_what_stops_every_job() {
        let mut job = job(&[("waiting_for", ""), ("problem", "")]);
        assert_eq!(waits_for(&job), "");
        job.problem = Some("Redis takes no writes".into());
        assert_eq!(waits_for(&job), "Redis takes no writes");
        job.waiting_for = Some("room on the disk".into());
        assert_eq!(waits_for(&job), "room on the disk; Redis takes no writes");
        job.state = JobPhase::Done;
        assert_eq!(waits_for(&job), "");
    }

    #[test]
    fn weights_of_a_job_that_is_over_are_a_problem_until_they_are_written_table() {
        #[rustfmt::skip]
        let cases = [
            ("false", "",            "",            ""),
            ("true",  "",            "",            "waits for: its last weights to be written"),
            ("true",  "[E406] full", "",            "problem: its last weights are not written yet: [E406] full"),
            ("false", "",            "[E402] gone", "problem: its last weights are lost: [E402] gone"),
        ];
        for (pending, problem, lost, want) in cases {
            let known = [("state", "done"), ("weights_pending", pending)];
            let job = job(&[&known[..], &[("weights_problem", problem), ("weights_lost", lost)]].concat());
            assert!(want.ends_with(&waits_for(&job)), "{want}: {}", waits_for(&job));
            let view = JobView { job, workers: Vec::new(), notes: Vec::new() };
            let told: Vec<_> =
                obstacles(&view).into_iter().map(|(what, text)| format!("{what}: {text}")).collect();
            assert_eq!(told.join(""), want);
        }
    }

    #[test]
    fn a_checkpoint_that_could_not_be_kept_is_told_of_while_it_matters_table() {
        for (state, is_told) in [("running", true), ("done", true), ("failed", false), ("canceled", false)] {
            let job = job(&[("state", state), ("checkpoint_problem", "[E406] full")]);
            let told = obstacles(&JobView { job, workers: Vec::new(), notes: Vec::new() });
            let want = ("problem", "the last checkpoint could not be kept: [E406] full".to_owned());
            assert_eq!(told, if is_told { vec![want] } else { vec![] }, "{state}");
        }
    }
}
