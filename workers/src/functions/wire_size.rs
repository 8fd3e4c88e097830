//! How much new tasks take up in a message.

#[cfg(feature = "worker")]
use syncline_scheduler::tasks::TaskClass;
use syncline_scheduler::tasks::{Arg, MAX_INLINE_BYTES, NewTask};

/// Upper bound for a reference, a length, or the index of a class.
const NUMBER_BYTES: usize = 6;
/// Upper bound for a constant that is kept by the parameter server: its digest, and its size.
const BLOB_BYTES: usize = 80;

/// Upper bound in bytes. A constant that is too large to travel counts as the blob that it becomes.
pub(crate) fn wire_bytes(task: &NewTask) -> usize {
    let arg = |arg: &Arg| {
        NUMBER_BYTES
            + match arg {
                Arg::Value(value) if value.len() > MAX_INLINE_BYTES => BLOB_BYTES,
                Arg::Value(value) => value.len(),
                Arg::Blob(_) => BLOB_BYTES,
                Arg::Output(_) | Arg::Outcome(_) => NUMBER_BYTES,
                Arg::Outputs(inputs) | Arg::Outcomes(inputs) => inputs.len() * NUMBER_BYTES,
            }
    };
    let name = task.name.as_ref().map_or(0, |name| name.as_str().len());
    task.args.iter().map(arg).sum::<usize>() + (task.after.len() + 3) * NUMBER_BYTES + name
}

/// The same of tasks that are added together, with what they have in common: what a training trains may be
/// long.
#[cfg(feature = "worker")]
pub(crate) fn added_bytes(classes: &[TaskClass], tasks: &[NewTask]) -> usize {
    let classes = postcard::to_stdvec(classes).map_or(0, |encoded| encoded.len());
    classes + tasks.iter().map(wire_bytes).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::tasks::{ClassIndex, TaskRef};

    use super::*;

    #[test]
    fn no_task_is_larger_than_it_is_taken_for() {
        let many = (0..1_000).map(|n| TaskRef::New(u32::MAX - n)).collect();
        let value = Arg::Value(vec![7; 300].into());
        let args = vec![value, Arg::Outputs(many), Arg::Output(TaskRef::New(u32::MAX))];
        let task = NewTask { class: ClassIndex(0), args, after: vec![TaskRef::New(7)], name: None };
        assert!(postcard::to_stdvec(&task).unwrap().len() <= wire_bytes(&task));
    }
}
