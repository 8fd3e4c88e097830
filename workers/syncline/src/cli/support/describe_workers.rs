//! The workers of a job in words.

use syncline_rpc::status::{JobStatus, JobView, MemberState, MemberStatus};

use super::{describe_age::time_since, describe_lines::UNKNOWN};
use crate::cli::{one_line, table};

const WORKER_COLUMNS: &[&str] = &[
    "worker",
    "id",
    "state",
    ">iterations",
    ">samples",
    ">batch",
    ">predicted ms",
    ">rmse ms",
    ">compute ms",
    ">slowdown ms",
    ">pull ms",
    ">push ms",
    ">wait ms",
];

/// Where the time of each worker's iterations went, all in milliseconds of one: how long the next is
/// predicted to take, how wrong such predictions were, and the means so far; and who is slow. Empty without
/// workers.
pub(super) fn table_of(view: &JobView, now_ms: u64) -> String {
    if view.workers.is_empty() {
        return String::new();
    }
    let ms = |us: u64| format!("{:.1}", us as f64 / 1e3);
    let row = |member: &MemberStatus| {
        vec![
            member.name.clone(),
            member.id.to_string(),
            member.state.word().to_owned(),
            member.iterations.to_string(),
            member.samples.to_string(),
            member.batch.to_string(),
            member.predicted_interval_us.map_or_else(|| UNKNOWN.into(), ms),
            ms(member.prediction_rmse_us as u64),
            mean_ms(member, member.compute_us),
            mean_ms(member, member.throttle_us),
            mean_ms(member, member.pull_us),
            mean_ms(member, member.push_us),
            mean_ms(member, member.wait_us),
        ]
    };
    let mut text = table(WORKER_COLUMNS, &view.workers.iter().map(row).collect::<Vec<_>>());
    let active = view.workers.iter().filter(|m| m.state == MemberState::Active);
    // One that has caught up counts as slow for a moment more.
    let is_slower = |factor: &f64| *factor >= 1.05;
    let slow = active.filter_map(|m| Some((m, m.slow_factor.filter(is_slower)?, m.slow_since_ms?)));
    for (member, factor, since_ms) in slow {
        let called = display_name(&member.name, &member.id.to_string());
        text += &format!("\n{}", slow_worker(&called, factor, since_ms, &view.job, now_ms));
    }
    text
}

/// Of one iteration, where so much time went on all of them.
fn mean_ms(member: &MemberStatus, total_us: u64) -> String {
    match member.iterations {
        0 => UNKNOWN.into(),
        iterations => format!("{:.1}", total_us as f64 / iterations as f64 / 1e3),
    }
}

/// A worker as people know it, and in brackets the incarnation under which it takes part.
pub(crate) fn display_name(name: &str, id: &str) -> String {
    if name.is_empty() { id.to_owned() } else { format!("{} ({id})", one_line(name)) }
}

/// Who is slow, how much, and since when; or who was until the job ended.
pub(crate) fn slow_worker(called: &str, factor: f64, since_ms: u64, job: &JobStatus, now_ms: u64) -> String {
    let since = time_since(since_ms, job, now_ms);
    let been = if job.is_over() { "was" } else { "has been" };
    format!("{called} {been} {factor:.1} times as slow per sample as most for {since}")
}

#[cfg(test)]
mod tests {
    use super::{super::describe::tests::job, *};

    #[test]
    fn how_long_a_worker_was_slow_ends_with_its_job() {
        let now_ms = 1_700_000_000_000;
        let words = slow_worker("worker-3 (w3)", 2.5, now_ms - 30_000, &job(&[("ended_ms", "")]), now_ms);
        assert_eq!(words, "worker-3 (w3) has been 2.5 times as slow per sample as most for 30 s");
        let done = job(&[("state", "done"), ("ended_ms", "1700000005000")]);
        let words = slow_worker("worker-3 (w3)", 2.5, 1_700_000_000_000, &done, now_ms + 60_000);
        assert_eq!(words, "worker-3 (w3) was 2.5 times as slow per sample as most for 5 s");
    }
}
