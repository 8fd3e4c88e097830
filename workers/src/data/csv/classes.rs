//! Labels that are texts: each text is a class, by its place among the distinct texts of the training file in
//! ascending order of their bytes. So whoever has read that file knows the same numbers.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use super::super::error::{DataError, TableError};
use super::fields::Field;
use super::text::{has_comma, shown};

/// Most different texts of a label.
const MAX_TEXTS: usize = 65_536;

/// The texts of a training file, ascending: each is the class of its place.
#[derive(Debug, Clone)]
pub(in crate::data) struct ClassNames {
    pub(super) path: PathBuf,
    pub(in crate::data) names: Vec<String>,
}

/// What the labels of a file are.
#[derive(Clone)]
pub(super) enum Labels {
    Numbers,
    /// The first one says whether all are numbers or all are texts.
    Open,
    Texts(Texts),
}

/// The texts so far, each with a number of its own.
#[derive(Clone)]
pub(super) struct Texts {
    numbers: HashMap<String, u32>,
    /// The file whose texts are known, and no others.
    training: Option<PathBuf>,
}

/// Whether a text may be the name of a class: not one that is missing, of several columns between other
/// separators, or a number with a decimal comma.
fn is_name(text: &[u8]) -> bool {
    !text.is_empty() && !text.contains(&b';') && !text.contains(&b'\t') && !has_comma(text)
}

impl Labels {
    /// Those of a file whose labels are classes; `like`: of the training file, where its labels are texts.
    pub(super) fn like(like: &ClassNames) -> Self {
        let numbers = like.names.iter().cloned().zip(0..).collect();
        Self::Texts(Texts { numbers, training: Some(like.path.clone()) })
    }

    /// The number of a label, `value` where it says one; `None` where it has to say one and does not.
    pub(super) fn number(
        &mut self,
        path: &Path,
        field: &Field<'_>,
        value: Option<f64>,
    ) -> Result<Option<f64>, DataError> {
        match self {
            Self::Numbers => return Ok(value),
            Self::Open if value.is_some() || !is_name(field.text) => {
                *self = Self::Numbers;
                return Ok(value);
            }
            Self::Open => *self = Self::Texts(Texts { numbers: HashMap::new(), training: None }),
            Self::Texts(_) => {}
        }
        let Self::Texts(texts) = self else { return Ok(value) };
        let refused = |what: String| {
            DataError::from(TableError::UnfitLabel {
                path: path.to_owned(),
                line: field.line,
                column: field.column,
                text: shown(field.text),
                what,
            })
        };
        if field.text.is_empty() {
            return Err(refused("is empty, and the others are strings".to_owned()));
        }
        if value.is_some() {
            return Err(refused(match &texts.training {
                Some(training) => format!("is a number, and those of {} are strings", training.display()),
                None => "is a number, and those before are strings".to_owned(),
            }));
        }
        let Ok(text) = std::str::from_utf8(field.text) else {
            return Err(refused("is not in UTF-8: save the file as that".to_owned()));
        };
        if let Some(number) = texts.numbers.get(text) {
            return Ok(Some(f64::from(*number)));
        }
        if let Some(training) = &texts.training {
            let known = texts.numbers.len();
            return Err(refused(format!("is none of the {known} of {}", training.display())));
        }
        if texts.numbers.len() == MAX_TEXTS {
            return Err(refused(format!("is one text more than the {MAX_TEXTS} that can be told apart")));
        }
        let number = texts.numbers.len() as u32;
        texts.numbers.insert(text.to_owned(), number);
        Ok(Some(f64::from(number)))
    }

    /// The names of the classes, where labels are texts, and the class of each number that a label was given,
    /// unless it is that number.
    pub(super) fn into_classes(self) -> Option<(Vec<String>, Option<Vec<u32>>)> {
        let Self::Texts(Texts { numbers, training }) = self else { return None };
        let sorted: BTreeMap<String, u32> = numbers.into_iter().collect();
        let classes = training.is_none().then(|| {
            let mut classes = vec![0; sorted.len()];
            sorted.values().zip(0..).for_each(|(&number, class)| classes[number as usize] = class);
            classes
        });
        Some((sorted.into_keys().collect(), classes))
    }

    /// What numbers follow from, beside the labels.
    pub(super) fn known(&self) -> String {
        match self {
            Self::Numbers => "numbers".to_owned(),
            Self::Open => "open".to_owned(),
            Self::Texts(texts) => {
                format!("{:?}", texts.numbers.iter().collect::<BTreeMap<&String, &u32>>())
            }
        }
    }
}
