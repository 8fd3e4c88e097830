//! Data that does not fit the model is refused at submission: no job is made of it that could never end.

use std::{fs, path::Path};

use safetensors::{Dtype, tensor::TensorView};
use syncline_onnx::{ElementType, GraphBuilder, attr_int, proto::TensorProto};

use crate::rig::{Ended, Up, folder, syncline};

const ROWS: usize = 20;
const CLASSES: usize = 3;

/// An embedding of 20 rows whose numbers are the scores, and a job file for it.
fn write_job(dir: &Path) {
    let mut graph = GraphBuilder::new("tagger");
    let ids = graph.input("ids", ElementType::I64, &["batch".into(), 2.into()]);
    let numbers: Vec<f32> = (0..ROWS * CLASSES).map(|i| (i % 7) as f32 / 7.0).collect();
    let table = graph.weight("table.weight", &[ROWS, CLASSES], &numbers);
    let scores = graph.op("Gather", &[&table, &ids], &[]);
    graph.output(&scores);
    fs::write(dir.join("tags.onnx"), graph.finish().to_bytes()).unwrap();
    let file = r#"id = "tags"

[[node]]
name = "train"
do = "train"
model.forward = { onnx = "tags.onnx", loss = "softmax-cross-entropy", loss_options = { ignore_index = -100 } }
data = { source = { safetensors = { path = "tags.safetensors" } } }
settings = { batch = 2, policy = "bsp" }
"#;
    fs::write(dir.join("tags.toml"), file).unwrap();
}

/// Four samples of two ids and two labels.
fn write_data(dir: &Path, ids: [i64; 8], labels: [i64; 8]) {
    let bytes =
        |numbers: [i64; 8]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    let (ids, labels) = (bytes(ids), bytes(labels));
    let view = |bytes| TensorView::new(Dtype::I64, vec![4, 2], bytes).unwrap();
    let file = safetensors::serialize([("ids", view(&ids)), ("label", view(&labels))], None).unwrap();
    fs::write(dir.join("tags.safetensors"), file).unwrap();
}

#[test]
fn ids_without_a_row_and_labels_that_count_nothing_make_no_job() {
    let dir = folder();
    let _up = Up::start(&dir, &["--workers", "1", "--shards", "1"]);
    write_job(dir.path());
    let state_dir = dir.path().to_str().unwrap();
    let file = dir.path().join("tags.toml");
    let submit = |ids, labels| -> Ended {
        write_data(dir.path(), ids, labels);
        syncline(&["submit", file.to_str().unwrap(), "--watch", "--state-dir", state_dir])
    };
    let labels = [0, 1, 2, 0, 1, 2, 0, -100];
    for (id, rows) in [(20, "20 is not in the table"), (-1, "-1 is not in the table"), (-21, "-21 is not in")]
    {
        let said = submit([0, 1, 2, 3, 4, id, 6, 7], labels).refused(2, "E488").err;
        assert!(said.contains("tags.safetensors row 3, column 2: ") && said.contains(rows), "{said}");
        assert!(said.contains("input ids, whose rows are 0 to 19"), "{said}");
    }
    let said = submit([0, 1, 2, 3, 4, 5, 6, 7], [-100; 8]).refused(2, "E489").err;
    assert!(said.contains("all labels of the training data are -100"), "{said}");
    assert!(!syncline(&["jobs", "--state-dir", state_dir]).ok().out.contains("tags"));
    submit([0, 1, 2, 3, 4, 19, 6, 7], labels).ok();
}

/// Each column of one input chooses from a table of its own, as models of tables have it.
#[test]
fn an_id_without_a_row_in_the_table_of_its_column_makes_no_job() {
    let dir = folder();
    let mut graph = GraphBuilder::new("columns");
    let ids = graph.input("cat", ElementType::I64, &["batch".into(), 2.into()]);
    let scores = [(0, ROWS), (1, 5)].map(|(at, rows)| {
        let numbers: Vec<f32> = (0..rows * CLASSES).map(|i| (i % 7) as f32 / 7.0).collect();
        let table = graph.weight(&format!("table_{at}.weight"), &[rows, CLASSES], &numbers);
        let at = graph.constant(TensorProto::from_i64(&format!("at_{at}"), &[], &[at]));
        let column = graph.op("Gather", &[&ids, &at], &[attr_int("axis", 1)]);
        graph.op("Gather", &[&table, &column], &[])
    });
    let scores = graph.op("Add", &[&scores[0], &scores[1]], &[]);
    graph.output(&scores);
    fs::write(dir.path().join("tags.onnx"), graph.finish().to_bytes()).unwrap();
    let job = r#"id = "tags"

[[node]]
name = "train"
do = "train"
model.forward = { onnx = "tags.onnx", loss = "softmax-cross-entropy" }
data = { source = { csv = { path = "tags.csv" } } }
settings = { batch = 2, policy = "bsp" }
"#;
    let file = dir.path().join("tags.toml");
    fs::write(&file, job).unwrap();
    let _up = Up::start(&dir, &["--workers", "1", "--shards", "1"]);
    let state_dir = dir.path().to_str().unwrap();
    let submit = |[first, second]: [i64; 2]| -> Ended {
        let rows = format!("0,0,0\n19,4,1\n{first},{second},2\n7,1,0\n");
        fs::write(dir.path().join("tags.csv"), rows).unwrap();
        syncline(&["submit", file.to_str().unwrap(), "--watch", "--state-dir", state_dir])
    };
    for (ids, said) in [
        ([-1, 0], "row 3, column 1: -1 is not in the table of the model's input cat, whose rows are 0 to 19"),
        ([20, 0], "row 3, column 1: 20 is not"),
        ([0, -1], "row 3, column 2: -1 is not"),
        ([4, 5], "row 3, column 2: 5 is not in the table of the model's input cat, whose rows are 0 to 4"),
    ] {
        let error = submit(ids).refused(2, "E488").err;
        assert!(error.contains(said), "{error}");
    }
    submit([5, 4]).ok();
}

/// y = 2 a - b, learned by a model that has computed its squared error itself.
#[test]
fn a_model_that_computes_its_loss_itself_trains_without_a_label() {
    let dir = folder();
    let mut graph = GraphBuilder::new("own");
    let x = graph.input("x", ElementType::F32, &["batch".into(), 2.into()]);
    let y = graph.input("y", ElementType::F32, &["batch".into(), 1.into()]);
    let w = graph.weight("w.weight", &[2, 1], &[0.0, 0.0]);
    let found = graph.op("MatMul", &[&x, &w], &[]);
    let apart = graph.op("Sub", &[&found, &y], &[]);
    let squared = graph.op("Mul", &[&apart, &apart], &[]);
    graph.output(&squared);
    fs::write(dir.path().join("own.onnx"), graph.finish().to_bytes()).unwrap();
    let samples: Vec<[f32; 2]> = (0..40).map(|i| [(i % 5) as f32 / 5.0, (i % 8) as f32 / 8.0]).collect();
    let bytes = |numbers: Vec<f32>| numbers.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let x = bytes(samples.concat());
    let y = bytes(samples.iter().map(|[a, b]| 2.0 * a - b).collect());
    let view = |width, bytes| TensorView::new(Dtype::F32, vec![40, width], bytes).unwrap();
    let file = safetensors::serialize([("x", view(2, &x)), ("y", view(1, &y))], None).unwrap();
    fs::write(dir.path().join("own.safetensors"), file).unwrap();
    let job = r#"id = "own"

[[node]]
name = "train"
do = "train"
model.forward = { onnx = "own.onnx", loss = "output" }
data = { source = { safetensors = { path = "own.safetensors" } }, split = { test-every = 5 } }
settings = { batch = 4, epochs = 60, policy = "bsp", learning_rate = 0.3, min_workers = 2 }

[[node]]
name = "test"
do = "evaluate"
after = ["train"]
"#;
    let file = dir.path().join("own.toml");
    fs::write(&file, job).unwrap();
    let _up = Up::start(&dir, &["--workers", "2", "--shards", "1"]);
    let state_dir = dir.path().to_str().unwrap();
    syncline(&["submit", file.to_str().unwrap(), "--watch", "--state-dir", state_dir]).ok();
    let job = &syncline(&["status", "own", "--json", "--state-dir", state_dir]).ok().json()["job"];
    assert!(job["test_loss"].as_f64().unwrap() < 1e-4, "{job}");
    assert!(job["test_accuracy"].is_null() && job["test_samples"] == 8, "{job}");
}
