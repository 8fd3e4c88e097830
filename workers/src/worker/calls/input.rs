//! The input of a call: its arguments as they travel, one behind the other.

use syncline_scheduler::tasks::{OneArg, OrderArg, Value};

use crate::functions::{CallFault, ValueStore};

/// The input for these arguments. Borrowed where there is one, which came with the order; put together in `scratch`
/// otherwise. Fetches what is too large to travel: it may block.
pub(super) fn input<'a>(
    function: &str,
    args: &'a [OrderArg],
    store: &dyn ValueStore,
    scratch: &'a mut Vec<u8>,
) -> Result<&'a [u8], CallFault> {
    if let [OrderArg::One(OneArg::Value(Value::Inline(only)))] = args {
        return Ok(only);
    }
    scratch.clear();
    append(function, args, store, scratch)?;
    Ok(scratch)
}

fn append(
    function: &str,
    args: &[OrderArg],
    store: &dyn ValueStore,
    to: &mut Vec<u8>,
) -> Result<(), CallFault> {
    for arg in args {
        if let OrderArg::List(items) = arg {
            append_length(items.len(), to);
        }
        for part in arg.parts() {
            match part {
                OneArg::Value(Value::Inline(value)) => to.extend_from_slice(value),
                OneArg::Value(Value::Blob(blob)) => to.extend_from_slice(&store.get(blob)?),
                OneArg::Held(task) | OneArg::Kept(task) => {
                    let what = format!("what task {task} gives");
                    return Err(CallFault::Missing { function: function.to_owned(), what });
                }
            }
        }
    }
    Ok(())
}

/// The length of a list, as postcard writes it: seven bits in a byte, the lowest first.
fn append_length(mut length: usize, to: &mut Vec<u8>) {
    while length >= 0x80 {
        to.push(length as u8 | 0x80);
        length >>= 7;
    }
    to.push(length as u8);
}
