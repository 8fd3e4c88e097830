//! The examples with exported models learn from the samples that come with the repository, and say what to
//! fetch otherwise.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::path::Path;

use syncline::{JobPhase, JobView, Metric};
use syncline_examples::{
    Run, chargpt, cifar10,
    mnist::{self, Net},
};
use syncline_runtime::Runtime;
use syncline_scheduler::spec::Source;
use syncline_workers::{
    local::{LocalCluster, LocalOptions},
    submit::{self, JobFile, JobGraph},
};

fn run(id: &str, epochs: u32) -> Run<'_> {
    Run { id, policy: "bsp".parse().unwrap(), epochs, seed: 0, workers: 2 }
}

async fn train(graph: &JobGraph) -> JobView {
    let options = LocalOptions::workers(2);
    let cluster = LocalCluster::start_with(options, |line| eprintln!("{line}")).await.unwrap();
    let client = cluster.client();
    let id = client.submit(graph).await.unwrap().id;
    let view = client.wait(&id, |_| {}).await.unwrap();
    assert_eq!(view.job.state, JobPhase::Done, "{:?}", view.job);
    cluster.stop().await.unwrap();
    view
}

#[tokio::test(flavor = "multi_thread")]
async fn the_perceptron_and_lenet_read_digits() {
    for (net, epochs) in [(Net::Mlp, 6), (Net::Lenet, 10)] {
        let view = train(&mnist::job(&run("mnist", epochs), net, mnist::data(None).unwrap()).unwrap()).await;
        assert_eq!(view.job.test_samples, Some(200));
        let accuracy = view.job.test[Metric::Accuracy].unwrap();
        assert!(accuracy > 0.6, "{net}: {accuracy}, chance is 0.1");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn resnet_20_learns_its_images() {
    let view = train(&cifar10::job(&run("cifar10", 8), cifar10::data(None).unwrap()).unwrap()).await;
    assert_eq!(view.job.samples_applied, 8 * 160);
    assert_eq!(view.job.test_samples, Some(40));
    // Of ten classes, unlearned: 2.3 and more. So few images say little about others, so that the training
    // loss counts.
    let loss = view.job.loss.unwrap();
    assert!(loss < 2.1, "{loss}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gpt_learns_which_characters_follow() {
    let mut data = chargpt::data(None).unwrap();
    let Source::Text { stride, .. } = &mut data.source else { unreachable!("it reads a text") };
    // A quarter of the samples, for a short test.
    *stride *= 4;
    let view = train(&chargpt::job(&run("chargpt", 1), data).unwrap()).await;
    // Of 78 characters, unlearned: 4.36. The most frequent one, a blank, is 0.18 of the text.
    let (loss, accuracy) = (view.job.test[Metric::Loss].unwrap(), view.job.test[Metric::Accuracy].unwrap());
    assert!(loss < 3.2 && accuracy > 0.15, "loss {loss}, accuracy {accuracy}");
}

#[test]
fn what_is_missing_is_named_with_its_home() {
    let empty = tempfile::tempdir().unwrap();
    let nowhere = empty.path().join("nowhere");
    #[rustfmt::skip]
    let cases = [
        (mnist::data(Some(empty.path())).unwrap_err(),   "train-images-idx3-ubyte", "Yann LeCun"),
        (cifar10::data(Some(empty.path())).unwrap_err(), "data_batch_1.bin",        "Alex Krizhevsky"),
        (chargpt::data(Some(&nowhere)).unwrap_err(),     "input.txt",               "Project Gutenberg"),
    ];
    for (error, file, home) in cases {
        let text = error.to_string();
        assert!(text.starts_with(&format!("[E486] there is no {file} in ")) && text.contains(home), "{text}");
    }
    std::fs::write(empty.path().join("input.txt"), "To be, or not to be").unwrap();
    assert_eq!(
        chargpt::data(Some(empty.path())).unwrap().paths(),
        [empty.path().join("input.txt").to_str().unwrap()]
    );
}

#[test]
fn packed_files_and_some_of_the_batches_will_do() {
    let folder = tempfile::tempdir().unwrap();
    for file in ["data_batch_1.bin.gz", "data_batch_4.bin", "test_batch.bin"] {
        std::fs::write(folder.path().join(file), "").unwrap();
    }
    let data = cifar10::data(Some(folder.path())).unwrap();
    let names: Vec<_> = data.paths().into_iter().map(|path| Path::new(path).file_name().unwrap()).collect();
    assert_eq!(names, ["data_batch_1.bin.gz", "data_batch_4.bin", "test_batch.bin"]);
}

#[test]
fn the_job_files_describe_the_same_jobs() {
    let runtime =
        Runtime::load(&syncline_kit::onnxruntime(&|line| eprintln!("{line}")).unwrap().path).unwrap();
    let run =
        |id, policy: &str, epochs| Run { id, policy: policy.parse().unwrap(), epochs, seed: 0, workers: 1 };
    let jobs = [
        mnist::job(&run("mnist", "elastic-bsp:15", 10), Net::Lenet, mnist::data(None).unwrap()).unwrap(),
        cifar10::job(&run("cifar10", "bsp", 30), cifar10::data(None).unwrap()).unwrap(),
        chargpt::job(&run("chargpt", "bsp", 10), chargpt::data(None).unwrap()).unwrap(),
    ];
    for job in jobs {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("jobs").join(format!("{}.toml", job.id));
        let spec = |job: &JobGraph| submit::prepare(&runtime, job).unwrap().spec.train().unwrap().1.clone();
        let (mut file, rust) = (spec(&JobFile::load(&path).unwrap()), spec(&job));
        // Written in other ways: paths, and a rate that is a product.
        file.data.source = rust.data.source.clone();
        file.data.test = rust.data.test.clone();
        let (wanted, rate) = (rust.learning_rate.base, &mut file.learning_rate.base);
        assert!((*rate - wanted).abs() < 1e-6, "{}: {rate} for {wanted}", job.id);
        *rate = wanted;
        assert_eq!(file, rust, "{}", job.id);
    }
}
