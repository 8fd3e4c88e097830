//! Arguments of a call: values, and what other tasks give.

use serde::Serialize;
use syncline_scheduler::{
    fault_code::FaultCode,
    ids::InvalidName,
    tasks::{Arg, InvalidTraining, TaskFailure, TaskRef},
};

use super::{
    encoding,
    handle::{GraphNumber, OutcomeHandle, TaskHandle},
};

/// Why a call cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArgumentError {
    /// serde or postcard does not take the value.
    #[error("[E040] argument {position} cannot be encoded: {cause}")]
    Encode {
        /// Position among the arguments of the call, from 0.
        position: usize,
        /// What the type itself, or postcard, says.
        cause: String,
    },
    /// Handles are of use in the graph alone that made them.
    #[error("[E041] argument {position} is a task of another graph")]
    OtherGraph {
        /// Position among the arguments of the call, from 0.
        position: usize,
    },
    /// Calls of one function with the same rules are of one kind; 16 bits count them.
    #[error("[E345] the calls are of more than 65,536 kinds")]
    TooManyClasses,
    /// The options of the call name a handle of another graph.
    #[error("[E346] the task that the call comes after is one of another graph")]
    AfterOtherGraph,
    /// The options give the task something that is no name.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// With its changes the training is no valid job.
    #[error(transparent)]
    Training(#[from] InvalidTraining),
}

impl ArgumentError {
    /// The stable code, as in the message.
    pub fn code(&self) -> FaultCode {
        FaultCode::new(match self {
            Self::Encode { .. } => "E040",
            Self::OtherGraph { .. } => "E041",
            Self::TooManyClasses => "E345",
            Self::AfterOtherGraph => "E346",
            Self::Name(source) => source.code(),
            Self::Training(source) => return source.code(),
        })
    }

    /// What the user can do about it, if there is something.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Encode { .. } => {
                "give a value that serde can write with postcard: no `#[serde(flatten)]`; types with `#[serde(tag)]` or `#[serde(untagged)]` are written, and cannot be read again"
            }
            Self::OtherGraph { .. } | Self::AfterOtherGraph => {
                "use handles of the graph that the call is added to alone"
            }
            Self::TooManyClasses => "give calls of one function the same options",
            Self::Name(source) => return source.hint(),
            Self::Training(source) => return source.hint(),
        };
        Some(hint.to_owned())
    }
}

#[diagnostic::on_unimplemented(
    message = "this does not stand for a `{T}` in a call",
    label = "is neither a `{T}` nor a task that gives one",
    note = "a `T` is given as a value of just that type, which serde can write, or as the `TaskHandle<T>` of a task that gives it; for a `Vec<T>` a `Vec`, an array, or a slice of handles will do as well, given or lent",
    note = "a `Result<T, TaskFailure>` is given as the `outcome()` of a task, a `Vec` of them as a `Vec`, an array, or a slice of such",
    note = "types are not converted: for a `String` write `\"text\".to_owned()`"
)]
/// What stands for a `T` in a call: a value, a task that gives one, or for a `Vec<T>` tasks that give a `T`
/// each.
pub trait IntoArgument<T> {
    /// The argument at `position` of a call in `graph`.
    ///
    /// # Errors
    /// E040 for a value that serde cannot encode, E041 for a task of another graph.
    #[doc(hidden)]
    fn into_argument(self, position: usize, graph: GraphNumber) -> Result<Arg, ArgumentError>;
}

impl<T: Serialize> IntoArgument<T> for T {
    fn into_argument(self, position: usize, _: GraphNumber) -> Result<Arg, ArgumentError> {
        let encoded = encoding::encode(&self);
        encoded
            .map(|bytes| Arg::Value(bytes.into()))
            .map_err(|cause| ArgumentError::Encode { position, cause })
    }
}

/// The task of `handle`, which is to be one of `graph`.
fn task_in<T>(graph: GraphNumber, handle: &TaskHandle<T>, position: usize) -> Result<TaskRef, ArgumentError> {
    match handle.graph == graph {
        true => Ok(handle.task),
        false => Err(ArgumentError::OtherGraph { position }),
    }
}

impl<T> IntoArgument<T> for TaskHandle<T> {
    fn into_argument(self, position: usize, graph: GraphNumber) -> Result<Arg, ArgumentError> {
        Ok(Arg::Output(task_in(graph, &self, position)?))
    }
}

impl<T> IntoArgument<T> for &TaskHandle<T> {
    fn into_argument(self, position: usize, graph: GraphNumber) -> Result<Arg, ArgumentError> {
        (*self).into_argument(position, graph)
    }
}

/// Lists of tasks that give an element each. One implementation for all that iterate would overlap with that
/// for values.
macro_rules! list_arguments {
    ($element:ty, $form:ident, |$given:ident| $handle:expr; $([$($length:tt)*] $list:ty),* $(,)?) => {$(
        impl<T, $($length)*> IntoArgument<Vec<$element>> for $list {
            fn into_argument(self, position: usize, graph: GraphNumber) -> Result<Arg, ArgumentError> {
                let tasks = self.iter().map(|$given| task_in(graph, $handle, position));
                Ok(Arg::$form(tasks.collect::<Result<_, _>>()?))
            }
        }
    )*};
}

list_arguments!(
    T, Outputs, |handle| handle;
    [] &[TaskHandle<T>],
    [] &[&TaskHandle<T>],
    [] Vec<TaskHandle<T>>,
    [] Vec<&TaskHandle<T>>,
    [] &Vec<TaskHandle<T>>,
    [] &Vec<&TaskHandle<T>>,
    [const N: usize] [TaskHandle<T>; N],
    [const N: usize] [&TaskHandle<T>; N],
    [const N: usize] &[TaskHandle<T>; N],
    [const N: usize] &[&TaskHandle<T>; N],
);

impl<T> IntoArgument<Result<T, TaskFailure>> for OutcomeHandle<T> {
    fn into_argument(self, position: usize, graph: GraphNumber) -> Result<Arg, ArgumentError> {
        Ok(Arg::Outcome(task_in(graph, &self.0, position)?))
    }
}

list_arguments!(
    Result<T, TaskFailure>, Outcomes, |outcome| &outcome.0;
    [] &[OutcomeHandle<T>],
    [] Vec<OutcomeHandle<T>>,
    [] &Vec<OutcomeHandle<T>>,
    [const N: usize] [OutcomeHandle<T>; N],
    [const N: usize] &[OutcomeHandle<T>; N],
);

#[diagnostic::on_unimplemented(
    message = "these are no arguments for a function that takes `{I}`",
    label = "expected a tuple with something for each of `{I}`",
    note = "one argument is a tuple, too: `(value,)`; a function has six at most, so that more go into a struct"
)]
/// What stands for all arguments `I` of a call: a tuple of what stands for each.
pub trait CallArguments<I> {
    /// The arguments of a call in `graph`.
    ///
    /// # Errors
    /// As [`IntoArgument::into_argument`].
    fn into_arguments(self, graph: GraphNumber) -> Result<Vec<Arg>, ArgumentError>;
}

macro_rules! call_arguments {
    ($($given:ident $wanted:ident $position:tt),*) => {
        impl<$($given: IntoArgument<$wanted>, $wanted),*> CallArguments<($($wanted,)*)> for ($($given,)*) {
            #[allow(unused_variables, reason = "a call without arguments looks at nothing")]
            fn into_arguments(self, graph: GraphNumber) -> Result<Vec<Arg>, ArgumentError> {
                Ok(vec![$(self.$position.into_argument($position, graph)?),*])
            }
        }
    };
}

call_arguments!();
call_arguments!(A X 0);
call_arguments!(A X 0, B Y 1);
call_arguments!(A X 0, B Y 1, C Z 2);
call_arguments!(A X 0, B Y 1, C Z 2, D W 3);
call_arguments!(A X 0, B Y 1, C Z 2, D W 3, E V 4);
call_arguments!(A X 0, B Y 1, C Z 2, D W 3, E V 4, F U 5);

#[cfg(test)]
mod tests {
    use syncline_scheduler::tasks::{TaskIndex, TaskRef};

    use super::*;

    #[test]
    #[expect(clippy::needless_borrows_for_generic_args, reason = "each form is one that users may write")]
    fn values_tasks_and_lists_of_tasks_stand_for_arguments() {
        let graph = GraphNumber::next();
        let task = |n| TaskRef::Task(TaskIndex(n));
        let one = TaskHandle::<u64>::new(task(1), graph);
        let two = TaskHandle::<u64>::new(task(2), graph);
        let lists = [
            IntoArgument::<Vec<u64>>::into_argument(&[one, two][..], 0, graph),
            IntoArgument::<Vec<u64>>::into_argument(&[&one, &two][..], 0, graph),
            IntoArgument::<Vec<u64>>::into_argument(vec![one, two], 0, graph),
            IntoArgument::<Vec<u64>>::into_argument(vec![&one, &two], 0, graph),
            IntoArgument::<Vec<u64>>::into_argument(&vec![&one, &two], 0, graph),
            IntoArgument::<Vec<u64>>::into_argument([one, two], 0, graph),
            IntoArgument::<Vec<u64>>::into_argument([&one, &two], 0, graph),
            IntoArgument::<Vec<u64>>::into_argument(&[one, two], 0, graph),
            IntoArgument::<Vec<u64>>::into_argument(&[&one, &two], 0, graph),
        ];
        for list in lists {
            assert_eq!(list, Ok(Arg::Outputs(vec![task(1), task(2)])));
        }
        let given = (7u64, one, &vec![one, two], "x".to_owned());
        let args = CallArguments::<(u64, u64, Vec<u64>, String)>::into_arguments(given, graph).unwrap();
        let outputs = Arg::Outputs(vec![task(1), task(2)]);
        let text = Arg::Value(vec![1, b'x'].into());
        assert_eq!(args, [Arg::Value(vec![7].into()), Arg::Output(task(1)), outputs, text]);
    }

    #[test]
    fn outcomes_of_tasks_stand_for_results() {
        let graph = GraphNumber::next();
        let handles = [1, 2].map(|n| TaskHandle::<u64>::new(TaskRef::Task(TaskIndex(n)), graph));
        let one: Result<Vec<Arg>, _> =
            CallArguments::<(Result<u64, TaskFailure>,)>::into_arguments((handles[0].outcome(),), graph);
        assert_eq!(one, Ok(vec![Arg::Outcome(handles[0].task)]));
        let outcomes: Vec<_> = handles.iter().map(TaskHandle::outcome).collect();
        let all = IntoArgument::<Vec<Result<u64, TaskFailure>>>::into_argument(&outcomes, 0, graph);
        assert_eq!(all, Ok(Arg::Outcomes(handles.map(|handle| handle.task).to_vec())));
        let foreign = outcomes.into_argument(3, GraphNumber::next());
        assert_eq!(foreign, Err(ArgumentError::OtherGraph { position: 3 }));
    }

    #[test]
    fn a_task_of_another_graph_is_refused() {
        let other = TaskHandle::<u64>::new(TaskRef::New(0), GraphNumber::next());
        let refused = CallArguments::<(u64, u64)>::into_arguments((1, other), GraphNumber::next());
        assert_eq!(refused, Err(ArgumentError::OtherGraph { position: 1 }));
    }
}
