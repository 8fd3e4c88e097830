//! A whole graph, checked without an engine.

use super::{InvalidGraph, TaskJob};
use crate::tasks::{GraphSpec, NewTask, TaskIndex};

/// A graph of which an engine would have got so many parts. Whoever replaces a job by a graph of several parts
/// sees before the first one is sent what the engine would refuse of a later one, when the old job is gone.
///
/// It holds all tasks that it was given with their arguments.
#[derive(Debug)]
pub struct GraphCheck(TaskJob);

impl GraphCheck {
    /// Begins with the first part.
    ///
    /// # Errors
    /// As the engine refuses it: E042 to E063.
    pub fn of(first: &GraphSpec) -> Result<Self, InvalidGraph> {
        TaskJob::submitted(first, 0, 0).map(Self)
    }

    /// Adds the next part.
    ///
    /// # Errors
    /// As the engine refuses it, if it has all parts before.
    pub fn extend(&mut self, part: &[NewTask]) -> Result<(), InvalidGraph> {
        let next = TaskIndex(self.0.graph.len());
        self.0.extend(next, part, 0).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        sim::new_task,
        tasks::{Arg, ClassIndex, FunctionId, GraphDigest, TaskClass, TaskRef},
    };

    fn named(name: &str) -> NewTask {
        NewTask { name: Some(name.parse().unwrap()), ..new_task(0) }
    }

    #[test]
    fn what_the_engine_refuses_of_a_later_part_is_refused_table() {
        let class =
            TaskClass::call(FunctionId { name: "f".parse().unwrap(), signature: 1, types: String::new() });
        let with = |arg: Arg| NewTask { args: vec![arg], ..new_task(0) };
        let third_part = |task: NewTask| {
            let (id, digest) = ("sums".parse().unwrap(), GraphDigest::default());
            let (classes, tasks) = (vec![class.clone()], vec![named("first")]);
            let mut check = GraphCheck::of(&GraphSpec { id, digest, classes, tasks, complete: false })?;
            check.extend(&[named("second")])?;
            check.extend(&[task])
        };
        let task = TaskIndex(2);
        let before = with(Arg::Output(TaskRef::Task(TaskIndex(1))));
        let itself = with(Arg::Output(TaskRef::New(0)));
        let large = third_part(with(Arg::Value(vec![0; (1 << 20) + 1].into())));
        let of_no_class = NewTask { class: ClassIndex(1), ..new_task(0) };
        assert_eq!(third_part(before), Ok(()));
        assert_eq!(third_part(named("first")), Err(InvalidGraph::Name { name: "first".parse().unwrap() }));
        assert_eq!(third_part(itself), Err(InvalidGraph::Reference { task }));
        assert_eq!(third_part(of_no_class), Err(InvalidGraph::Class { task }));
        assert!(matches!(large, Err(InvalidGraph::TooLarge { task: at, .. }) if at == task), "{large:?}");
    }
}
