//! A job in words.

use syncline_engine::store::keys::JobKeys;
use syncline_rpc::status::{JobPhase, JobStatus, JobView};
use syncline_scheduler::{core::significant, sync::Why};
use syncline_workers::span;

use super::{
    describe_evaluations::{best, best_in_short, test, validation},
    describe_settings, describe_tasks, describe_workers,
};
use crate::cli::one_line;

/// After this long without a new sample the speed lately is none.
const STALE_AFTER_MS: u64 = 10_000;

/// What is shown where a damaged job does not say.
pub(super) const UNKNOWN: &str = "-";

/// Samples per second over the last seconds; nothing unless it trains.
pub(crate) fn samples_per_s_lately(job: &JobStatus, now_ms: u64) -> Option<f64> {
    let lately = job.samples_per_s_lately?;
    // The engine writes a job when something happens to it: the figure of one that stands still is old.
    let still = now_ms.saturating_sub(job.progress_ms) > STALE_AFTER_MS;
    Some(if still { 0.0 } else { lately })
}

/// The speed as a whole line: lately and on average.
fn speed(job: &JobStatus, now_ms: u64) -> String {
    match samples_per_s_lately(job, now_ms) {
        Some(lately) => format!("{lately:.1}/s, on average {:.1}/s", job.samples_per_s),
        None => format!("{:.1}/s", job.samples_per_s),
    }
}

/// What the job waits for, and what is wrong with the cluster, in words.
pub(crate) fn obstacles(view: &JobView) -> Vec<(&'static str, String)> {
    // What goes on from a job that is done would go on from a checkpoint before its end; one that failed or was canceled had no more.
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

/// `3/20`, the epoch that runs of all; `0/20` before the first. Of a job that is over, those that are complete.
fn epoch(job: &JobStatus) -> String {
    match job.state {
        JobPhase::Damaged => UNKNOWN.to_owned(),
        phase if phase.is_over() => format!("{}/{}", job.epochs_complete, job.epochs),
        _ if job.started_ms.is_none() => format!("{}/{}", job.epoch, job.epochs),
        _ => format!("{}/{}", job.epoch.saturating_add(1).min(job.epochs), job.epochs),
    }
}

/// Time since the job was submitted.
pub(crate) fn age(job: &JobStatus, now_ms: u64) -> String {
    job.submitted_ms.map_or_else(|| UNKNOWN.to_owned(), |at_ms| span(now_ms.saturating_sub(at_ms)))
}

/// The newest loss of a job.
pub(crate) fn loss(job: &JobStatus) -> Option<String> {
    job.loss.map(significant)
}

/// Time since a moment, in words; of a job that is over, until its end.
pub(super) fn time_since(at_ms: u64, job: &JobStatus, now_ms: u64) -> String {
    span(lived_ms(at_ms, job, now_ms))
}

/// Time since a moment; of a job that is over, until its end.
pub(super) fn lived_ms(at_ms: u64, job: &JobStatus, now_ms: u64) -> u64 {
    job.ended_ms.unwrap_or(now_ms).saturating_sub(at_ms)
}

/// The line of progress that `watch` shows: epoch, samples/s, loss, next barrier, or tasks by state, and what stands in the
/// way.
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

/// The job in a few lines, and a table of its workers; how old what is told of it is, as of a moment. `chosen`: by its policy, where
/// that chooses among others.
pub(crate) fn job(view: &JobView, chosen: Option<&Why>, now_ms: u64) -> String {
    let job = &view.job;
    let mut lines = vec![("job", format!("{} ({})", job.id, job.state.word()))];
    if job.state == JobPhase::Damaged {
        let texts = [("code", &job.code), ("reason", &job.reason)];
        lines.extend(texts.map(|(name, text)| (name, text.clone().unwrap_or_default())));
        lines.push(("next", format!("`syncline delete {}` forgets it", job.id)));
        return align(&lines);
    }
    lines.extend(job.trains_for.iter().map(|task| ("trains for", task.clone())));
    lines.extend(job.resumed_from.iter().map(|from| ("went on from", format!("checkpoint {from}"))));
    lines.extend(match &job.tasks {
        Some(counts) => describe_tasks::lines(job, counts, now_ms),
        None => progress_lines(job, chosen, now_ms),
    });
    lines.extend(obstacles(view));
    lines.extend(result_lines(job));
    lines.push(("age", age(job, now_ms)));
    let lines = align(&lines);
    let workers = describe_workers::table_of(view, now_ms);
    if workers.is_empty() { lines } else { format!("{lines}\n\n{workers}") }
}

pub(crate) type Line = (&'static str, String);

/// Policy and counters of a job.
fn progress_lines(job: &JobStatus, chosen: Option<&Why>, now_ms: u64) -> Vec<Line> {
    let iterations = iterations(job);
    let barriers = format!(
        "{}, waited {} ms there (predicted {} ms), {} planned again; workers report {} ms of waiting for others in all",
        job.barriers, job.actual_wait_ms, job.predicted_wait_ms, job.replanned, job.waited_ms
    );
    let policy = match chosen {
        // How that rule plans is told by `explain`.
        Some(Why { rule, choice, .. }) => format!("{}, now {rule}: {choice}", job.policy),
        None => job.policy.clone(),
    };
    let mut lines = vec![
        ("policy", policy),
        ("settings", describe_settings::in_words(job)),
        ("epoch", epoch(job)),
        ("samples", format!("{} of {}, {}", job.samples_applied, job.samples_total, speed(job, now_ms))),
        ("iterations", iterations),
        ("barriers", barriers),
    ];
    // Of the fastest worker over the slowest. Where all meet after each iteration there is none: counts differ by who came when.
    if !["bsp", "lb-bsp"].iter().any(|policy| job.policy.starts_with(policy)) {
        lines.push(match job.is_over() {
            true => ("largest lead", format!("{} iterations", job.max_lead)),
            false => ("lead", format!("{} iterations, largest {}", job.lead, job.max_lead)),
        });
    }
    lines.extend(describe_settings::of_data_and_model(&job.settings));
    lines.extend(job.transport.iter().map(|transport| ("shards by", transport.clone())));
    let compression = job.compression.clone().filter(|kind| kind != "none");
    lines.extend(compression.map(|kind| ("gradients", format!("sent as {kind}"))));
    let pulls = job.pull_compression.clone().filter(|kind| kind != "none");
    lines.extend(pulls.map(|kind| ("parameters", format!("sent as {kind}"))));
    lines.extend(job.row_tables.iter().map(|tables| ("by rows", tables.clone())));
    lines.extend(job.groups.iter().map(|groups| ("groups", groups.clone())));
    lines.extend(job.checkpoints.iter().map(|kept| ("checkpoints", kept.clone())));
    lines.extend(checkpoint(job, now_ms).map(|text| ("checkpoint", text)));
    if job.iterations_rolled_back > 0 {
        let (iterations, samples) = (job.iterations_rolled_back, job.samples_rolled_back);
        lines.push(("rolled back", format!("{iterations} iterations, {samples} samples")));
    }
    lines
}

/// What became of a job's iterations. One that ends well although most of them counted nothing has come to nothing itself.
fn iterations(job: &JobStatus) -> String {
    let (done, skipped) = (job.iterations_done, job.iterations_skipped);
    let why = match skipped {
        0 => "",
        few if few.saturating_mul(10) < done => ": their loss or gradient was not finite",
        _ => ": their loss or gradient was not finite; a smaller learning rate or `clip_norm` may help",
    };
    let (lost, torn) = (job.iterations_lost, job.iterations_torn);
    format!("{done} done, {lost} lost, {torn} torn, {skipped} skipped{why}")
}

/// The newest checkpoint of a job.
fn checkpoint(job: &JobStatus, now_ms: u64) -> Option<String> {
    let (number, at_ms) = (job.checkpoint?, job.checkpoint_ms?);
    let (samples, bytes) = (job.checkpoint_samples?, job.checkpoint_bytes?);
    Some(format!("{number}, {} old, {samples} samples, {bytes} bytes", time_since(at_ms, job, now_ms)))
}

/// What a job has reached; what it does not have yet is left out.
fn result_lines(job: &JobStatus) -> Vec<Line> {
    let running = !job.is_over();
    let lines = [
        ("next barrier", job.next_barrier.clone().filter(|_| running)),
        ("loss", loss(job)),
        ("epoch loss", job.epoch_loss.map(significant)),
        ("validation", validation(job)),
        ("best", best(job)),
        ("best lost", job.best_lost.clone()),
        ("reduced rate", job.reduced_learning_rate.map(|rate| rate.to_string())),
        ("stopped early", job.stopped_early.clone()),
        ("test", test(job)),
        ("snapshot", job.snapshot.clone()),
        ("reason", job.coded_reason()),
        ("excluded", job.excluded.clone().filter(|_| running)),
    ];
    lines.into_iter().filter_map(|(name, text)| Some((name, text?))).collect()
}

fn align(pairs: &[(&str, String)]) -> String {
    let line = |(name, value): &(&str, String)| format!("{name:<13} {}", one_line(value));
    pairs.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// How to look at the same job without Syncline.
pub(crate) fn redis_commands(job: &JobStatus, redis_cli: &str) -> String {
    let keys = JobKeys::new(&job.id);
    let stream = if job.tasks.is_some() { keys.events } else { keys.metrics };
    format!("{redis_cli} HGETALL '{}'\n{redis_cli} XREVRANGE '{stream}' + - COUNT 5", keys.job)
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
    fn a_lead_is_told_where_workers_may_have_one() {
        for (policy, told) in
            [("bsp", false), ("lb-bsp+predictor=last", false), ("elastic-bsp:15", true), ("asp", true)]
        {
            let lines = progress_lines(&job(&[("policy", policy)]), None, 0);
            assert_eq!(lines.iter().any(|(name, _)| *name == "lead"), told, "{policy}");
        }
    }

    #[test]
    fn what_a_policy_has_chosen_stands_behind_its_name() {
        let [rule, choice] = ["bsp", "it is cheap: waiting costs only 3 %"].map(str::to_owned);
        let why = Why { rule, choice, ..Why::rule("all meet in every round") };
        let lines = progress_lines(&job(&[("policy", "auto")]), Some(&why), 0);
        assert_eq!(lines[0], ("policy", "auto, now bsp: it is cheap: waiting costs only 3 %".to_owned()));
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
    fn what_a_lost_shard_would_bring_back_is_told_once_there_is_something() {
        assert_eq!(checkpoint(&job(&[("checkpoint", ""), ("checkpoint_ms", "")]), 0), None);
        let made = [("checkpoint", "3"), ("checkpoint_ms", "5000"), ("ended_ms", "9000")];
        let held = [("checkpoint_samples", "640"), ("checkpoint_bytes", "8192")];
        let told = checkpoint(&job(&[&made[..], &held].concat()), 10_000);
        assert_eq!(told.as_deref(), Some("3, 4 s old, 640 samples, 8192 bytes"));
    }

    #[test]
    fn which_checkpoints_are_kept_is_told_beside_the_newest() {
        let kept =
            [("checkpoints", "every 1 min, the newest 2"), ("checkpoint", "3"), ("checkpoint_ms", "0")];
        let held = [("checkpoint_samples", "640"), ("checkpoint_bytes", "8192")];
        let lines = progress_lines(&job(&[&kept[..], &held].concat()), None, 0);
        let told: Vec<_> = lines.iter().filter(|(name, _)| name.starts_with("checkpoint")).collect();
        assert_eq!(told.len(), 2, "{told:?}");
        assert_eq!(*told[0], ("checkpoints", "every 1 min, the newest 2".to_owned()));
    }

    #[test]
    fn iterations_that_counted_nothing_say_why_and_many_what_to_do() {
        let told =
            |skipped: &str| iterations(&job(&[("iterations_done", "2400"), ("iterations_skipped", skipped)]));
        assert_eq!(told("0"), "2400 done, 0 lost, 0 torn, 0 skipped");
        assert!(told("3").ends_with("3 skipped: their loss or gradient was not finite"), "{}", told("3"));
        assert!(
            told("2397").ends_with("a smaller learning rate or `clip_norm` may help"),
            "{}",
            told("2397")
        );
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

    #[test]
    fn the_speed_of_a_job_that_stands_still_is_none() {
        let mut job = job(&[("samples_per_s", "9.5")]);
        let now_ms = 1_700_000_000_000;
        assert_eq!(speed(&job, now_ms), "9.5/s");
        (job.samples_per_s_lately, job.progress_ms) = (Some(4.0), now_ms);
        assert_eq!(speed(&job, now_ms), "4.0/s, on average 9.5/s");
        job.progress_ms = now_ms - 20_000;
        assert_eq!(speed(&job, now_ms), "0.0/s, on average 9.5/s");
    }
}
