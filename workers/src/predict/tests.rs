//! Predictions of models that are not trained, on a real ONNX Runtime.

use std::fs;

use safetensors::{Dtype, tensor::TensorView};
use syncline_autodiff::{DeriveOptions, Loss, Selected, select};
use syncline_onnx::{ElementType, GraphBuilder, ModelProto, attr_int, parse};
use syncline_scheduler::spec::{ChannelAxis, CsvSource, DataSpec, Normalization, SettingList, Source};
use tempfile::TempDir;

use super::*;
use crate::{
    client::{TrainedJob, Weights},
    export::fill,
    normalization::with_normalization,
    onnxruntime::runtime,
    submit::{JobGraph, Model, Training, prepare},
};

/// Scores `a` of two classes, and what comes behind them.
fn model(behind: impl FnOnce(&mut GraphBuilder, &str)) -> ModelProto {
    let mut graph = GraphBuilder::new("scores");
    let x = graph.input("x", ElementType::F32, &["batch".into(), 2.into()]);
    let w = graph.weight("w", &[2, 2], &[2.0, 0.0, 0.0, 2.0]);
    let a = graph.named("a", "MatMul", &[&x, &w], &[]);
    behind(&mut graph, &a);
    graph.finish()
}

/// A job that trains the scores on four samples of classes 0, 1, 1 and 0, and predicts with another model.
fn job(folder: &TempDir, predicts: &ModelProto, settings: &[(&str, &str)]) -> TrainedJob {
    let rows = folder.path().join("rows.csv");
    fs::write(&rows, "2,1,0\n3,4,1\n5,6,1\n8,7,0\n").unwrap();
    job_on(DataSpec::new(Source::csv(&rows)), &model(|graph, a| graph.output(a)), predicts, settings)
}

/// A job that trains a model on this data, and predicts with another one.
fn job_on(
    data: DataSpec,
    trains: &ModelProto,
    predicts: &ModelProto,
    settings: &[(&str, &str)],
) -> TrainedJob {
    let mut graph = JobGraph::new("job");
    let model = Model::forward(trains.to_bytes(), Loss::SoftmaxCrossEntropy);
    graph.train("train", Training::new(model, data).with(|s| s.batch = 2));
    let prepared = prepare(&runtime(), &graph).unwrap();
    let train = prepared.spec.train().unwrap().1.clone();
    let none: [(&str, TensorView<'_>); 0] = [];
    let weights = Weights::of_file(safetensors::serialize(none, None).unwrap());
    let mut list = SettingList::default();
    settings.iter().for_each(|(name, value)| list.push(name, value));
    let evaluation_graph = prepared.blobs[&train.model.evaluation_graph].to_vec();
    let model = fill(&predicts.to_bytes(), "test", weights.as_bytes()).unwrap();
    TrainedJob { train, settings: list, model, weights, evaluation_graph }
}

/// The classes of all samples, and the names and rows of the outputs of each batch.
type Answer = (Vec<Option<u32>>, Vec<(String, usize)>);

fn asked(job: &TrainedJob, batch: usize) -> Result<Answer, PredictError> {
    let options =
        PredictOptions { labels: LabelUse::PassOver, ..PredictOptions::for_job(job, Samples::All, batch) };
    let (mut classes, mut shown) = (Vec::new(), Vec::new());
    Predictor::open(&runtime(), job, &options)?.run(|predicted| {
        classes.extend_from_slice(predicted.predicted);
        let rows = predicted
            .outputs
            .iter()
            .map(|output| (output.name.clone(), output.values.len() / output.width()));
        shown.extend(rows);
        Ok::<_, PredictError>(())
    })?;
    Ok((classes, shown))
}

#[test]
fn an_output_with_as_many_rows_as_the_first_batch_by_chance_is_none_of_samples() {
    let folder = TempDir::new().unwrap();
    let job = job(
        &folder,
        &model(|graph, a| {
            let table = graph.weight("table", &[3, 1], &[1.0, 2.0, 3.0]);
            let table = graph.named("constant", "Neg", &[&table], &[]);
            graph.output(a);
            graph.output(&table);
        }),
        &[],
    );
    let (classes, shown) = asked(&job, 3).unwrap();
    assert_eq!(classes, [0, 1, 1, 0].map(Some));
    assert_eq!(shown, [("a".to_owned(), 3), ("a".to_owned(), 1)]);
}

#[test]
fn an_output_that_loses_the_rows_of_a_batch_is_refused() {
    let folder = TempDir::new().unwrap();
    let job = job(
        &folder,
        &model(|graph, a| {
            let axis = graph.ints("axis", &[1]);
            let sum = graph.op("ReduceSum", &[a, &axis], &[]);
            let squeezed = graph.named("squeezed", "Squeeze", &[&sum], &[]);
            graph.output(&squeezed);
        }),
        &[],
    );
    assert!(asked(&job, 2).is_ok());
    let error = asked(&job, 3).unwrap_err();
    let text = "[E610] output `squeezed` has no row for each sample of a batch of 1, and has of others";
    assert_eq!(error.to_string(), text);
}

#[test]
fn scores_that_the_loss_was_told_of_say_the_class_and_are_no_output_table() {
    let behind = |op: &'static str| {
        move |graph: &mut GraphBuilder, a: &str| {
            let y = graph.named("y", op, &[a], &[]);
            graph.output(&y);
        }
    };
    let folder = TempDir::new().unwrap();
    let shown = [("y".to_owned(), 3), ("y".to_owned(), 1)];
    let of_classes = job(&folder, &model(behind("Softmax")), &[("model.forward.output", "a")]);
    assert_eq!(asked(&of_classes, 3).unwrap(), ([0, 1, 1, 0].map(Some).to_vec(), shown.to_vec()));
    let settings = [("model.forward.output", "a"), ("model.forward.loss", "bce-with-logits")];
    let of_labels = job(&folder, &model(behind("Sigmoid")), &settings);
    assert_eq!(asked(&of_labels, 3).unwrap(), ([1; 8].map(Some).to_vec(), shown.to_vec()));
    let below_a_half = model(|graph, a| {
        let negative = graph.op("Neg", &[a], &[]);
        let p = graph.named("p", "Sigmoid", &[&negative], &[]);
        let y = graph.named("y", "Neg", &[&p], &[]);
        graph.output(&y);
    });
    let settings = [("model.forward.output", "p"), ("model.forward.loss", "bce-with-logits")];
    let of_probabilities = job(&folder, &below_a_half, &settings);
    assert_eq!(asked(&of_probabilities, 3).unwrap(), ([0; 8].map(Some).to_vec(), shown.to_vec()));
}

#[test]
fn other_files_are_normalized_as_those_of_the_job() {
    let folder = TempDir::new().unwrap();
    let mut job = job(&folder, &model(|graph, a| graph.output(a)), &[]);
    let data = &mut job.train.data;
    (data.mean, data.std, data.channel_axis) = (vec![1.0, 2.0], vec![3.0, 4.0], ChannelAxis::Last);
    data.normalize.insert("table".to_owned(), Normalization { scale: 0.5, ..Normalization::default() });
    let other = folder.path().join("rows.csv").display().to_string();
    let options = PredictOptions::for_files(&job, &[other], LabelUse::Read, 1).unwrap();
    for input in ["x", "table"] {
        assert_eq!(options.data.normalization_of(input), job.train.data.normalization_of(input));
    }
}

/// What the model of a job says of all samples.
fn scores(job: &TrainedJob) -> Vec<f32> {
    let options =
        PredictOptions { labels: LabelUse::PassOver, ..PredictOptions::for_job(job, Samples::All, 3) };
    let mut scores = Vec::new();
    let each = |predicted: &Predicted<'_>| {
        scores.extend_from_slice(&predicted.outputs[0].values);
        Ok::<_, PredictError>(())
    };
    Predictor::open(&runtime(), job, &options).unwrap().run(each).unwrap();
    scores
}

/// A model that is fed with normalized samples, and one that normalizes them itself.
#[test]
fn a_model_with_normalization_says_the_same_of_samples_as_they_are_in_the_files() {
    let folder = TempDir::new().unwrap();
    let mut job = job(&folder, &model(|graph, a| graph.output(a)), &[]);
    let plain = job.train.data.clone();
    let normalized = DataSpec { scale: 0.5, mean: vec![1.0, 2.0], std: vec![4.0, 0.5], ..plain.clone() };
    (job.train.data, job.train.data.digest) = (normalized, plain.digest);
    let fed_with_normalized = scores(&job);
    // (2 * 0.5 - 1) / 4 and (1 * 0.5 - 2) / 0.5 of the first sample, doubled by the model.
    assert_eq!(fed_with_normalized[..2], [0.0, -6.0]);
    job.model.onnx = with_normalization(&job.model.onnx, &job.train).unwrap();
    // A second export of a model that was trained further keeps what the first has noted.
    let twice = with_normalization(&job.model.onnx, &job.train).unwrap();
    for (onnx, constants) in [(&job.model.onnx, 3), (&twice, 6)] {
        let selected = select(&parse(onnx).unwrap(), &DeriveOptions::default()).unwrap();
        let normalizes = |weight: &&Selected| weight.reason == Some("normalizes an input");
        assert_eq!(selected.iter().filter(normalizes).count(), constants, "{selected:?}");
    }
    job.train.data = plain;
    assert_eq!(scores(&job), fed_with_normalized);
}

/// The same of an image that is scaled, a table that is standardized, and numbers that stay as they are.
#[test]
fn a_model_with_normalization_does_to_each_input_what_its_own_says() {
    let folder = TempDir::new().unwrap();
    let mut graph = GraphBuilder::new("scores");
    let image = graph.input("image", ElementType::F32, &["batch".into(), 1.into(), 2.into(), 2.into()]);
    let [table, plain] =
        ["table", "plain"].map(|name| graph.input(name, ElementType::F32, &["batch".into(), 2.into()]));
    let image = graph.op("Flatten", &[&image], &[attr_int("axis", 1)]);
    let all = graph.op("Concat", &[&image, &table, &plain], &[attr_int("axis", 1)]);
    let weights: Vec<f32> = (0..16).map(|at| (at % 5) as f32 - 1.5).collect();
    let weights = graph.weight("w", &[8, 2], &weights);
    let scores_of = graph.op("MatMul", &[&all, &weights], &[]);
    graph.output(&scores_of);
    let model = graph.finish();

    let image = [0, 51, 102, 255, 255, 51, 0, 102, 10, 20, 30, 40];
    let bytes = |numbers: [f32; 6]| numbers.map(f32::to_le_bytes).concat();
    let [table, plain] = [[1.0, 1000.0, 3.0, 1000.5, 8.0, 1003.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]].map(bytes);
    let arrays = [
        ("image", TensorView::new(Dtype::U8, vec![3, 1, 2, 2], &image).unwrap()),
        ("table", TensorView::new(Dtype::F32, vec![3, 2], &table).unwrap()),
        ("plain", TensorView::new(Dtype::F32, vec![3, 2], &plain).unwrap()),
        ("label", TensorView::new(Dtype::U8, vec![3], &[0, 1, 0]).unwrap()),
    ];
    let path = folder.path().join("data.safetensors");
    fs::write(&path, safetensors::serialize(arrays, None).unwrap()).unwrap();
    let scaled = Normalization { scale: 0.5, mean: vec![2.0], std: vec![4.0], ..Normalization::default() };
    let standardized = Normalization { standardize: true, ..Normalization::default() };
    let data =
        DataSpec::new(Source::safetensors(path)).normalize("image", scaled).normalize("table", standardized);
    let mut job = job_on(data, &model, &model, &[]);
    assert_eq!(job.train.data.normalization_of("table").mean[0], 4.0);

    let fed_with_normalized = scores(&job);
    job.model.onnx = with_normalization(&job.model.onnx, &job.train).unwrap();
    job.train.data.normalize.clear();
    let fed_with_raw = scores(&job);
    assert_eq!(fed_with_raw.len(), 6);
    // Nodes compute in float32, of which a thousand has three digits behind the point.
    let near = |(raw, normalized): (&f32, &f32)| (raw - normalized).abs() < 1e-2;
    assert!(
        fed_with_raw.iter().zip(&fed_with_normalized).all(near),
        "{fed_with_raw:?} {fed_with_normalized:?}"
    );
}

#[test]
fn a_file_that_lacks_only_the_label_is_refused_with_a_word_about_unlabeled() {
    let folder = TempDir::new().unwrap();
    let job = job(&folder, &model(|graph, a| graph.output(a)), &[]);
    let refused = |source: Source| {
        let options = PredictOptions::for_job(&job, Samples::All, 1);
        let options = PredictOptions { data: DataSpec::new(source), columns_of: None, ..options };
        let error = Predictor::open(&runtime(), &job, &options).err().unwrap();
        (error.code(), error.hint().unwrap().contains("--unlabeled"))
    };
    let table = folder.path().join("new.csv");
    fs::write(&table, "a,b\n2,1\n").unwrap();
    assert_eq!(
        refused(Source::Csv(CsvSource::new(table.display().to_string()).label_names(["y"]))),
        ("E480", true)
    );
    for (array, is_label) in [("x", true), ("y", false)] {
        let path = folder.path().join(format!("{array}.safetensors"));
        let numbers = [0; 8];
        let view = TensorView::new(Dtype::F32, vec![1, 2], &numbers).unwrap();
        fs::write(&path, safetensors::serialize([(array, view)], None).unwrap()).unwrap();
        assert_eq!(refused(Source::safetensors(&path)), ("E482", is_label), "only `{array}` is there");
    }
}
