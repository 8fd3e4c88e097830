//! Tables of numbers, and how they are read.

use serde::{Deserialize, Serialize};

use super::{Files, Separator, Source};

/// Tables that are read one after the other, as a job file's `source.csv` has them. The last column is the
/// label, if nothing else is said:
///
/// ```
/// # use syncline_scheduler::spec::{CsvSource, DataSpec, Separator};
/// let flowers = CsvSource::new(["iris-*.csv", "more.csv"]).label_names(["species"]).separator(Separator::Semicolon);
/// let data = DataSpec::new(flowers);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CsvSource {
    /// The files; each may have a header, and its columns are found by the names of the first one then.
    pub path: Files,
    /// How many of the last columns are the label, where `label_names` is empty.
    #[serde(default = "one_column")]
    pub label_columns: u32,
    /// The columns that are the label, by their names in the header.
    #[serde(default)]
    pub label_names: Vec<String>,
    /// Lines to skip at the top of each.
    #[serde(default)]
    pub skip_lines: u32,
    /// What separates columns; `None`: what the first lines of a file show.
    #[serde(default)]
    pub separator: Option<Separator>,
}

impl CsvSource {
    /// Files whose last column is the label. `part-*.csv` stands for all files of such a name.
    pub fn new(files: impl Into<Files>) -> Self {
        Self {
            path: files.into(),
            label_columns: one_column(),
            label_names: Vec::new(),
            skip_lines: 0,
            separator: None,
        }
    }

    /// So many of the last columns are the label.
    #[must_use]
    pub fn label_columns(self, label_columns: u32) -> Self {
        Self { label_columns, ..self }
    }

    /// The columns of these names in the header are the label, instead of the last ones.
    #[must_use]
    pub fn label_names<N: Into<String>>(self, names: impl IntoIterator<Item = N>) -> Self {
        Self { label_names: names.into_iter().map(Into::into).collect(), ..self }
    }

    /// So many lines at the top of each file are left out.
    #[must_use]
    pub fn skip_lines(self, skip_lines: u32) -> Self {
        Self { skip_lines, ..self }
    }

    /// What separates columns.
    #[must_use]
    pub fn separator(self, separator: Separator) -> Self {
        Self { separator: Some(separator), ..self }
    }
}

impl From<CsvSource> for Source {
    fn from(table: CsvSource) -> Self {
        Self::Csv(table)
    }
}

fn one_column() -> u32 {
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_in_rust_is_the_one_of_a_job_file() {
        let in_rust: Source = CsvSource::new(["a.csv", "b.csv"])
            .label_columns(2)
            .label_names(["x", "y"])
            .skip_lines(3)
            .separator(Separator::Tab)
            .into();
        let in_a_file = r#"{"csv": {"path": ["a.csv", "b.csv"], "label_columns": 2, "label_names": ["x", "y"],
            "skip_lines": 3, "separator": "tab"}}"#;
        assert_eq!(serde_json::from_str::<Source>(in_a_file).unwrap(), in_rust);
        let plain = r#"{"csv": {"path": "a.csv"}}"#;
        assert_eq!(serde_json::from_str::<Source>(plain).unwrap(), Source::csv("a.csv"));
        let unknown = serde_json::from_str::<Source>(r#"{"csv": {"path": "a.csv", "rows": 3}}"#).unwrap_err();
        assert!(unknown.to_string().contains("unknown field `rows`"), "{unknown}");
    }
}
