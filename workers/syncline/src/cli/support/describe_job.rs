//! A job in a few lines, and a table of its workers.

use syncline_engine::store::keys::JobKeys;
use syncline_rpc::status::{JobPhase, JobStatus, JobView};
use syncline_scheduler::{core::significant, sync::Why};
use syncline_workers::span;

use super::{
    describe::{epoch, loss, obstacles, samples_per_s_lately},
    describe_age::age,
    describe_evaluations::{best, test, validation},
    describe_lines::{Line, align},
    describe_settings, describe_tasks, describe_workers,
};

/// The job in a few lines, and a table of its workers; how old what is told of it is, as of a moment.
/// `chosen`: by its policy, where that chooses among others.
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
    // Of the fastest worker over the slowest. Where all meet after each iteration there is none: counts
    // differ by who came when.
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

/// What became of a job's iterations. One that ends well although most of them counted nothing has come to
/// nothing itself.
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
    let age = span(now_ms.saturating_sub(at_ms));
    Some(format!("{number}, {age} old, {samples} samples, {bytes} bytes"))
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

/// The speed as a whole line: lately and on average.
fn speed(job: &JobStatus, now_ms: u64) -> String {
    match samples_per_s_lately(job, now_ms) {
        Some(lately) => format!("{lately:.1}/s, on average {:.1}/s", job.samples_per_s),
        None => format!("{:.1}/s", job.samples_per_s),
    }
}

/// How to look at the same job without Syncline.
pub(crate) fn redis_commands(job: &JobStatus, redis_cli: &str) -> String {
    let keys = JobKeys::new(&job.id);
    let stream = if job.tasks.is_some() { keys.events } else { keys.metrics };
    format!("{redis_cli} HGETALL '{}'\n{redis_cli} XREVRANGE '{stream}' + - COUNT 5", keys.job)
}

#[cfg(test)]
mod tests {
    use super::{super::describe::tests::job, *};

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
    fn what_a_lost_shard_would_bring_back_is_told_once_there_is_something() {
        assert_eq!(checkpoint(&job(&[("checkpoint", ""), ("checkpoint_ms", "")]), 0), None);
        let made = [("checkpoint", "3"), ("checkpoint_ms", "5000"), ("ended_ms", "9000")];
        let held = [("checkpoint_samples", "640"), ("checkpoint_bytes", "8192")];
        let told = checkpoint(&job(&[&made[..], &held].concat()), 10_000);
        assert_eq!(
            told.as_deref(),
            Some("3, 5 s old, 640 samples, 8192 bytes"),
            "of a job that is over, too"
        );
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
