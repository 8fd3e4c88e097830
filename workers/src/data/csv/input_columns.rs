//! Which columns of a table each input of a model takes, where a job says it by the names of the header.

use std::path::Path;

use syncline_scheduler::spec::Separator;

use super::super::error::{DataError, TableError};
use super::columns::{LabelColumns, Place};
use super::header::{First, Header};

/// An input of the model, and the columns that it takes, in its order.
#[derive(Debug, Clone, Copy)]
pub(in crate::data) struct InputColumns<'a> {
    pub(in crate::data) input: &'a str,
    pub(in crate::data) columns: &'a [String],
}

/// What each column holds of a file with this header; those that neither an input nor the label takes hold
/// nothing. `like`: the header of the training file, if this is another one. `start`: the file from its
/// header on, and what separates its columns.
pub(super) fn places(
    path: &Path,
    first: &First,
    (label, inputs): (LabelColumns<'_>, &[InputColumns<'_>]),
    like: Option<&Header>,
    (start, separator): (&[u8], Separator),
) -> Result<Vec<Place>, DataError> {
    let count = first.names.len();
    let labels = match (label, like) {
        (LabelColumns::PassedOver { .. }, _) => Vec::new(),
        (LabelColumns::Named(names), _) => first.columns_of(path, names, start, separator)?,
        (LabelColumns::Last(_), Some(like)) => like.labels_in(path, first, start, separator)?,
        (LabelColumns::Last(last), None) => (count.saturating_sub(last as usize)..count).collect(),
    };
    let mut places = vec![Place::Ignored; count];
    labels.iter().enumerate().for_each(|(number, &column)| places[column] = Place::Label(number));
    let refused = |input: &str, name: &str, what: &str| {
        DataError::from(TableError::InputColumns {
            path: path.to_owned(),
            what: format!("`{input}` takes `{name}`, {what}"),
        })
    };
    let taken = inputs.iter().flat_map(|one| one.columns.iter().map(|name| (one.input, name)));
    for (number, (input, name)) in taken.enumerate() {
        let column = first.column_of(name, start, separator);
        let column = column.map_err(|what| refused(input, name, &format!("and the file {what}")))?;
        if let Place::Label(_) = places[column] {
            let what = match (label, like) {
                (LabelColumns::Last(_), None) => {
                    "which is the label: the last column, as `label_names` names no other"
                }
                _ => "which is the label",
            };
            return Err(refused(input, name, what));
        }
        places[column] = Place::Feature(number);
    }
    Ok(places)
}
