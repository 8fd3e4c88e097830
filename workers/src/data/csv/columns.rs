//! What becomes of each column of a CSV file: which are the label, and which number of the sample the others
//! are.

use std::path::Path;
use std::sync::Arc;

use syncline_scheduler::spec::Separator;

use super::super::array_parts::ArrayParts;
use super::super::error::{DataError, FormatError};
use super::fields::Fields;
use super::header::{First, Header};
use super::input_columns::{self, InputColumns};

/// Which columns are the label, as a job says it.
#[derive(Debug, Clone, Copy)]
pub(in crate::data) enum LabelColumns<'a> {
    Last(u32),
    /// Those with these names in the header, in this order.
    Named(&'a [String]),
    /// None is: these are passed over where they are there.
    PassedOver {
        /// So many last ones, where nothing is named.
        last: u32,
        names: &'a [String],
        /// Numbers of a sample, if they are known: a file without names that has `last` more columns has
        /// those of the label.
        features: Option<usize>,
    },
}

/// A column of a CSV file that is a number of the label, or of an input.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LabelColumn {
    /// Its place in the file, from 1.
    pub number: u64,
    /// How many columns the file has.
    pub of: u64,
    /// What the header calls it, if there is one.
    pub name: Option<String>,
}

impl LabelColumn {
    /// Those of a table with this header; without one it has so many columns.
    pub(in crate::data) fn of_table(
        numbers: &ArrayParts,
        columns: usize,
        header: Option<&Header>,
    ) -> Vec<Self> {
        let of = header.map_or(columns, Header::columns) as u64;
        let columns = (0..numbers.width()).filter_map(|index| numbers.first.table_column(index));
        let name = |column: usize| header.and_then(|header| header.name(column)).map(str::to_owned);
        columns.map(|number| Self { number: number as u64, of, name: name(number - 1) }).collect()
    }
}

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// This number of the sample.
    Feature(usize),
    /// This number of the label.
    Label(usize),
    /// Nothing that is read.
    Ignored,
}

/// The columns of a file.
#[derive(Debug)]
pub(super) struct Columns {
    /// One for each column, as they stand in the file.
    pub(super) places: Vec<Place>,
    /// Columns of the sample, and of the label.
    pub(super) feature_count: usize,
    pub(super) label_count: usize,
    /// Names of all of them, as they stand in the file; empty where it has no header.
    pub(super) names: Arc<[String]>,
    /// What finds them in other files, if the first record holds names.
    pub(super) header: Option<Header>,
}

impl Columns {
    /// Looks at the first record, and steps over it if it is a header: if it has to hold names, or holds no
    /// number. `inputs`: which columns each input of the model takes; none where the only one takes all
    /// that are no label. `like`: the header of the training file, whose columns this one has in any
    /// order.
    pub(super) fn find(
        path: &Path,
        fields: &mut Fields<'_>,
        wanted: LabelColumns<'_>,
        inputs: &[InputColumns<'_>],
        like: Option<&Header>,
    ) -> Result<Self, DataError> {
        let format =
            |reason: String| DataError::from(FormatError::Malformed { path: path.to_owned(), reason });
        let (label_count, names) = match wanted {
            LabelColumns::Last(count) => (count as usize, [].as_slice()),
            LabelColumns::Named(names) => (names.len(), names),
            LabelColumns::PassedOver { names, .. } => (0, names),
        };
        let start = fields.rest();
        let mut after = fields.look_ahead();
        let first = First::read(&mut after)?;
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
        let count = first.names.len();
        let is_header = first.is_header(wanted, inputs) && !like.is_some_and(|like| like.is_sample(&first));
        let is_labeled = !matches!(wanted, LabelColumns::PassedOver { .. });
        if let Some(like) = like.filter(|like| !is_header && like.has_labels(count, label_count, is_labeled))
        {
            return Ok(Self::new(like.places_in_order(is_labeled), Vec::new(), None));
        }
        if !inputs.is_empty() {
            let places =
                input_columns::places(path, &first, (wanted, inputs), like, (start, fields.separator()))?;
            let header = like.is_none().then(|| Header::new(path, first.names.clone(), &places));
            *fields = after;
            return Ok(Self::new(places, first.names, header));
        }
        if let Some(like) = like.filter(|_| is_header) {
            let places = like.places_in(path, &first, names, is_labeled)?;
            *fields = after;
            return Ok(Self::new(places, first.names, None));
        }
        if let LabelColumns::PassedOver { last, features, .. } = wanted {
            let is_named = |column: &usize| is_header && names.contains(&first.names[*column]);
            let has_last =
                names.is_empty() && features.is_some_and(|numbers| count == numbers + last as usize);
            let first_of_last = if has_last { count - last as usize } else { count };
            let passed_over: Vec<usize> =
                (0..count).filter(|column| *column >= first_of_last || is_named(column)).collect();
            let names = if is_header { first.names } else { Vec::new() };
            if is_header {
                *fields = after;
            }
            return Ok(Self::new(in_order(count, &passed_over, |_| Place::Ignored), names, None));
        }
        if count <= label_count && names.is_empty() {
            return Err(format(no_feature(&first, label_count, start, fields.separator())));
        }
        let labels = match names {
            [] => (count - label_count..count).collect(),
            names => first.columns_of(path, names, start, fields.separator())?,
        };
        if labels.len() == count {
            return Err(format(no_feature(&first, label_count, start, fields.separator())));
        }
        let places = in_order(count, &labels, Place::Label);
        let names = if is_header { first.names } else { Vec::new() };
        let header = is_header.then(|| Header::new(path, names.clone(), &places));
        if header.is_some() {
            *fields = after;
        }
        Ok(Self::new(places, names, header))
    }

    fn new(places: Vec<Place>, names: Vec<String>, header: Option<Header>) -> Self {
        let feature_count = places.iter().filter(|place| matches!(place, Place::Feature(_))).count();
        let label_count = places.iter().filter(|place| matches!(place, Place::Label(_))).count();
        Self { places, feature_count, label_count, names: names.into(), header }
    }

    /// The column of each number of the sample, and of the label.
    pub(super) fn by_number(&self) -> (Vec<usize>, Vec<usize>) {
        let (mut features, mut labels) = (vec![0; self.feature_count], vec![0; self.label_count]);
        for (column, place) in self.places.iter().enumerate() {
            match place {
                Place::Feature(number) => features[*number] = column,
                Place::Label(number) => labels[*number] = column,
                Place::Ignored => {}
            }
        }
        (features, labels)
    }
}

/// These columns are something else, by their numbers in the list; the others are the sample, as they stand
/// in the file.
fn in_order(count: usize, others: &[usize], other: impl Fn(usize) -> Place) -> Vec<Place> {
    let mut places = vec![None; count];
    others.iter().enumerate().for_each(|(number, &column)| places[column] = Some(other(number)));
    let mut features = 0..;
    let place = |place: Option<Place>| place.or_else(|| features.next().map(Place::Feature));
    places.into_iter().filter_map(place).collect()
}

/// What is said of a file whose first record, which begins at `start`, has no column but those of the label.
fn no_feature(first: &First, label_count: usize, start: &[u8], separator: Separator) -> String {
    let (line, found, label) = (first.line, counted(first.names.len()), counted(label_count));
    let cause = other_separator(start, separator);
    format!("line {line} has {found}, which leaves no feature beside {label} of the label{cause}")
}

/// What may separate the columns of the first line of `start` instead, as the end of a sentence.
pub(super) fn other_separator(start: &[u8], separator: Separator) -> String {
    let text = first_line(start);
    match others(separator).find(|other| text.contains(&other.byte())) {
        Some(other) => separated_by(other, separator),
        None if text.contains(&b' ') => {
            "; it looks as if spaces separate its columns, which commas, semicolons or tabs have to do"
                .to_owned()
        }
        None => String::new(),
    }
}

/// The same where `name` was looked for among the columns of the first line of `start` and is one between
/// other separators. Commas may then be decimal points, or stand in names.
pub(super) fn separator_before(name: &str, start: &[u8], separator: Separator) -> Option<String> {
    let text = first_line(start);
    let is_name = |part: &[u8]| {
        let part = part.trim_ascii();
        let bare = part.strip_prefix(b"\"").and_then(|part| part.strip_suffix(b"\"")).unwrap_or(part);
        bare == name.as_bytes()
    };
    let separates = |other: &Separator| {
        text.contains(&other.byte()) && text.split(|byte| *byte == other.byte()).any(is_name)
    };
    others(separator).find(separates).map(|other| separated_by(other, separator))
}

fn others(separator: Separator) -> impl Iterator<Item = Separator> {
    Separator::ALL.into_iter().filter(move |other| *other != separator)
}

fn first_line(start: &[u8]) -> &[u8] {
    start.split(|&byte| byte == b'\n').next().unwrap_or_default().trim_ascii()
}

fn separated_by(other: Separator, separator: Separator) -> String {
    let (other, separator) = (other.plural(), separator.plural());
    format!("; it looks as if {other} separate its columns, and it is read with {separator}")
}

fn counted(columns: usize) -> String {
    format!("{columns} column{}", if columns == 1 { "" } else { "s" })
}
