//! A job from its file to its snapshot, through the commands alone.

use std::{fmt::Write as _, fs, path::Path};

use safetensors::{Dtype, tensor::TensorView};
use serde_json::Value;
use syncline_onnx::{self as onnx, SplitMix64, mlp};
use syncline_workers::submit::{JobFile, prepare_ready};

use crate::rig::{Ended, Up, command, folder, syncline, wait_until};

/// Two kinds of points that a straight line tells apart, a model for them, and a job file.
pub fn write_job(dir: &Path, epochs: u32) {
    let mut random = SplitMix64::new(7);
    let mut rows = String::new();
    for _ in 0..200 {
        let (x, y) = (random.normal(), random.normal());
        writeln!(rows, "{x:.4},{y:.4},{}", i32::from(x + y > 0.0)).unwrap();
    }
    fs::write(dir.join("points.csv"), rows).unwrap();
    fs::write(dir.join("points.onnx"), mlp(&[2, 8, 2], 1).to_bytes()).unwrap();
    let file = format!(
        r#"id = "points"

[[node]]
name = "train"
do = "train"
model.forward = {{ onnx = "points.onnx", loss = "softmax-cross-entropy" }}
data = {{ source = {{ csv = {{ path = "points.csv" }} }}, split = {{ test-every = 5 }} }}
settings = {{ epochs = {epochs}, batch = 10, policy = "bsp" }}

[[node]]
name = "test"
do = "evaluate"
after = ["train"]

[[node]]
name = "weights"
do = "snapshot"
after = ["train"]
"#
    );
    fs::write(dir.join("points.toml"), file).unwrap();
}

/// Three species, told apart by the largest of four lengths; the table has a header.
fn write_flowers(dir: &Path) {
    let mut random = SplitMix64::new(3);
    let mut rows = "sepal_length,sepal_width,petal_length,petal_width,species\n".to_owned();
    for _ in 0..150 {
        let lengths = [(); 4].map(|()| random.uniform());
        let species = (0..3).max_by(|&a, &b| lengths[a].total_cmp(&lengths[b])).unwrap();
        let [a, b, c, d] = lengths;
        writeln!(rows, "{a:.3},{b:.3},{c:.3},{d:.3},{species}").unwrap();
    }
    fs::write(dir.join("flowers.csv"), rows).unwrap();
    fs::write(dir.join("flowers.onnx"), mlp(&[4, 16, 3], 1).to_bytes()).unwrap();
}

#[test]
fn the_job_file_of_the_readme_trains_a_model_that_infers() {
    let readme = include_str!("../../../../README.md");
    let file = readme.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let dir = folder();
    write_flowers(dir.path());
    let job = dir.path().join("flowers.toml");
    fs::write(&job, file).unwrap();
    let _up = Up::start(&dir, &["--workers", "2"]);
    let state_dir = dir.path().to_str().unwrap();

    let done =
        syncline(&["submit", job.to_str().unwrap(), "--watch", "--json", "--state-dir", state_dir]).ok();
    let accuracy = done.json()["job"]["test_accuracy"].as_f64();
    assert!(accuracy.is_some_and(|accuracy| accuracy > 0.8), "{done:#?}");
    let trained = dir.path().join("trained.onnx");
    syncline(&["model", "export", "flowers", trained.to_str().unwrap(), "--state-dir", state_dir]).ok();
    assert_eq!(onnx::parse(&fs::read(trained).unwrap()).unwrap().graph.unwrap().input.len(), 1);
}

fn field<'a>(view: &'a Value, name: &str) -> &'a str {
    view["job"][name].as_str().unwrap_or_else(|| panic!("no {name} in {view:#}"))
}

#[test]
fn a_job_runs_from_its_file_to_its_snapshot() {
    let dir = folder();
    let _up = Up::start(&dir, &["--workers", "2"]);
    let state_dir = dir.path().to_str().unwrap();
    let at = |args: &[&str]| -> Ended {
        let mut all = args.to_vec();
        all.extend(["--state-dir", state_dir]);
        syncline(&all)
    };
    write_job(dir.path(), 5);
    let file = dir.path().join("points.toml");
    let file = file.to_str().unwrap();

    let view = at(&["submit", file, "--watch", "--json"]).ok().json();
    assert_eq!(field(&view, "state"), "done");
    assert_eq!(view["job"]["samples_applied"], 5 * 160);
    assert_eq!(view["job"]["samples_applied"], view["job"]["samples_total"]);
    assert_eq!(view["workers"].as_array().unwrap().len(), 2);

    the_same_job_again_is_the_one_that_is_there(file, &at);
    jobs_and_workers_are_listed(&at);
    barriers_and_tasks_are_explained(&at);
    its_status_says_how_it_went(&at);
    let snapshot = files_are_shown(dir.path(), &view);
    what_is_exported_has_the_numbers_of_the_snapshot(dir.path(), &view, &snapshot, &at);
}

fn the_same_job_again_is_the_one_that_is_there(file: &str, at: &dyn Fn(&[&str]) -> Ended) {
    let same = at(&["submit", file]).ok();
    assert!(same.out == "points\n" && same.err.contains("was submitted before"), "{same:#?}");
    assert_eq!(at(&["submit", file, "--json"]).ok().json()["is_new"], false);
    let watched = at(&["submit", file, "--watch"]).ok();
    assert!(
        watched.err.contains("was submitted before and is done; --replace does it once more"),
        "{watched:#?}"
    );
    assert_eq!(at(&["submit", file, "--id", "again"]).ok().out, "again\n");
    let watched = at(&["watch", "again"]).ok();
    assert!(watched.out.contains("done  epoch 5/5"), "{}", watched.out);
}

fn jobs_and_workers_are_listed(at: &dyn Fn(&[&str]) -> Ended) {
    let jobs = at(&["jobs", "--json"]).ok().json();
    let ids: Vec<&str> = jobs.as_array().unwrap().iter().map(|j| j["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["points", "again"]);
    assert!(at(&["jobs"]).ok().out.starts_with("id "));

    let workers = at(&["workers", "--json"]).ok().json();
    let devices: Vec<&str> =
        workers.as_array().unwrap().iter().map(|w| w["device"].as_str().unwrap()).collect();
    assert_eq!(devices, ["cpu", "cpu"]);
    assert!(at(&["workers"]).ok().out.starts_with("worker "));
}

fn barriers_and_tasks_are_explained(at: &dyn Fn(&[&str]) -> Ended) {
    let story = at(&["explain", "points", "--barrier", "39", "--json"]).ok().json();
    assert_eq!((&story["state"], &story["why"]["rule"]), (&"closed".into(), &"bsp".into()), "{story:#}");
    assert_eq!(story["workers"].as_array().unwrap().len(), 2);
    let words = at(&["explain", "points", "--barrier", "39"]).ok().out;
    for part in ["barrier/39: closed", "because  one iteration of everybody", "arrived ms"] {
        assert!(words.contains(part), "{part} is not in {words}");
    }
    assert!(at(&["explain", "points", "weights"]).ok().out.starts_with("weights: done"));
    at(&["explain", "points", "--barrier", "7000"]).refused(1, "E138");
    at(&["explain", "points", "nothing"]).refused(1, "E138");
    assert_eq!(at(&["explain", "points", "barrier/39"]).ok().out, words);
    let whole = at(&["explain", "points"]).ok().out;
    assert!(whole.starts_with("points: done  epoch 5/5") && !whole.contains("barrier/"), "{whole}");
}

fn its_status_says_how_it_went(at: &dyn Fn(&[&str]) -> Ended) {
    let status = at(&["status", "points"]).ok().out;
    for part in
        ["points (done)", "compute ms", "worker-1", "accuracy", "redis-cli -p ", "'syncline:{points}:job'"]
    {
        assert!(status.contains(part), "{part} is not in {status}");
    }
    at(&["cancel", "points"]).refused(1, "E137");
}

/// Its snapshot, as it is shown.
fn files_are_shown(dir: &Path, view: &Value) -> Value {
    let snapshot = at_nowhere(&["model", "show", field(view, "snapshot"), "--json"]).ok().json();
    assert_eq!(snapshot["about"]["job"], "points");
    assert_eq!(snapshot["count"], 2 * 8 + 8 + 8 * 2 + 2);
    assert_eq!(snapshot["tensors"][0]["values"]["not_finite"], 0);
    let model = dir.join("points.onnx");
    let model = at_nowhere(&["model", "show", model.to_str().unwrap(), "--json"]).ok().json();
    assert_eq!((&model["parameter_count"], &model["operators"]["Gemm"]), (&snapshot["count"], &2.into()));
    snapshot
}

fn what_is_exported_has_the_numbers_of_the_snapshot(
    dir: &Path,
    view: &Value,
    snapshot: &Value,
    at: &dyn Fn(&[&str]) -> Ended,
) {
    let out = dir.join("trained.onnx");
    let out = out.to_str().unwrap();
    fs::remove_file(dir.join("points.onnx")).unwrap();
    fs::remove_file(field(view, "snapshot")).unwrap();
    at(&["model", "export", "points", out]).ok();
    let trained = at_nowhere(&["model", "show", out, "--json"]).ok().json();
    assert_eq!(trained["parameter_count"], snapshot["count"]);
    let file = onnx::parse(&fs::read(out).unwrap()).unwrap().graph.unwrap();
    let tensors = snapshot["tensors"].as_array().unwrap();
    for tensor in &file.initializer {
        let saved = tensors.iter().find(|saved| saved["name"] == tensor.name.as_str()).unwrap();
        let most = tensor.to_f32().unwrap().into_iter().fold(f32::MIN, f32::max);
        assert_eq!(saved["values"]["max"].as_f64(), Some(f64::from(most)), "{}", tensor.name);
    }
}

fn at_nowhere(args: &[&str]) -> Ended {
    syncline(args)
}

#[test]
fn a_written_training_graph_trains_from_the_models_own_weights() {
    let dir = folder();
    let _up = Up::start(&dir, &["--workers", "1"]);
    let state_dir = dir.path().to_str().unwrap();
    write_job(dir.path(), 5);
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (model, graph, file) = (path("points.onnx"), path("train.onnx"), path("ready.toml"));
    let loss = ["--loss", "softmax-cross-entropy", "--out", &graph];
    syncline(&[&["model", "train-graph", &model][..], &loss].concat()).ok();
    let job = fs::read_to_string(path("points.toml")).unwrap();
    let forward = r#"model.forward = { onnx = "points.onnx", loss = "softmax-cross-entropy" }"#;
    let ready = job.replace(forward, r#"model.ready = { onnx = "train.onnx" }"#);
    assert_ne!(ready, job);
    fs::write(&file, &ready).unwrap();
    // By what it declares alone, as a client without ONNX Runtime takes it.
    let declared = prepare_ready(&JobFile::load(Path::new(&file)).unwrap()).unwrap();
    assert_eq!(declared.spec.train().unwrap().1.model.layout.0.len(), 4);
    let view = syncline(&["submit", &file, "--state-dir", state_dir, "--watch", "--json"]).ok().json();
    syncline(&["model", "export", "points", &path("out.onnx"), "--state-dir", state_dir]).refused(2, "E249");
    let weights = path("trained.safetensors");
    syncline(&["model", "export", "points", &weights, "--state-dir", state_dir]).ok();
    let weights = syncline(&["model", "show", &weights, "--json"]).ok().json();
    assert_eq!(weights["count"], 2 * 8 + 8 + 8 * 2 + 2);
    let accuracy = view["job"]["test_accuracy"].as_f64().unwrap();
    assert!(accuracy > 0.9, "from zeros such a network does not learn: {view:#}");

    let mut bare = onnx::parse(&fs::read(&graph).unwrap()).unwrap();
    bare.graph.as_mut().unwrap().initializer.retain(|tensor| tensor.name != "fc1.weight");
    fs::write(&graph, bare.to_bytes()).unwrap();
    syncline(&["submit", &file, "--id", "bare", "--state-dir", state_dir]).refused(2, "E261");
    let frozen = ready.replace("epochs = 5", "epochs = 5, freeze = ['fc1.*']");
    fs::write(&file, frozen).unwrap();
    syncline(&["submit", &file, "--id", "frozen", "--state-dir", state_dir]).refused(2, "E366");
}

#[test]
fn a_submission_says_what_is_doubtful_and_a_list_beside_the_job_file_settles_it() {
    let dir = folder();
    let _up = Up::start(&dir, &["--workers", "1"]);
    let state_dir = dir.path().to_str().unwrap();
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../autodiff/tests/selection");
    for name in ["frozen.script.onnx", "frozen.txt"] {
        fs::copy(models.join(name), dir.path().join(name)).unwrap();
    }
    const SAMPLES: usize = 20;
    let (x, y) = (vec![0u8; SAMPLES * 3 * 8 * 8 * 4], vec![0u8; SAMPLES * 8]);
    let tensors = [
        ("x", TensorView::new(Dtype::F32, vec![SAMPLES, 3, 8, 8], &x).unwrap()),
        ("label", TensorView::new(Dtype::I64, vec![SAMPLES], &y).unwrap()),
    ];
    fs::write(dir.path().join("data.safetensors"), safetensors::serialize(tensors, None).unwrap()).unwrap();
    let job = |id: &str, settings: &str| {
        let text = format!(
            r#"id = "{id}"
[[node]]
name = "train"
do = "train"
model.forward = {{ onnx = "frozen.script.onnx", loss = "softmax-cross-entropy" }}
data.source = {{ safetensors = {{ path = "data.safetensors" }} }}
settings = {{ batch = 10, {settings} }}
"#
        );
        let path = dir.path().join("job.toml");
        fs::write(&path, text).unwrap();
        syncline(&["submit", path.to_str().unwrap(), "--state-dir", state_dir])
    };
    let said = job("doubtful", "epochs = 1").ok().err;
    for part in ["warning: `channel_scale` is not trained", "requires_grad", "params = \"names.txt\""] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    let said = job("settled", r#"params = "frozen.txt""#).ok().err;
    assert!(!said.contains("warning"), "{said}");
    fs::write(dir.path().join("frozen.txt"), "head.wieght").unwrap();
    let refused = job("misspelt", r#"params = "frozen.txt""#).refused(2, "E260");
    assert!(refused.err.contains("`head.wieght` (near: `head.weight`"), "{}", refused.err);
}

#[test]
fn a_canceled_job_ends_its_watch_with_an_error() {
    let dir = folder();
    let _up = Up::start(&dir, &["--workers", "2", "--slowdown", "1,2"]);
    let state_dir = dir.path().to_str().unwrap();
    write_job(dir.path(), 1_000);
    let file = dir.path().join("points.toml");
    syncline(&["submit", file.to_str().unwrap(), "--state-dir", state_dir]).ok();
    wait_until("the job trains", || {
        let view = syncline(&["status", "points", "--json", "--state-dir", state_dir]).ok().json();
        field(&view, "state") == "running" && view["job"]["iterations_done"] != 0
    });
    let status = syncline(&["status", "points", "--state-dir", state_dir]).ok().out;
    assert!(status.contains("next barrier"), "{status}");
    syncline(&["cancel", "points", "--state-dir", state_dir]).ok();
    syncline(&["watch", "points", "--state-dir", state_dir]).refused(1, "E507");
}

#[test]
fn a_job_that_no_worker_joins_in_time_fails_and_its_id_can_be_used_again() {
    let dir = folder();
    let _up = Up::start(&dir, &["--workers", "0"]);
    let state_dir = dir.path().to_str().unwrap();
    write_job(dir.path(), 1);
    let file = dir.path().join("points.toml");
    let limited = fs::read_to_string(&file).unwrap().replace("batch = 10,", "batch = 10, queue_limit_s = 1,");
    fs::write(&file, limited).unwrap();
    let file = file.to_str().unwrap();
    for flags in [&["--watch"][..], &["--watch", "--replace"]] {
        let failed =
            syncline(&[&["submit", file, "--state-dir", state_dir], flags].concat()).refused(1, "E060");
        assert!(failed.err.contains("it waits for 1 worker: none is there"), "{failed:#?}");
    }
}

#[test]
fn from_where_a_job_goes_on_is_told_once_it_was_taken() {
    let dir = folder();
    let _up = Up::start(&dir, &["--workers", "1", "--shards", "1"]);
    let state_dir = dir.path().to_str().unwrap();
    let at = |args: &[&str]| syncline(&[args, &["--state-dir", state_dir]].concat());
    write_job(dir.path(), 100_000);
    let file = dir.path().join("points.toml");
    let text = fs::read_to_string(&file).unwrap();
    let text = text.replace("epochs =", "checkpoint = { every_epochs = 1 }, epochs =");
    fs::write(&file, &text).unwrap();
    let file_name = file.to_str().unwrap();
    at(&["submit", file_name]).ok();
    wait_until("it has a checkpoint", || {
        !at(&["status", "points", "--json"]).ok().json()["job"]["checkpoint"].is_null()
    });
    at(&["cancel", "points"]).ok();

    let resume = || at(&["submit", file_name, "--id", "more", "--resume", "points"]);
    let told = "goes on from checkpoint ";
    fs::write(&file, text.replace("epochs = 100000", "seed = 5, epochs = 100000")).unwrap();
    let refused = resume().refused(2, "E029");
    assert!(!refused.err.contains(told), "{refused:#?}");
    fs::write(&file, text.replace("epochs = 100000", "optimizer = \"adam\", epochs = 100000")).unwrap();
    let refused = resume().refused(2, "E368");
    let is_named =
        refused.err.contains("cannot go on from checkpoint ") && refused.err.contains(" of job points: ");
    assert!(is_named && refused.err.contains("`model.forward.weights`"), "{refused:#?}");
    fs::write(&file, text.replace("test-every = 5", "test-percent = 20")).unwrap();
    let refused = resume().refused(2, "E368");
    assert!(
        refused.err.contains("`test_every = 5`, and this training has `test_percent = 20"),
        "{refused:#?}"
    );
    fs::write(&file, &text).unwrap();
    let data = dir.path().join("points.csv");
    fs::write(&data, fs::read_to_string(&data).unwrap().replace('\n', "\r\n")).unwrap();
    let taken = resume().ok();
    assert!(taken.err.contains(told), "{taken:#?}");
    assert!(taken.err.contains("byte for byte, those that points was trained on"), "{taken:#?}");
    // Once more it is that job, which goes on from nowhere anew.
    let again = resume().ok();
    assert!(!again.err.contains(told), "{again:#?}");
}

#[test]
fn how_to_look_into_redis_is_told_only_where_its_password_lies() {
    let (dir, elsewhere) = (folder(), folder());
    let up = Up::start(&dir, &["--workers", "0", "--shards", "1"]);
    write_job(dir.path(), 1);
    let state_dir = dir.path().to_str().unwrap();
    let file = dir.path().join("points.toml");
    syncline(&["submit", file.to_str().unwrap(), "--state-dir", state_dir]).ok();
    let here = syncline(&["status", "points", "--state-dir", state_dir]).ok();
    assert!(here.out.contains("look at it with\nREDISCLI_AUTH="), "{here:#?}");

    let [engine, token] = ["engine", "token_file"].map(|field| up.about[field].as_str().unwrap());
    let mut there = command(&["status", "points", "--engine", engine, "--token-file", token]);
    let there = Ended::from(there.env("SYNCLINE_STATE_DIR", elsewhere.path()).output().unwrap()).ok();
    assert!(there.out.contains("points") && !there.out.contains("redis-cli"), "{there:#?}");
}
