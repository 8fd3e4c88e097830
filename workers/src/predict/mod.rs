//! What a trained model says of samples: of those of its job, or of others.
//!
//! [`Predictor::open`] takes what [`Client::trained_job`](crate::client::Client::trained_job) has fetched, and computes on this
//! machine: the forward model for predictions, and the graph with which the job was evaluated for its loss, so that the figures are
//! those that `status` shows for the same samples.

mod classes;
mod error;
mod labels;
mod outputs;
#[cfg(test)]
mod tests;
mod values;

use std::sync::Arc;

use syncline_onnx::TensorView;
use syncline_runtime::{ExecOptions, Executable, Runtime};
use syncline_scheduler::{
    core::Evaluation,
    spec::{DataSpec, Files, ModelSpec, Source},
};

use crate::{
    client::TrainedJob,
    data::{Batch, Dataset, Form, ModelSignature, expand_source},
    worker::{RunningMetrics, threads_each},
};

use classes::ClassScores;
pub use classes::{ClassCounts, ClassFigures};
pub use error::PredictError;
pub use labels::LabelFigures;
use labels::LabelScores;
pub use outputs::Output;
use outputs::with_inner_value;
pub use values::{TargetFigures, ValueFigures};

/// Which samples of the data are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Samples {
    /// Those that train.
    Train,
    /// Those that say how the training goes.
    Validation,
    /// Those that say what has come of it.
    Test,
    /// All of them.
    All,
}

impl Samples {
    /// As people name them.
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Validation => "validation",
            Self::Test => "test",
            Self::All => "all",
        }
    }

    /// Those of a job on which its figures mean most: test samples, or else validation samples, or else all.
    pub fn most_telling(data: &DataSpec) -> Self {
        match (data.has_test(), data.has_validation()) {
            (true, _) => Self::Test,
            (false, true) => Self::Validation,
            (false, false) => Self::All,
        }
    }
}

/// On which samples a model predicts, and how.
#[derive(Debug, Clone)]
pub struct PredictOptions {
    /// Where the samples are.
    pub data: DataSpec,
    /// The data whose training set says what the columns of a CSV file are called: where both have a header, columns of
    /// `data` are found by their names, as those of a job's `test`. `None`: they are taken in their order.
    pub columns_of: Option<DataSpec>,
    /// What the only file of [`data`](Self::data) holds, where it came in another way than from a disk, such as the standard input; its path
    /// is what errors call it.
    pub given: Option<Arc<[u8]>>,
    /// Which of them.
    pub samples: Samples,
    /// Whether labels are read, where the model wants them; its loss and shares of right predictions need them. Where they are not,
    /// columns of a CSV file that are the label may be there or not.
    pub is_labeled: bool,
    /// Samples that are computed at once.
    pub batch: usize,
}

impl PredictOptions {
    /// On samples of the job itself.
    pub fn for_job(job: &TrainedJob, samples: Samples, batch: usize) -> Self {
        Self { data: job.train.data.clone(), columns_of: None, given: None, samples, is_labeled: true, batch }
    }

    /// On all samples of other files, which are written as those of the job: columns of a CSV file are found by their names, where
    /// that of the job has names, too. It is read for them; with [`columns_of`](Self::columns_of) as `None` it is not, and columns
    /// are taken in their order.
    ///
    /// # Errors
    /// E577 if the job reads labels from files of their own and these are no pairs, or its samples are of a text, in which characters have other numbers.
    pub fn for_files(
        job: &TrainedJob,
        files: &[String],
        is_labeled: bool,
        batch: usize,
    ) -> Result<Self, PredictError> {
        let refused = |reason: String| Err(PredictError::OtherFiles { reason });
        let mut source = job.train.data.source.clone();
        match &mut source {
            Source::Text { .. } => {
                return refused(
                    "its samples are of a text, and the characters of another one have other numbers".into(),
                );
            }
            Source::Idx { .. } | Source::Npy { .. } if !is_labeled => {
                return refused("its samples are in two files, of which the second has the labels".into());
            }
            _ => {}
        }
        match source.files_mut().as_mut_slice() {
            [all] => **all = Files(files.to_vec()),
            [samples, labels] => {
                let (of_samples, of_labels) = files.split_at(files.len() / 2);
                if of_samples.len() != of_labels.len() {
                    let came = files.len();
                    return refused(format!(
                        "it reads as many files of labels as of samples, and {came} came"
                    ));
                }
                (**samples, **labels) = (Files(of_samples.to_vec()), Files(of_labels.to_vec()));
            }
            _ => {}
        }
        expand_source(&mut source)?;
        let DataSpec { scale, mean, std, sample_shape, layout, .. } = job.train.data.clone();
        let data = DataSpec { scale, mean, std, sample_shape, layout, ..DataSpec::new(source) };
        let columns_of = Some(job.train.data.clone());
        Ok(Self { data, columns_of, given: None, samples: Samples::All, is_labeled, batch })
    }

    /// The same of a file that came in another way than from a disk, and is called `name` in errors. One that is packed by gzip is
    /// unpacked.
    ///
    /// # Errors
    /// E577 as [`for_files`](Self::for_files), and if the job reads samples and labels from two files.
    pub fn for_bytes(
        job: &TrainedJob,
        (name, bytes): (&str, Vec<u8>),
        is_labeled: bool,
        batch: usize,
    ) -> Result<Self, PredictError> {
        if let Source::Idx { .. } | Source::Npy { .. } = job.train.data.source {
            let reason = format!("its samples and labels are in two files, and {name} is one");
            return Err(PredictError::OtherFiles { reason });
        }
        let options = Self::for_files(job, &[name.to_owned()], is_labeled, batch)?;
        Ok(Self { given: Some(bytes.into()), ..options })
    }
}

/// A trained model and samples.
pub struct Predictor {
    forward: Executable,
    /// Samples that the forward model takes at once, if it takes so many and no others.
    fixed_batch: Option<usize>,
    /// The graph that computes the loss, where there are labels.
    evaluation: Option<Executable>,
    parameters: Vec<Parameter>,
    model: ModelSpec,
    class_names: Vec<String>,
    set: Dataset,
    rows: Vec<u32>,
    batch_size: usize,
    /// Outputs that belong to samples.
    kept: Vec<String>,
    scores: ClassScores,
    label_scores: Option<LabelScores>,
    /// The output that the loss looks at; `None`: the first.
    output_of_loss: Option<String>,
    /// Whether the last output is an inner value of the model, which only the loss looks at.
    hides_last_output: bool,
    figures: Figures,
}

/// What training has made of a parameter or buffer.
struct Parameter {
    name: String,
    shape: Vec<usize>,
    values: Vec<f32>,
}

/// What comes of all samples together.
#[derive(Debug, Default)]
pub struct Figures {
    /// Loss and metrics, as the job is evaluated; `None` without labels.
    pub evaluation: Option<Evaluation>,
    /// How the classes are told apart, where a loss has some.
    pub classes: Option<ClassFigures>,
    /// How far predicted numbers are off, where they are compared with numbers.
    pub values: Option<ValueFigures>,
    /// How labels are given that a sample has any number of, where the loss is `bce-with-logits`.
    pub labels: Option<LabelFigures>,
    /// Samples for which the output that the loss looks at has numbers that are none (NaN). Nothing is predicted there: their labels
    /// count as not found, and [`values`](Self::values) are without them.
    pub nan_samples: u64,
}

impl Figures {
    /// The graph takes some class where scores are no numbers, and may be right by chance.
    fn correct_accuracy(&mut self) {
        if let Some(evaluation) = self.evaluation.as_mut().filter(|_| self.nan_samples > 0) {
            let of_classes = self.classes.as_ref().and_then(ClassFigures::accuracy);
            evaluation.accuracy = of_classes.or(self.labels.as_ref().and_then(LabelFigures::accuracy));
            evaluation.top_k_accuracy = None;
        }
    }
}

/// Some samples, and what the model says of them.
pub struct Predicted<'a> {
    /// Their numbers in the data, from 0.
    pub rows: &'a [u32],
    /// What the model gives, in its order, as far as it is numbers for each sample.
    pub outputs: &'a [Output],
    /// Their labels.
    pub label: Option<TensorView<'a>>,
    /// The class with the highest score, for each label of each sample, or where the loss is `bce-with-logits` 0 or 1 for each number;
    /// `None` where a score is no number. Empty for other losses.
    pub predicted: &'a [Option<u32>],
}

impl Predictor {
    /// Reads the data and loads the graphs. Seconds for large ones.
    ///
    /// # Errors
    /// Those of data sets (E330 to E345, E477, E487; E581 if the names of the job's columns are needed and not known) and of ONNX Runtime, E380 if the weights are damaged, E578 if there are no such samples.
    pub fn open(runtime: &Runtime, job: &TrainedJob, options: &PredictOptions) -> Result<Self, PredictError> {
        let model = job.train.model.clone();
        let mut wanted = ModelSignature::of(&model);
        if wanted.is_empty() {
            return Err(PredictError::OtherFiles { reason: "its model takes no data".to_owned() });
        }
        wanted.label = wanted.label.filter(|_| options.is_labeled);
        let form = Form {
            like: options.columns_of.as_ref(),
            passes_over_label: !options.is_labeled,
            is_other: options.data.source != job.train.data.source,
            given: options.given.as_deref(),
            has_classes: model.classes.is_some(),
        };
        let (set, _) = Dataset::open_as(&options.data, &wanted, form, &mut || Ok(()))?;
        let parts = set.parts(&options.data, job.train.seed);
        let rows = match options.samples {
            Samples::Train => parts.train,
            Samples::Validation => parts.validation,
            Samples::Test => parts.test,
            Samples::All => (0..set.len() as u32).collect(),
        };
        if rows.is_empty() {
            return Err(PredictError::NoSamples { samples: options.samples.name() });
        }
        let exec = ExecOptions { intra_threads: threads_each(1), ..ExecOptions::default() };
        let output_of_loss = job.settings.get("model.forward.output");
        let with_scores = output_of_loss.and_then(|name| with_inner_value(&job.model.onnx, name));
        let model_run = with_scores.as_deref().unwrap_or(&job.model.onnx);
        let forward = Executable::new(runtime, model_run, &exec)?;
        let types = forward.types();
        let first = model.inputs.first().and_then(|input| types.get(&input.name));
        let fixed_batch = first.and_then(|ty| ty.dims.first()?.fixed()).filter(|&size| size > 0);
        let is_labeled = wanted.label.is_some();
        // A model that computes its loss itself wants no label.
        let evaluation = match is_labeled || model.label.is_none() {
            true => Some(Executable::new(runtime, &job.evaluation_graph, &exec)?),
            false => None,
        };
        let label_scores = LabelScores::of(job, model_run);
        let figures = Figures {
            evaluation: None,
            classes: wanted.classes().map(|count| ClassFigures::new(count, wanted.ignored_label())),
            values: ValueFigures::of(job).filter(|_| is_labeled),
            labels: label_scores.as_ref().filter(|_| is_labeled).map(|_| LabelFigures::default()),
            nan_samples: 0,
        };
        let mut opened = Self {
            forward,
            fixed_batch,
            evaluation,
            parameters: parameters(job)?,
            scores: ClassScores::of(job),
            label_scores,
            output_of_loss: output_of_loss.map(str::to_owned),
            hides_last_output: with_scores.is_some(),
            model,
            class_names: match job.train.data.class_names.as_slice() {
                // Of a release that did not store them.
                [] => set.class_names().to_vec(),
                stored => stored.to_vec(),
            },
            set,
            rows,
            batch_size: fixed_batch.unwrap_or(options.batch.max(1)),
            kept: Vec::new(),
            figures,
        };
        opened.kept = opened.outputs_of_samples()?;
        Ok(opened)
    }

    /// How many samples are asked about; there is at least one.
    pub fn samples(&self) -> usize {
        self.rows.len()
    }

    /// What the classes are called, from 0, where the labels of the job's CSV file are texts; else none.
    pub fn class_names(&self) -> &[String] {
        &self.class_names
    }

    /// Computes all samples, a batch at a time, and hands each out.
    ///
    /// # Errors
    /// What `each` returns, and those of ONNX Runtime.
    pub fn run<E: From<PredictError>>(
        mut self,
        mut each: impl FnMut(&Predicted<'_>) -> Result<(), E>,
    ) -> Result<Figures, E> {
        let mut batch = self.set.batch();
        let mut metrics = self.evaluation.as_ref().map(|graph| RunningMetrics::of(graph.output_names()));
        let all = std::mem::take(&mut self.rows);
        for rows in all.chunks(self.batch_size) {
            let outputs = self.predict(rows, &mut batch)?;
            let predicted = match &self.label_scores {
                Some(scores) => scores.given(&outputs),
                None => self.scores.highest(&outputs, rows.len()),
            };
            let looked_at = Output::of_loss(&outputs, self.output_of_loss.as_deref());
            self.figures.nan_samples += looked_at.map_or(0, Output::nan_samples);
            if batch.len() != rows.len() {
                self.set.gather(rows, &mut batch).map_err(PredictError::from)?;
            }
            if let (Some(graph), Some(metrics)) = (&mut self.evaluation, &mut metrics) {
                evaluate(graph, &self.parameters, &self.model, &batch, metrics)?;
            }
            if let Some(label) = batch.label() {
                let figures = &mut self.figures;
                figures.classes.iter_mut().for_each(|classes| classes.add(label, &predicted));
                figures.values.iter_mut().for_each(|values| values.add(label, &outputs));
                if let Some((labels, scores)) = figures.labels.as_mut().zip(self.label_scores.as_ref()) {
                    labels.add(label, &predicted, scores, &outputs, rows.len());
                }
            }
            let hidden = self.hides_last_output.then(|| self.forward.output_names().last()).flatten();
            let shown = outputs.iter().take_while(|output| Some(&output.name) != hidden).count();
            let outputs = &outputs[..shown];
            each(&Predicted { rows, outputs, label: batch.label(), predicted: &predicted })?;
        }
        self.figures.evaluation = metrics.map(|metrics| metrics.finish().mean());
        self.figures.correct_accuracy();
        Ok(self.figures)
    }

    /// What the forward model gives for these samples.
    fn predict(&mut self, rows: &[u32], batch: &mut Batch) -> Result<Vec<Output>, PredictError> {
        // A model that takes so many and no others gets the last one again and again.
        let last = rows.last().copied().unwrap_or_default();
        let mut padded = rows.to_vec();
        padded.resize(self.fixed_batch.unwrap_or(rows.len()), last);
        self.set.gather(&padded, batch)?;
        let inputs: Vec<_> = batch.named_inputs(&self.model).collect();
        let names = self.forward.output_names().to_vec();
        let found = self.forward.run(&inputs)?;
        let kept = names.iter().enumerate().filter(|(_, name)| self.kept.contains(name));
        let rows_of = |(at, name): (usize, &String)| {
            let output = Output::of(&found, at, name, padded.len(), rows.len());
            output.ok_or_else(|| PredictError::NoRows { output: name.clone(), samples: padded.len() })
        };
        kept.map(rows_of).collect()
    }

    /// The outputs that have a row for each sample of batches of two and of three, or of the only size that the model takes: another
    /// one may have as many rows by chance, and what a file says of its types is not always so.
    fn outputs_of_samples(&mut self) -> Result<Vec<String>, PredictError> {
        let names = self.forward.output_names().to_vec();
        let mut is_kept = vec![true; names.len()];
        let mut batch = self.set.batch();
        for size in self.fixed_batch.map_or(vec![2, 3], |size| vec![size]) {
            let rows: Vec<u32> = self.rows.iter().copied().cycle().take(size).collect();
            self.set.gather(&rows, &mut batch)?;
            let inputs: Vec<_> = batch.named_inputs(&self.model).collect();
            let found = self.forward.run(&inputs)?;
            for (at, name) in names.iter().enumerate() {
                is_kept[at] &= Output::of(&found, at, name, size, size).is_some();
            }
        }
        Ok(names.into_iter().zip(is_kept).filter_map(|(name, is_kept)| is_kept.then_some(name)).collect())
    }
}

fn evaluate<'a>(
    graph: &mut Executable,
    parameters: &'a [Parameter],
    model: &'a ModelSpec,
    batch: &'a Batch,
    metrics: &mut RunningMetrics,
) -> Result<(), PredictError> {
    let input = |parameter: &'a Parameter| {
        (&*parameter.name, TensorView::F32 { shape: &parameter.shape, data: &parameter.values })
    };
    let parameters = parameters.iter().map(input);
    let inputs: Vec<_> = parameters.chain(batch.named(model)).collect();
    let outputs = graph.run(&inputs)?;
    metrics.add(batch.len() as u64, |name| outputs.scalar(name))?;
    Ok(())
}

/// The trained parameters as inputs of the evaluation graph.
fn parameters(job: &TrainedJob) -> Result<Vec<Parameter>, PredictError> {
    let named = job.weights.tensors()?.into_iter();
    Ok(named.map(|(name, array)| Parameter { name, shape: array.shape, values: array.values }).collect())
}
