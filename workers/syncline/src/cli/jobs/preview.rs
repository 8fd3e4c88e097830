//! What `syncline submit --dry-run` shows: a job as it would be submitted, and what it would take.

use serde::Serialize;
use syncline_scheduler::{
    core::significant,
    spec::{InvalidJob, Separator, SettingList, Source, StepGroup, StepSettings, StepsOn, TrainSpec},
};
use syncline_workers::{
    check::SampleShapes,
    data::LabelColumn,
    isolation::{ModelHost, NamedModel},
    submit::{PreparedJob, SubmitError},
};

use crate::cli::{
    Failure,
    describe_settings::{IN_OTHER_WORDS, of_data_and_model, rate_in_words, rest},
    one_line,
};

/// Most columns of a label that are listed.
const LISTED_COLUMNS: usize = 5;

/// Most classes that are listed.
const LISTED_CLASSES: usize = 20;

/// Bytes of a parameter, a gradient, and each number that an optimizer keeps.
const F32_BYTES: u64 = 4;

/// A job as it would be submitted.
#[derive(Debug, Serialize)]
pub(super) struct Preview {
    id: String,
    /// State of the job that has the id; `None`: nobody has it, or nobody was asked.
    taken: Option<&'static str>,
    /// In the order of the file.
    nodes: Vec<String>,
    policy: String,
    optimizer: &'static str,
    learning_rate: f32,
    /// How the rate goes on; `None` if it stays what it is.
    schedule: Option<String>,
    /// All that differs from the default, as it is written in a job file.
    settings: SettingList,
    /// Which it keeps, in words.
    checkpoints: String,
    /// Samples of the training set.
    samples: u64,
    /// Those of an epoch: all, or as many as fill batches.
    epoch_samples: u64,
    /// Those of all epochs.
    samples_total: u64,
    validation_samples: u64,
    test_samples: u64,
    /// What separates the columns of a CSV file, as a job file has it.
    separator: Option<&'static str>,
    /// Columns of a CSV file that are the label.
    label_columns: Vec<PreviewLabel>,
    /// What the classes are called, from 0, where the labels of that file are texts.
    class_names: Vec<String>,
    /// What each class weighs, from 0, where that was counted in the training samples.
    class_weights: Vec<f32>,
    /// The same: how much a label 1 of each class weighs.
    pos_weight: Vec<f32>,
    epochs: u32,
    /// Samples of an iteration.
    batch: u32,
    /// Most samples that a worker computes on at once; `None`: a whole batch.
    micro_batch: Option<u32>,
    /// Iterations of an epoch, of all workers together.
    batches_per_epoch: u64,
    batches: u64,
    /// Parameters that train with settings of their own.
    groups: Vec<PreviewGroup>,
    /// Numbers that are trained.
    parameters: u64,
    /// Numbers that are not, and travel along: running statistics.
    buffers: u64,
    parameter_bytes: u64,
    /// Files that the parameter server is given, unless it has them.
    uploads: usize,
    upload_bytes: u64,
    /// Values that are alive at once in a step on a batch, or on a piece of one; `None`: no CPU computes the
    /// graph, and it is measured on one.
    step_bytes: Option<u64>,
    /// Memory of a worker for the job, without its data: the values of a step, parameters and gradients; the
    /// latter twice where a batch is computed in pieces.
    worker_bytes: Option<u64>,
    /// Memory of all shards together: parameters, and what the optimizer keeps.
    shard_bytes: u64,
    /// What is doubtful.
    warnings: Vec<String>,
    #[serde(skip)]
    texts: Texts,
}

/// What is for people alone.
#[derive(Debug)]
struct Texts {
    /// The optimizer with its numbers.
    optimizer: String,
    /// What separates the columns of a table, if it is not what everybody expects.
    separator: Option<String>,
    /// Nobody said which columns of the table are the label.
    is_label_by_default: bool,
    /// How many steps the optimizer makes of the batches.
    steps: Option<String>,
}

/// A column that is the label.
#[derive(Debug, Serialize)]
struct PreviewLabel {
    /// From 1.
    number: u64,
    of: u64,
    name: Option<String>,
}

impl PreviewLabel {
    fn of(column: &LabelColumn) -> Self {
        Self { number: column.number, of: column.of, name: column.name.clone() }
    }
}

/// Parameters that train with the same settings of their own.
#[derive(Debug, Serialize)]
struct PreviewGroup {
    /// How many parameters they are.
    parameters: u64,
    /// Numbers in them.
    elements: u64,
    /// In place of the optimizer's; `None`: that one.
    weight_decay: Option<f32>,
    learning_rate_factor: f32,
    #[serde(skip)]
    text: String,
}

impl PreviewGroup {
    fn of(group: &StepGroup) -> Self {
        let StepGroup { settings, parameters, elements } = *group;
        let StepSettings { weight_decay, learning_rate_factor } = settings;
        Self { parameters, elements, weight_decay, learning_rate_factor, text: group.to_string() }
    }
}

/// What the data gives to each input of the graph.
fn sample_shapes(train: &TrainSpec) -> SampleShapes {
    let inputs = train.model.inputs.iter();
    inputs
        .map(|input| (input.name.clone(), input.shape.iter().map(|&size| size as usize).collect()))
        .collect()
}

impl Preview {
    /// Loads the training graph once more, to see what a step takes.
    pub(super) fn measure(
        job: &PreparedJob,
        models: &ModelHost,
        taken: Option<&'static str>,
    ) -> Result<Self, Failure> {
        let spec = &job.spec;
        let Some((_, train)) = spec.train() else {
            return Err(SubmitError::from(InvalidJob::NoTraining { job: spec.id.clone() }).into());
        };
        let graph = job.blobs.get(&train.model.training_graph).map_or(&[][..], |bytes| bytes.as_slice());
        let at_once = train.samples_at_once(None).map_or(train.batch, |most| most.min(train.batch));
        let step_bytes = match job.missing_cpu_kernel {
            Some(_) => None,
            None => {
                let graph = NamedModel { name: "the training graph", onnx: graph };
                Some(models.step_cost(graph, at_once as usize, sample_shapes(train))?.peak_bytes)
            }
        };
        let parameters = train.model.layout.trained_elements();
        let elements = train.model.layout.elements().unwrap_or(u64::MAX);
        let parameter_bytes = elements.saturating_mul(F32_BYTES);
        let (samples, batches_per_epoch) = (train.data.train_samples, batches_per_epoch(train));
        // Parameters and gradients, and of a batch in pieces the mean gradient of those before the last one.
        let copies = if at_once < train.batch { 3 } else { 2 };
        let kept = parameters.saturating_mul(F32_BYTES).saturating_mul(kept_numbers(train));
        Ok(Self {
            id: spec.id.to_string(),
            taken,
            nodes: spec.nodes.iter().map(|node| node.name.to_string()).collect(),
            policy: train.policy.to_string(),
            optimizer: train.optimizer.name(),
            learning_rate: train.learning_rate.base,
            schedule: train.learning_rate.schedule(),
            settings: train.setting_list(),
            checkpoints: train.checkpoints_in_words(),
            groups: train.model.layout.groups(&train.optimizer).iter().map(PreviewGroup::of).collect(),
            samples,
            epoch_samples: train.epoch_samples(),
            samples_total: train.total_samples(),
            validation_samples: job.data.validation,
            test_samples: job.data.test,
            separator: job.data.separator.map(Separator::name),
            label_columns: job.data.label_columns.iter().map(PreviewLabel::of).collect(),
            class_names: job.data.class_names.clone(),
            class_weights: job.data.class_weights.clone(),
            pos_weight: job.data.pos_weight.clone(),
            epochs: train.epochs,
            batch: train.batch,
            micro_batch: train.micro_batch,
            batches_per_epoch,
            batches: batches_per_epoch.saturating_mul(train.epochs.into()),
            parameters,
            buffers: elements.saturating_sub(parameters),
            parameter_bytes,
            uploads: job.blobs.len(),
            upload_bytes: upload_bytes(job),
            step_bytes,
            worker_bytes: step_bytes
                .map(|bytes| bytes.saturating_add(parameter_bytes.saturating_mul(copies))),
            shard_bytes: parameter_bytes.saturating_add(kept),
            warnings: job.warnings.clone(),
            texts: Texts {
                optimizer: train.optimizer.to_string(),
                separator: separated_in_words(job.data.separator),
                is_label_by_default: is_label_by_default(&train.data.source),
                steps: steps_in_words(train, batches_per_epoch),
            },
        })
    }

    pub(super) fn text(&self) -> String {
        let id = match self.taken {
            Some(state) => format!(
                "{}, taken by a job that is {state}: it is the same one, or E130; --new takes another id, --replace its place",
                self.id
            ),
            None => self.id.clone(),
        };
        let buffers = match self.buffers {
            0 => String::new(),
            buffers => format!(", and {buffers} running statistics"),
        };
        let pieces = match self.micro_batch.filter(|most| *most < self.batch) {
            Some(most) => format!(", computed in {} pieces of {most} at most", self.batch.div_ceil(most)),
            None => String::new(),
        };
        let rate = rate_in_words(self.learning_rate, self.schedule.as_deref());
        let mut lines = vec![
            ("job", id),
            ("nodes", self.nodes.join(", ")),
            ("policy", self.policy.clone()),
            ("optimizer", format!("{}, {rate}", self.texts.optimizer)),
        ];
        if !self.groups.is_empty() {
            let groups: Vec<&str> = self.groups.iter().map(|group| group.text.as_str()).collect();
            lines.push(("groups", groups.join("; ")));
        }
        lines.extend(rest(&self.settings, "settings.", &IN_OTHER_WORDS).map(|text| ("settings", text)));
        lines.push(("checkpoints", self.checkpoints.clone()));
        lines.extend(of_data_and_model(&self.settings));
        lines.extend(self.texts.separator.clone().map(|text| ("columns", text)));
        lines.extend(self.label().map(|text| ("label", text)));
        lines.extend(classes_in_words(&self.class_names).map(|text| ("classes", text)));
        lines.extend(weights_in_words(&self.class_weights).map(|text| ("weights", text)));
        lines.extend(weights_in_words(&self.pos_weight).map(|text| ("pos_weight", text)));
        lines.push(("samples", self.samples_in_words()));
        let held_out = [("validation", self.validation_samples), ("test", self.test_samples)];
        lines.extend(
            held_out.into_iter().filter(|part| part.1 > 0).map(|(name, n)| (name, format!("{n} samples"))),
        );
        lines.push((
            "batches",
            format!(
                "of {}{pieces}: {} in an epoch, {} in all",
                self.batch, self.batches_per_epoch, self.batches
            ),
        ));
        lines.extend(self.texts.steps.clone().map(|text| ("steps", text)));
        lines.extend([
            ("parameters", format!("{}{buffers}, {}", self.parameters, mib(self.parameter_bytes))),
            ("upload", format!("{} in {} files", mib(self.upload_bytes), self.uploads)),
            ("memory", self.memory()),
        ]);
        let lines = lines.iter().map(|(name, what)| format!("{name:<11} {}", one_line(what)));
        lines.collect::<Vec<_>>().join("\n")
    }

    fn memory(&self) -> String {
        let worker = match self.worker_bytes.zip(self.step_bytes) {
            Some((worker, step)) => {
                format!("{} for a worker beside its data, {} of it values of a step", mib(worker), mib(step))
            }
            None => "that of a worker is not measured: no CPU computes this graph".to_owned(),
        };
        format!("{worker}; {} for all shards together", mib(self.shard_bytes))
    }

    fn samples_in_words(&self) -> String {
        let Self { samples, epoch_samples, epochs, samples_total, .. } = self;
        if epoch_samples == samples {
            return format!("{samples} in each of {epochs} epochs");
        }
        format!("{epoch_samples} of {samples} in each of {epochs} epochs, {samples_total} in all")
    }

    /// Which columns of a table are the label.
    fn label(&self) -> Option<String> {
        let columns: Vec<String> = self
            .label_columns
            .iter()
            .take(LISTED_COLUMNS)
            .map(|PreviewLabel { number, of, name }| match name {
                Some(name) => format!("column {number} of {of}, `{name}`"),
                None => format!("column {number} of {of}"),
            })
            .collect();
        let more = match self.label_columns.len().saturating_sub(LISTED_COLUMNS) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        let by_default = match self.texts.is_label_by_default {
            true => ": the last, as `label_names` names no other",
            false => "",
        };
        (!columns.is_empty()).then(|| format!("{}{more}{by_default}", columns.join("; ")))
    }
}

/// What separates the columns of a table; `None` where commas do, or where there is none.
pub(super) fn separated_in_words(separator: Option<Separator>) -> Option<String> {
    let separator = separator.filter(|separator| *separator != Separator::Comma)?;
    Some(format!("separated by {}", separator.plural()))
}

/// Which text is which class; `None` where labels are numbers.
pub(super) fn classes_in_words(names: &[String]) -> Option<String> {
    by_class(names.iter().map(|name| format!("`{name}`")))
}

/// What each class weighs; `None` where that was not counted.
pub(super) fn weights_in_words(weights: &[f32]) -> Option<String> {
    by_class(weights.iter().map(|weight| significant((*weight).into())))
}

/// What is said of each class, from 0; `None` if there is none.
fn by_class(said: impl ExactSizeIterator<Item = String>) -> Option<String> {
    let more = match said.len().saturating_sub(LISTED_CLASSES) {
        0 => String::new(),
        more => format!(", and {more} more (--dry-run --json has all)"),
    };
    let shown = said.take(LISTED_CLASSES).enumerate();
    let shown: Vec<String> = shown.map(|(class, what)| format!("{class} {what}")).collect();
    (!shown.is_empty()).then(|| format!("{}{more}", shown.join(", ")))
}

/// Whether the label is the last column, or so many of them, of a table because no name says otherwise.
fn is_label_by_default(source: &Source) -> bool {
    matches!(source, Source::Csv(table) if table.label_names.is_empty())
}

/// How many steps the optimizer makes in an epoch, where that depends on the number of workers; whoever comes
/// from another policy, or from another program, has a learning rate for as many as there were.
fn steps_in_words(train: &TrainSpec, batches: u64) -> Option<String> {
    let text = match train.policy.rule.steps_on() {
        _ if train.max_workers < 2 => return None,
        StepsOn::EachBatch => format!(
            "{batches} in an epoch, one for each batch: with N workers N times as many as under bsp or PyTorch's \
             DistributedDataParallel, so that a learning rate from there may be too large"
        ),
        StepsOn::Barrier => {
            "one at each barrier, on the mean gradient of all batches since the one before".to_owned()
        }
        StepsOn::Round => format!(
            "{batches} / N in an epoch of N workers, each on the mean gradient of a batch of every worker"
        ),
        StepsOn::OwnBatches => format!(
            "{batches} / N in an epoch of N workers, by each on its own batches; the mean is taken after a round"
        ),
        StepsOn::Chosen => "as under the policy that auto chooses".to_owned(),
    };
    Some(text)
}

/// Iterations of an epoch: what is left over makes a smaller one, unless it is dropped.
fn batches_per_epoch(train: &TrainSpec) -> u64 {
    let (samples, batch) = (train.data.train_samples, u64::from(train.batch.max(1)));
    if train.drop_last { samples / batch } else { samples.div_ceil(batch) }
}

/// Numbers that the shards keep for each parameter beside its value.
fn kept_numbers(train: &TrainSpec) -> u64 {
    train.shard_optimizer().moments()
}

/// Bytes of all that goes to the shards, unless they have it.
pub(super) fn upload_bytes(job: &PreparedJob) -> u64 {
    job.blobs.values().map(|bytes| bytes.len() as u64).sum()
}

pub(super) fn mib(bytes: u64) -> String {
    format!("{:.2} MiB", bytes as f64 / (1 << 20) as f64)
}
