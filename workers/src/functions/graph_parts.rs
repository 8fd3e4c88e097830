//! Calls on their way into a graph.

use std::{any::type_name, collections::HashMap};

use syncline_scheduler::{
    core::Trained,
    tasks::{Arg, ClassIndex, NewTask, PreparedTraining, Rules, TaskClass, TaskRef, TrainingChanges, Work},
};

use super::{
    ArgumentError, CallArguments, CallOptions, Function, IntoArgument,
    encoding::decode,
    handle::{GraphNumber, TaskHandle},
};

/// What makes tasks of one class: a function, by its name and types, and the rules.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ClassKey {
    name: &'static str,
    types: &'static str,
    rules: Rules,
}

/// Calls that are to be added to a graph together, with the classes that they have in common. They refer to
/// each other by [`TaskRef::New`].
#[derive(Debug)]
pub(crate) struct GraphParts {
    pub(crate) graph: GraphNumber,
    pub(crate) classes: Vec<TaskClass>,
    pub(crate) tasks: Vec<NewTask>,
    known: HashMap<ClassKey, ClassIndex>,
    /// The class of the last call: most calls follow one of the same kind.
    last: Option<(ClassKey, ClassIndex)>,
}

impl Default for GraphParts {
    fn default() -> Self {
        let (classes, tasks) = (Vec::new(), Vec::new());
        Self { graph: GraphNumber::next(), classes, tasks, known: HashMap::new(), last: None }
    }
}

impl GraphParts {
    /// Adds a call.
    ///
    /// # Errors
    /// E001 for a name that is none, E040, E041, E345 and E346 for what the call is given.
    pub(crate) fn add<I, O>(
        &mut self,
        function: Function<I, O>,
        args: impl CallArguments<I>,
        options: &CallOptions,
    ) -> Result<TaskHandle<O>, ArgumentError> {
        let args = args.into_arguments(self.graph)?;
        self.push(args, options, |parts| parts.class(function, &options.rules))
    }

    /// Adds a training.
    ///
    /// # Errors
    /// As [`add`](Self::add), and what is wrong with the training under these changes, where they are known
    /// now.
    pub(crate) fn add_training(
        &mut self,
        training: &PreparedTraining,
        changes: impl IntoArgument<TrainingChanges>,
        options: &CallOptions,
    ) -> Result<TaskHandle<Trained>, ArgumentError> {
        let changes = changes.into_argument(0, self.graph)?;
        if let Arg::Value(bytes) = &changes {
            let known = decode(bytes).map_err(|cause| ArgumentError::Encode { position: 0, cause })?;
            training.check(&known)?;
        }
        let args = vec![changes];
        let class = TaskClass { work: Work::Train(training.clone()), rules: options.rules.clone() };
        self.push(args, options, |parts| match parts.classes.iter().position(|known| *known == class) {
            Some(known) => Ok(ClassIndex(known as u16)),
            None => parts.add_class(class),
        })
    }

    fn push<T>(
        &mut self,
        args: Vec<Arg>,
        options: &CallOptions,
        class: impl FnOnce(&mut Self) -> Result<ClassIndex, ArgumentError>,
    ) -> Result<TaskHandle<T>, ArgumentError> {
        let name = options.name.as_deref().map(str::parse).transpose()?;
        if options.after.iter().any(|(_, graph)| *graph != self.graph) {
            return Err(ArgumentError::AfterOtherGraph);
        }
        let after = options.after.iter().map(|(task, _)| *task).collect();
        let class = class(self)?;
        let task = TaskRef::New(self.tasks.len() as u32);
        self.tasks.push(NewTask { class, args, after, name });
        Ok(TaskHandle::new(task, self.graph))
    }

    /// The index of a task among these.
    #[cfg(feature = "worker")]
    pub(crate) fn place_of<T>(&self, handle: TaskHandle<T>) -> Option<u32> {
        match handle.task {
            TaskRef::New(index) if handle.graph == self.graph => Some(index),
            _ => None,
        }
    }

    /// The index of the class of such calls.
    fn class<I, O>(&mut self, function: Function<I, O>, rules: &Rules) -> Result<ClassIndex, ArgumentError> {
        let (name, types) = (function.name(), type_name::<Function<I, O>>());
        if let Some((key, class)) = &self.last
            && (key.name, key.types, &key.rules) == (name, types, rules)
        {
            return Ok(*class);
        }
        let key = ClassKey { name, types, rules: rules.clone() };
        let class = match self.known.get(&key) {
            Some(class) => *class,
            None => {
                let work = Work::Call(function.id());
                let class = self.add_class(TaskClass { work, rules: rules.clone() })?;
                self.known.insert(key.clone(), class);
                class
            }
        };
        self.last = Some((key, class));
        Ok(class)
    }

    fn add_class(&mut self, class: TaskClass) -> Result<ClassIndex, ArgumentError> {
        let next = u16::try_from(self.classes.len()).map_err(|_| ArgumentError::TooManyClasses)?;
        self.classes.push(class);
        Ok(ClassIndex(next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADD: Function<(u64, u64), u64> = Function::new("add");
    const SUM: Function<(Vec<u64>,), u64> = Function::new("sum");

    #[test]
    fn calls_of_one_kind_share_a_class_and_refer_to_each_other() {
        let mut parts = GraphParts::default();
        let usual = CallOptions::new();
        let one = parts.add(ADD, (1, 2), &usual).unwrap();
        let two = parts.add(ADD, (one, 3), &usual).unwrap();
        let sum = parts.add(SUM, (&vec![one, two],), &CallOptions::new().name("sum").after(&one)).unwrap();
        let urgent = parts.add(ADD, (sum, 1), &CallOptions::new().priority(1)).unwrap();
        parts.add(ADD, (urgent, 1), &usual).unwrap();
        let classes: Vec<u16> = parts.tasks.iter().map(|task| task.class.0).collect();
        assert_eq!((classes, parts.classes.len()), (vec![0, 0, 1, 2, 0], 3));
        assert_eq!(parts.classes[1], TaskClass::call(SUM.id()));
        assert_eq!(parts.tasks[1].args, [Arg::Output(TaskRef::New(0)), Arg::Value(vec![3].into())]);
        assert_eq!(parts.tasks[2].after, [TaskRef::New(0)]);
        assert_eq!(parts.tasks[2].name.as_ref().map(|name| name.as_str()), Some("sum"));
    }

    #[test]
    fn a_call_that_is_refused_adds_nothing() {
        let (mut parts, mut other) = (GraphParts::default(), GraphParts::default());
        let foreign = other.add(ADD, (1, 2), &CallOptions::new()).unwrap();
        let refused = [
            parts.add(ADD, (1, foreign), &CallOptions::new()).unwrap_err(),
            parts.add(ADD, (1, 2), &CallOptions::new().after(&foreign)).unwrap_err(),
            parts.add(ADD, (1, 2), &CallOptions::new().name("No name")).unwrap_err(),
        ];
        let codes = refused.map(|error| error.to_string()[..6].to_owned());
        assert_eq!(codes, ["[E041]", "[E346]", "[E001]"]);
        assert!(parts.tasks.is_empty() && parts.classes.is_empty());
    }
}
