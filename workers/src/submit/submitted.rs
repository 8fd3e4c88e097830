//! Settings that only the submission knows: what the training graph was made with. They go along for people.

use std::path::Path;

use syncline_autodiff::{ClassWeights, EvalMode, LossOptions};
use syncline_scheduler::spec::{SettingList, SubmittedSettings, setting_value as value};

use super::{
    forward_loss,
    groups::ParameterGroup,
    model::{ByteSource, FirstValues, Model},
    paths::absolute,
    training::{ParamList, Settings, Training},
};
use crate::data::is_url;

/// Those of a training, as its job file has them; what is the default, and a model in memory, is left out.
pub(super) fn submitted(training: &Training) -> SubmittedSettings {
    let mut list = SettingList::default();
    list_model(&training.model, &mut list);
    list_derivation(&training.settings, &mut list);
    SubmittedSettings(list)
}

fn shown_path(path: &Path) -> String {
    let text = path.to_string_lossy();
    if is_url(&text) { value::path(&text) } else { absolute(path).to_string_lossy().into_owned() }
}

fn file(source: &ByteSource) -> Option<String> {
    match source {
        ByteSource::File(path) => Some(shown_path(path)),
        ByteSource::Memory(_) => None,
    }
}

fn list_model(model: &Model, list: &mut SettingList) {
    match model {
        Model::Forward { onnx, loss, options, output, weights } => {
            list.push_known([
                ("model.forward.onnx", file(onnx)),
                (forward_loss::LOSS, Some(loss.name().to_owned())),
            ]);
            list_loss_options(options, list);
            list.push_known([(forward_loss::OUTPUT, output.clone())]);
            list_weights(weights.as_ref(), list);
        }
        Model::Ready { onnx, weights, misplaced: _ } => {
            list.push_known([
                ("model.ready.onnx", file(onnx)),
                ("model.ready.weights", weights.as_ref().and_then(file)),
            ]);
        }
    }
}

fn list_weights(weights: Option<&FirstValues>, list: &mut SettingList) {
    let Some(FirstValues { file: from, partial }) = weights else { return };
    match partial {
        false => list.push_known([("model.forward.weights", file(from))]),
        true => list.push_known([
            ("model.forward.weights.path", file(from)),
            ("model.forward.weights.partial", Some(true.to_string())),
        ]),
    }
}

fn list_loss_options(options: &LossOptions, list: &mut SettingList) {
    // Without `..`: an option that is added is told, too.
    let LossOptions {
        label_smoothing,
        class_weights,
        ignore_index,
        class_axis,
        top_k,
        perplexity,
        pos_weight,
        delta,
    } = options;
    let weights = |weights: &ClassWeights| match weights {
        ClassWeights::Balanced => Some(ClassWeights::BALANCED.to_owned()),
        ClassWeights::Each(weights) => (!weights.is_empty()).then(|| value::numbers(weights)),
    };
    list.push_known([
        (
            "model.forward.loss_options.label_smoothing",
            (*label_smoothing != 0.0).then(|| value::number(*label_smoothing)),
        ),
        ("model.forward.loss_options.class_weights", weights(class_weights)),
        ("model.forward.loss_options.ignore_index", ignore_index.map(|label| label.to_string())),
        (forward_loss::CLASS_AXIS, class_axis.map(|axis| axis.to_string())),
        ("model.forward.loss_options.top_k", top_k.map(|k| k.to_string())),
        ("model.forward.loss_options.perplexity", perplexity.then(|| true.to_string())),
        ("model.forward.loss_options.pos_weight", weights(pos_weight)),
        ("model.forward.loss_options.delta", delta.map(value::number)),
    ]);
}

fn list_derivation(settings: &Settings, list: &mut SettingList) {
    // Without `..`: a setting is here, or in what the engine is given.
    let Settings {
        params,
        train,
        freeze,
        sparse,
        groups,
        eval_mode,
        recompute,
        check,
        optimizer: _,
        learning_rate: _,
        warmup: _,
        decay: _,
        min_learning_rate: _,
        policy: _,
        batch: _,
        micro_batch: _,
        epochs: _,
        drop_last: _,
        shuffle: _,
        seed: _,
        on_nan: _,
        clip_norm: _,
        min_workers: _,
        max_workers: _,
        ahead: _,
        queue_limit_s: _,
        checkpoint: _,
        evaluate: _,
        resume: _,
        compression: _,
        pull_compression: _,
        precision: _,
    } = settings;
    let names = |all: &[String]| (!all.is_empty()).then(|| value::texts(all));
    let params = params.as_ref().map(|params| match params {
        ParamList::Names(names) => value::texts(names),
        ParamList::File(path) => shown_path(path),
    });
    let eval_mode = match eval_mode {
        EvalMode::Nothing => None,
        EvalMode::Whole => Some(true.to_string()),
        EvalMode::Parts(patterns) => Some(value::texts(patterns)),
    };
    let groups = (!groups.is_empty()).then(|| value::list(groups.iter().map(group)));
    list.push_known([
        ("settings.params", params),
        ("settings.train", names(train)),
        ("settings.freeze", names(freeze)),
        ("settings.sparse", names(sparse)),
        ("settings.groups", groups),
        ("settings.eval_mode", eval_mode),
        ("settings.recompute", recompute.then(|| true.to_string())),
        ("settings.check", (!check).then(|| false.to_string())),
    ]);
}

fn group(group: &ParameterGroup) -> String {
    let ParameterGroup { params, weight_decay, learning_rate_factor } = group;
    let fields = [
        Some(("params", value::texts(params))),
        weight_decay.map(|decay| ("weight_decay", value::number(decay))),
        learning_rate_factor.map(|factor| ("learning_rate_factor", value::number(factor))),
    ];
    value::table(fields.into_iter().flatten())
}

#[cfg(test)]
#[cfg(feature = "job-file")]
mod tests {
    use std::fs;

    use syncline_scheduler::{sim, spec::Setting};

    use super::*;
    use crate::submit::{JobFile, prepare::train_spec};

    const BARE: &str = r#"id = "a"
[[node]]
name = "n"
do = "train"
model.forward = { onnx = "m.onnx", loss = "mse" }
data.source.csv.path = "d.csv"
"#;

    const FULL: &str = r#"id = "a"
[[node]]
name = "n"
do = "train"

[node.model.forward]
onnx = "other.onnx"
loss = "softmax-cross-entropy"
output = "logits"
weights = "first.safetensors"
loss_options = { label_smoothing = 0.1, class_weights = [1.0, 2.5], ignore_index = -100, class_axis = 1, top_k = 5, perplexity = true, pos_weight = [2.0], delta = 1.5 }

[node.data]
source.csv = { path = ["o.csv", "p.csv"], label_columns = 2, label_names = ["a b", "it's"], skip_lines = 1, separator = ";" }
test.idx = { images = "i.gz", labels = "l.gz" }
validation.cifar10.paths = ["1.bin", "2.bin"]
inputs = { "x.1" = ["a b", "it's"], numbers = ["c"] }
validation_percent = 10
scale = 0.0039215689
mean = [0.5, 1e-7]
std = [0.25]
standardize = true
normalize.image = { scale = 0.5, mean = [0.5, 1e-7], std = [0.25], channel_axis = "last" }
normalize."x.1" = {}
normalize.table.standardize = true
split = { test_last_percent = 20 }
sample_shape = [1, 8, 8]
layout = "nhwc"
augment = { flip = true, crop = 4, cutout = 8 }
digest = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"

[node.settings]
optimizer = { adam = { beta1 = 0.8, epsilon = 1e-6, weight_decay = 0.1, decoupled = true } }
learning_rate = 3e-5
warmup = 0.05
decay = { steps = [[0.5, 0.1], [0.75, 0.2]] }
min_learning_rate = 1e-6
policy = "ssp:3"
batch = 64
micro_batch = 16
epochs = 40
drop_last = true
shuffle = false
seed = 7
on_nan = "skip"
clip_norm = 1.0
min_workers = 2
max_workers = 4
queue_limit_s = 600
ahead = 2
checkpoint = { every_s = 60, every_epochs = 2, keep = 3 }
evaluate = { every_s = 30, every_epochs = 1, monitor = "accuracy", keep_best = true, early_stopping = { patience = 5, min_delta = 0.001 }, reduce_on_plateau = { patience = 3, factor = 0.5, min_learning_rate = 1e-6 } }
compression = { top_k = 0.01 }
pull_compression = "fp16"
train = ["head.*"]
freeze = ["features.*"]
sparse = ["*.embedding.weight"]
groups = [{ params = ["*.bias", "it's"], weight_decay = 0.0 }, { params = ["x"], learning_rate_factor = 0.1 }]
eval_mode = true
precision = "bf16"
recompute = true
check = false
"#;

    /// What is listed of the training of a file, and the training itself in words.
    fn listed(text: &str) -> (SettingList, String) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("job.toml");
        fs::write(&file, text).unwrap();
        let mut graph = JobFile::load(&file).unwrap();
        let training = graph.trainings_mut().next().unwrap();
        let model = sim::training("bsp".parse().unwrap(), 1, 1).model;
        let train = train_spec(model, training.data.clone(), training);
        let mut list = SettingList::default();
        let folder = format!("{}/", folder.path().display());
        train.setting_list().iter().for_each(|own| list.push(&own.name, own.value.replace(&folder, "")));
        (list, format!("{training:#?}").replace(&folder, ""))
    }

    /// A file of these settings: what TOML does not know is a text.
    fn file_of(list: &SettingList) -> String {
        let head = "id = \"a\"\n[[node]]\nname = \"n\"\ndo = \"train\"\n".to_owned();
        list.iter().fold(head, |text, Setting { name, value }| {
            let line = format!("{name} = {value}\n");
            match toml::from_str::<toml::Table>(&line) {
                Ok(_) => text + &line,
                Err(_) => format!("{text}{name} = {}\n", value::quoted(value)),
            }
        })
    }

    #[test]
    fn a_file_of_what_is_listed_is_the_same_training() {
        let in_part = FULL.replace("eval_mode = true", "eval_mode = ['body.*', 'neck.1']").replace(
            "weights = \"first.safetensors\"",
            "weights = { path = \"first.safetensors\", partial = true }",
        );
        let balanced = FULL.replace("class_weights = [1.0, 2.5]", "class_weights = \"balanced\"");
        let positive = FULL.replace("pos_weight = [2.0]", "pos_weight = \"balanced\"");
        for text in [BARE, FULL, &in_part, &balanced, &positive] {
            let (list, training) = listed(text);
            let (again, rebuilt) = listed(&file_of(&list));
            assert_eq!(again, list);
            // A rate that is listed is one that was named.
            let unnamed = "learning_rate: None";
            let named = "learning_rate: Some(\n            0.1,\n        )";
            assert_eq!(rebuilt.replace(named, unnamed), training);
        }
    }

    #[test]
    fn a_training_without_settings_lists_what_every_training_has_and_its_model() {
        let (list, _) = listed(BARE);
        let names: Vec<&str> = list.iter().map(|own| own.name.as_str()).collect();
        let want = [
            "model.forward.onnx",
            "model.forward.loss",
            "data.source.csv.path",
            "settings.optimizer",
            "settings.learning_rate",
            "settings.policy",
            "settings.batch",
            "settings.epochs",
            "settings.seed",
        ];
        assert_eq!(names, want);
    }
}
