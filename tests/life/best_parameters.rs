//! Trainings that evaluate on a validation set, stop early, and hand on their best parameters, with real
//! processes.

use std::{collections::BTreeMap, fs, path::Path};

use safetensors::SafeTensors;
use syncline::{JobId, Loss};
use syncline_onnx as onnx;
use syncline_scheduler::spec::{DataSpec, EarlyStopping, EvaluateSpec, Source};
use syncline_workers::submit::{self, JobGraph, Model, Settings, Training};

use crate::{
    cluster::{Cluster, number, runtime},
    jobs::submit,
};

const TRAINS: u64 = 48;

/// Where a class is on one side of a line, or on the other.
fn write_samples(path: &Path, count: u64, mirrored: bool) -> Source {
    let line = |i: u64| {
        let (x, y) = ((i * 7 % 13) as f64 / 6.0 - 1.0, (i * 5 % 11) as f64 / 5.0 - 1.0);
        format!("{x},{y},{}\n", u8::from((x > 0.0) != mirrored))
    };
    fs::write(path, (0..count).map(line).collect::<String>()).unwrap();
    Source::csv(path.to_string_lossy().into_owned())
}

/// A job whose validation samples say the opposite of what it is trained on: the first evaluation is the
/// best. The test samples are the same ones, so that their loss at the end is that of the parameters that are
/// handed on.
async fn start(cluster: &Cluster, (id, policy): (&str, &str), change: impl FnOnce(&mut Settings)) -> JobId {
    let source = |name: &str, count, mirrored| {
        write_samples(&cluster.dir.path().join(format!("{id}-{name}.csv")), count, mirrored)
    };
    let data = DataSpec {
        validation: Some(source("validation", 20, true)),
        test: Some(source("test", 20, true)),
        ..DataSpec::new(source("train", TRAINS, false))
    };
    let model = Model::forward(onnx::mlp(&[2, 8, 2], 1).to_bytes(), Loss::SoftmaxCrossEntropy);
    let training = Training::new(model, data).with(|s| {
        (s.batch, s.epochs, s.learning_rate, s.min_workers) = (4, 500, Some(0.2), 2);
        s.policy = policy.parse().unwrap();
        change(s);
    });
    let mut job = JobGraph::new(id);
    let train = job.train("train", training);
    job.snapshot("weights", &train);
    submit(cluster, submit::prepare(&runtime(), &job).unwrap()).await
}

/// The numbers of a file of parameters.
fn weights(path: &str) -> Vec<f32> {
    let bytes = fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut names: Vec<_> = file.names().into_iter().map(str::to_owned).collect();
    names.sort_unstable();
    let bytes = names.iter().flat_map(|name| file.tensor(name).unwrap().data().chunks_exact(4));
    bytes.map(|number| f32::from_le_bytes(number.try_into().unwrap())).collect()
}

fn float(summary: &BTreeMap<String, String>, field: &str) -> f64 {
    summary[field].parse().unwrap_or_else(|_| panic!("{field}: {summary:?}"))
}

/// The parameters that are handed on are those of the best evaluation, which was of the first epoch.
fn check_best(summary: &BTreeMap<String, String>) {
    assert_eq!(summary["state"], "done", "{summary:?}");
    assert_eq!((&*summary["handed_on"], number(summary, "best_samples")), ("best", TRAINS), "{summary:?}");
    let (best, test) = (float(summary, "best_loss"), float(summary, "test_loss"));
    assert!((best - test).abs() < 1e-5, "{summary:?}");
    assert_eq!(float(summary, "validation_loss"), best, "{summary:?}");
    assert_eq!(summary["monitor"], "validation loss");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_training_stops_early_and_hands_on_its_best_parameters_under_every_policy() {
    let cluster = Cluster::start(2, 2, "").await;
    for (id, policy) in [
        ("a", "bsp"),
        ("b", "asp"),
        ("c", "elastic-bsp:4"),
        ("d", "local-sgd:5"),
        ("e", "diloco:3"),
        ("f", "lb-bsp"),
    ] {
        let evaluate = EvaluateSpec::every_epochs(1).keep_best().early_stopping(EarlyStopping::patience(3));
        let job = start(&cluster, (id, policy), |s| s.evaluate = Some(evaluate)).await;
        let summary = cluster.until_over(&job).await;
        check_best(&summary);
        assert_eq!(number(&summary, "samples_applied"), 4 * TRAINS, "{policy}: {summary:?}");
        let why = "the validation loss has not become better in the last 3 evaluations";
        assert_eq!(summary["stopped_early"], why, "{policy}");
        let points = cluster.client().evaluations(&job, None).await.unwrap();
        let (validation, test): (Vec<_>, Vec<_>) =
            points.into_iter().map(|entry| entry.value).partition(|point| point.is_validation());
        let seen: Vec<u64> = validation.iter().map(|point| point.samples).collect();
        assert_eq!(seen, [1, 2, 3, 4].map(|epoch| epoch * TRAINS), "{policy}");
        assert_eq!(test.iter().map(|point| point.samples).collect::<Vec<_>>(), [TRAINS], "{policy}");
        assert!(!weights(&summary["snapshot"]).is_empty());
    }
    check_what_people_see(&cluster);
}

fn check_what_people_see(cluster: &Cluster) {
    let status = cluster.print("status a");
    for words in
        ["stopped early the validation loss has not", "after 48 samples, by the validation loss, handed on"]
    {
        assert!(status.contains(words), "{words}: {status}");
    }
    let table = cluster.print("metrics a --evaluations");
    let best = table.lines().filter(|line| line.ends_with("best")).collect::<Vec<_>>();
    assert!(best.len() == 1 && best[0].contains("48  validation"), "{table}");
    let events = cluster.print("events a");
    assert!(events.contains("stopped_early") && events.contains("best_restored"), "{events}");
    let picture = cluster.dir.path().join("curve.svg");
    cluster.print(&format!("metrics a --plot {}", picture.display()));
    assert!(fs::read_to_string(picture).unwrap().contains("on validation samples"));
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_that_are_best_in_the_end_and_those_of_the_best_evaluation_are_the_same_numbers() {
    let cluster = Cluster::start(2, 2, "").await;
    // One epoch, and as much again that is undone: what is handed on is what one epoch gives.
    let mut handed_on = Vec::new();
    for (id, epochs) in [("one", 1), ("more", 5)] {
        let job = start(&cluster, (id, "bsp"), |s| {
            s.epochs = epochs;
            s.evaluate = Some(EvaluateSpec::every_epochs(1).keep_best());
        });
        handed_on.push(cluster.until_over(&job.await).await);
    }
    assert_eq!((&*handed_on[0]["handed_on"], &*handed_on[1]["handed_on"]), ("last", "best"));
    let [one, more] = [0, 1].map(|n| weights(&handed_on[n]["snapshot"]));
    let far = one.iter().zip(&more).map(|(one, more)| (one - more).abs()).fold(0.0, f32::max);
    // The mean of a round is added up in the order in which pushes come.
    assert!(one.len() == more.len() && far < 1e-5, "{far}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_best_parameters_outlive_engine_shard_worker_and_a_pause() {
    let mut cluster = Cluster::start(2, 2, "--slowdown 4").await;
    let evaluate = EvaluateSpec::every_epochs(1).keep_best().early_stopping(EarlyStopping::patience(60));
    let job = start(&cluster, ("deaths", "elastic-bsp:4"), |s| s.evaluate = Some(evaluate)).await;
    let is_kept = |summary: &BTreeMap<String, String>| !summary["best_checkpoint"].is_empty();
    let begun =
        |summary: &BTreeMap<String, String>| summary.contains_key("best_checkpoint") && is_kept(summary);
    cluster.until(&job, begun).await;
    cluster.kill_engine();
    cluster.start_engine();
    cluster.until(&job, |summary| number(summary, "epochs_complete") >= 5).await;
    cluster.shards[1].kill();
    cluster.start_shard(1);
    // Nobody asked for checkpoints: it goes back to the best.
    cluster
        .until(&job, |summary| number(summary, "generation") == 2 && number(summary, "epochs_complete") >= 5)
        .await;
    cluster.client().pause(&job).await.unwrap();
    cluster.until(&job, |summary| number(summary, "workers") == 0).await;
    cluster.client().resume(&job).await.unwrap();
    drop(cluster.workers.remove(0));
    let another = cluster.spawn_worker("--slowdown 4 --name another");
    cluster.workers.push(another);
    let summary = cluster.until_over(&job).await;
    check_best(&summary);
    assert!(number(&summary, "samples_rolled_back") > 0, "{summary:?}");
    assert_eq!(number(&summary, "samples_applied"), 61 * TRAINS, "{summary:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_best_parameters_cost_no_weights_the_last_ones_are_handed_on() {
    // A shard that counted as lost on a busy machine would have the training go back to what is damaged here.
    let cluster = Cluster::of(2, 2).worker_flags("--slowdown 4").shard_silence_ms(60_000).start().await;
    let evaluate = EvaluateSpec::every_epochs(1).keep_best().early_stopping(EarlyStopping::patience(60));
    let job = start(&cluster, ("flipped", "bsp"), |s| s.evaluate = Some(evaluate)).await;
    // The second best one was kept as well if the disk had not written the best one by then.
    let is_kept = |summary: &BTreeMap<String, String>| {
        summary.get("best_checkpoint").is_some_and(|n| !n.is_empty())
            && number(summary, "samples_applied") > 10 * TRAINS
    };
    cluster.until(&job, is_kept).await;
    // Only one of the two shards cannot open them.
    let folder = fs::read_dir(cluster.shard_folder(1).join("checkpoints")).unwrap().next().unwrap().unwrap();
    let files = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let kept = files.filter(|path| path.extension().is_some_and(|ending| ending == "checkpoint"));
    for path in kept {
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&path, bytes).unwrap();
    }
    let summary = cluster.until_over(&job).await;
    assert_eq!((&*summary["state"], &*summary["handed_on"]), ("done", "last"), "{summary:?}");
    assert_eq!(number(&summary, "samples_applied"), 61 * TRAINS, "{summary:?}");
    assert!(float(&summary, "test_loss") > float(&summary, "best_loss"), "{summary:?}");
    assert!(!weights(&summary["snapshot"]).is_empty());
    assert!(cluster.print("events flipped").contains("best_unreadable"));
    let status = cluster.print("status flipped");
    assert!(status.contains("; the last parameters are handed on"), "{status}");
    assert!(status.contains("could not be read: [E439]"), "{status}");
}
