//! A job of general tasks in words.

use syncline_rpc::status::{JobStatus, TaskCounts};
use syncline_scheduler::tasks::TaskState;

use super::{describe_age::lived_ms, describe_lines::Line};

/// `57/100 tasks`.
pub(super) fn extent(counts: &TaskCounts) -> String {
    format!("{}/{} tasks", counts.ended(), counts.total)
}

/// What `watch` shows in one line behind the job's state.
pub(super) fn progress(job: &JobStatus, counts: &TaskCounts, now_ms: u64) -> Vec<String> {
    let shown =
        [TaskState::Continued, TaskState::Leased, TaskState::Backoff, TaskState::Failed, TaskState::Skipped];
    let shown = shown.into_iter().filter(|state| counts.of(*state) > 0);
    let shown = shown.map(|state| format!("{} {state}", counts.of(state)));
    [extent(counts), format!("{:.1} tasks/s", per_s(job, counts, now_ms))].into_iter().chain(shown).collect()
}

/// The job in a few lines.
pub(super) fn lines(job: &JobStatus, counts: &TaskCounts, now_ms: u64) -> Vec<Line> {
    let states = TaskState::ALL.into_iter().filter(|state| counts.of(*state) > 0);
    let states: Vec<String> = states.map(|state| format!("{} {state}", counts.of(state))).collect();
    let continued = match counts.continued {
        0 => String::new(),
        // Each has run, and its value is still to come.
        continued => format!(", {continued} continued"),
    };
    let per_s = per_s(job, counts, now_ms);
    let ended = format!("{} of {} ended{continued}, {per_s:.1}/s", counts.ended(), counts.total);
    let workers = if job.is_over() { String::new() } else { format!("{} have tasks", job.workers) };
    let lines = [("tasks", ended), ("states", states.join(", ")), ("workers", workers)];
    lines.into_iter().filter(|(_, text)| !text.is_empty()).collect()
}

/// Tasks per second since the job began that ended, or have run and continue in others.
fn per_s(job: &JobStatus, counts: &TaskCounts, now_ms: u64) -> f64 {
    let lived_ms = job.started_ms.map_or(0, |started_ms| lived_ms(started_ms, job, now_ms));
    (counts.ended() + counts.continued) as f64 * 1e3 / lived_ms.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::support::describe::tests::job;

    #[test]
    fn a_job_of_tasks_is_told_by_its_states() {
        let fields = [
            ("id", "a"),
            ("state", "done"),
            ("started_ms", "1000"),
            ("ended_ms", "3000"),
            ("tasks_total", "10"),
            ("tasks_done", "7"),
            ("tasks_skipped", "2"),
            ("tasks_failed", "1"),
        ];
        let job = job(&fields);
        let counts = job.tasks.unwrap_or_default();
        assert_eq!(progress(&job, &counts, 9_000), ["10/10 tasks", "5.0 tasks/s", "1 failed", "2 skipped"]);
        let said = lines(&job, &counts, 9_000);
        assert_eq!(said[0], ("tasks", "10 of 10 ended, 5.0/s".to_owned()));
        assert_eq!(said[1], ("states", "7 done, 1 failed, 2 skipped".to_owned()));
    }

    #[test]
    fn a_chain_of_tasks_that_continue_is_no_job_that_stands_still() {
        let fields = [
            ("id", "a"),
            ("state", "running"),
            ("started_ms", "1000"),
            ("tasks_total", "217"),
            ("tasks_continued", "216"),
            ("tasks_leased", "1"),
        ];
        let job = job(&fields);
        let counts = job.tasks.unwrap_or_default();
        let said = progress(&job, &counts, 9_000);
        assert_eq!(said, ["0/217 tasks", "27.0 tasks/s", "216 continued", "1 leased"]);
        let (name, said) = &lines(&job, &counts, 9_000)[0];
        assert_eq!((*name, &**said), ("tasks", "0 of 217 ended, 216 continued, 27.0/s"));
    }
}
