//! Differences between an existing graph and one submitted under its name, in words.

use super::TaskJob;
use crate::tasks::Work;

impl TaskJob {
    /// The first difference to a graph of which the first tasks have come, in words that begin with a comma.
    pub(super) fn differences(&self, submitted: &Self) -> String {
        let both = self.graph.len().min(submitted.graph.len());
        match (0..both).find_map(|task| Some((task, self.difference(submitted, task)?))) {
            Some((task, what)) => format!(", and differs in the {what} of task {}", submitted.display(task)),
            None if both == 0 => String::new(),
            None => ", and differs behind its first tasks".to_owned(),
        }
    }

    fn difference(&self, submitted: &Self, task: u32) -> Option<&'static str> {
        let (there, new) = (self.graph.record(task), submitted.graph.record(task));
        let (class_there, class) = (&self.class(there.class).class, &submitted.class(new.class).class);
        match class.work {
            Work::Call(_) if class.work != class_there.work => Some("function"),
            Work::Train(_) if class.work != class_there.work => Some("training"),
            _ if class.rules != class_there.rules => Some("rules"),
            _ if (&new.arguments, &new.after) != (&there.arguments, &there.after) => Some("inputs"),
            _ if new.name != there.name => Some("name"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        core::{Core, GraphSubmission, Input},
        ids::JobId,
        sim::{graph_submission, new_task},
        tasks::{Arg, FunctionId, GraphDigest, NewTask, TaskClass, TaskIndex, TaskRef},
    };

    fn class(name: &str) -> TaskClass {
        TaskClass::call(FunctionId { name: name.parse().unwrap(), signature: 1, types: String::new() })
    }

    /// Of two tasks that call `a`; the second, `last`, takes 7.
    fn graph() -> (Vec<TaskClass>, Vec<NewTask>) {
        let (args, name) = (vec![Arg::Value(vec![7].into())], Some("last".parse().unwrap()));
        (vec![class("a")], vec![new_task(0), NewTask { args, name, ..new_task(0) }])
    }

    fn submission((classes, tasks): (Vec<TaskClass>, Vec<NewTask>), digest: u8) -> Input {
        let job: JobId = "graph".parse().unwrap();
        let GraphSubmission { mut spec, nonce, if_taken } = graph_submission(&job, 1, classes, tasks);
        spec.digest = GraphDigest::new([digest; 32]);
        Input::SubmitGraph(GraphSubmission { spec, nonce, if_taken })
    }

    #[test]
    fn a_graph_whose_name_is_taken_is_told_in_what_it_differs_first_table() {
        type Change = fn(&mut Vec<TaskClass>, &mut Vec<NewTask>);
        #[rustfmt::skip]
        let cases: [(Change, &str); 7] = [
            (|classes, _| classes[0] = class("b"),                          "in the function of task 0"),
            (|classes, _| classes[0].rules.errors += 1,                     "in the rules of task 0"),
            (|_, tasks| tasks[1].args.clear(),                              "in the inputs of task 1 `last`"),
            (|_, tasks| tasks[1].after.push(TaskRef::Task(TaskIndex(0))),   "in the inputs of task 1 `last`"),
            (|_, tasks| tasks[1].name = None,                               "in the name of task 1"),
            (|_, tasks| tasks.push(new_task(0)),                            "behind its first tasks"),
            (|_, tasks| tasks.truncate(1),                                  "behind its first tasks"),
        ];
        for (change, differs) in cases {
            let mut core = Core::new(1);
            core.handle(1, submission(graph(), 1)).unwrap();
            let (mut classes, mut tasks) = graph();
            change(&mut classes, &mut tasks);
            let refused = core.handle(2, submission((classes, tasks), 2)).unwrap_err().to_string();
            assert_eq!(refused, format!("[E130] job graph exists already, and differs {differs}"));
        }
    }
}
