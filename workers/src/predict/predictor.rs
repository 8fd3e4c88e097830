//! Computing what a model says of samples, a batch at a time.

use syncline_onnx::TensorView;
use syncline_runtime::{ExecOptions, Executable, Runtime};
use syncline_scheduler::spec::ModelSpec;

use super::{
    ClassFigures, Figures, LabelFigures, LabelUse, Output, PredictError, PredictOptions, Samples,
    ValueFigures, classes::ClassScores, float_ids::note_float_ids, labels::LabelScores,
    outputs::with_inner_value,
};
use crate::{
    client::TrainedJob,
    data::{Batch, Dataset, Form, ModelSignature},
    submit::ForwardLoss,
    worker::{RunningMetrics, threads_each},
};

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

/// Some samples, and what the model says of them.
pub struct Predicted<'a> {
    /// Their numbers in the data, from 0.
    pub rows: &'a [u32],
    /// What the model gives, in its order, as far as it is numbers for each sample.
    pub outputs: &'a [Output],
    /// Their labels.
    pub label: Option<TensorView<'a>>,
    /// The class with the highest score, for each label of each sample, or where the loss is
    /// `bce-with-logits` 0 or 1 for each number; `None` where a score is no number. Empty for other
    /// losses.
    pub predicted: &'a [Option<u32>],
}

impl Predictor {
    /// Reads the data and loads the graphs. Seconds for large ones.
    ///
    /// # Errors
    /// Those of data sets (E330 to E345, E477, E487, E488; E581 if the names of the job's columns are needed and
    /// not known) and of ONNX Runtime, E380 if the weights are damaged, E578 if there are no such samples.
    pub fn open(runtime: &Runtime, job: &TrainedJob, options: &PredictOptions) -> Result<Self, PredictError> {
        let model = job.train.model.clone();
        let mut wanted = ModelSignature::of(&model);
        if wanted.is_empty() {
            return Err(PredictError::OtherFiles { reason: "its model takes no data".to_owned() });
        }
        wanted.label = wanted.label.filter(|_| options.labels == LabelUse::Read);
        note_float_ids(&mut wanted, job);
        let form = Form {
            like: options.columns_of.as_ref(),
            passes_over_label: options.labels == LabelUse::PassOver,
            // What lies at the paths of the job may be new. Only its own files are named with what they held.
            is_other: options.data.digest.is_none() || options.data.digest != job.train.data.digest,
            given: options.given.as_deref(),
            has_classes: model.classes.is_some() || !job.train.data.class_names.is_empty(),
            ..Form::default()
        };
        let (set, _) = Dataset::open_as(&options.data, &wanted, form, &mut || Ok(()))
            .map_err(|error| PredictError::of_data(error, wanted.label.as_ref()))?;
        let parts = set.parts(&options.data, job.train.seed)?;
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
        let loss = ForwardLoss::of(&job.settings);
        let output_of_loss = loss.as_ref().and_then(|loss| loss.output.clone());
        let with_scores = output_of_loss.as_ref().and_then(|name| with_inner_value(&job.model.onnx, name));
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
        let label_scores = LabelScores::of(loss.as_ref(), model_run);
        let figures = Figures {
            evaluation: None,
            classes: wanted.classes().map(|count| ClassFigures::new(count, wanted.ignored_label())),
            values: ValueFigures::of(loss.as_ref()).filter(|_| is_labeled),
            labels: label_scores.as_ref().filter(|_| is_labeled).map(|_| LabelFigures::default()),
            nan_samples: 0,
        };
        let mut opened = Self {
            forward,
            fixed_batch,
            evaluation,
            parameters: parameters(job)?,
            scores: ClassScores::of(loss.as_ref(), model.classes.map(|count| count as usize)),
            label_scores,
            output_of_loss,
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

    /// The outputs that have a row for each sample of batches of two and of three, or of the only size that
    /// the model takes: another one may have as many rows by chance, and what a file says of its types is
    /// not always so.
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
