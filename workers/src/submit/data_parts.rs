//! How many samples of a job are for what, and which columns of a table are their label.

use syncline_scheduler::spec::Separator;

use crate::data::LabelColumn;

/// What was found in the data of a training when it was prepared. All zero where its model takes no data.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct DataParts {
    /// Samples that train.
    pub train: u64,
    /// Samples that say how the training goes.
    pub validation: u64,
    /// Samples that say what has come of it.
    pub test: u64,
    /// Columns of a CSV file that are the label, in its order; none of another format, or where the model
    /// takes no label.
    pub label_columns: Vec<LabelColumn>,
    /// What the classes are called, from 0, where the labels of that file are texts; none where they are
    /// numbers.
    pub class_names: Vec<String>,
    /// What each class weighs, from 0, where that was counted in the training samples; none where it was
    /// not.
    pub class_weights: Vec<f32>,
    /// The same: how much a label 1 of each class weighs.
    pub pos_weight: Vec<f32>,
    /// What separates the columns of a CSV file, of several the first; none of another format.
    pub separator: Option<Separator>,
}
