//! Before a job goes: what it would be, what is changed of its file, and which id it gets.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::TcpListener,
    process::Stdio,
};

use syncline_onnx::{ElementType, GraphBuilder, TensorType, mlp};

use crate::{
    job::write_job,
    rig::{Killed, Up, command, folder, kill, syncline},
};

#[test]
fn a_dry_run_shows_a_job_without_a_cluster_and_submits_nothing_to_one() {
    let dir = folder();
    write_job(dir.path(), 3);
    let (file, state_dir) = (dir.path().join("points.toml"), dir.path().to_str().unwrap());
    let dry = |more: &[&str]| {
        let words = ["submit", file.to_str().unwrap(), "--dry-run", "--state-dir", state_dir];
        syncline(&[&words[..], more].concat())
    };
    let alone = dry(&["--json"]).ok();
    let shown = alone.json();
    assert!(shown["id"] == "points" && shown["taken"].is_null() && shown["policy"] == "bsp", "{shown:#}");
    assert_eq!((shown["samples"].as_u64(), shown["batches"].as_u64()), (Some(160), Some(48)), "{shown:#}");
    // 2 to 8 to 2, with biases.
    assert_eq!(shown["parameters"], 42, "{shown:#}");
    assert_eq!((shown["parameter_bytes"].as_u64(), shown["shard_bytes"].as_u64()), (Some(168), Some(168)));
    assert!(shown["step_bytes"].as_u64().unwrap() > 10 * 8 * 4, "{shown:#}");
    assert!(alone.err.contains("nothing was submitted; no cluster is known"), "{alone:#?}");
    let adam = dry(&["--json", "--set", "settings.optimizer=adam"]).ok().json();
    assert_eq!(adam["shard_bytes"], 3 * 168, "values and both means");
    assert_eq!(adam["groups"], serde_json::json!([]));
    let (batch, pieces) =
        ("settings.batch=80", ["--set", "settings.batch=80", "--set", "settings.micro_batch=32"]);
    let whole = dry(&["--json", "--set", batch]).ok().json();
    let shown = dry(&[&["--json"], &pieces[..]].concat()).ok().json();
    assert_eq!((whole["micro_batch"].as_u64(), shown["micro_batch"].as_u64()), (None, Some(32)));
    assert!(shown["step_bytes"].as_u64() < whole["step_bytes"].as_u64(), "{shown:#}");
    let line = "\nbatches     of 80, computed in 3 pieces of 32 at most: 2 in an epoch, 6 in all\n";
    let told = dry(&pieces).ok();
    assert!(told.out.contains(line), "{told:#?}");
    let idle = dry(&["--set", "settings.micro_batch=32"]).ok();
    assert!(idle.err.contains("micro_batch 32 has no effect"), "{idle:#?}");
    assert!(idle.err.contains("a batch has 10 samples"), "{idle:#?}");
    let groups = "settings.groups=[{ params = ['*.bias'], weight_decay = 0.0 }, { params = ['fc1.*'], learning_rate_factor = 0.5 }]";
    let grouped = ["--set", "settings.optimizer=adamw", "--set", groups];
    let shown = dry(&[&["--json"], &grouped[..]].concat()).ok().json();
    let want = serde_json::json!([
        { "parameters": 1, "elements": 16, "weight_decay": null, "learning_rate_factor": 0.5 },
        { "parameters": 2, "elements": 10, "weight_decay": 0.0, "learning_rate_factor": 1.0 },
    ]);
    assert_eq!(shown["groups"], want);
    let line = "\ngroups      0.5 times the learning rate for 1 parameter (16 numbers); weight decay 0 for 2 parameters (10 numbers)\n";
    let told = dry(&grouped).ok();
    assert!(told.out.contains(line), "{told:#?}");

    let _up = Up::start(&dir, &["--workers", "1"]);
    assert!(dry(&[]).ok().out.contains("\nbatches     of 10: 16 in an epoch, 48 in all\n"));
    let jobs = || syncline(&["jobs", "--json", "--state-dir", state_dir]).ok().json();
    assert_eq!(jobs(), serde_json::json!([]));
    syncline(&["submit", file.to_str().unwrap(), "--watch", "--state-dir", state_dir]).ok();
    assert_eq!(dry(&["--json"]).ok().json()["taken"], "done");
    let new = dry(&["--json", "--new"]).ok().json();
    assert!(new["id"] == "points-2" && new["taken"].is_null(), "{new:#}");
    assert_eq!(jobs().as_array().unwrap().len(), 1);
}

#[test]
fn a_dry_run_counts_what_a_model_leaves_open_by_the_data() {
    let dir = folder();
    write_job(dir.path(), 3);
    let file = dir.path().join("points.toml");
    let words = [
        "submit",
        file.to_str().unwrap(),
        "--dry-run",
        "--json",
        "--state-dir",
        dir.path().to_str().unwrap(),
    ];
    let fixed = syncline(&words).ok().json();
    let mut model = mlp(&[2, 8, 2], 1);
    let open = TensorType::new(ElementType::F32, vec!["batch".into(), "columns".into()]);
    model.graph.as_mut().unwrap().input = vec![open.to_value_info("x")];
    fs::write(dir.path().join("points.onnx"), model.to_bytes()).unwrap();
    let open = syncline(&words).ok().json();
    assert_eq!(open["step_bytes"], fixed["step_bytes"]);
}

#[test]
fn a_dry_run_says_all_settings_what_an_epoch_has_and_which_column_is_the_label() {
    let dir = folder();
    write_job(dir.path(), 3);
    let points = fs::read_to_string(dir.path().join("points.csv")).unwrap();
    let named: String = points
        .lines()
        .map(|row| row.split(',').collect::<Vec<_>>())
        .map(|row| format!("{},{},{}\n", row[0], row[2], row[1]))
        .collect();
    fs::write(dir.path().join("named.csv"), format!("x,side,y\n{named}")).unwrap();
    let (file, state_dir) = (dir.path().join("points.toml"), dir.path().to_str().unwrap());
    let dry = |more: &[&str]| {
        let words = ["submit", file.to_str().unwrap(), "--dry-run", "--state-dir", state_dir];
        let set = more.iter().flat_map(|change| ["--set", change]);
        syncline(&words.into_iter().chain(set).collect::<Vec<_>>())
    };
    let changes = [
        "data.source={ csv = { path = 'named.csv', label_names = ['side'] } }",
        "data.validation_percent=10",
        "settings={ batch = 60, epochs = 2, policy = 'bsp', drop_last = true, decay = 'cosine', warmup = 0.05, clip_norm = 1.0, on_nan = 'skip' }",
        "settings.evaluate={ every_epochs = 1, keep_best = true }",
        "settings.eval_mode=true",
    ];
    let told = dry(&changes).ok().out;
    for line in [
        "optimizer   sgd, learning rate 0.1 (cosine to 0, warmup 0.05)",
        "settings    drop_last = true, seed = 0, on_nan = skip, clip_norm = 1, evaluate.every_epochs = 1, evaluate.keep_best = true, eval_mode = true",
        "label       column 2 of 3, `side`",
        "samples     120 of 144 in each of 2 epochs, 240 in all",
        "validation  16 samples",
        "test        40 samples",
        "batches     of 60: 2 in an epoch, 4 in all",
        "steps       2 / N in an epoch of N workers, each on the mean gradient of a batch of every worker",
    ] {
        assert!(told.lines().any(|said| said == line), "{line} is not in {told}");
    }
    assert!(told.contains("forward.loss = softmax-cross-entropy"), "{told}");
    assert!(told.contains("named.csv, source.csv.label_names = ['side'], validation_percent = 10"), "{told}");

    let forgotten = dry(&[]).ok().out;
    let by_default = "label       column 3 of 3: the last, as `label_names` names no other";
    assert!(forgotten.lines().any(|said| said == by_default), "{forgotten}");
}

#[test]
fn labels_that_fit_another_output_name_it() {
    let dir = folder();
    let mut graph = GraphBuilder::new("two");
    let x = graph.input("x", ElementType::F32, &["batch".into(), 2.into()]);
    for (output, width) in [("scores", 3), ("spots", 2)] {
        let weight = graph.weight(&format!("{output}.weight"), &[2, width], &vec![0.5; 2 * width]);
        let output = graph.named(output, "MatMul", &[&x, &weight], &[]);
        graph.output(&output);
    }
    fs::write(dir.path().join("two.onnx"), graph.finish().to_bytes()).unwrap();
    fs::write(dir.path().join("two.csv"), "1,2,3,4\n5,6,7,8\n").unwrap();
    let job = r#"id = "two"

[[node]]
name = "train"
do = "train"
model.forward = { onnx = "two.onnx", loss = "mse" }
data = { source = { csv = { path = "two.csv", label_columns = 2 } } }
settings = { batch = 2, policy = "bsp" }
"#;
    let file = dir.path().join("two.toml");
    fs::write(&file, job).unwrap();
    let words = ["submit", file.to_str().unwrap(), "--dry-run", "--state-dir", dir.path().to_str().unwrap()];
    let said = syncline(&words).refused(2, "E338").err;
    assert!(said.contains("wants [3] a sample; they fit its output `spots`"), "{said}");
    assert!(said.contains("`output = \"spots\"`"), "{said}");
    syncline(&[&words[..], &["--set", "model.forward.output=spots"]].concat()).ok();
}

#[test]
fn a_dry_run_refuses_what_submission_refuses() {
    let dir = folder();
    write_job(dir.path(), 3);
    let file = dir.path().join("points.toml");
    let words = ["submit", file.to_str().unwrap(), "--dry-run", "--state-dir", dir.path().to_str().unwrap()];
    #[rustfmt::skip]
    let cases = [
        ("settings.batch=1000",              "E028"),
        ("settings.policy=nothing",          "E369"),
        ("model.forward.loss=mse",           "E338"),
        ("model.forward.onnx=nowhere.onnx",  "E360"),
        ("data.source.csv.path=nowhere.csv", "E330"),
        ("data.split=all",                   "E364"),
        ("settings.groups=[{ params = ['fc9.*'], weight_decay = 0.1 }]", "E378"),
        ("settings.groups=[{ params = ['fc1.*'] }]", "E379"),
        ("data.augment.flip=true",           "E479"),
        ("data.augment={mirror=true}",       "E369"),
    ];
    for (change, code) in cases {
        let ended = syncline(&[&words[..], &["--set", change]].concat());
        assert!(ended.code == 2 && ended.err.contains(&format!("[{code}]")), "{change}: {ended:#?}");
        let here = "submission reads the data on this machine, and every worker on its own";
        assert_eq!(ended.err.contains(here), code == "E330", "{change}: {ended:#?}");
    }
}

#[test]
fn a_group_that_changes_nothing_with_this_optimizer_is_warned_of() {
    let dir = folder();
    write_job(dir.path(), 3);
    let file = dir.path().join("points.toml");
    let words = ["submit", file.to_str().unwrap(), "--dry-run", "--state-dir", dir.path().to_str().unwrap()];
    let group = ["--set", "settings.groups=[{ params = ['fc1.*'], weight_decay = 0.0 }]"];
    for (optimizer, is_warned_of) in [("sgd", true), ("adamw", false)] {
        let optimizer = format!("settings.optimizer={optimizer}");
        let ended = syncline(&[&words[..], &group, &["--set", &optimizer]].concat()).ok();
        let said = ended.err.contains("group 1 of `groups` changes nothing: with sgd its parameters");
        assert_eq!(said, is_warned_of, "{ended:#?}");
    }
}

#[test]
fn a_field_that_is_set_for_once_counts_and_one_that_there_is_not_is_named() {
    let dir = folder();
    write_job(dir.path(), 3);
    let file = dir.path().join("points.toml");
    let _up = Up::start(&dir, &["--workers", "1"]);
    let submit = |more: &[&str]| {
        let words = ["submit", file.to_str().unwrap(), "--state-dir", dir.path().to_str().unwrap()];
        syncline(&[&words[..], more].concat())
    };
    let set = ["--set", "settings.epochs=1", "--set", "train.settings.batch=20", "--watch", "--json"];
    let done = submit(&set).ok().json();
    assert_eq!((&done["job"]["samples_applied"], &done["job"]["epochs"]), (&160.into(), &1.into()));

    let wrong = submit(&["--set", "settings.btach=20"]).refused(2, "E369");
    assert!(wrong.err.contains("expected one of `optimizer`, `learning_rate`"), "{wrong:#?}");
    assert!(!wrong.err.contains("write it as"), "its form is right: {wrong:#?}");
    let wrong = submit(&["--set", "batch=20"]).refused(2, "E369");
    assert!(
        wrong.err.contains("neither a node (train, test, weights) nor a field of the training node"),
        "{wrong:#?}"
    );
    assert!(wrong.err.contains("hint: write it as `settings.batch=64`"), "{wrong:#?}");
}

#[test]
fn a_new_job_gets_the_first_id_that_is_free_also_if_it_is_the_same() {
    let dir = folder();
    write_job(dir.path(), 1);
    let file = dir.path().join("points.toml");
    let _up = Up::start(&dir, &["--workers", "1"]);
    let submit = |more: &[&str]| {
        let words = ["submit", file.to_str().unwrap(), "--state-dir", dir.path().to_str().unwrap()];
        syncline(&[&words[..], more].concat())
    };
    for id in ["points\n", "points-2\n", "points-3\n"] {
        assert_eq!(submit(&["--new"]).ok().out, id);
    }
    let said = submit(&["--new", "--json", "--id", "others"]).ok().json();
    assert!(said["id"] == "others" && said["is_new"] == true, "{said:#}");
    submit(&["--new", "--replace"]).refused(2, "E500");
}

#[test]
fn a_submission_that_is_interrupted_says_whether_the_job_is_there() {
    let (dir, alone) = (folder(), folder());
    write_job(dir.path(), 100_000);
    let file = dir.path().join("points.toml");
    let start = |more: &[&str]| {
        let mut submit = command(&[&["submit", file.to_str().unwrap()], more].concat());
        Killed::start(submit.stdout(Stdio::piped()).stderr(Stdio::piped()))
    };
    let interrupted = |submit: Killed| {
        kill("INT", submit.id());
        let ended = submit.ended();
        assert_eq!(ended.code, 130, "{ended:#?}");
        ended.err
    };
    let engine = TcpListener::bind("127.0.0.1:0").unwrap();
    fs::write(alone.path().join("token"), "0".repeat(64)).unwrap();
    let address = engine.local_addr().unwrap().to_string();
    let submit = start(&["--state-dir", alone.path().to_str().unwrap(), "--engine", &address]);
    let _greets_nobody = engine.accept().unwrap();
    let told = interrupted(submit);
    assert!(told.contains("stopped; nothing was submitted"), "{told}");

    let _up = Up::start(&dir, &["--workers", "1"]);
    let mut submit = start(&["--watch", "--state-dir", dir.path().to_str().unwrap()]);
    let mut out = BufReader::new(submit.stdout.take().unwrap());
    assert!(out.read_line(&mut String::new()).unwrap() > 0, "it follows the job");
    let told = interrupted(submit);
    assert!(
        told.contains("job points was submitted and goes on; `syncline watch points --state-dir "),
        "{told}"
    );
}

#[test]
fn an_export_of_what_happened_is_no_model() {
    let dir = folder();
    let file = dir.path().join("trained.onnx");
    let refused = syncline(&["export", "points", file.to_str().unwrap()]).refused(2, "E538");
    assert!(
        refused.err.contains(&format!("`syncline model export points {}`", file.display())),
        "{refused:#?}"
    );
    assert!(!file.exists());
}

#[test]
fn a_shard_takes_what_is_not_typed_from_the_environment() {
    let dir = folder();
    fs::write(dir.path().join("token"), "no token").unwrap();
    let shard = |name: &str, value: &str| {
        let mut command = command(&["ps"]);
        command.env("SYNCLINE_STATE_DIR", dir.path()).env("SYNCLINE_TOKEN_FILE", "").env(name, value);
        crate::rig::Ended::from(command.output().unwrap())
    };
    shard("SYNCLINE_TOKEN_FILE", dir.path().join("token").to_str().unwrap()).refused(5, "E416");
    shard("SYNCLINE_ENGINE", "nonsense").refused(2, "E127");
}

#[test]
fn a_dry_run_of_a_precision_that_only_gpus_compute_leaves_out_what_a_cpu_would_measure() {
    let dir = folder();
    write_job(dir.path(), 2);
    let (file, state_dir) = (dir.path().join("points.toml"), dir.path().to_str().unwrap());
    let words = ["submit", file.to_str().unwrap(), "--dry-run", "--set", "settings.precision=bf16"];
    let at = |more: &[&str]| syncline(&[&words[..], &["--state-dir", state_dir], more].concat()).ok();
    assert!(at(&[]).out.contains("not measured: no CPU computes this graph"));
    let json = at(&["--json"]).json();
    assert!(json["step_bytes"].is_null() && json["shard_bytes"].is_u64(), "{json:#}");
}
