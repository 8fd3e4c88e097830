//! The names of the columns of a CSV file: how a label is found by its name, and how the columns of a test or
//! validation file are found by those of the training file.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use syncline_scheduler::{spec::Separator, suggestion::did_you_mean_shown};

use super::super::error::{DataError, SettingError, TableError};
use super::columns::{LabelColumns, Place, other_separator, separator_before};
use super::fields::{Field, Fields};
use super::input_columns::InputColumns;
use super::text::{number, shown};

/// Names of columns that an error lists.
const LISTED_NAMES: usize = 20;
/// What is said of names with bytes that are no UTF-8, as those of Excel and of Latin-1 are.
const NOT_UTF8: &str = "; the file is not in UTF-8: save it as that";

/// What the first record says.
#[derive(Default)]
pub(super) struct First {
    pub(super) line: u64,
    pub(super) has_text: bool,
    pub(super) has_number: bool,
    pub(super) is_comment: bool,
    /// Its fields: names, if it is a header.
    pub(super) names: Vec<String>,
}

/// The columns of a training file that names them.
#[derive(Debug)]
pub(in crate::data) struct Header {
    path: PathBuf,
    /// All of them, as they stand in the file.
    names: Vec<String>,
    /// What each of them holds.
    places: Vec<Place>,
    /// Those of the label, in its order.
    pub(super) labels: Vec<String>,
}

impl First {
    pub(super) fn read(fields: &mut Fields<'_>) -> Result<Self, DataError> {
        let mut first = Self::default();
        while let Some(field) = fields.next()? {
            let ends_record = field.ends_record;
            first.add(&field);
            if ends_record {
                break;
            }
        }
        Ok(first)
    }

    fn add(&mut self, field: &Field<'_>) {
        if self.names.is_empty() {
            self.line = field.line;
            self.is_comment = field.text.starts_with(b"#");
        }
        self.has_text |= !field.text.is_empty();
        self.has_number |= number(field.text).is_some();
        self.names.push(String::from_utf8_lossy(field.text).into_owned());
    }

    /// Whether it holds the names of the columns: if it has to, or holds no number.
    pub(super) fn is_header(&self, label: LabelColumns<'_>, inputs: &[InputColumns<'_>]) -> bool {
        let has_to = matches!(label, LabelColumns::Named([_, ..])) || !inputs.is_empty();
        has_to || !(self.has_number || self.is_comment)
    }

    /// The column of each of these names, which has to be there once. `start`: the file from here on.
    pub(super) fn columns_of(
        &self,
        path: &Path,
        names: &[String],
        start: &[u8],
        separator: Separator,
    ) -> Result<Vec<usize>, DataError> {
        let mut labels = Vec::with_capacity(names.len());
        for name in names {
            let column = self
                .column_of(name, start, separator)
                .map_err(|what| SettingError::LabelNames { what: format!("{} {what}", path.display()) })?;
            if labels.contains(&column) {
                let what = format!("`label_names` must name each column once, not `{name}` twice");
                return Err(SettingError::Invalid { what }.into());
            }
            labels.push(column);
        }
        Ok(labels)
    }

    /// The column of this name, which has to be there once; or what the file has instead, in words. `start`:
    /// the file from here on.
    pub(super) fn column_of(&self, name: &str, start: &[u8], separator: Separator) -> Result<usize, String> {
        let mut columns = (0..self.names.len()).filter(|&column| self.names[column] == *name);
        let Some(column) = columns.next() else {
            let cause = self.why_absent(name, start, separator);
            let cause = if cause.is_empty() { self.meant_by(name) } else { cause };
            let names = listed(&self.names, LISTED_NAMES, quoted).unwrap_or_default();
            return Err(format!("names {names} in line {}, and no `{name}`{cause}", self.line));
        };
        match 1 + columns.count() {
            1 => Ok(column),
            count => Err(format!("has {count} columns of the name `{name}`")),
        }
    }

    /// The column that was probably meant by a name that none has, as the end of a sentence; empty where none
    /// is near.
    fn meant_by(&self, name: &str) -> String {
        did_you_mean_shown(name, self.names.iter().map(String::as_str), quoted)
    }

    /// Why there may be no column of this name, as the end of a sentence; empty where nothing is known.
    fn why_absent(&self, name: &str, start: &[u8], separator: Separator) -> String {
        match self.names.len() {
            _ if are_damaged(&self.names) => NOT_UTF8.to_owned(),
            1 => other_separator(start, separator),
            _ => separator_before(name, start, separator).unwrap_or_default(),
        }
    }
}

impl Header {
    /// Whether the first record of another file is a sample, and names nothing, whatever is asked for by
    /// name.
    pub(super) fn is_sample(&self, first: &First) -> bool {
        first.has_number && !first.names.iter().any(|name| self.names.contains(name))
    }

    /// Whether a file without a header that has so many columns, so many of them of the label, has the
    /// columns of this one.
    pub(super) fn has_labels(&self, columns: usize, labels: usize, is_labeled: bool) -> bool {
        columns == self.names.len() && (!is_labeled || labels == self.labels.len())
    }

    /// What each column holds of a file that has the columns of this one in the same order; the label is
    /// ignored unless it is asked for.
    pub(super) fn places_in_order(&self, is_labeled: bool) -> Vec<Place> {
        let place = |place: &Place| match place {
            Place::Label(_) if !is_labeled => Place::Ignored,
            place => *place,
        };
        self.places.iter().map(place).collect()
    }

    /// `places`: what each column of `path` holds.
    pub(super) fn new(path: &Path, names: Vec<String>, places: &[Place]) -> Self {
        let mut labels: Vec<(usize, &String)> = Vec::new();
        for (name, place) in names.iter().zip(places) {
            if let Place::Label(number) = place {
                labels.push((*number, name));
            }
        }
        labels.sort_unstable();
        let labels = labels.into_iter().map(|(_, name)| name.clone()).collect();
        Self { path: path.to_owned(), names, places: places.to_vec(), labels }
    }

    /// How many columns it names.
    pub(super) fn columns(&self) -> usize {
        self.names.len()
    }

    /// What a column is called, from 0; `None` if it has no name.
    pub(super) fn name(&self, column: usize) -> Option<&str> {
        self.names.get(column).map(String::as_str).filter(|name| !name.is_empty())
    }

    /// Its names, where all are numbers, as those of a sample are; none where they count the columns from 0
    /// or 1.
    pub(in crate::data) fn numbers(&self) -> Vec<String> {
        let names: Vec<&String> = self.names.iter().filter(|name| !name.is_empty()).collect();
        let count_from =
            |first: usize| (first..).zip(&names).all(|(number, name)| **name == number.to_string());
        let are_numbers = names.iter().all(|name| number(name.as_bytes()).is_some());
        match are_numbers && !count_from(0) && !count_from(1) {
            true => names.into_iter().cloned().collect(),
            false => Vec::new(),
        }
    }

    /// Whether the first column is one of the sample, and has no name.
    pub(in crate::data) fn begins_unnamed(&self) -> bool {
        let is_feature = matches!(self.places.first(), Some(Place::Feature(_)));
        is_feature && self.names.first().is_some_and(String::is_empty)
    }

    /// The columns of another file with a header that are the label, by the names that they have here.
    pub(super) fn labels_in(
        &self,
        path: &Path,
        first: &First,
        start: &[u8],
        separator: Separator,
    ) -> Result<Vec<usize>, DataError> {
        let column = |name: &String| first.column_of(name, start, separator);
        self.labels.iter().map(column).collect::<Result<_, _>>().map_err(|what| {
            let (path, training) = (path.to_owned(), self.path.clone());
            TableError::ColumnNames { path, training, what: format!("it {what}") }.into()
        })
    }

    /// What each column of another file with a header holds, by their names. `labels`: how the job calls the
    /// label of that file, if it says so. Where it is not labeled, columns of the label may be there or
    /// not, and hold nothing.
    pub(super) fn places_in(
        &self,
        path: &Path,
        first: &First,
        labels: &[String],
        is_labeled: bool,
    ) -> Result<Vec<Place>, DataError> {
        let differ = |what: String| {
            let (path, training) = (path.to_owned(), self.path.clone());
            let what = what + if are_damaged(&first.names) { NOT_UTF8 } else { "" };
            DataError::from(TableError::ColumnNames { path, training, what })
        };
        let held = |place: Place| match place {
            Place::Label(_) if !is_labeled => Place::Ignored,
            place => place,
        };
        // Names that stand there twice tell nothing apart, and need not where all stand as they do here.
        if first.names == self.names && (labels.is_empty() || labels == self.labels) {
            return Ok(self.places.iter().copied().map(held).collect());
        }
        let labels = if labels.is_empty() { self.labels.as_slice() } else { labels };
        if labels.len() != self.labels.len() {
            let what = format!("`label_names` has {} there, and {} here", self.labels.len(), labels.len());
            return Err(differ(what));
        }
        let wanted = self.names.iter().zip(&self.places).map(|(name, &place)| match place {
            Place::Label(number) => (&labels[number], held(place)),
            Place::Feature(_) | Place::Ignored => (name, place),
        });
        let twice = again(wanted.clone().map(|(name, _)| name)).map(|name| (name, "there"));
        if let Some((name, which)) = twice.or(again(&first.names).map(|name| (name, "here"))) {
            return Err(differ(format!("two are called {} {which}", quoted(name))));
        }
        let known: HashMap<&String, Place> = wanted.clone().collect();
        let here: HashSet<&String> = first.names.iter().collect();
        let has_to = |(name, place): &(&String, Place)| *place != Place::Ignored && !here.contains(name);
        let missing = listed(wanted.filter(has_to).map(|(name, _)| name), LISTED_NAMES, quoted);
        let unknown =
            listed(first.names.iter().filter(|name| !known.contains_key(name)), LISTED_NAMES, quoted);
        match (missing, unknown) {
            (None, None) => Ok(first.names.iter().filter_map(|name| known.get(name).copied()).collect()),
            (Some(missing), None) => Err(differ(format!("{missing} is missing"))),
            (None, Some(unknown)) => Err(differ(format!("{unknown} is none of the latter"))),
            (Some(missing), Some(unknown)) => {
                Err(differ(format!("{missing} is missing, and {unknown} in its place")))
            }
        }
    }
}

/// Whether some bytes of them were no UTF-8.
fn are_damaged(names: &[String]) -> bool {
    names.iter().any(|name| name.contains(char::REPLACEMENT_CHARACTER))
}

fn quoted(name: &str) -> String {
    format!("`{}`", shown(name.as_bytes()))
}

/// The first name that comes again.
fn again<'a>(names: impl IntoIterator<Item = &'a String>) -> Option<&'a String> {
    let mut seen = HashSet::new();
    names.into_iter().find(|name| !seen.insert(*name))
}

/// The first `most` names for an error, if there are any.
pub(in crate::data) fn listed<'a>(
    names: impl IntoIterator<Item = &'a String>,
    most: usize,
    form: impl Fn(&str) -> String,
) -> Option<String> {
    let mut names = names.into_iter().map(|name| form(name)).peekable();
    names.peek()?;
    let first: Vec<String> = names.by_ref().take(most).collect();
    let more = if names.peek().is_some() { ", ..." } else { "" };
    Some(format!("{}{more}", first.join(", ")))
}
