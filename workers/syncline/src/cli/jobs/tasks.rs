//! `syncline tasks`: the general tasks of a job, and why each is where it is.

use std::collections::BTreeMap;

use syncline_scheduler::{
    ids::JobId,
    tasks::{Preview, TaskIndex, TaskQuery, TaskState, TaskView},
};

use super::{
    events::moment,
    source::{Source, SourceArgs},
    task_name::TaskName,
};
use crate::cli::{Failure, block_on, log_as_command, one_line, print, print_json, say, table};

/// Inputs of one task that are told with their states.
const INPUTS_SHOWN: usize = 20;

#[derive(Debug, clap::Args)]
pub struct TasksArgs {
    /// Id of the job. With --from it may be left out
    #[arg(required_unless_present = "from")]
    job: Option<JobId>,
    /// One task, by its number or its name: why it is where it is
    #[arg(conflicts_with_all = ["state", "first"])]
    task: Option<TaskName>,
    /// Only tasks in this state: waiting, ready, backoff, leased, training, continued, done, failed,
    /// skipped or canceled
    #[arg(long, value_name = "STATE")]
    state: Option<TaskState>,
    /// The number of the first task to look at
    #[arg(long, value_name = "N", default_value_t = 0)]
    first: u32,
    /// Most tasks to list
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    #[command(flatten)]
    source: SourceArgs,
    /// One JSON array on stdout
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &TasksArgs) -> Result<(), Failure> {
    log_as_command();
    block_on(async {
        let (source, job) = args.source.open(args.job.as_ref()).await?;
        match &args.task {
            Some(name) if args.json => print_json(&[source.task(&job, name).await?]),
            Some(name) => print(&explain(&source, &job, name).await?),
            None => list(&source, &job, args).await,
        }
    })
}

/// Why one task is where it is, in words.
pub(super) async fn explain(source: &Source, job: &JobId, name: &TaskName) -> Result<String, Failure> {
    let view = source.task(job, name).await?;
    let shown = &view.inputs[..view.inputs.len().min(INPUTS_SHOWN)];
    let states = source.states_of(job, shown).await?;
    Ok(one_in_words(&view, &states))
}

async fn list(source: &Source, job: &JobId, args: &TasksArgs) -> Result<(), Failure> {
    // One more than is shown tells whether there are more.
    let limit = args.limit + 1;
    let query = TaskQuery { first: TaskIndex(args.first), limit, state: args.state, name: None };
    let mut views = source.tasks(job, &query).await?;
    let next = views.get(args.limit as usize).map(|view| view.task);
    views.truncate(args.limit as usize);
    if args.json {
        print_json(&views)?;
    } else {
        print(&in_words(&views))?;
    }
    if let Some(next) = next {
        say(&format!("there are more: --first {next} goes on"));
    }
    Ok(())
}

fn one_in_words(view: &TaskView, states: &BTreeMap<TaskIndex, TaskState>) -> String {
    let name = view.name.as_ref().map_or_else(String::new, |name| format!(" ({name})"));
    let mut lines = vec![
        format!("task      {}{name}: {}", view.task, view.state),
        format!("function  {}", view.function),
        format!("attempts  {}", view.attempts),
    ];
    lines.extend(view.worker.iter().map(|worker| format!("worker    {}", one_line(worker))));
    if let Some(since_ms) = view.running_since_ms {
        lines.push(format!("runs      since {}", moment(since_ms)));
    }
    if let (Some(run_us), Some(ended_ms)) = (view.run_us, view.ended_ms) {
        let began = moment(ended_ms.saturating_sub(run_us / 1000));
        lines.push(format!("ran       {} from {began}", seconds(run_us)));
    }
    let state = |task: &TaskIndex| match states.get(task) {
        Some(state) => format!("{task}: {state}"),
        None => task.to_string(),
    };
    if !view.inputs.is_empty() {
        let mut needs: Vec<String> = view.inputs.iter().take(INPUTS_SHOWN).map(state).collect();
        // A file that was damaged may count fewer than it names.
        let more = (view.inputs_total as usize).saturating_sub(needs.len());
        if more > 0 {
            needs.push(format!("and {more} more"));
        }
        lines.push(format!("needs     {}", needs.join(", ")));
    }
    lines.extend(value_in_words(view).map(|value| format!("value     {value}")));
    if !view.reason.is_empty() {
        // A panic has several lines, which stand below each other.
        lines.push(format!("because   {}", view.reason.replace('\n', "\n          ")));
    }
    lines.join("\n")
}

fn seconds(run_us: u64) -> String {
    format!("{:.3} s", run_us as f64 / 1e6)
}

/// What a task gave, with its size where that does not show all.
fn value_in_words(view: &TaskView) -> Option<String> {
    let bytes = view.value_bytes?;
    Some(match &view.value {
        Some(whole) if !whole.as_str().ends_with(Preview::ELLIPSIS) => whole.to_string(),
        Some(cut) => format!("{cut} ({bytes} bytes as it travels)"),
        None => format!("{bytes} bytes"),
    })
}

/// Tasks in a table.
pub(super) fn in_words(views: &[TaskView]) -> String {
    let named = views.iter().any(|view| view.name.is_some());
    let ran = views.iter().any(|view| view.run_us.is_some());
    let mut columns = vec![">task", "name", "state", "function", ">attempts", "worker", ">ran", "because"];
    columns.retain(|column| (named || *column != "name") && (ran || *column != ">ran"));
    let row = |view: &TaskView| {
        let name = view.name.as_ref().map(ToString::to_string).unwrap_or_default();
        let mut row = vec![view.task.to_string()];
        row.extend(named.then_some(name));
        row.extend([view.state.to_string(), view.function.to_string(), view.attempts.to_string()]);
        row.push(view.worker.clone().unwrap_or_default());
        row.extend(ran.then(|| view.run_us.map(seconds).unwrap_or_default()));
        row.push(view.reason.clone());
        row
    };
    table(&columns, &views.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(task: u32, state: TaskState) -> TaskView {
        TaskView {
            task: TaskIndex(task),
            name: None,
            function: "add".parse().unwrap(),
            state,
            attempts: 1,
            worker: None,
            running_since_ms: None,
            progress: None,
            run_us: None,
            ended_ms: None,
            inputs: (0..task).map(TaskIndex).collect(),
            inputs_total: task,
            value: None,
            value_bytes: None,
            code: None,
            reason: "it waits".into(),
        }
    }

    #[test]
    fn a_table_has_names_only_if_there_are_some() {
        let mut views = [view(0, TaskState::Done), view(1, TaskState::Waiting)];
        let text = in_words(&views);
        assert_eq!(text.lines().next(), Some("task  state    function  attempts  worker  because"));
        views[1].name = Some("total".parse().unwrap());
        assert!(in_words(&views).contains("   1  total  waiting"), "{}", in_words(&views));
    }

    #[test]
    fn a_task_that_has_ended_is_told_with_who_ran_it_when_and_how_long() {
        let (worker, run_us, ended_ms) = (Some("calls (w101)".to_owned()), Some(1_500_000), Some(3_000));
        let ended = TaskView { worker, run_us, ended_ms, ..view(0, TaskState::Done) };
        let said = one_in_words(&ended, &BTreeMap::new());
        let want = "worker    calls (w101)\nran       1.500 s from 1970-01-01T00:00:01.500Z";
        assert!(said.contains(want), "{said}");
        let table = in_words(&[ended, view(1, TaskState::Waiting)]);
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[0].contains("worker            ran  because"), "{table}");
        assert!(lines[1].contains("calls (w101)  1.500 s  it waits"), "{table}");
    }

    #[test]
    fn a_task_that_runs_is_told_with_the_moment_at_which_it_began() {
        let runs = TaskView { running_since_ms: Some(1_500), ..view(0, TaskState::Leased) };
        let said = one_in_words(&runs, &BTreeMap::new());
        assert!(said.contains("\nruns      since 1970-01-01T00:00:01.500Z\n"), "{said}");
    }

    #[test]
    fn one_task_is_told_with_what_it_needs() {
        let states = [(TaskIndex(0), TaskState::Failed)].into();
        let text = one_in_words(&view(2, TaskState::Waiting), &states);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "task      2: waiting");
        assert_eq!(lines[3..], ["needs     0: failed, 1", "because   it waits"]);
        let many = one_in_words(&view(25, TaskState::Waiting), &BTreeMap::new());
        assert!(many.contains("18, 19, and 5 more"), "{many}");
        let damaged =
            TaskView { inputs_total: 0, reason: "left: 1\nright: 2".into(), ..view(2, TaskState::Failed) };
        let said = one_in_words(&damaged, &BTreeMap::new());
        assert!(said.ends_with("needs     0, 1\nbecause   left: 1\n          right: 2"), "{said}");
    }

    #[test]
    fn a_value_is_told_with_its_size_unless_all_of_it_is_shown() {
        let told = |value: Option<&str>, bytes| {
            let value = value.map(|text| Preview::from(text.to_owned()));
            let view = TaskView { value, value_bytes: bytes, ..view(0, TaskState::Done) };
            one_in_words(&view, &BTreeMap::new()).lines().nth(3).unwrap_or_default().to_owned()
        };
        assert_eq!(told(Some("[1,2]"), Some(3)), "value     [1,2]");
        let long = format!("value     {}… (999 bytes as it travels)", "x".repeat(253));
        assert_eq!(told(Some(&"x".repeat(999)), Some(999)), long);
        assert_eq!(told(None, Some(3)), "value     3 bytes");
        assert_eq!(told(None, None), "because   it waits");
    }

    #[test]
    fn a_task_is_called_by_its_number_or_its_name() {
        assert!(matches!("17".parse(), Ok(TaskName::Number(TaskIndex(17)))));
        assert!(matches!("total".parse(), Ok(TaskName::Name(_))));
        assert!("No name".parse::<TaskName>().is_err());
    }
}
