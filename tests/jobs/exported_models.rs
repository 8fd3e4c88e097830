//! What `syncline model export` writes predicts as the job's `evaluate` measured, for one sample at a time:
//! the models of the examples, and models that PyTorch exported in training form with each of its exporters.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use safetensors::{Dtype, tensor::TensorView as Saved};
use syncline::{JobPhase, Loss, Metric};
use syncline_onnx::SplitMix64;
use syncline_runtime::{ExecOptions, Executable, TensorView};
use syncline_scheduler::spec::{DataSpec, Source, Split, TrainSpec};
use syncline_workers::{
    data::{Dataset, ModelSignature},
    local::{LocalCluster, LocalOptions},
    submit::{self, JobGraph, Model, Training},
};

use crate::onnxruntime;

/// Allowed difference of losses and accuracies: sums of other batches round otherwise.
const TOLERANCE: f64 = 1e-4;

struct Case {
    name: String,
    model: PathBuf,
    data: DataSpec,
}

fn workers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../workers")
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_string_lossy().into_owned()
}

fn examples() -> Vec<Case> {
    let (models, data) = (workers().join("../examples/models"), workers().join("../examples/data"));
    let idx = |images: &str, labels: &str| Source::idx(path(&data, images), path(&data, labels));
    let mnist = || DataSpec {
        scale: 1.0 / 255.0,
        test: Some(idx("mnist/t10k-images-idx3-ubyte.gz", "mnist/t10k-labels-idx1-ubyte.gz")),
        ..DataSpec::new(idx("mnist/train-images-idx3-ubyte.gz", "mnist/train-labels-idx1-ubyte.gz"))
    };
    let cifar = |name: &str| Source::cifar10([path(&data, name)]);
    let digits = Source::csv(path(&data, "digits.csv.gz"));
    let text = Source::Text { path: path(&data, "moby-dick.txt"), context: 64, stride: 256 };
    let case = |name: &str, file: &str, data| Case { name: name.to_owned(), model: models.join(file), data };
    vec![
        case(
            "digits",
            "digits.onnx",
            DataSpec { scale: 0.0625, split: Split::TestEvery(5), ..DataSpec::new(digits) },
        ),
        case("mlp", "mlp.onnx.gz", mnist()),
        case("lenet", "lenet.onnx.gz", mnist()),
        case(
            "resnet20",
            "resnet20.onnx.gz",
            DataSpec {
                scale: 1.0 / 255.0,
                test: Some(cifar("cifar10/test_batch.bin.gz")),
                ..DataSpec::new(cifar("cifar10/data_batch_1.bin.gz"))
            },
        ),
        case(
            "chargpt",
            "chargpt.onnx.gz",
            DataSpec { split: Split::TestLastPercent(10), ..DataSpec::new(text) },
        ),
    ]
}

/// Models in training form with running statistics, and with Dropout, on images whose brightness tells their
/// class.
fn exported(dir: &Path) -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, sides, classes) in
        [("resnet20", [3, 12, 12], 5), ("vgg_bn", [3, 16, 16], 5), ("frozen", [3, 8, 8], 5)]
    {
        let data = dir.join(format!("{name}.safetensors"));
        write_images(&data, sides, classes);
        for exporter in ["script", "dynamo"] {
            let of = if name == "frozen" { "selection" } else { "models" };
            let source = Source::safetensors(&data);
            cases.push(Case {
                name: format!("{name}-{exporter}"),
                model: workers().join(format!("autodiff/tests/{of}/{name}.{exporter}.onnx")),
                data: DataSpec { split: Split::TestEvery(5), ..DataSpec::new(source) },
            });
        }
    }
    cases
}

fn write_images(path: &Path, sides: [usize; 3], classes: usize) {
    const SAMPLES: usize = 120;
    let mut random = SplitMix64::new(5);
    let label: Vec<i64> = (0..SAMPLES).map(|sample| (sample * 7 % classes) as i64).collect();
    let pixels: Vec<f32> = label
        .iter()
        .flat_map(|class| vec![*class as f32; sides.iter().product()])
        .map(|class| 2.0 + class + random.normal() as f32)
        .collect();
    let (x, y): (Vec<u8>, Vec<u8>) = (
        pixels.iter().flat_map(|pixel| pixel.to_le_bytes()).collect(),
        label.iter().flat_map(|class| class.to_le_bytes()).collect(),
    );
    let shape = [&[SAMPLES], &sides[..]].concat();
    let tensors = [
        ("x", Saved::new(Dtype::F32, shape, &x).unwrap()),
        ("label", Saved::new(Dtype::I64, vec![SAMPLES], &y).unwrap()),
    ];
    fs::write(path, safetensors::serialize(tensors, None).unwrap()).unwrap();
}

/// Mean cross-entropy and accuracy of an exported model over the test set, a sample at a time.
fn measured(model: &[u8], train: &TrainSpec) -> (f64, f64) {
    let set = Dataset::open(&train.data, &ModelSignature::of(&train.model)).unwrap();
    let mut session = Executable::new(&onnxruntime::runtime(), model, &ExecOptions::default()).unwrap();
    let output = session.output_names()[0].clone();
    let classes = train.model.classes.unwrap() as usize;
    let (mut loss, mut right, mut count) = (0.0, 0u32, 0u32);
    let mut batch = set.batch();
    for row in set.parts(&train.data, train.seed).unwrap().test {
        set.gather(&[row], &mut batch).unwrap();
        let view = batch.inputs().next().unwrap();
        let outputs = session.run(&[(train.model.inputs[0].name.as_str(), view)]).unwrap();
        let Some(TensorView::I64 { data: labels, .. }) = batch.label() else { panic!("labels are classes") };
        for (scores, &label) in outputs.f32(&output).unwrap().chunks_exact(classes).zip(labels) {
            let largest = scores.iter().copied().fold(f32::MIN, f32::max);
            let total: f64 = scores.iter().map(|score| f64::from(score - largest).exp()).sum();
            loss += total.ln() - f64::from(scores[label as usize] - largest);
            right += u32::from(scores.iter().position(|score| *score == largest) == Some(label as usize));
            count += 1;
        }
    }
    (loss / f64::from(count), f64::from(right) / f64::from(count))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exported_model_predicts_at_batch_one_what_the_job_measured() {
    let options = LocalOptions::workers(1);
    let cluster = LocalCluster::start_with(options, |line| eprintln!("{line}")).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    for case in examples().into_iter().chain(exported(dir.path())) {
        let name = &case.name;
        let training =
            Training::new(Model::forward(case.model.clone(), Loss::SoftmaxCrossEntropy), case.data).with(
                |settings| {
                    settings.batch = 16;
                    settings.epochs = 2;
                    settings.learning_rate = Some(0.01);
                    settings.policy = "bsp".parse().unwrap();
                },
            );
        let graph = {
            let mut job = JobGraph::new(name);
            let train = job.train("train", training);
            job.evaluate("test", &train);
            job.snapshot("weights", &train);
            job
        };
        let prepared = submit::prepare(cluster.runtime(), &graph).unwrap();
        let spec = prepared.spec.clone();
        cluster.client().submit_prepared(prepared).await.unwrap();
        let view = cluster.client().wait(&spec.id, |_| {}).await.unwrap();
        assert_eq!(view.job.state, JobPhase::Done, "{name}: {:?}", view.job);

        let plain = dir.path().join("forward.onnx");
        fs::write(&plain, submit::read_model(&case.model).unwrap()).unwrap();
        let out = dir.path().join("out.onnx");
        let command = Command::new(env!("CARGO_BIN_EXE_syncline-under-test"))
            .args(["model", "export", "--force", "--snapshot", &view.job.snapshot.unwrap(), "--model"])
            .args([&plain, &out])
            .output()
            .unwrap();
        assert!(command.status.success(), "{name}: {command:?}");
        let (loss, accuracy) = measured(&fs::read(&out).unwrap(), spec.train().unwrap().1);
        let (wanted_loss, wanted_accuracy) =
            (view.job.test[Metric::Loss].unwrap(), view.job.test[Metric::Accuracy].unwrap());
        assert!(
            (loss - wanted_loss).abs() < TOLERANCE * wanted_loss.max(1.0),
            "{name}: {loss}, {wanted_loss}"
        );
        assert!((accuracy - wanted_accuracy).abs() < TOLERANCE, "{name}: {accuracy}, {wanted_accuracy}");
    }
    cluster.stop().await.unwrap();
}
