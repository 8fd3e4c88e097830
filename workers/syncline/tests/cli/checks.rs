//! What a model does to a command that loads it, and what a command says about a model's gradients.
//!
//! `tests/checks/make_checks.py` made the models.

use std::{fs, path::Path};

use crate::rig::{Ended, Up, folder, syncline};

fn model(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../tests/checks/{name}.onnx"));
    path.to_str().unwrap().to_owned()
}

const LOSS: [&str; 2] = ["--loss", "softmax-cross-entropy"];

/// A job on this model; its data is looked at after the model.
fn job(dir: &Path, model: &str, settings: &str) -> String {
    let rows: Vec<String> = (0..40).map(|row| format!("{},{},{}", row % 7, row % 5, row % 4)).collect();
    fs::write(dir.join("rows.csv"), rows.join("\n")).unwrap();
    let text = format!(
        "id = 'job'\n[[node]]\nname = 'train'\ndo = 'train'\n\
         model.forward = {{ onnx = '{model}', loss = 'softmax-cross-entropy' }}\n\
         data = {{ source = {{ csv = {{ path = 'rows.csv' }} }} }}\nsettings = {{ {settings} }}\n"
    );
    let file = dir.join("job.toml");
    fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

/// What was said, warnings about the export in front of the refusal.
#[track_caller]
fn refused(ended: Ended, code: &str) -> String {
    assert_eq!(ended.code, 2, "{ended:#?}");
    assert!(ended.err.contains(&format!("error: [{code}]")), "{ended:#?}");
    assert!(ended.err.lines().last().unwrap().starts_with("hint: "), "{ended:#?}");
    ended.err
}

#[test]
fn a_model_that_crashes_onnx_runtime_is_an_error_that_names_signal_model_stage_and_node() {
    let dir = folder();
    let up = Up::start(&dir, &["--workers", "1", "--shards", "1"]);
    let state_dir = dir.path().to_str().unwrap();
    let (bag, out) = (model("embedding_bag.dynamo"), dir.path().join("train.onnx"));
    let out = out.to_str().unwrap();
    // With the weight frozen nothing has to flow through the loop at which ONNX Runtime crashes.
    let frozen = ["--freeze", "bag.*"];
    let file = job(dir.path(), &bag, "freeze = ['bag.*']");
    let commands: [&[&str]; 3] = [
        &[&["model", "check", &bag], &LOSS[..], &frozen].concat(),
        &[&["model", "train-graph", &bag, "--out", out], &LOSS[..], &frozen].concat(),
        &["submit", &file, "--state-dir", state_dir],
    ];
    for command in commands {
        let said = refused(syncline(command), "E254");
        for part in ["embedding_bag.dynamo.onnx", "signal 11 (SIGSEGV)", "`simplify the model`", "(Loop)"] {
            assert!(said.contains(part), "{part} is not in {said}");
        }
    }
    assert_eq!(
        syncline(&["jobs", "--json", "--state-dir", state_dir]).ok().json().as_array().unwrap().len(),
        0
    );
    drop(up);
}

#[test]
fn a_loop_between_a_weight_and_the_loss_is_refused_before_it_is_loaded() {
    let bag = model("embedding_bag.dynamo");
    let dir = folder();
    let out = dir.path().join("train.onnx");
    for command in [&["check"][..], &["train-graph", "--out", out.to_str().unwrap()]] {
        let all = [&["model"], command, &[bag.as_str()], &LOSS[..]].concat();
        let said = refused(syncline(&all), "E311");
        assert!(said.contains("Loop") && said.contains("control flow"), "{said}");
    }
}

#[test]
fn gradients_that_are_not_those_of_the_loss_are_refused_unless_nobody_looks() {
    let dir = folder();
    let up = Up::start(&dir, &["--workers", "1", "--shards", "1"]);
    let state_dir = dir.path().to_str().unwrap();
    let (lost, out) = (model("index_add.script"), dir.path().join("train.onnx"));
    let graph = ["model", "train-graph", &lost, "--out", out.to_str().unwrap(), LOSS[0], LOSS[1]];
    let file = job(dir.path(), &lost, "batch = 4");
    let submit = ["submit", &file, "--state-dir", state_dir];
    for command in [&graph[..], &submit] {
        let said = refused(syncline(command), "E256");
        for part in ["message.weight", "`/ScatterElements`", "`reduction` is none", "--no-check"] {
            assert!(said.contains(part), "{part} is not in {said}");
        }
    }
    assert!(!out.exists());
    syncline(&[&graph[..], &["--no-check"]].concat()).ok();
    // The data has nothing to do with the model, which is found out behind the look.
    syncline(&[&submit[..], &["--no-check"]].concat()).refused(2, "E362");
    let file = job(dir.path(), &lost, "batch = 4, check = false");
    syncline(&["submit", &file, "--state-dir", state_dir]).refused(2, "E362");
    drop(up);
}

#[test]
fn data_at_an_address_is_answered_with_how_to_fetch_it() {
    let dir = folder();
    let up = Up::start(&dir, &["--workers", "1", "--shards", "1"]);
    let file = job(dir.path(), &model("dropout.script"), "optimizer = 'adam'");
    let text = fs::read_to_string(&file).unwrap().replace("'rows.csv'", "'s3://bucket/rows.csv'");
    fs::write(&file, text).unwrap();
    let said =
        syncline(&["submit", &file, "--state-dir", dir.path().to_str().unwrap()]).refused(2, "E487").err;
    assert!(said.contains("s3://bucket/rows.csv") && said.contains("aws s3 cp"), "{said}");
    drop(up);
}
