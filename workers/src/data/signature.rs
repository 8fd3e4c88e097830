//! What a model wants of the data.

use syncline_scheduler::{
    spec::{DataElement, ModelSpec},
    suggestion::did_you_mean,
};

/// What a model is fed with besides its parameters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelSignature {
    /// Data inputs, in the order of the graph.
    pub inputs: Vec<InputSignature>,
    /// `None` if the model takes no label; what the files hold of them is not looked at.
    pub label: Option<LabelSignature>,
}

impl ModelSignature {
    /// That there is no input of this name, in words, with those that are there, one of which may be meant.
    pub(super) fn has_no_input(&self, name: &str) -> String {
        let meant = did_you_mean(name, self.inputs.iter().map(|input| input.name.as_str()));
        format!("it names `{name}`, and {}{meant}", self.named_inputs())
    }

    /// Which inputs there are, in words.
    pub(super) fn named_inputs(&self) -> String {
        let names: Vec<String> = self.inputs.iter().map(|input| format!("`{}`", input.name)).collect();
        format!("the model has the inputs {}", names.join(", "))
    }
}

/// An input: its name and the shape of one sample. An axis without a length takes that of the data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputSignature {
    /// Name in the graph, and of the tensor in a safetensors file.
    pub name: String,
    /// Type that it is fed with, whatever the files hold.
    pub element: DataElement,
    /// Sizes of a sample's axes, without the batch.
    pub shape: Vec<Option<usize>>,
    /// Rows of the table that each number on the last axis of a sample chooses from as it is; one for all
    /// that are alike, none if no number does. Floats that the model casts choose as well where a job is
    /// submitted; workers are told of integers alone.
    pub rows: Vec<Option<usize>>,
}

/// The label, in the same way; the empty shape is one label a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelSignature {
    /// Name in the graph, and of the tensor in a safetensors file.
    pub name: String,
    /// Decides what labels are allowed, and whether they are fed as int64 or float32.
    pub target: Target,
    /// Sizes of a label's axes, without the batch; `None` where the data decides.
    pub shape: Vec<Option<usize>>,
}

/// What the labels are for: the loss decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Classes 0 to `count - 1`, or `ignored`, which counts nothing.
    Classes {
        /// Number of classes.
        count: usize,
        /// `None` if every label counts.
        ignored: Option<i64>,
    },
    /// Float targets.
    Values,
    /// Floats from 0 to 1. Looked at where a job is submitted; workers take them as values, unless they are
    /// texts.
    Probabilities,
}

impl ModelSignature {
    /// What a model of a job wants: every length is known.
    pub fn of(model: &ModelSpec) -> Self {
        let shape = |dims: &[u32]| dims.iter().map(|&size| Some(size as usize)).collect();
        let rows = |rows: u64| usize::try_from(rows).unwrap_or(usize::MAX);
        let inputs = model.inputs.iter().map(|input| InputSignature {
            name: input.name.clone(),
            element: input.element,
            shape: shape(&input.shape),
            rows: match input.rows {
                Some(all) => vec![Some(rows(all))],
                None => input.column_rows.iter().map(|column| column.map(rows)).collect(),
            },
        });
        let target = match model.classes {
            Some(count) => Target::Classes { count: count as usize, ignored: model.ignored_label },
            None => Target::Values,
        };
        let label = model.label.as_ref().map(|name| LabelSignature {
            name: name.clone(),
            target,
            shape: shape(&model.label_shape),
        });
        Self { inputs: inputs.collect(), label }
    }

    /// Number of classes, if the labels are classes.
    pub fn classes(&self) -> Option<u32> {
        match self.label.as_ref()?.target {
            Target::Classes { count, .. } => u32::try_from(count).ok(),
            Target::Values | Target::Probabilities => None,
        }
    }

    /// How many texts the model tells apart as labels: one for each class, or two where a label is 0 or 1;
    /// `None` where it takes other numbers.
    pub(super) fn texts(&self) -> Option<usize> {
        match self.label.as_ref()?.target {
            Target::Classes { count, .. } => Some(count),
            Target::Probabilities => Some(2),
            Target::Values => None,
        }
    }

    /// The same for labels that are texts, of which only the data say it: that texts stand for 0 and 1 a job
    /// does not store with its model.
    pub(super) fn of_texts(mut self) -> Self {
        if let Some(label) = self.label.as_mut().filter(|label| label.target == Target::Values) {
            label.target = Target::Probabilities;
        }
        self
    }

    /// The label that counts nothing, if there is one.
    pub fn ignored_label(&self) -> Option<i64> {
        match self.label.as_ref()?.target {
            Target::Classes { ignored, .. } => ignored,
            Target::Values | Target::Probabilities => None,
        }
    }

    /// Whether the model needs no data at all.
    pub fn is_empty(&self) -> bool {
        self.inputs.is_empty() && self.label.is_none()
    }
}
