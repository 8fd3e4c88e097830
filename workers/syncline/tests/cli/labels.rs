//! Labels that are texts: which class each is, from submission to what is predicted.

use std::{fs, path::Path};

use syncline_onnx::mlp;

use crate::{
    json::Page,
    rig::{Ended, Up, folder, syncline},
};

const JOB: &str = r#"id = "flowers"

[[node]]
name = "train"
do = "train"
model.forward = { onnx = "flowers.onnx", loss = "softmax-cross-entropy" }
data = { source = { csv = { path = "train.csv", label_names = ["species"] } }, test = { csv = { path = "test.csv" } } }
settings = { batch = 10, epochs = 20, policy = "bsp", learning_rate = 0.5 }

[[node]]
name = "test"
do = "evaluate"
after = ["train"]
"#;

/// Three heaps of points, each of a species.
fn write_job(dir: &Path) {
    fs::write(dir.join("flowers.onnx"), mlp(&[2, 8, 3], 1).to_bytes()).unwrap();
    let heap = |n: usize| {
        let [name, a, b] = [["virginica", "2", "0"], ["setosa", "-2", "0"], ["versicolor", "0", "2"]][n % 3];
        format!("{name},{a}.{},{b}.{}\n", n % 7, n % 5)
    };
    let rows: String = (0..90).map(heap).collect();
    fs::write(dir.join("train.csv"), format!("# by hand\nspecies,a,b\n{rows}")).unwrap();
    // One species is not there, and the columns stand in another order.
    fs::write(
        dir.join("test.csv"),
        "b,a,species\n0.1,2.5,virginica\n2.5,0.1,versicolor\n0.2,2.1,virginica\n",
    )
    .unwrap();
    fs::write(dir.join("flowers.toml"), JOB).unwrap();
}

#[test]
fn texts_are_classes_for_submission_training_and_prediction() {
    let dir = folder();
    let _up = Up::start(&dir, &["--workers", "2"]);
    write_job(dir.path());
    let state_dir = dir.path().to_str().unwrap();
    let at = |args: &[&str]| -> Ended { syncline(&[args, &["--state-dir", state_dir]].concat()) };
    let file = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (job, page) = (file("flowers.toml"), Page::read());

    let dry = at(&["submit", &job, "--dry-run"]).ok().out;
    assert!(dry.contains("classes     0 `setosa`, 1 `versicolor`, 2 `virginica`"), "{dry}");
    let json = at(&["submit", &job, "--dry-run", "--json"]).ok().json();
    assert_eq!(json["class_names"], serde_json::json!(["setosa", "versicolor", "virginica"]));
    let balanced = "model.forward.loss_options={ class_weights = 'balanced' }";
    let dry = at(&["submit", &job, "--dry-run", "--set", balanced]).ok().out;
    assert!(dry.contains("\nweights     0 1") && dry.contains("class_weights = balanced"), "{dry}");
    let json = at(&["submit", &job, "--dry-run", "--set", balanced, "--json"]).ok();
    page.holds("submit --dry-run", &json);
    assert_eq!(json.json()["class_weights"], serde_json::json!([1.0, 1.0, 1.0]));
    let said = at(&["submit", &job, "--watch"]).ok();
    assert!(said.err.contains("classes: 0 `setosa`, 1 `versicolor`"), "{said:#?}");
    let view = at(&["status", "flowers", "--json"]).ok().json();
    assert_eq!((&view["job"]["test_samples"], &view["job"]["test_accuracy"]), (&3.into(), &1.0.into()));

    let predicted = at(&["predict", "flowers", "--json"]).ok();
    page.holds("predict", &predicted);
    let classes = &predicted.json()["classes"];
    assert_eq!((&classes[2]["name"], &classes[2]["right"]), (&"virginica".into(), &2.into()));
    let table = at(&["predict", "flowers"]).ok().out;
    assert!(table.contains("virginica       2"), "{table}");
    fs::write(file("new.csv"), "b,a\n0.3,-2.2\n2.2,0.3\n").unwrap();
    let out = file("out.csv");
    at(&["predict", "flowers", "--data", &file("new.csv"), "--unlabeled", "--out", &out]).ok();
    let rows = fs::read_to_string(&out).unwrap();
    assert!(rows.contains("\n0,setosa,") && rows.contains("\n1,versicolor,"), "{rows}");
    // Nothing but the job says what its classes are called.
    fs::rename(file("train.csv"), file("elsewhere.csv")).unwrap();
    fs::write(file("new.csv"), "-2.2,0.3\n0.3,2.2\n").unwrap();
    at(&["predict", "flowers", "--data", &file("new.csv"), "--unlabeled", "--out", &out, "--force"]).ok();
    let rows = fs::read_to_string(&out).unwrap();
    assert!(rows.contains("\n0,setosa,") && rows.contains("\n1,versicolor,"), "{rows}");
    fs::rename(file("elsewhere.csv"), file("train.csv")).unwrap();

    // What is no class of the training file is refused, and leaves no job behind.
    fs::write(file("new.csv"), "b,a,species\n0.1,2.5,tulip\n").unwrap();
    let data = file("new.csv");
    let unknown = at(&["predict", "flowers", "--data", &data]).refused(2, "E582").err;
    assert!(unknown.contains("line 2, column 3: label `tulip` is none of the 3 of"), "{unknown}");
    let set = format!("data.test.csv.path='{data}'");
    at(&["submit", &job, "--id", "other", "--set", &set]).refused(2, "E582");
    fs::write(file("flowers.onnx"), mlp(&[2, 8, 2], 1).to_bytes()).unwrap();
    let many = at(&["submit", &job, "--id", "other"]).refused(2, "E583").err;
    assert!(
        many.contains("3 different labels (`setosa`, `versicolor`, `virginica`), the model tells 2"),
        "{many}"
    );
    assert!(!at(&["jobs"]).ok().out.contains("other"));
}

#[test]
fn two_texts_are_yes_and_no_for_one_score_from_a_drawn_test_set_to_what_is_predicted() {
    let dir = folder();
    let _up = Up::start(&dir, &["--workers", "2"]);
    fs::write(dir.path().join("churn.onnx"), mlp(&[2, 8, 1], 1).to_bytes()).unwrap();
    // Sorted by label, as an export often is.
    let row = |n: usize, side: &str, label: &str| format!("{side}2.{},{}.5,{label}\n", n % 7, n % 5);
    let rows: String =
        (0..80).map(|n| row(n, "-", "stays")).chain((0..20).map(|n| row(n, "", "leaves"))).collect();
    fs::write(dir.path().join("churn.csv"), format!("a,b,what\n{rows}")).unwrap();
    let text = r#"id = "churn"
model.forward = { onnx = "churn.onnx", loss = "bce-with-logits" }
data = { source = { csv = { path = "churn.csv" } }, split = { test_percent = 10 } }
settings = { batch = 10, epochs = 20, policy = "bsp", learning_rate = 0.5 }
"#;
    fs::write(dir.path().join("churn.toml"), text).unwrap();
    let state_dir = dir.path().to_str().unwrap();
    let at = |args: &[&str]| -> Ended { syncline(&[args, &["--state-dir", state_dir]].concat()) };
    let file = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let said = at(&["submit", &file("churn.toml"), "--watch"]).ok();
    assert!(
        said.err.contains("classes: 0 `leaves`, 1 `stays`") && !said.err.contains("has no label"),
        "{said:#?}"
    );
    let view = at(&["status", "churn", "--json"]).ok().json();
    assert_eq!((&view["job"]["test_samples"], &view["job"]["test_accuracy"]), (&10.into(), &1.0.into()));
    // As workers drew them: of each class its share.
    let out = file("out.csv");
    let predicted = at(&["predict", "churn", "--out", &out, "--json"]).ok().json();
    assert_eq!((&predicted["samples"], &predicted["accuracy"]), (&10.into(), &1.0.into()));
    let rows = fs::read_to_string(&out).unwrap();
    let count = |words: &str| rows.matches(words).count();
    assert_eq!((count(",stays,stays,"), count(",leaves,leaves,")), (8, 2), "{rows}");
    fs::write(file("new.csv"), "b,a,what\n0.5,-2.5,stays\n").unwrap();
    let new = at(&["predict", "churn", "--data", &file("new.csv"), "--json"]).ok().json();
    assert_eq!(new["accuracy"], 1.0, "{new:#}");
    fs::write(file("new.csv"), "b,a\n0.5,-2.5\n").unwrap();
    at(&["predict", "churn", "--data", &file("new.csv"), "--unlabeled", "--out", &out, "--force"]).ok();
    let rows = fs::read_to_string(&out).unwrap();
    assert!(rows.contains("\n0,stays,"), "{rows}");

    let third = fs::read_to_string(file("churn.csv")).unwrap() + "1,1,perhaps\n";
    fs::write(file("churn.csv"), third).unwrap();
    let many = at(&["submit", &file("churn.toml"), "--id", "other"]).refused(2, "E583").err;
    assert!(many.contains("3 different labels (`leaves`, `perhaps`, `stays`), the model tells 2"), "{many}");
}
