//! `syncline explain`: why a task waits, why there is a barrier, and what stands in the way of a job.

use syncline_rpc::status::{JobStatus, JobView};
use syncline_scheduler::{
    core::{BarrierExplanation, TaskExplanation, WorkerExplanation},
    graph::TaskId,
    ids::{JobId, Superstep},
};
use syncline_workers::client::TaskError;

use super::{explain_job::JobExplanation, source::SourceArgs, task_name::TaskName, tasks};
use crate::cli::{
    Failure, block_on, log_as_command, one_line, print, print_json,
    support::{
        describe,
        describe_workers::{display_name, slow_worker},
    },
    table,
};

#[derive(Debug, clap::Args)]
#[command(
    group = clap::ArgGroup::new("what").args(["task", "barrier"]),
    override_usage = "syncline explain [OPTIONS] [JOB] [TASK|--barrier <N>]" // clap would name the job last
)]
pub struct ExplainArgs {
    /// Id of the job. With --from it may be left out
    #[arg(required_unless_present = "from")]
    job: Option<JobId>,
    /// A task: it/wN/SEQ, prepare/wN, barrier/N, clock/N, evaluation/N/PART, or a node of a job that trains;
    /// the number or name of a general task; without it, what stands in the way of the whole job
    task: Option<TaskId>,
    /// The barrier with this number, with what was predicted, weighed, chosen, and what happened
    #[arg(long, value_name = "N")]
    barrier: Option<Superstep>,
    #[command(flatten)]
    source: SourceArgs,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &ExplainArgs) -> Result<(), Failure> {
    log_as_command();
    block_on(async {
        let (source, id) = args.source.open(args.job.as_ref()).await?;
        let view = source.status(&id).await?;
        let job = &view.job;
        match (&args.task, &args.barrier) {
            (Some(task), _) if job.tasks.is_some() => {
                // What only trainings have, such as it/w101/3, is no task of this job either.
                let none = |_| TaskError::Unknown { job: job.id.clone(), task: task.to_string() };
                let name = task.to_string().parse::<TaskName>().map_err(none)?;
                if args.json {
                    return print_json(&source.task(&job.id, &name).await?);
                }
                print(&tasks::explain(&source, &job.id, &name).await?)
            }
            (Some(TaskId::Barrier(barrier)), _) | (None, Some(barrier)) => {
                let explained = source.explain_barrier(&job.id, *barrier).await?;
                if args.json {
                    return print_json(&explained);
                }
                print(&barrier_in_words(&explained, job, source.now_ms()))
            }
            (Some(task), _) => {
                let explained = source.explain_task(&job.id, task).await?;
                if args.json { print_json(&explained) } else { print(&task_in_words(&explained)) }
            }
            (None, None) => {
                let explained = JobExplanation::fetch(&source, &view).await?;
                if args.json {
                    return print_json(&explained);
                }
                print(&job_in_words(&explained, &view, source.now_ms()))
            }
        }
    })
}

fn job_in_words(explained: &JobExplanation, view: &JobView, now_ms: u64) -> String {
    let JobExplanation { job, because, barrier, tasks, tasks_left_out, .. } = explained;
    let mut parts = vec![format!("{job}: {}", describe::progress_alone(&view.job, now_ms))];
    match because.is_empty() {
        true => parts.push("nothing stands in its way".into()),
        false => parts.extend(because.iter().map(|reason| format!("  {}", one_line(reason)))),
    }
    if let Some(barrier) = barrier {
        parts.extend([String::new(), barrier_in_words(barrier, &view.job, now_ms)]);
    }
    if !tasks.is_empty() {
        parts.extend([String::new(), tasks::in_words(tasks)]);
    }
    if *tasks_left_out > 0 {
        parts.push(format!("and {tasks_left_out} more: `syncline tasks {job}`"));
    }
    parts.join("\n")
}

fn task_in_words(explained: &TaskExplanation) -> String {
    let mut lines = vec![format!("{}: {}", explained.task, explained.state)];
    lines.extend(explained.reasons.iter().map(|reason| format!("  {}", one_line(reason))));
    if !explained.needs.is_empty() {
        lines.push("needs".into());
        lines.extend(explained.needs.iter().map(|(task, state)| format!("  {task}: {state}")));
    }
    lines.join("\n")
}

fn ms(us: Option<u64>) -> String {
    us.map_or_else(|| "-".into(), |us| format!("{:.1}", us as f64 / 1000.0))
}

fn barrier_in_words(explained: &BarrierExplanation, job: &JobStatus, now_ms: u64) -> String {
    let mut lines = vec![
        format!("barrier/{}: {}", explained.barrier, explained.state),
        format!("rule     {}", explained.why.rule),
        format!("because  {}", explained.why.in_words()),
    ];
    lines.extend(explained.why.figures.iter().map(|(name, value)| format!("           {name} = {value:.3}")));
    if explained.expected_us.is_some() {
        lines.push(format!(
            "chosen   meet {} ms after it opened; the longest predicted wait is {} ms",
            ms(explained.expected_us),
            ms(explained.span_us)
        ));
    }
    let alternatives = explained.alternatives.iter();
    lines.extend(alternatives.map(|w| {
        format!(
            "weighed  meet after {} ms, with a longest wait of {} ms",
            ms(Some(w.sync_at_us)),
            ms(Some(w.span_us))
        )
    }));
    if explained.predicted_wait_us.is_some() || explained.actual_wait_us.is_some() {
        lines.push(format!(
            "waits    predicted {} ms, actual {} ms, of all workers together",
            ms(explained.predicted_wait_us),
            ms(explained.actual_wait_us)
        ));
    }
    if explained.closed_us.is_some() {
        lines.push(format!("closed   {} ms after it opened", ms(explained.closed_us)));
    }
    lines.push(String::new());
    lines.push(workers(&explained.workers));
    for w in explained.workers.iter().filter(|w| w.awaited) {
        lines.push(format!("waits for {}", display_name(&w.name, &w.worker.to_string())));
    }
    for (w, slow) in explained.workers.iter().filter_map(|w| Some((w, w.straggler?))) {
        let called = display_name(&w.name, &w.worker.to_string());
        let words = slow_worker(&called, slow.factor, slow.since_ms, job, now_ms);
        lines.push(format!("slow: {words}"));
    }
    lines.join("\n")
}

/// A row for each, without times that are known of none: a round in which all do as much has no plan, and an
/// open one no waits.
fn workers(of: &[WorkerExplanation]) -> String {
    type Time = (&'static str, fn(&WorkerExplanation) -> Option<u64>);
    let times: [Time; 5] = [
        (">interval ms", |w| w.predicted_interval_us),
        (">expected ms", |w| w.expected_us),
        (">arrived ms", |w| w.arrived_us),
        (">predicted wait ms", |w| w.predicted_wait_us),
        (">actual wait ms", |w| w.actual_wait_us),
    ];
    let known: Vec<Time> =
        times.into_iter().filter(|(_, time)| of.iter().any(|w| time(w).is_some())).collect();
    let row = |w: &WorkerExplanation| {
        let iterations = match w.iterations {
            Some(all) => format!("{}/{all}", w.done),
            None => w.done.to_string(),
        };
        let about = [w.name.clone(), w.worker.to_string(), iterations, w.batch.to_string()];
        about.into_iter().chain(known.iter().map(|(_, time)| ms(time(w)))).collect()
    };
    let mut columns = vec!["worker", "id", ">iterations", ">batch"];
    columns.extend(known.iter().map(|(name, _)| *name));
    table(&columns, &of.iter().map(row).collect::<Vec<Vec<String>>>())
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::ids::Incarnation;

    use super::*;

    #[test]
    fn times_that_are_known_of_no_worker_have_no_column() {
        let worker = |id: u64, predicted_interval_us: Option<u64>| WorkerExplanation {
            worker: Incarnation(id),
            name: "a".into(),
            iterations: Some(1),
            done: 0,
            batch: 43,
            predicted_interval_us,
            expected_us: None,
            arrived_us: None,
            predicted_wait_us: None,
            actual_wait_us: None,
            awaited: true,
            straggler: None,
        };
        let shown = |of: &[WorkerExplanation]| {
            let text = workers(of);
            let rows = text.lines().map(|row| row.split_whitespace().collect::<Vec<_>>().join(" "));
            rows.collect::<Vec<_>>()
        };
        let head = "worker id iterations batch";
        assert_eq!(shown(&[worker(1, None)]), [head, "a w1 0/1 43"]);
        let both = shown(&[worker(1, Some(1_500)), worker(2, None)]);
        assert_eq!(both, [&format!("{head} interval ms"), "a w1 0/1 43 1.5", "a w2 0/1 43 -"]);
    }
}
