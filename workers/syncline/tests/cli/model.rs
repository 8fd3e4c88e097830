//! `syncline model`: what people do with a model before and after it is trained.

use std::{fs, path::Path, process::Command};

use syncline_onnx::{
    self as onnx, ElementType, GraphBuilder, mlp,
    proto::{NodeProto, TensorProto},
};

use crate::rig::{Ended, command, folder, syncline};

fn save(dir: &Path, name: &str, bytes: &[u8]) -> String {
    let path = dir.join(name);
    fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_limit_on_the_size_of_files_is_an_error_and_no_end_of_the_process() {
    let dir = folder();
    let model = save(dir.path(), "m.onnx", &mlp(&[4, 5, 3], 1).to_bytes());
    let out = dir.path().join("train.onnx");
    let limited = Command::new("sh")
        .args(["-c", "ulimit -f 0; exec \"$0\" \"$@\"", crate::BINARY, "model", "train-graph", &model])
        .args(["--loss", "softmax-cross-entropy", "--out", out.to_str().unwrap()])
        .output()
        .unwrap();
    let ended = Ended::from(limited).refused(2, "E496");
    assert!(ended.err.contains("File too large"), "{ended:#?}");
}

#[test]
fn a_training_graph_is_written_with_the_names_that_were_asked_for() {
    let dir = folder();
    let model = save(dir.path(), "m.onnx", &mlp(&[4, 5, 3], 1).to_bytes());
    let out = dir.path().join("train.onnx");
    let out = out.to_str().unwrap();
    let args = ["model", "train-graph", &model, "--loss", "softmax-cross-entropy", "--label", "digit"];
    let more = [
        "--freeze",
        "fc1.*",
        "--label-smoothing",
        "0.1",
        "--ignore-index",
        "-1",
        "--top-k",
        "2",
        "--out",
        out,
    ];
    let said = syncline(&[&args[..], &more[..], &["--json"]].concat()).ok().json();
    assert_eq!(said["parameters"], serde_json::json!(["fc2.weight", "fc2.bias"]));
    assert_eq!(said["parameter_count"], 5 * 3 + 3);
    assert_eq!(said["inputs"], serde_json::json!(["x float32 [batch, 4]", "digit int64 [batch]"]));

    let graph = onnx::parse(&fs::read(out).unwrap()).unwrap().graph.unwrap();
    let outputs: Vec<&str> = graph.output.iter().map(|output| output.name.as_str()).collect();
    let want = [
        "loss",
        "loss_weight",
        "correct",
        "correct_top2",
        "predictions",
        "fc2.weight.grad",
        "fc2.bias.grad",
        "logits",
    ];
    assert_eq!(outputs, want);
    assert!(
        graph.initializer.iter().any(|tensor| tensor.name == "fc1.weight"),
        "a frozen weight is a constant"
    );
    let first = graph.initializer.iter().find(|tensor| tensor.name == "fc2.weight").unwrap();
    let forward = mlp(&[4, 5, 3], 1).graph.unwrap();
    let weight = forward.initializer.iter().find(|tensor| tensor.name == "fc2.weight").unwrap();
    assert_eq!(first, weight, "a trained one is an input with its first values");
}

#[test]
fn a_training_graph_that_recomputes_says_what_it_saves() {
    let dir = folder();
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../autodiff/tests/models/vit.script.onnx");
    let out = dir.path().join("train.onnx");
    let [model, out] = [&model, &out].map(|path| path.to_str().unwrap());
    let args =
        ["model", "train-graph", model, "--loss", "softmax-cross-entropy", "--out", out, "--recompute"];
    let saved = &syncline(&[&args[..], &["--json"]].concat()).ok().json()["recompute"];
    let bytes = |name: &str| saved[name].as_u64().unwrap();
    assert!(bytes("peak_bytes") < bytes("peak_bytes_without") && bytes("flops") > bytes("flops_without"));
    syncline(&args).refused(2, "E536");
    let text = syncline(&[&args[..], &["--force"]].concat()).ok().out;
    assert!(text.contains("MiB of values at most instead of"), "{text}");
}

#[test]
fn a_training_graph_of_every_precision_is_written_wherever_it_can_run() {
    let dir = folder();
    let model = save(dir.path(), "m.onnx", &mlp(&[4, 5, 3], 1).to_bytes());
    let out = dir.path().join("train.onnx");
    let out = out.to_str().unwrap();
    for (precision, feeds_scale) in [("f32", false), ("tf32", false), ("bf16", false), ("fp16", true)] {
        let args = ["model", "train-graph", &model, "--loss", "mse", "--out", out, "--precision", precision];
        syncline(&[&args[..], &["--force"]].concat()).ok();
        let graph = onnx::parse(&fs::read(out).unwrap()).unwrap().graph.unwrap();
        assert_eq!(graph.input.iter().any(|input| input.name == "loss_scale"), feeds_scale, "{precision}");
    }
    let args = ["model", "train-graph", &model, "--loss", "mse", "--out", out, "--precision", "fp8"];
    let refused = syncline(&args).refused(2, "E471");
    assert!(refused.err.contains("hint: use one of those"), "{refused:#?}");
}

#[test]
fn a_weight_in_front_of_quantized_numbers_is_named_where_its_graph_is_written() {
    let dir = folder();
    let mut graph = GraphBuilder::new("quantized");
    let x = graph.input("x", ElementType::F32, &["batch".into(), 2.into()]);
    let first = graph.weight("first", &[2, 2], &[1.0, 0.5, -0.5, 2.0]);
    let h = graph.op("MatMul", &[&x, &first], &[]);
    let scale = graph.constant(TensorProto::from_f32("scale", &[], &[0.1]));
    let q = graph.op("QuantizeLinear", &[&h, &scale], &[]);
    let h = graph.op("DequantizeLinear", &[&q, &scale], &[]);
    let last = graph.weight("last", &[2, 2], &[1.0, 0.5, -0.5, 2.0]);
    let y = graph.op("MatMul", &[&h, &last], &[]);
    graph.output(&y);
    let model = save(dir.path(), "m.onnx", &graph.finish().to_bytes());
    let out = dir.path().join("train.onnx");
    let args = ["model", "train-graph", &model, "--loss", "mse", "--out", out.to_str().unwrap(), "--json"];
    let ended = syncline(&args).ok();
    let warnings = ended.json()["warnings"].to_string();
    for said in [&ended.err, &warnings] {
        assert!(said.contains("no gradient reaches `first`") && said.contains("quantized"), "{ended:#?}");
    }
}

#[test]
fn a_check_says_how_far_gradients_are_off_and_what_a_step_costs() {
    let dir = folder();
    let model = save(dir.path(), "m.onnx", &mlp(&[4, 5, 3], 1).to_bytes());
    for loss in ["softmax-cross-entropy", "bce-with-logits", "mse", "l1", "huber"] {
        let report = syncline(&["model", "check", &model, "--loss", loss, "--json"]).ok().json();
        assert_eq!((&report["passed"], &report["differences"]), (&true.into(), &"float64".into()), "{loss}");
        assert_eq!(report["parameters"].as_array().unwrap().len(), 4);
        assert!(report["flops_per_sample"].as_u64().unwrap() > 3 * 2 * (4 * 5 + 5 * 3) / 2);
    }
    let text = syncline(&["model", "check", &model, "--loss", "mse"]).ok().out;
    for part in ["fc2.bias", "per sample", "2 kinds, with a gradient wherever one has to flow\n"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_model_that_leaves_open_what_only_one_size_suits_is_checked_with_that_size_and_the_hint_asks_for_it() {
    let dir = folder();
    let mut model = mlp(&[6, 5, 3], 1);
    let open = onnx::TensorType::new(ElementType::F32, vec!["batch".into(), "columns".into()]);
    model.graph.as_mut().unwrap().input = vec![open.to_value_info("x")];
    let model = save(dir.path(), "m.onnx", &model.to_bytes());
    let check = ["model", "check", &model, "--loss", "softmax-cross-entropy"];
    let report = syncline(&[&check[..], &["--dim", "columns=6", "--json"]].concat()).ok().json();
    assert_eq!(report["passed"], true);
    let refused = syncline(&check);
    assert!(refused.err.contains("hint: ") && refused.err.contains("--dim columns=SIZE"), "{refused:#?}");
    let given = syncline(&[&check[..], &["--dim", "columns=7"]].concat());
    assert!(given.err.contains("[E323]") && !given.err.contains("--dim"), "{given:#?}");
}

#[test]
fn a_training_graph_is_checked_without_naming_its_loss() {
    let dir = folder();
    let model = save(dir.path(), "m.onnx", &mlp(&[4, 5, 3], 1).to_bytes());
    let out = dir.path().join("train.onnx");
    let out = out.to_str().unwrap();
    let loss = ["--loss", "bce-with-logits", "--pos-weight", "1,2,3"];
    syncline(&[&["model", "train-graph", &model, "--out", out][..], &loss].concat()).ok();
    let report = syncline(&["model", "check", out, "--ready", "--json"]).ok().json();
    assert_eq!((&report["passed"], &report["differences"]), (&true.into(), &"float64".into()));

    let mut graph = onnx::parse(&fs::read(out).unwrap()).unwrap();
    let inner = graph.graph.as_mut().unwrap();
    let bias = inner.node.iter_mut().find(|node| node.output[0] == "fc2.bias.grad").unwrap();
    bias.output[0] = "right".to_owned();
    inner.node.push(NodeProto {
        input: vec!["right".to_owned()],
        output: vec!["fc2.bias.grad".to_owned()],
        op_type: "Neg".to_owned(),
        ..Default::default()
    });
    let twisted = save(dir.path(), "twisted.onnx", &graph.to_bytes());
    let refused = syncline(&["model", "check", &twisted, "--ready"]);
    assert!(refused.err.contains("[E245]") && refused.err.contains("fc2.bias"), "{}", refused.err);
    assert!(!refused.err.contains("fc2.weight"), "{}", refused.err);
}

#[test]
fn show_says_what_is_trained_and_what_has_no_gradient() {
    let dir = folder();
    let mut graph = GraphBuilder::new("odd");
    let x = graph.input("x", ElementType::F32, &["batch".into(), 2.into()]);
    let w = graph.weight("w", &[2, 2], &[0.5; 4]);
    let mask = graph.weight("mask", &[1, 2], &[0.0, f32::NEG_INFINITY]);
    let y = graph.op("MatMul", &[&x, &w], &[]);
    let y = graph.op("Add", &[&y, &mask], &[]);
    let y = graph.op("Det", &[&y], &[]);
    graph.output(&y);
    let model = save(dir.path(), "odd.onnx", &graph.finish().to_bytes());
    let shown = syncline(&["model", "show", &model, "--json"]).ok().json();
    assert_eq!((&shown["parameter_count"], &shown["trained_count"]), (&6.into(), &4.into()));
    assert_eq!(shown["parameters"][0]["trained"], "yes");
    assert_eq!(shown["parameters"][1]["trained"], "holds numbers of a mask");
    assert_eq!(shown["without_gradient"], serde_json::json!({ "Det": "no gradient rule" }));
    let text = syncline(&["model", "show", &model]).ok().out;
    assert!(text.contains("no gradient rule: Det"), "{text}");
}

#[test]
fn show_has_the_other_names_of_a_tied_weight_and_gradients_in_the_shapes_of_their_parameters() {
    let dir = folder();
    let tied = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/eval_form/tied.dynamo.onnx");
    let tied = tied.to_str().unwrap();
    let shown = syncline(&["model", "show", tied, "--json"]).ok().json();
    assert_eq!(shown["parameters"][1]["name"], "second.weight");
    assert_eq!(shown["parameters"][1]["other_names"], serde_json::json!(["first.weight"]));
    let text = syncline(&["model", "show", tied]).ok().out;
    assert!(text.contains("\nsecond.weight (also first.weight)  float32"), "{text}");

    let out = dir.path().join("train.onnx");
    let (out, freeze) = (out.to_str().unwrap(), ["--freeze", "first.weight"]);
    let write = ["model", "train-graph", tied, "--loss", "mse", "--out", out, "--json"];
    let written = syncline(&[&write[..], &freeze].concat()).ok().json();
    assert_eq!(written["parameters"], serde_json::json!(["first.bias", "second.bias"]));
    let shown = syncline(&["model", "show", out, "--json"]).ok().json();
    let outputs = shown["outputs"].as_array().unwrap();
    let gradient = serde_json::json!({ "name": "second.bias.grad", "type": "float32 [36]" });
    assert!(outputs.contains(&gradient), "{shown:#}");
}

/// A model of which PyTorch trains a part, exported by the exporter that notes nothing, and the list of that
/// part.
fn partly_frozen() -> [String; 2] {
    ["frozen.script.onnx", "frozen.txt"].map(|name| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../autodiff/tests/selection").join(name);
        path.to_str().unwrap().to_owned()
    })
}

#[test]
fn what_is_doubtful_is_said_wherever_a_model_is_looked_at_and_a_list_settles_it() {
    let dir = folder();
    let [model, list] = partly_frozen();
    let out = dir.path().join("train.onnx");
    let out = out.to_str().unwrap();
    let loss = ["--loss", "softmax-cross-entropy"];
    let commands: [Vec<&str>; 3] = [
        vec!["model", "show", &model],
        [&["model", "check", &model, "--batch", "2"][..], &loss].concat(),
        [&["model", "train-graph", &model, "--force", "--out", out][..], &loss].concat(),
    ];
    let settled = "what settles it: in Python ";
    let doubt = "warning: `channel_scale` is not trained: it does not have a parameter's name";
    for command in &commands {
        let ended = syncline(command).ok();
        let said = ended.out + &ended.err;
        assert!(said.contains(doubt) && said.contains(settled), "{command:?}: {said}");
        let ended = syncline(&[command, &["--params", &list][..]].concat()).ok();
        assert!(!(ended.out + &ended.err).contains("warning"), "{command:?} --params");
    }
    let shown = syncline(&["model", "show", &model, "--params", &list, "--json"]).ok().json();
    let trained = |name: &str| {
        let rows = shown["parameters"].as_array().unwrap();
        rows.iter().find(|row| row["name"] == name).unwrap()["trained"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        (trained("stem.0.weight"), trained("head.bias")),
        ("not among those to train".into(), "yes".into())
    );

    let wrong = save(dir.path(), "wrong.txt", b"head.bias\nmodule.head.weight\n");
    for command in &commands {
        let refused = syncline(&[command, &["--params", &wrong][..]].concat()).refused(2, "E260");
        assert!(refused.err.contains("`module.head.weight` (near: `head.weight`"), "{}", refused.err);
    }
}

#[test]
fn a_snapshot_goes_back_into_the_forward_model_and_replaces_a_file_by_force_only() {
    let dir = folder();
    let forward = mlp(&[2, 2], 1);
    let model = save(dir.path(), "m.onnx", &forward.to_bytes());
    let numbers: Vec<u8> = [1.0f32, 2.0, 3.0, 4.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![2, 2], &numbers).unwrap();
    let snapshot = safetensors::serialize([("fc1.weight", view)], None).unwrap();
    let snapshot = save(dir.path(), "s.safetensors", &snapshot);
    let out = dir.path().join("out.onnx");
    let out = out.to_str().unwrap();
    let args = ["model", "export", "--snapshot", &snapshot, "--model", &model, out];
    syncline(&args).ok();
    let trained = onnx::parse(&fs::read(out).unwrap()).unwrap().graph.unwrap();
    assert_eq!(trained.initializer[0].to_f32().unwrap(), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(trained.node, forward.graph.unwrap().node);

    let other = save(dir.path(), "other.onnx", &mlp(&[3, 2], 1).to_bytes());
    let args = ["model", "export", "--snapshot", &snapshot, "--model", &other, out];
    let written = fs::read(out).unwrap();
    syncline(&args).refused(2, "E536");
    syncline(&[&args[..], &["--force"]].concat()).refused(2, "E247");
    assert_eq!(fs::read(out).unwrap(), written);
    let args = ["model", "export", "--force", "--snapshot", &snapshot, "--model", &model, out];
    syncline(&args).ok();
}

#[test]
fn refusals_name_what_is_wrong() {
    let dir = folder();
    let model = save(dir.path(), "m.onnx", &mlp(&[4, 5, 3], 1).to_bytes());
    let out = dir.path().join("t.onnx");
    let out = out.to_str().unwrap();
    let nowhere = dir.path().join("no/such/folder/t.onnx");
    let nowhere = nowhere.to_str().unwrap();
    #[rustfmt::skip]
    let cases: [(&str, &[&str]); 8] = [
        ("E319", &["train-graph", &model, "--loss", "hinge", "--out", out]),
        ("E241", &["train-graph", &model, "--loss", "mse", "--label-smoothing", "0.1", "--out", out]),
        ("E317", &["train-graph", &model, "--loss", "mse", "--freeze", "conv*", "--out", out]),
        ("E317", &["train-graph", "--eval-mode=fc1.*", &model, "--loss", "mse", "--out", out]),
        ("E313", &["train-graph", &model, "--loss", "mse", "--output", "nobody", "--out", out]),
        ("E316", &["train-graph", &model, "--loss", "mse", "--label", "x", "--out", out]),
        ("E244", &["train-graph", &model, "--loss", "mse", "--out", nowhere]),
        ("E500", &["export", "--model", &model, out]),
    ];
    for (code, args) in cases {
        let args: Vec<&str> = ["model"].iter().chain(args).copied().collect();
        syncline(&args).refused(2, code);
    }
    assert!(!Path::new(out).exists());
}

#[test]
fn all_of_a_model_or_a_part_of_it_trains_as_it_evaluates() {
    let dir = folder();
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../autodiff/tests/eval_parts/script.onnx");
    let moving = |flags: &[&str]| -> Vec<String> {
        let out = dir.path().join("t.onnx");
        let rest = [model, "--loss", "softmax-cross-entropy", "--force", "--out", out.to_str().unwrap()];
        syncline(&[&["model", "train-graph"], flags, &rest].concat()).ok();
        let graph = syncline_onnx::parse(&fs::read(out).unwrap()).unwrap().graph.unwrap();
        graph.output.into_iter().map(|output| output.name).filter(|name| name.ends_with(".new")).collect()
    };
    let (body, head) = (
        ["body.1.running_mean.new", "body.1.running_var.new"],
        ["head.2.running_mean.new", "head.2.running_var.new"],
    );
    #[rustfmt::skip]
    let cases: [(&[&str], Vec<&str>); 5] = [
        (&[],                                         [body, head].concat()),
        (&["--eval-mode=body.*"],                     head.to_vec()),
        (&["--eval-mode=body.1", "--eval-mode=head.*"], Vec::new()),
        (&["--eval-mode"],                            Vec::new()),
        (&["--eval-mode=true"],                       Vec::new()),
    ];
    for (flags, want) in cases {
        assert_eq!(moving(flags), want, "{flags:?}");
    }
}

#[test]
fn a_library_that_is_named_without_its_folder_is_left_to_the_dynamic_loader() {
    let dir = folder();
    let model = save(dir.path(), "m.onnx", &mlp(&[4, 3], 1).to_bytes());
    let library = syncline_kit::onnxruntime(&|line| eprintln!("{line}")).unwrap().path;
    let check = |name: &std::ffi::OsStr| {
        let mut check = command(&["model", "check", &model, "--loss", "softmax-cross-entropy"]);
        check.env("ORT_DYLIB_PATH", name).env("LD_LIBRARY_PATH", library.parent().unwrap());
        Ended::from(check.current_dir(dir.path()).output().unwrap())
    };
    check(library.file_name().unwrap()).ok();
    assert_ne!(check("libnowhere.so".as_ref()).code, 0);
}

#[test]
fn onnx_runtime_collects_nothing_about_this_machine() {
    let (home, dir) = (folder(), folder());
    let model = save(dir.path(), "m.onnx", &mlp(&[4, 3], 1).to_bytes());
    let library = syncline_kit::onnxruntime(&|line| eprintln!("{line}")).unwrap().path;
    let mut check = command(&["model", "check", &model, "--loss", "softmax-cross-entropy"]);
    check.env("HOME", home.path()).env("ORT_DYLIB_PATH", library);
    check.env_remove("XDG_CACHE_HOME").env_remove("ORT_DISABLE_TELEMETRY");
    assert!(check.output().unwrap().status.success());
    let left: Vec<_> = fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.is_empty(), "{left:?}");
}
