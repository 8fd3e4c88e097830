//! What trains in another way than it evaluates, inside of functions and branches of the model: in a function
//! it trains as it would outside, and where that cannot be, it is refused by name.

use syncline_autodiff::{AutodiffError, DeriveOptions, EvalMode, Loss, TrainingGraph, derive};
use syncline_onnx::proto::{
    AttributeProto, FunctionProto, GraphProto, NodeProto, OperatorSetIdProto, TensorProto, ValueInfoProto,
};
use syncline_onnx::{ElementType, GraphBuilder, ModelProto, attr_float, attr_graph};
use syncline_runtime::TensorView::F32;
use syncline_runtime::{ExecOptions, Executable};

use crate::onnxruntime;

const OPSET: i64 = 18;
const INNER: [&str; 5] = ["h", "scale", "bias", "mean", "variance"];

/// y = dropout(norm(x + w)), ten features.
fn flat() -> ModelProto {
    let mut graph = GraphBuilder::new("norm and dropout").with_opset(OPSET);
    let x = graph.input("x", ElementType::F32, &["batch".into(), 10.into()]);
    let w = graph.weight("w", &[10], &[0.5; 10]);
    for (name, number) in [("scale", 1.5), ("bias", 3.0), ("mean", 0.5), ("variance", 2.0)] {
        graph.weight(name, &[10], &[number; 10]);
    }
    let ratio = graph.constant(TensorProto::from_f32("ratio", &[], &[0.25]));
    graph.named("h", "Add", &[&x, &w], &[]);
    let n = graph.named("n", "BatchNormalization", &INNER, &[attr_float("momentum", 0.6)]);
    let y = graph.named("y", "Dropout", &[&n, &ratio], &[]);
    graph.output(&y);
    graph.finish()
}

/// The same with the last two nodes in a function, which gets the momentum as an attribute.
fn with_function(opset: i64) -> ModelProto {
    let mut model = flat();
    model.opset_import.push(OperatorSetIdProto { domain: "own".to_owned(), version: 1 });
    let graph = model.graph.as_mut().unwrap();
    let mut body = graph.node.split_off(1);
    body[0].attribute =
        vec![AttributeProto { ref_attr_name: "kept".to_owned(), ..attr_float("momentum", 0.0) }];
    let inputs = INNER.iter().chain(&["ratio"]).copied();
    let call = NodeProto {
        domain: "own".to_owned(),
        ..NodeProto::named("y", "Block", &inputs.clone().collect::<Vec<_>>(), &[attr_float("kept", 0.6)])
    };
    graph.node.push(call);
    model.functions.push(FunctionProto {
        name: "Block".to_owned(),
        domain: "own".to_owned(),
        input: inputs.map(str::to_owned).collect(),
        output: vec!["y".to_owned()],
        attribute: vec!["kept".to_owned()],
        node: body,
        opset_import: vec![OperatorSetIdProto { domain: String::new(), version: opset }],
        ..FunctionProto::default()
    });
    model
}

fn tried(model: &ModelProto, options: &DeriveOptions) -> Result<TrainingGraph, AutodiffError> {
    derive(&onnxruntime::runtime(), &model.to_bytes(), Loss::MeanSquaredError, options)
}

/// Everything that a step gives, by name.
fn step(graph: &TrainingGraph) -> Vec<(String, Vec<f32>)> {
    let mut session =
        Executable::new(&onnxruntime::runtime(), &graph.train_onnx, &ExecOptions::default()).unwrap();
    let (shape, x): (_, Vec<f32>) = ([4, 10], (0..40u16).map(|at| f32::from(at * at % 17)).collect());
    let label = [0.0; 40];
    let mut views =
        vec![("x", F32 { shape: &shape, data: &x }), ("label", F32 { shape: &shape, data: &label })];
    let held = graph.params.iter().chain(&graph.state);
    views.extend(held.map(|p| (p.name.as_str(), F32 { shape: &p.shape, data: &p.initial })));
    let outputs = session.run(&views).unwrap();
    let names = ["loss", "y", "w.grad", "scale.grad", "bias.grad", "mean.new", "variance.new"];
    names.map(|name| (name.to_owned(), outputs.f32(name).unwrap().to_vec())).to_vec()
}

#[test]
fn a_function_trains_as_its_nodes_would() {
    let flat = step(&tried(&flat(), &DeriveOptions::default()).unwrap());
    let dropped = flat[1].1.iter().filter(|y| **y == 0.0).count();
    assert!((1..30).contains(&dropped), "{dropped} of 40 dropped");
    let graph = tried(&with_function(OPSET), &DeriveOptions::default()).unwrap();
    assert_eq!(graph.params.iter().map(|param| &param.name).collect::<Vec<_>>(), ["w", "scale", "bias"]);
    assert_eq!(step(&graph), flat);
}

#[test]
fn nodes_of_functions_need_no_names_and_may_have_those_of_others() {
    let tanh = |node: &str, from: &str, to: &str| NodeProto {
        name: node.to_owned(),
        output: vec![to.to_owned()],
        ..NodeProto::named("", "Tanh", &[from], &[])
    };
    for (node, calls) in
        [("", ["", ""]), ("", ["one", "one"]), ("inner", ["", ""]), ("inner", ["one", "one"])]
    {
        let mut graph = GraphBuilder::new("names").with_opset(OPSET);
        let x = graph.input("x", ElementType::F32, &["batch".into(), 10.into()]);
        let w = graph.weight("w", &[10], &[0.5; 10]);
        graph.named("h", "Add", &[&x, &w], &[]);
        graph.output("y");
        let mut model = graph.finish();
        model.opset_import.push(OperatorSetIdProto { domain: "own".to_owned(), version: 1 });
        model.functions.push(FunctionProto {
            name: "Twice".to_owned(),
            domain: "own".to_owned(),
            input: vec!["a".to_owned()],
            output: vec!["c".to_owned()],
            node: vec![tanh(node, "a", "b"), tanh(node, "b", "c")],
            opset_import: vec![OperatorSetIdProto { domain: String::new(), version: OPSET }],
            ..FunctionProto::default()
        });
        for (name, from, to) in [(calls[0], "h", "m"), (calls[1], "m", "y")] {
            model.graph.as_mut().unwrap().node.push(NodeProto {
                domain: "own".to_owned(),
                op_type: "Twice".to_owned(),
                ..tanh(name, from, to)
            });
        }
        tried(&model, &DeriveOptions::default())
            .unwrap_or_else(|error| panic!("`{node}`, {calls:?}: {error}"));
    }
}

#[test]
fn a_function_for_other_operators_that_would_only_evaluate_is_refused_unless_that_is_asked_for() {
    let model = with_function(OPSET - 1);
    let error = tried(&model, &DeriveOptions::default()).unwrap_err().to_string();
    assert!(error.starts_with("[E311]") && error.contains("BatchNormalization (node `n`)"), "{error}");
    assert!(error.contains("another version of the operators") && error.contains("eval_mode"), "{error}");
    tried(&model, &DeriveOptions { eval_mode: EvalMode::Whole, ..DeriveOptions::default() }).unwrap();
}

/// y = (norm(x) if the largest x is positive, else x) + w: no gradient flows through the branch.
fn with_branch(op: &str, inputs: &[&str]) -> ModelProto {
    let mut graph = GraphBuilder::new("branch").with_opset(OPSET);
    let x = graph.input("x", ElementType::F32, &["batch".into(), 10.into()]);
    let w = graph.weight("w", &[10], &[0.5; 10]);
    let ones = |name: &str| TensorProto::from_f32(name, &[10], &[1.0; 10]);
    for name in ["scale", "bias", "mean", "variance"] {
        graph.constant(ones(name));
    }
    let zero = graph.constant(TensorProto::from_f32("zero", &[], &[0.0]));
    let largest = graph.op("ReduceMax", &[&x], &[syncline_onnx::attr_int("keepdims", 0)]);
    let positive = graph.op("Greater", &[&largest, &zero], &[]);
    let branch = |name: &str, node: NodeProto| GraphProto {
        name: name.to_owned(),
        output: vec![ValueInfoProto { name: node.output[0].clone(), ..graph_output() }],
        node: vec![node],
        ..GraphProto::default()
    };
    let yes = branch("yes", NodeProto::named("inside", op, inputs, &[]));
    let no = branch("no", NodeProto::named("outside", "Identity", &["x"], &[]));
    let chosen =
        graph.op("If", &[&positive], &[attr_graph("then_branch", yes), attr_graph("else_branch", no)]);
    let y = graph.op("Add", &[&chosen, &w], &[]);
    graph.output(&y);
    graph.finish()
}

fn graph_output() -> ValueInfoProto {
    let dims = vec!["batch".into(), 10.into()];
    syncline_onnx::TensorType::new(ElementType::F32, dims).to_value_info("")
}

#[test]
fn what_would_only_evaluate_inside_of_a_branch_is_refused_unless_that_is_asked_for() {
    let norm = ["x", "scale", "bias", "mean", "variance"];
    let trains = DeriveOptions { train: Some(vec!["w".to_owned()]), ..DeriveOptions::default() };
    for (op, inputs) in [("BatchNormalization", &norm[..]), ("Dropout", &["x"][..])] {
        let model = with_branch(op, inputs);
        let error = tried(&model, &trains).unwrap_err().to_string();
        assert!(error.starts_with("[E311]") && error.contains(&format!("{op} (node `inside`)")), "{error}");
        assert!(error.contains("If, Loop or Scan"), "{error}");
        tried(&model, &DeriveOptions { eval_mode: EvalMode::Whole, ..trains.clone() }).unwrap();
    }
    tried(&with_branch("Neg", &["x"]), &trains).unwrap();
}
