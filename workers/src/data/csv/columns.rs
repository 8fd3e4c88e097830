//! Which columns of a CSV file are the label: the last ones, or those that its header calls so.

use std::path::Path;

use super::super::error::DataError;
use super::fields::{Field, Fields};
use super::text::{number, shown};

/// Names of columns that an error lists.
const LISTED_NAMES: usize = 20;

/// Which columns are the label, as a job says it.
#[derive(Debug, Clone, Copy)]
pub(in crate::data) enum LabelColumns<'a> {
    Last(u32),
    /// Those with these names in the header, in this order.
    Named(&'a [String]),
}

/// The columns of a file.
#[derive(Debug)]
pub(super) struct Columns {
    pub(super) count: usize,
    /// For each column of the label, ascending: its index, and the index of its number in the label.
    pub(super) labels: Vec<(usize, usize)>,
}

/// What the first record says.
#[derive(Default)]
struct First {
    line: u64,
    columns: usize,
    has_text: bool,
    has_number: bool,
    is_comment: bool,
    /// For each name that was asked for: the columns that are called so.
    named: Vec<Vec<usize>>,
    /// The first names, for an error.
    names: Vec<String>,
}

impl Columns {
    /// Looks at the first record, and steps over it if it is a header: if it has to hold names, or holds no number.
    pub(super) fn find(
        path: &Path,
        fields: &mut Fields<'_>,
        wanted: LabelColumns<'_>,
    ) -> Result<Self, DataError> {
        let format = |reason: String| DataError::Format { path: path.to_owned(), reason };
        let (label_count, names) = match wanted {
            LabelColumns::Last(count) => (count as usize, [].as_slice()),
            LabelColumns::Named(names) => (names.len(), names),
        };
        let start = fields.rest();
        let mut after = fields.look_ahead();
        let first = First::read(&mut after, names)?;
        if !first.has_text {
            let line = first.line;
            let is_over = after.rest().trim_ascii().is_empty();
            return Err(format(match is_over {
                true => "it has no samples".to_owned(),
                false => format!(
                    "line {line} is empty, where the header or the first sample should be: `skip_lines = {line}`"
                ),
            }));
        }
        if first.columns <= label_count && names.is_empty() {
            return Err(format(no_feature(&first, label_count, start)));
        }
        let mut labels = first.columns_of(path, names, start)?;
        if names.is_empty() {
            labels = (first.columns - label_count..first.columns).zip(0..).collect();
        }
        if labels.len() == first.columns {
            return Err(format(no_feature(&first, label_count, start)));
        }
        let is_header = !names.is_empty() || !(first.has_number || first.is_comment);
        if is_header {
            *fields = after;
        }
        Ok(Self { count: first.columns, labels })
    }
}

impl First {
    fn read(fields: &mut Fields<'_>, names: &[String]) -> Result<Self, DataError> {
        let mut first = Self { named: vec![Vec::new(); names.len()], ..Self::default() };
        while let Some(field) = fields.next()? {
            let ends_record = field.ends_record;
            first.add(&field, names);
            if ends_record {
                break;
            }
        }
        Ok(first)
    }

    fn add(&mut self, field: &Field<'_>, names: &[String]) {
        if self.columns == 0 {
            self.line = field.line;
            self.is_comment = field.text.starts_with(b"#");
        }
        self.has_text |= !field.text.is_empty();
        self.has_number |= number(field.text).is_some();
        for (name, named) in names.iter().zip(&mut self.named) {
            if name.as_bytes() == field.text {
                named.push(self.columns);
            }
        }
        if self.names.len() < LISTED_NAMES {
            self.names.push(shown(field.text));
        }
        self.columns += 1;
    }

    /// The column of each name, ascending. Each name has to be there once.
    fn columns_of(
        &self,
        path: &Path,
        names: &[String],
        start: &[u8],
    ) -> Result<Vec<(usize, usize)>, DataError> {
        let setting = |name: &str, what: String, cause: String| {
            let what = format!("`label_names`: {} {what} `{name}`{cause}", path.display());
            DataError::InvalidSetting { what }
        };
        let mut labels = Vec::with_capacity(names.len());
        for (index, (name, columns)) in names.iter().zip(&self.named).enumerate() {
            match columns.as_slice() {
                &[column] => labels.push((column, index)),
                [] => {
                    let more = if self.columns > self.names.len() { ", ..." } else { "" };
                    let listed = self.names.join(", ");
                    let line = self.line;
                    let cause = if self.columns == 1 { other_separator(start) } else { String::new() };
                    return Err(setting(name, format!("names {listed}{more} in line {line}, and no"), cause));
                }
                several => {
                    let count = several.len();
                    return Err(setting(name, format!("has {count} columns of the name"), String::new()));
                }
            }
        }
        labels.sort_unstable();
        match labels.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(twice) => Err(DataError::InvalidSetting {
                what: format!("`label_names` must name each column once, not `{}` twice", names[twice[0].1]),
            }),
            None => Ok(labels),
        }
    }
}

/// What is said of a file whose first record, which begins at `start`, has no column but those of the label.
fn no_feature(first: &First, label_count: usize, start: &[u8]) -> String {
    let (line, found, label) = (first.line, counted(first.columns), counted(label_count));
    let mut lines = start.split(|&byte| byte == b'\n');
    let comments = lines.clone().take_while(|line| line.starts_with(b"#")).count() as u64 + line - 1;
    let text = lines.next().unwrap_or_default().trim_ascii();
    let cause = match text.starts_with(b"#") {
        true => format!("; it looks like a comment: set `skip_lines = {comments}`"),
        false => other_separator(start),
    };
    format!("line {line} has {found}, which leaves no feature beside {label} of the label{cause}")
}

/// What may separate the columns of the first line of `start` instead of commas, as the end of a sentence.
fn other_separator(start: &[u8]) -> String {
    let text = start.split(|&byte| byte == b'\n').next().unwrap_or_default().trim_ascii();
    let separators = [(b';', "semicolons"), (b'\t', "tabs"), (b' ', "spaces")];
    let found = separators.iter().find(|(byte, _)| text.contains(byte));
    found.map_or_else(String::new, |(_, name)| {
        format!("; it looks as if {name} separate its columns: only commas do")
    })
}

fn counted(columns: usize) -> String {
    format!("{columns} column{}", if columns == 1 { "" } else { "s" })
}
