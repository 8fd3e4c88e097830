//! What a job of a forward model trains, and from which numbers, as it would be sent to the engine.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use safetensors::{Dtype, tensor::TensorView};
use syncline_autodiff::{ClassWeights, Loss, LossOptions, parse_forward};
use syncline_onnx::{self as onnx, ElementType, GraphBuilder, attr_int, proto::ModelProto};
use syncline_scheduler::spec::{
    DataSpec, Decay, EvaluateSpec, LearningRate, Metric, Optimizer, Source, Split, TrainSpec,
};
use syncline_workers::{
    check::step_cost,
    submit::{
        ByteSource, JobFile, JobGraph, JobVariants, Model, PreparedJob, SubmitError, Training, prepare,
    },
};

use crate::onnxruntime;

/// Layers `fc1` of [2, 4] and `fc2` of [4, 3].
const SIZES: [usize; 3] = [2, 4, 3];

/// Names, shapes, and the number that fills each.
pub(crate) type Tensors<'a> = &'a [(&'a str, &'a [usize], f32)];

/// All parameters of a model of these sizes.
const ALL: Tensors<'static> = &[
    ("fc1.bias", &[4], 1.0),
    ("fc1.weight", &[2, 4], 2.0),
    ("fc2.bias", &[3], 3.0),
    ("fc2.weight", &[4, 3], 4.0),
];

/// A file of tensors, each of one number throughout.
pub(crate) fn saved(tensors: Tensors<'_>) -> Vec<u8> {
    let bytes =
        |(_, shape, number): &(&str, &[usize], f32)| number.to_le_bytes().repeat(shape.iter().product());
    let bytes: Vec<Vec<u8>> = tensors.iter().map(bytes).collect();
    let views = tensors.iter().zip(&bytes).map(|((name, shape, _), bytes)| {
        (*name, TensorView::new(Dtype::F32, shape.to_vec(), bytes).unwrap())
    });
    safetensors::serialize(views, None).unwrap()
}

/// A folder with the model, samples for it, and a job file that trains it with these lines.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("model.onnx"), onnx::mlp(&SIZES, 1).to_bytes()).unwrap();
        fs::write(folder.path().join("rows.csv"), "1,2,0\n3,4,1\n5,6,2\n7,8,0\n").unwrap();
        Self(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path().join(name), bytes).unwrap();
    }

    fn data(&self) -> DataSpec {
        DataSpec::new(Source::csv(self.path().join("rows.csv").to_str().unwrap()))
    }

    /// What a job file with these fields of the model, and these settings, sends.
    fn submit(&self, model: &str, settings: &str) -> Result<PreparedJob, SubmitError> {
        let text = format!(
            "id = 'job'\n[[node]]\nname = 'train'\ndo = 'train'\ndata.source.csv.path = 'rows.csv'\n\
             model.forward = {{ onnx = 'model.onnx', loss = 'softmax-cross-entropy', {model} }}\n\
             settings = {{ batch = 2, {settings} }}"
        );
        self.write("job.toml", text.as_bytes());
        prepare(&onnxruntime::runtime(), &JobFile::load(&self.path().join("job.toml"))?)
    }

    /// What a program with this model sends.
    fn submit_model(&self, model: Model) -> Result<PreparedJob, SubmitError> {
        let mut job = JobGraph::new("job");
        job.train("train", Training::new(model, self.data()).with(|s| s.batch = 2));
        prepare(&onnxruntime::runtime(), &job)
    }
}

fn train(job: &PreparedJob) -> &TrainSpec {
    job.spec.train().unwrap().1
}

fn parameters(job: &PreparedJob) -> Vec<&str> {
    train(job).model.layout.0.iter().map(|parameter| parameter.name.as_str()).collect()
}

/// The numbers that the parameters of a job start from.
pub(crate) fn first(job: &PreparedJob) -> BTreeMap<&str, Vec<f32>> {
    let model = &train(job).model;
    let bytes = job.blobs[&model.initial].as_chunks().0.iter();
    let mut rest = bytes.map(|number| f32::from_le_bytes(*number));
    let sizes = model.layout.0.iter().map(|p| (p.name.as_str(), p.shape.iter().product::<u64>()));
    sizes.map(|(name, size)| (name, rest.by_ref().take(size as usize).collect())).collect()
}

/// The constant of the model that snapshots are put into.
fn constant(job: &PreparedJob, name: &str) -> Vec<f32> {
    let model: ModelProto = parse_forward(&job.blobs[&train(job).model.forward]).unwrap();
    model.graph.unwrap().initializer.iter().find(|tensor| tensor.name == name).unwrap().to_f32().unwrap()
}

fn refused(job: Result<PreparedJob, SubmitError>) -> String {
    job.map(|_| ()).unwrap_err().to_string()
}

#[test]
fn patterns_in_the_settings_choose_what_trains() {
    let folder = Folder::new();
    #[rustfmt::skip]
    let cases = [
        ("",                                            &["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"][..]),
        ("train = ['fc2.*']",                           &["fc2.weight", "fc2.bias"]),
        ("train = ['*.bias', 'fc1.weight']",            &["fc1.weight", "fc1.bias", "fc2.bias"]),
        ("train = ['fc2.*'], freeze = ['*.bias']",      &["fc2.weight"]),
    ];
    for (settings, wanted) in cases {
        assert_eq!(parameters(&folder.submit("", settings).unwrap()), wanted, "{settings}");
    }
    let refused = refused(folder.submit("", "train = ['head.*']"));
    assert!(refused.starts_with("[E317]") && refused.contains("head.*"), "{refused}");
}

#[test]
fn a_learning_rate_that_is_left_out_suits_the_optimizer_and_the_schedule_is_that_of_the_file() {
    let folder = Folder::new();
    let steps = Decay::Steps(vec![(0.5, 0.1), (0.75, 0.1)]);
    #[rustfmt::skip]
    let cases = [
        ("",                                                        LearningRate::constant(0.1)),
        ("optimizer = 'nesterov'",                                  LearningRate::constant(0.01)),
        ("optimizer = 'adamw'",                                     LearningRate::constant(0.001)),
        ("optimizer = 'adam', learning_rate = 0.1",                 LearningRate::constant(0.1)),
        ("decay = 'linear', warmup = 0.25, min_learning_rate = 0.01", LearningRate { decay: Decay::Linear, warmup: 0.25, min: 0.01, ..LearningRate::constant(0.1) }),
        ("decay = { steps = [[0.5, 0.1], [0.75, 0.1]] }",           LearningRate { decay: steps, ..LearningRate::constant(0.1) }),
    ];
    for (settings, wanted) in cases {
        assert_eq!(train(&folder.submit("", settings).unwrap()).learning_rate, wanted, "{settings}");
    }
    for (settings, words) in [
        ("warmup = 1.5", "warmup 1.5, expected a share of the training"),
        (
            "optimizer = 'adam', decay = 'cosine', min_learning_rate = 0.01",
            "min_learning_rate 0.01, expected a number from 0 to the learning rate 0.001",
        ),
        ("decay = { steps = [[30, 0.1]] }", "one at 30, expected a share of the training between 0 and 1"),
    ] {
        let refused = refused(folder.submit("", settings));
        assert!(refused.starts_with("[E027]") && refused.contains(words), "{refused}");
    }
    assert_eq!(train(&folder.submit("", "optimizer = 'adam'").unwrap()).optimizer, Optimizer::adam());
}

#[test]
fn a_job_starts_from_the_numbers_of_a_file() {
    let folder = Folder::new();
    folder.write("first.safetensors", &saved(ALL));
    let from_file = folder.submit("weights = 'first.safetensors'", "").unwrap();
    let forward = || Model::forward(folder.path().join("model.onnx"), Loss::SoftmaxCrossEntropy);
    let from_memory = folder.submit_model(forward().with_weights(saved(ALL))).unwrap();
    for job in [from_file, from_memory] {
        for (name, shape, number) in ALL {
            assert_eq!(first(&job)[name], vec![*number; shape.iter().product()], "{name}");
        }
        assert_eq!(job.warnings, Vec::<String>::new());
    }
}

#[test]
fn what_does_not_train_comes_from_the_file_too_but_may_be_missing() {
    let folder = Folder::new();
    folder.write("all.safetensors", &saved(ALL));
    folder.write("head.safetensors", &saved(&ALL[2..]));
    let whole = folder.submit("weights = 'all.safetensors'", "train = ['fc2.*']").unwrap();
    assert_eq!(constant(&whole, "fc1.weight"), [2.0; 8]);
    assert_eq!(first(&whole)["fc2.bias"], [3.0; 3]);
    let head = folder.submit("weights = 'head.safetensors'", "freeze = ['fc1.*']").unwrap();
    assert_eq!(constant(&head, "fc1.weight"), constant(&folder.submit("", "").unwrap(), "fc1.weight"));
    assert_eq!(first(&head)["fc2.bias"], [3.0; 3]);
}

#[test]
fn a_file_of_another_model_is_refused_with_what_differs() {
    let folder = Folder::new();
    let other_shape: Tensors<'_> = &[("fc1.bias", &[5], 1.0), ALL[1], ALL[2], ALL[3]];
    #[rustfmt::skip]
    let cases = [
        ("lacks one",     saved(&ALL[1..]),   "[E247] FILE does not fit the model: it holds no `fc1.bias`"),
        ("lacks several", saved(&ALL[..1]),   "it holds no `fc1.weight`, `fc2.weight`, `fc2.bias`"),
        ("other shape",   saved(other_shape), "[E247] FILE does not fit the model: `fc1.bias` is F32 [5], the model has [4]"),
        ("damaged",       b"nothing".to_vec(), "[E380] FILE is not a safetensors file"),
    ];
    let path = folder.path().join("first.safetensors");
    for (name, file, words) in cases {
        folder.write("first.safetensors", &file);
        let refused = refused(folder.submit("weights = 'first.safetensors'", ""));
        assert!(refused.contains(&words.replace("FILE", path.to_str().unwrap())), "{name}: {refused}");
    }
    folder.write("first.safetensors", &saved(&ALL[1..]));
    let hint = folder.submit("weights = 'first.safetensors'", "").unwrap_err().hint().unwrap();
    assert!(hint.contains("`syncline model export JOB FILE.onnx` writes its whole model"), "{hint}");
    assert!(hint.contains("partial = true"), "{hint}");
    let refused = refused(folder.submit("weights = 'elsewhere.safetensors'", ""));
    assert!(refused.starts_with("[E360]") && refused.contains("elsewhere"), "{refused}");
}

#[test]
fn what_the_model_has_no_parameter_for_is_left_out_and_said() {
    let folder = Folder::new();
    let more: Tensors<'_> = &[ALL[0], ALL[1], ALL[2], ALL[3], ("fc3.weight", &[1], 9.0)];
    folder.write("first.safetensors", &saved(more));
    let job = folder.submit("weights = 'first.safetensors'", "").unwrap();
    assert_eq!(first(&job)["fc2.weight"], [4.0; 12]);
    let [warning] = &job.warnings[..] else { panic!("{:?}", job.warnings) };
    assert!(warning.starts_with("the model has no parameter `fc3.weight`"), "{warning}");
}

#[test]
fn a_model_that_compares_the_samples_of_a_batch_is_doubted_once() {
    let mut graph = GraphBuilder::new("compares");
    let x = graph.input("x", ElementType::F32, &["batch".into(), 2.into()]);
    let w = graph.weight("w", &[2, 3], &[0.1, -0.2, 0.3, 0.4, -0.5, 0.6]);
    let hidden = graph.op("MatMul", &[&x, &w], &[]);
    let shares = graph.named("shares", "Softmax", &[&hidden], &[attr_int("axis", 0)]);
    let scores = graph.op("Mul", &[&hidden, &shares], &[]);
    graph.output(&scores);
    let model = Model::forward(graph.finish().to_bytes(), Loss::SoftmaxCrossEntropy);
    let job = Folder::new().submit_model(model).unwrap();
    let [warning] = &job.warnings[..] else { panic!("{:?}", job.warnings) };
    assert!(warning.starts_with("`shares` compares the samples of a batch with each other"), "{warning}");
}

#[test]
fn of_a_file_that_may_fit_in_part_what_fits_is_taken_and_the_rest_is_said() {
    let folder = Folder::new();
    // As of a model with a head of five classes, and a layer that is gone.
    let other_head: Tensors<'_> =
        &[ALL[0], ALL[1], ("fc2.bias", &[5], 3.0), ("fc2.weight", &[4, 5], 4.0), ("fc3.weight", &[1], 9.0)];
    folder.write("body.safetensors", &saved(other_head));
    let own = folder.submit("", "").unwrap();
    let from_file = folder.submit("weights = { path = 'body.safetensors', partial = true }", "").unwrap();
    let forward = Model::forward(folder.path().join("model.onnx"), Loss::SoftmaxCrossEntropy);
    let from_memory = folder.submit_model(forward.with_partial_weights(saved(other_head))).unwrap();
    for job in [&from_file, &from_memory] {
        assert_eq!((&first(job)["fc1.bias"], &first(job)["fc1.weight"]), (&vec![1.0; 4], &vec![2.0; 8]));
        for name in ["fc2.bias", "fc2.weight"] {
            assert_eq!(first(job)[name], first(&own)[name], "{name}");
        }
        let [warning] = &job.warnings[..] else { panic!("{:?}", job.warnings) };
        let words = "; 2 more keep the values of the ONNX file: `fc2.weight`, `fc2.bias`; what the model has otherwise: `fc2.bias` \
                     (F32 [5], the model has [3]), `fc2.weight` (F32 [4, 5], the model has [4, 3]); the model has no `fc3.weight`";
        assert!(
            warning.starts_with("the model begins with 2 tensors of ") && warning.ends_with(words),
            "{warning}"
        );
    }
    // What is frozen is missed as well.
    folder.write("head.safetensors", &saved(&ALL[2..]));
    let head = folder
        .submit("weights = { path = 'head.safetensors', partial = true }", "freeze = ['fc1.*']")
        .unwrap();
    assert_eq!(first(&head)["fc2.bias"], [3.0; 3]);
    assert!(
        head.warnings[0].ends_with("; 2 more keep the values of the ONNX file: `fc1.weight`, `fc1.bias`"),
        "{:?}",
        head.warnings
    );
}

#[test]
fn a_file_of_which_nothing_fits_is_refused_also_where_a_part_would_do() {
    let folder = Folder::new();
    folder.write("other.safetensors", &saved(&[("module.fc1.bias", &[4], 1.0), ("fc2.bias", &[5], 1.0)]));
    let error = folder
        .submit("weights = { path = 'other.safetensors', partial = true }", "")
        .map(|_| ())
        .unwrap_err();
    let words = "nothing of it has name and shape of a tensor of the model; it has `fc2.bias` (F32 [5], the model has [3]), \
                 `module.fc1.bias`; the model has `fc1.weight`, `fc1.bias`, `fc2.weight`, `fc2.bias`";
    assert!(error.to_string().starts_with("[E247]") && error.to_string().ends_with(words), "{error}");
    assert!(error.hint().unwrap().contains("removeprefix"), "{error}");
    let ready = Model::ready(b"a graph".to_vec()).with_partial_weights(saved(ALL));
    let refused = refused(folder.submit_model(ready));
    assert!(refused.starts_with("[E366]") && refused.contains("weights.partial"), "{refused}");
}

#[test]
fn what_evaluates_is_named_as_what_is_frozen() {
    let folder = Folder::new();
    assert_eq!(folder.submit("", "eval_mode = true").unwrap().warnings, [""; 0]);
    let refused = refused(folder.submit("", "eval_mode = ['fc1.*']"));
    assert!(
        refused.starts_with("[E317] model has no BatchNormalization and no Dropout `fc1.*`"),
        "{refused}"
    );
}

/// Whether a constant without a telling name is a parameter is guessed from its numbers.
#[test]
fn what_torch_save_has_written_is_called_so_and_what_normalizations_count_is_not_missed() {
    let folder = Folder::new();
    folder.write("first.pt", b"PK\x03\x04 and a pickle");
    let Err(refused) = folder.submit("weights = 'first.pt'", "") else { panic!("it is taken") };
    assert!(refused.to_string().contains("torch.save has written it"), "{refused}");
    assert!(refused.hint().unwrap().contains("save_model"), "{refused}");
    let counted = [ALL, &[("bn.num_batches_tracked", &[], 7.0)]].concat();
    folder.write("first.safetensors", &saved(&counted));
    assert_eq!(folder.submit("weights = 'first.safetensors'", "").unwrap().warnings, [""; 0]);
}

#[test]
fn convolutions_of_open_size_are_trained_for_the_size_of_the_data_and_the_model_stays_open() {
    let folder = Folder::new();
    let model = crate::check::images_of_open_size().to_bytes();
    let submit = |shape: &[usize], named: &str| {
        let count: usize = shape.iter().product();
        let (images, labels) = (vec![0u8; 16 * count], [0u8, 1, 2, 0]);
        let all = [&[4], shape].concat();
        let views = [
            ("x", TensorView::new(Dtype::F32, all, &images).unwrap()),
            ("label", TensorView::new(Dtype::U8, vec![4], &labels).unwrap()),
        ];
        let images = folder.path().join("images.safetensors");
        fs::write(&images, safetensors::serialize(views, None).unwrap()).unwrap();
        let mut job = JobGraph::new("job");
        let data = DataSpec::new(Source::safetensors(folder.path().join(named)));
        let model = Model::forward(model.clone(), Loss::SoftmaxCrossEntropy);
        job.train("train", Training::new(model, data).with(|s| s.batch = 2));
        prepare(&onnxruntime::runtime(), &job)
    };
    let job = submit(&[2, 8, 6], "images.safetensors").unwrap();
    assert_eq!(train(&job).model.inputs[0].shape, [2, 8, 6]);
    let by_pattern = submit(&[2, 8, 6], "image*.safetensors").unwrap();
    assert_eq!(train(&by_pattern).model, train(&job).model);
    let forward = parse_forward(&job.blobs[&train(&job).model.forward]).unwrap();
    assert_eq!(forward.to_bytes(), parse_forward(&model).unwrap().to_bytes(), "as it was exported");
    assert!(
        refused(submit(&[3, 8, 6], "images.safetensors")).starts_with("[E362]"),
        "samples that do not fit"
    );
}

#[test]
fn a_model_that_leaves_open_what_only_one_size_suits_is_trained_for_that_of_the_data() {
    let folder = Folder::new();
    let mut model = onnx::mlp(&SIZES, 1);
    let open = onnx::TensorType::new(ElementType::F32, vec!["batch".into(), "columns".into()]);
    model.graph.as_mut().unwrap().input = vec![open.to_value_info("x")];
    folder.write("model.onnx", &model.to_bytes());
    for settings in ["", "recompute = true"] {
        let job = folder.submit("", settings).unwrap_or_else(|error| panic!("{settings}: {error}"));
        assert_eq!(train(&job).model.inputs[0].shape, [2], "{settings}");
        let graph = &job.blobs[&train(&job).model.training_graph];
        let shapes = BTreeMap::from([("x".to_owned(), vec![2])]);
        let runtime = onnxruntime::runtime();
        let cost = |shapes| step_cost(&runtime, graph, 8, shapes).map(|cost| cost.peak_bytes);
        assert!(cost(&shapes).unwrap() >= 8 * (4 + 3) * 4, "{settings}");
    }
}

#[test]
fn the_same_parameters_train_whatever_they_start_from() {
    let mut graph = GraphBuilder::new("shifted");
    let x = graph.input("x", ElementType::F32, &["batch".into(), 2.into()]);
    let shift = graph.weight("shift", &[4], &[1.0, 2.0, 3.0, 4.0]);
    let weight = graph.weight("weight", &[2, 4], &[0.1, 0.2, -0.3, 0.4, 0.5, 0.7, -0.2, 0.3]);
    let y = graph.op("MatMul", &[&x, &weight], &[]);
    let y = graph.op("Mul", &[&y, &shift], &[]);
    graph.output(&y);
    let folder = Folder::new();
    folder.write("model.onnx", &graph.finish().to_bytes());
    let as_it_is = folder.submit("", "").unwrap();
    folder.write("first.safetensors", &saved(&[("shift", &[4], 0.625), ("weight", &[2, 4], 1.0)]));
    let filled = folder.submit("weights = 'first.safetensors'", "").unwrap();
    assert_eq!(parameters(&as_it_is), ["weight"], "positions are no parameter");
    assert_eq!(parameters(&filled), ["weight"]);
    assert_eq!(constant(&filled, "shift"), [0.625; 4]);
}

#[test]
fn what_a_ready_graph_has_no_use_for_is_refused() {
    let folder = Folder::new();
    let forward = ByteSource::from(folder.path().join("model.onnx"));
    let ready = || Model::ready(forward.clone());
    for (model, words) in [
        (ready().with_loss_options(Default::default()), "loss_options"),
        (ready().with_output("logits"), "output"),
        (ready().with_loss_options(Default::default()).with_output("logits"), "loss_options, output"),
    ] {
        let refused = refused(folder.submit_model(model));
        let words = format!("[E366] a ready-made training graph trains as it is: {words} would mean nothing");
        assert_eq!(refused, words);
    }
}

#[test]
fn a_variant_of_a_job_is_the_job_that_it_would_be_by_itself_and_shares_its_uploads() {
    let folder = Folder::new();
    let mut variants = JobVariants::new(&onnxruntime::runtime());
    let settings =
        ["epochs = 3", "epochs = 3, learning_rate = 0.5, optimizer = 'adam'", "epochs = 3, seed = 4"];
    let mut prepared = Vec::new();
    for settings in settings {
        let alone = folder.submit("", settings).unwrap();
        let variant = variants.prepare(&JobFile::load(&folder.path().join("job.toml")).unwrap()).unwrap();
        assert_eq!((&variant.spec, &variant.blobs), (&alone.spec, &alone.blobs), "{settings}");
        prepared.push(variant);
    }
    assert!(Arc::ptr_eq(&prepared[0].blobs, &prepared[1].blobs), "derived once");
    assert!(!Arc::ptr_eq(&prepared[0].blobs, &prepared[2].blobs), "Dropout would be another one");
    let initial = |job: &PreparedJob| job.blobs[&train(job).model.initial].clone();
    assert!(Arc::ptr_eq(&initial(&prepared[0]), &initial(&prepared[2])), "the same numbers are there once");
    let refused = |settings: &str| {
        folder.submit("", settings).unwrap_err();
        let graph = JobFile::load(&folder.path().join("job.toml")).unwrap();
        JobVariants::new(&onnxruntime::runtime()).prepare(&graph).unwrap_err().to_string()
    };
    assert!(refused("epochs = 0").starts_with("[E027]"));
    assert!(refused("evaluate = { every_epochs = 1 }").starts_with("[E364]"));
}

#[test]
fn balanced_class_weights_are_those_numbers_in_the_graph_and_need_all_classes() {
    let folder = Folder::new();
    let weighted =
        |weights: &str| folder.submit(&format!("loss_options = {{ class_weights = {weights} }}"), "");
    // Two of class 0, one of each other.
    let balanced = weighted("'balanced'").unwrap();
    assert_eq!(balanced.data.class_weights, [2.0 / 3.0, 4.0 / 3.0, 4.0 / 3.0]);
    let graph = |job: &PreparedJob| train(job).model.training_graph;
    let by_hand = weighted("[0.6666667, 1.3333334, 1.3333334]").unwrap();
    assert_eq!(graph(&balanced), graph(&by_hand));
    assert_ne!(graph(&balanced), graph(&weighted("[]").unwrap()));
    assert!(by_hand.data.class_weights.is_empty() && by_hand.warnings == balanced.warnings);

    folder.write("rows.csv", b"1,2,0\n3,4,1\n5,6,1\n");
    let refused = refused(weighted("'balanced'"));
    assert!(
        refused.starts_with("[E607]") && refused.ends_with("class 2 of 3 has no training label"),
        "{refused}"
    );
}

#[test]
fn a_balanced_pos_weight_is_that_of_the_training_samples_and_needs_both_answers() {
    let folder = Folder::new();
    let weighted = |pos_weight| {
        let model = Model::forward(folder.path().join("model.onnx"), Loss::BinaryCrossEntropy);
        folder.submit_model(model.with_loss_options(LossOptions { pos_weight, ..LossOptions::default() }))
    };
    folder.write("rows.csv", b"1,2,0,1,1\n3,4,1,0,1\n5,6,0,1,0\n7,8,0,1,1\n");
    let balanced = weighted(ClassWeights::Balanced).unwrap();
    assert_eq!(balanced.data.pos_weight, [3.0, 1.0 / 3.0, 1.0 / 3.0]);
    let graph = |job: &PreparedJob| train(job).model.training_graph;
    assert_eq!(graph(&balanced), graph(&weighted(balanced.data.pos_weight.clone().into()).unwrap()));
    assert_ne!(graph(&balanced), graph(&weighted(ClassWeights::default()).unwrap()));

    folder.write("rows.csv", b"1,2,0,1,1\n3,4,1,1,0\n");
    let refused = refused(weighted(ClassWeights::Balanced));
    assert!(
        refused.starts_with("[E604]") && refused.ends_with("class 1 of 3 has no training label below 1"),
        "{refused}"
    );
}

#[test]
fn a_metric_is_monitored_only_where_it_is_measured_table() {
    let folder = Folder::new();
    let (classes, labels) = (Loss::SoftmaxCrossEntropy, Loss::BinaryCrossEntropy);
    let (of_classes, of_labels) = ("1,2,0\n3,4,1\n5,6,2\n7,8,0\n", "1,2,0,1,1\n3,4,1,0,0\n");
    #[rustfmt::skip]
    let cases = [
        // Loss, its options, samples, what is monitored, and what that needs.
        (classes, None,               of_classes, Metric::MacroF1,           ""),
        (classes, None,               of_classes, Metric::PositiveF1,        "positive-f1, which needs two classes"),
        (labels,  None,               of_labels,  Metric::MacroF1,           ""),
        (labels,  None,               of_labels,  Metric::PositiveF1,        "positive-f1, which needs two classes, or one label"),
        (classes, None,               of_classes, Metric::MacroRecall,       ""),
        (labels,  None,               of_labels,  Metric::PositivePrecision, "positive-precision, which needs two"),
        (Loss::MeanSquaredError, None, of_labels, Metric::MacroF1,           "macro-f1, which needs a loss of classes"),
        (classes, Some((2, false)),   of_classes, Metric::TopKAccuracy,      ""),
        (classes, Some((2, true)),    of_classes, Metric::Perplexity,        ""),
        (classes, Some((2, false)),   of_classes, Metric::Perplexity,        "perplexity, which needs softmax-cross-entropy with"),
        (classes, None,               of_classes, Metric::TopKAccuracy,      "top-k-accuracy, which needs softmax-cross-entropy with"),
        (labels,  None,               of_labels,  Metric::TopKAccuracy,      "top-k-accuracy, which needs softmax-cross-entropy with"),
    ];
    for (loss, options, rows, monitor, words) in cases {
        folder.write("rows.csv", rows.as_bytes());
        let mut job = JobGraph::new("job");
        let options = options.map(|(k, perplexity)| LossOptions {
            top_k: Some(k),
            perplexity,
            ..LossOptions::default()
        });
        let model = Model::forward(folder.path().join("model.onnx"), loss);
        let model = model.with_loss_options(options.unwrap_or_default());
        let data = DataSpec { split: Split::TestEvery(2), ..folder.data() };
        let evaluate = EvaluateSpec::every_epochs(1).monitor(monitor);
        job.train("train", Training::new(model, data).with(|s| (s.batch, s.evaluate) = (1, Some(evaluate))));
        match prepare(&onnxruntime::runtime(), &job) {
            Ok(_) => assert_eq!(words, "", "{loss} {monitor:?}"),
            Err(error) => {
                let told = error.to_string();
                assert!(told.starts_with("[E605]") && !words.is_empty() && told.contains(words), "{told}");
            }
        }
    }
}

#[test]
fn a_table_has_as_many_label_columns_as_the_loss_wants_where_one_does_not_fit() {
    let folder = Folder::new();
    // Two numbers of the sample; the mean squared error compares three.
    let submit =
        || folder.submit_model(Model::forward(folder.path().join("model.onnx"), Loss::MeanSquaredError));
    folder.write("rows.csv", b"a,b,x,y,z\n1,2,0.1,0.2,0.3\n3,4,0.4,0.5,0.6\n");
    let job = submit().unwrap();
    let names: Vec<_> = job.data.label_columns.iter().filter_map(|column| column.name.as_deref()).collect();
    assert_eq!(names, ["x", "y", "z"]);
    let Source::Csv(table) = &train(&job).data.source else { unreachable!("it is a table") };
    assert_eq!(table.label_columns, 3, "as workers and predictions read it");
    // What fits in neither way is told as the file stands.
    folder.write("rows.csv", b"1,2,3,0.1,0.2,0.3\n");
    let refused = refused(submit());
    assert!(refused.contains("takes samples of shape [2], the data has [5]"), "{refused}");
}

#[test]
fn all_columns_are_samples_of_an_open_width_where_the_loss_wants_no_label() {
    let folder = Folder::new();
    let mut graph = GraphBuilder::new("own");
    let x = graph.input("x", ElementType::F32, &["batch".into(), "width".into()]);
    let w = graph.weight("w.weight", &[1], &[0.5]);
    let scaled = graph.op("Mul", &[&x, &w], &[]);
    let squared = graph.op("Mul", &[&scaled, &scaled], &[]);
    let mean = graph.op("ReduceMean", &[&squared], &[attr_int("keepdims", 0)]);
    graph.output(&mean);
    folder.write("own.onnx", &graph.finish().to_bytes());
    let submit = || folder.submit_model(Model::forward(folder.path().join("own.onnx"), Loss::Output));
    folder.write("rows.csv", b"1,2,3\n4,5,6\n");
    let job = submit().unwrap();
    assert_eq!(train(&job).model.inputs[0].shape, [3]);
    let Source::Csv(table) = &train(&job).data.source else { unreachable!("it is a table") };
    assert_eq!(table.label_columns, 0, "as workers and predictions read it");
}
