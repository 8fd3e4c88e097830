//! A graph on its way to the engine, in parts that a message can carry.

use std::ops::Range;

use syncline_scheduler::tasks::{Arg, NewTask, TaskIndex, TaskRef};

use crate::functions::wire_bytes;

/// Most tasks of one part: the engine decides nothing else while it takes them in.
const MAX_PART_TASKS: usize = 20_000;
/// Most bytes of one part, but for a single task that is larger.
const MAX_PART_BYTES: usize = 4 << 20;

/// Where the parts begin and end from the task `first` on, which begins one; none without tasks.
pub(super) fn parts(tasks: &[NewTask], mut first: usize) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let mut bytes = 0;
    for (index, task) in tasks.iter().enumerate().skip(first) {
        let more = wire_bytes(task);
        if index > first && (bytes + more > MAX_PART_BYTES || index - first == MAX_PART_TASKS) {
            parts.push(first..index);
            (first, bytes) = (index, 0);
        }
        bytes += more;
    }
    if first < tasks.len() {
        parts.push(first..tasks.len());
    }
    parts
}

/// The tasks of one part: those of earlier parts are in the graph by now.
pub(super) fn part(tasks: &[NewTask], part: Range<usize>) -> Vec<NewTask> {
    let first = part.start as u32;
    let mut tasks = tasks[part].to_vec();
    if first > 0 {
        tasks.iter_mut().flat_map(refs).for_each(|input| {
            if let TaskRef::New(index) = *input {
                *input = match index.checked_sub(first) {
                    Some(index) => TaskRef::New(index),
                    None => TaskRef::Task(TaskIndex(index)),
                };
            }
        });
    }
    tasks
}

fn refs(task: &mut NewTask) -> impl Iterator<Item = &mut TaskRef> {
    let given = task.args.iter_mut().flat_map(|arg| match arg {
        Arg::Value(_) | Arg::Blob(_) => &mut [],
        Arg::Output(input) | Arg::Outcome(input) => std::slice::from_mut(input),
        Arg::Outputs(inputs) | Arg::Outcomes(inputs) => &mut inputs[..],
    });
    given.chain(&mut task.after)
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::tasks::{ClassIndex, MAX_INLINE_BYTES};

    use super::*;

    fn task(args: Vec<Arg>, after: Vec<TaskRef>) -> NewTask {
        NewTask { class: ClassIndex(0), args, after, name: None }
    }

    #[test]
    fn parts_are_bounded_by_tasks_and_by_bytes() {
        let small = vec![task(Vec::new(), Vec::new()); 2 * MAX_PART_TASKS + 1];
        assert_eq!(parts(&small, 0), [0..20_000, 20_000..40_000, 40_000..40_001]);
        assert_eq!(parts(&small[..1], 0).first(), Some(&(0..1)));
        assert_eq!(parts(&small, 20_000), [20_000..40_000, 40_000..40_001], "the rest of what was begun");
        assert!(parts(&[], 0).is_empty() && parts(&small, 40_001).is_empty());
        let large = vec![task(vec![Arg::Value(vec![0; MAX_INLINE_BYTES].into())], Vec::new()); 600];
        let found = parts(&large, 0);
        assert!(found.len() == 3 && found.iter().all(|part| part.len() <= 256), "{found:?}");
        assert_eq!(found.iter().map(ExactSizeIterator::len).sum::<usize>(), 600);
        // A constant that becomes a blob weighs no more than any blob.
        let blobs = vec![task(vec![Arg::Value(vec![0; 1 << 20].into())], Vec::new()); 600];
        assert_eq!(parts(&blobs, 0).first(), Some(&(0..600)));
    }

    #[test]
    fn a_later_part_refers_to_tasks_that_are_there_and_to_its_own() {
        let new = TaskRef::New;
        let tasks = [
            task(Vec::new(), Vec::new()),
            task(vec![Arg::Output(new(0))], Vec::new()),
            task(vec![Arg::Outputs(vec![new(0), new(1)])], vec![new(1), new(0)]),
        ];
        assert_eq!(part(&tasks, 0..2), tasks[..2]);
        let there = TaskRef::Task(TaskIndex(0));
        let later = part(&tasks, 1..3);
        assert_eq!(later[0].args, [Arg::Output(there)]);
        assert_eq!(later[1].args, [Arg::Outputs(vec![there, new(0)])]);
        assert_eq!(later[1].after, [new(0), there]);
    }
}
