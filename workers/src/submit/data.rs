//! What a model wants of the data, and whether the data has it.

use std::{collections::BTreeMap, path::Path};

use syncline_autodiff::{AutodiffError, Io, TrainingGraph, rows_of_tables};
use syncline_onnx::{self as onnx, Dim, ElementType};
use syncline_scheduler::{
    core::significant,
    spec::{DataElement, DataInput, DataSpec},
};

use super::{
    DataParts, SubmitError, class_split, input_scaling, label_width, model::Model, name_list,
    paths::absolute, standardize,
};
use crate::data::{
    DataError, FileDigests, InputSignature, LabelSignature, ModelSignature, Parts, Target,
    check_standardized, is_url,
};

/// The data as workers are told of it, and the shapes that model and data agree on.
pub(super) struct InspectedData {
    pub spec: DataSpec,
    pub inputs: Vec<DataInput>,
    pub label_shape: Vec<u32>,
    pub parts: DataParts,
    /// Training labels by class; none where they are no classes.
    pub train_labels: BTreeMap<i64, u64>,
    /// Mean of each number of the training labels; none where they are no probabilities.
    pub train_label_means: Vec<f64>,
    /// What is doubtful about it.
    pub warnings: Vec<String>,
}

impl InspectedData {
    /// Of a model that takes no data.
    fn unread(spec: DataSpec) -> Self {
        Self {
            spec,
            inputs: Vec::new(),
            label_shape: Vec::new(),
            parts: DataParts::default(),
            train_labels: BTreeMap::new(),
            train_label_means: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

/// What a training graph is fed with. `model`: what it was made from.
pub(super) fn signature(graph: &TrainingGraph, model: &Model) -> Result<ModelSignature, SubmitError> {
    let nodes = onnx::parse(&graph.train_onnx).map_err(AutodiffError::from)?.graph.unwrap_or_default();
    let inputs = graph.data_inputs.iter().map(|input| {
        let element = element(input)?;
        let rows = match element {
            DataElement::Bool => Vec::new(),
            DataElement::F32 | DataElement::I32 | DataElement::I64 => {
                rows_of_tables(&nodes, graph.parameter_shapes(), &input.name, &input.dims)
            }
        };
        Ok(InputSignature { name: input.name.clone(), element, shape: sample_shape(&input.dims), rows })
    });
    let inputs = inputs.collect::<Result<_, SubmitError>>()?;
    let label = graph.label.as_ref().map(|label| -> Result<LabelSignature, SubmitError> {
        let target = match label.element {
            ElementType::I64 => {
                let count = graph.classes.ok_or(SubmitError::Classes)?;
                Target::Classes { count, ignored: model.ignored_label() }
            }
            _ if model.wants_probabilities() => Target::Probabilities,
            _ => Target::Values,
        };
        Ok(LabelSignature { name: label.name.clone(), target, shape: sample_shape(&label.dims) })
    });
    Ok(ModelSignature { inputs, label: label.transpose()? })
}

fn element(input: &Io) -> Result<DataElement, SubmitError> {
    data_element(input.element).ok_or_else(|| {
        let (input, element) = (input.name.clone(), input.element.to_string());
        SubmitError::InputType { input, element }
    })
}

/// As sources give it; `None` for what none gives.
pub(super) fn data_element(element: ElementType) -> Option<DataElement> {
    match element {
        ElementType::F32 => Some(DataElement::F32),
        ElementType::I32 => Some(DataElement::I32),
        ElementType::I64 => Some(DataElement::I64),
        ElementType::Bool => Some(DataElement::Bool),
        _ => None,
    }
}

/// Sizes of the dimensions behind the batch.
fn sample_shape(dims: &[Dim]) -> Vec<Option<usize>> {
    dims.iter().skip(1).map(Dim::fixed).collect()
}

/// Opens the data, which names files and no patterns, once: wrong shapes, ids and labels show here, and the
/// workers get its digest. `class_weights`: none where all classes count alike. `seed`: that of the training.
pub(super) fn inspect(
    mut spec: DataSpec,
    wanted: &ModelSignature,
    class_weights: &[f32],
    seed: u64,
) -> Result<InspectedData, SubmitError> {
    check_standardized(&spec)?;
    // Workers run in other folders.
    for path in spec.paths_mut().into_iter().filter(|path| !is_url(path)) {
        *path = absolute(Path::new(path)).to_string_lossy().into_owned();
    }
    if wanted.is_empty() {
        return Ok(InspectedData::unread(spec));
    }
    // Of the files as they are now, whatever was noted before.
    (spec.digest, spec.file_digests, spec.class_names) = (None, Vec::new(), Vec::new());
    let (set, FileDigests { all, each }) = label_width::open(&mut spec, wanted)?;
    (spec.digest, spec.file_digests) = (Some(all), each);
    let Parts { train: train_rows, validation, test } = set.parts(&spec, seed)?;
    let mut warnings: Vec<String> = header_of_numbers(set.header_of_numbers()).into_iter().collect();
    warnings.extend(input_scaling::warning(&spec, wanted));
    warnings.extend(standardize::standardize(&mut spec, &set, &train_rows, wanted)?);
    let parts = [("training", &train_rows), ("validation", &validation), ("test", &test)];
    let counted = parts.iter().filter(|(_, rows)| !rows.is_empty());
    let counted: Option<Vec<_>> = counted
        .map(|(part, rows)| Ok(set.label_counts(rows)?.map(|counts| (*part, counts))))
        .collect::<Result<_, DataError>>()?;
    let counted = counted.unwrap_or_default();
    let (names, ignored) = (set.class_names(), wanted.ignored_label());
    class_split::check_some_count(&counted, names, ignored, class_weights).map_err(DataError::from)?;
    let is_one_each = |label: &LabelSignature| label.shape.iter().all(|size| *size == Some(1));
    if wanted.label.as_ref().is_some_and(is_one_each) {
        warnings.extend(class_split::warnings(&counted, names, ignored));
    }
    if wanted.label.as_ref().is_some_and(|label| label.target == Target::Values) {
        warnings.extend(set.label_deviation(&train_rows)?.and_then(wide_labels));
    }
    let train_label_means = match &wanted.label {
        Some(label) if label.target == Target::Probabilities => set.label_means(&train_rows)?,
        _ => Vec::new(),
    };
    spec.train_samples = train_rows.len() as u64;
    spec.class_names = set.class_names().to_vec();
    let parts = DataParts {
        train: spec.train_samples,
        validation: validation.len() as u64,
        test: test.len() as u64,
        label_columns: set.label_columns().to_vec(),
        class_names: set.class_names().to_vec(),
        class_weights: Vec::new(),
        pos_weight: Vec::new(),
        separator: set.separator(),
    };
    let of_training = counted.into_iter().find(|(part, _)| *part == "training");
    let train_labels = of_training.map(|(_, labels)| labels).unwrap_or_default();
    let inputs = wanted.inputs.iter().zip(set.input_shapes()).map(|(input, shape)| data_input(input, shape));
    let inputs = inputs.collect();
    let label_shape = set.label_shape().map(sizes).unwrap_or_default();
    Ok(InspectedData { spec, inputs, label_shape, parts, train_labels, train_label_means, warnings })
}

/// An input as the engine is told of it. `shape`: of its samples.
fn data_input(input: &InputSignature, shape: &[usize]) -> DataInput {
    let rows: Vec<Option<u64>> = input.rows.iter().map(|rows| rows.map(|rows| rows as u64)).collect();
    let (rows, column_rows) = match rows[..] {
        _ if input.element == DataElement::F32 => (None, Vec::new()),
        [all] => (all, Vec::new()),
        _ => (None, rows),
    };
    let (name, element, shape) = (input.name.clone(), input.element, sizes(shape));
    DataInput { name, element, shape, rows, column_rows, row_group: None }
}

fn sizes(shape: &[usize]) -> Vec<u32> {
    shape.iter().map(|&size| size as u32).collect()
}

/// A header that looks like a sample, which is not trained on then.
fn header_of_numbers(names: &[String]) -> Option<String> {
    (!names.is_empty()).then(|| {
        format!(
            "with `label_names` the first line is the header, and there are only numbers in it: {}; if that is a sample, leave `label_names` out, and say \
             with `label_columns` how many last columns are the label",
            name_list::list(names)
        )
    })
}

/// From here on steps are so large, or losses, that a usual learning rate does not suit.
const WIDE_LABELS: f64 = 10.0;

fn wide_labels(deviation: f64) -> Option<String> {
    (deviation > WIDE_LABELS).then(|| {
        let deviation = significant(deviation);
        format!(
            "labels have a standard deviation of {deviation}, and are not scaled: a model learns them slowly or not at all unless they are \
             written as (label - mean) / std"
        )
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use syncline_scheduler::spec::{CsvSource, Split};

    use super::*;

    /// A model that takes so many numbers, and labels of this shape.
    fn model_of(numbers: usize, target: Target, label_shape: Vec<Option<usize>>) -> ModelSignature {
        let input = InputSignature {
            name: "x".to_owned(),
            element: DataElement::F32,
            shape: vec![Some(numbers)],
            rows: Vec::new(),
        };
        let label = LabelSignature { name: "label".to_owned(), target, shape: label_shape };
        ModelSignature { inputs: vec![input], label: Some(label) }
    }

    #[test]
    fn a_header_of_numbers_is_doubted_unless_they_count_the_columns_table() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data.csv");
        let wanted = model_of(2, Target::Values, vec![None]);
        for (header, label, is_doubted) in [
            ("5.1,3.5,7", "7", true),
            ("2,3,4", "4", true),
            ("1,0,2", "2", true),
            ("0,1,2", "2", false),
            ("1,2,3", "3", false),
            (",0,1", "1", false),
            ("5.1,3.5,price", "price", false),
            ("a,b,c", "c", false),
        ] {
            fs::write(&path, format!("{header}\n1,2,0.5\n3,4,0.25\n")).unwrap();
            let spec = DataSpec::new(CsvSource::new(&path).label_names([label]));
            let warnings = inspect(spec, &wanted, &[], 0).unwrap().warnings;
            let doubts: Vec<_> =
                warnings.iter().filter(|warning| warning.contains("`label_columns`")).collect();
            assert_eq!(doubts.len(), usize::from(is_doubted), "{header}: {warnings:?}");
        }
    }

    #[test]
    fn a_missing_class_is_doubted_only_where_each_sample_has_one_label() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data.csv");
        for (labels, shape, is_doubted) in [(1, vec![], true), (2, vec![Some(2)], false)] {
            // Sorted by class, so that the last part has one of them.
            let row = |at: usize| format!("0.5{}\n", format!(",{}", at / 50).repeat(labels as usize));
            fs::write(&path, (0..100).map(row).collect::<String>()).unwrap();
            let wanted = model_of(1, Target::Classes { count: 2, ignored: None }, shape);
            let spec = DataSpec {
                split: Split::TestLastPercent(20),
                ..DataSpec::new(CsvSource::new(&path).label_columns(labels))
            };
            let warnings = inspect(spec, &wanted, &[], 0).unwrap().warnings;
            let doubts = warnings.iter().filter(|warning| warning.contains("has no label of class 0"));
            assert_eq!(doubts.count(), usize::from(is_doubted), "{labels}: {warnings:?}");
        }
    }

    #[test]
    fn a_set_of_which_no_label_counts_is_refused_table() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, labels: &[i64]| {
            let path = dir.path().join(name);
            fs::write(&path, labels.iter().map(|label| format!("0.5,{label}\n")).collect::<String>())
                .unwrap();
            path
        };
        #[rustfmt::skip]
        // Labels of the set that is divided, of which the last one in four is tested, and those of the validation set.
        let cases: [(&str, [i64; 4], [i64; 2], &[f32], Option<&str>); 6] = [
            ("some count everywhere",  [0, 1, -1, 1],   [0, -1],  &[],         None),
            ("none of them trains",    [-1, -1, -1, 1], [0, 1],   &[],         Some("of the training data are -1:")),
            ("none validates",         [0, 1, 1, 1],    [-1, -1], &[],         Some("of the validation data are -1:")),
            ("none is tested",         [0, 1, 1, -1],   [0, 1],   &[],         Some("of the test data are -1:")),
            ("of classes without weight", [0, 1, 1, 1], [0, -1],  &[0.0, 1.0], Some("of the validation data are -1, 0:")),
            ("one has some weight",    [0, 1, 1, 1],    [0, 1],   &[0.0, 0.5], None),
        ];
        for (name, labels, validation, class_weights, want) in cases {
            let wanted = model_of(1, Target::Classes { count: 2, ignored: Some(-1) }, vec![]);
            let source = CsvSource::new(write("data.csv", &labels));
            let spec = DataSpec {
                split: Split::TestLastPercent(25),
                validation: Some(CsvSource::new(write("validation.csv", &validation)).into()),
                ..DataSpec::new(source)
            };
            let error = inspect(spec, &wanted, class_weights, 0).err().map(|error| error.to_string());
            let is_told = |words| error.as_ref().is_some_and(|error| error.contains(words));
            assert!(want.map_or(error.is_none(), is_told), "{name}: {error:?}");
        }
    }
}
