//! What a value looks like: a line in the manner of JSON that is made of no more of the value than the line
//! shows.
//!
//! A value that a task gives travels as postcard, which says nothing of its types: only who has the function
//! can show it. So the worker makes a [`Preview`] beside the value, if people may look at it. Lists and texts
//! of any length are looked at until the line is full; only a type that puts itself together as a whole
//! before it writes anything costs more.

mod line;
mod serializer;
mod tensor;

use serde::Serialize;
use syncline_scheduler::tasks::Preview;

use line::{Line, Stop};
use serializer::PreviewSerializer;

/// What a value looks like; `None` if its type refuses to be written so.
pub(crate) fn preview<T: Serialize + ?Sized>(value: &T) -> Option<Preview> {
    let mut line = Line::default();
    match value.serialize(PreviewSerializer::new(&mut line)) {
        Ok(()) => Some(line.into_text().into()),
        Err(Stop::Full) => Some(Preview::cut(&line.into_text())),
        Err(Stop::Refused) => None,
    }
}

#[cfg(test)]
mod tests;
