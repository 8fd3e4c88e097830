//! Which trained parameters a user means by a name or a pattern, as in `freeze`.

use std::collections::HashMap;

use syncline_onnx::ModelProto;

use crate::param_list::unknown;
use crate::{forward::TiedNames, glob::matches};

/// The parameters of a training graph under all names that they are known by.
#[derive(Debug)]
pub struct TrainedNames<'a> {
    trained: Vec<&'a str>,
    /// Places among the trained, by name.
    places: HashMap<String, usize>,
}

impl<'a> TrainedNames<'a> {
    /// `model`: what the training graph was made from. It may know a parameter by another name as well:
    /// PyTorch has several for tied ones, of which one is in the file.
    pub fn new(model: &ModelProto, trained: Vec<&'a str>) -> Self {
        let tied = TiedNames::of(model);
        let all =
            (0..).zip(&trained).flat_map(|(n, name)| tied.all(name).map(move |name| (name.to_owned(), n)));
        let places = all.collect();
        Self { trained, places }
    }

    /// Places of those that a name, or a pattern with `*`, means, in ascending order.
    pub fn meant_by(&self, pattern: &str) -> Vec<usize> {
        if !pattern.contains('*') {
            return self.places.get(pattern).copied().into_iter().collect();
        }
        let meant = self.places.iter().filter(|(name, _)| matches(pattern, name)).map(|(_, place)| *place);
        let mut meant: Vec<usize> = meant.collect();
        meant.sort_unstable();
        meant.dedup();
        meant
    }

    /// What means none of them, with the names that could be meant, in words.
    pub fn with_near(&self, pattern: &str) -> String {
        unknown(&[pattern.to_owned()], &self.trained).unwrap_or_default()
    }
}
