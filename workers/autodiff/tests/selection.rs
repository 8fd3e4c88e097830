//! Which weights are trained, which output the loss looks at, and what is refused on the way between them.

use syncline_autodiff::{AutodiffError, DeriveOptions, Loss, NORMALIZED_BY, TrainingGraph, derive, select};
use syncline_onnx::proto::{
    AttributeProto, GraphProto, NodeProto, StringStringEntryProto, TensorProto, ValueInfoProto,
};
use syncline_onnx::{ElementType, GraphBuilder, ModelProto, attr_int, mlp};

use crate::onnxruntime;

fn derived(model: &ModelProto, options: &DeriveOptions) -> Result<TrainingGraph, AutodiffError> {
    derive(&onnxruntime::runtime(), &model.to_bytes(), Loss::MeanSquaredError, options)
}

fn names(graph: &TrainingGraph) -> Vec<&str> {
    graph.params.iter().map(|param| param.name.as_str()).collect()
}

#[test]
fn patterns_freeze_and_choose_weights() {
    let model = mlp(&[2, 3, 3, 2], 1);
    let with = |freeze: &[&str], train: Option<&[&str]>| DeriveOptions {
        freeze: freeze.iter().map(|&name| name.to_owned()).collect(),
        train: train.map(|names| names.iter().map(|&name| name.to_owned()).collect()),
        ..DeriveOptions::default()
    };
    #[rustfmt::skip]
    let cases: [(&[&str], Option<&[&str]>, &[&str]); 5] = [
        (&["*.bias"],          None,                &["fc1.weight", "fc2.weight", "fc3.weight"]),
        (&["fc1*", "fc3.bias"],None,                &["fc2.weight", "fc2.bias", "fc3.weight"]),
        (&[],                  Some(&["fc2.*"]),    &["fc2.weight", "fc2.bias"]),
        (&["*weight"],         Some(&["fc2.*"]),    &["fc2.bias"]),
        (&[],                  Some(&["*"]),        &["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias", "fc3.weight", "fc3.bias"]),
    ];
    for (freeze, train, want) in cases {
        let graph = derived(&model, &with(freeze, train)).unwrap();
        assert_eq!(names(&graph), want, "freeze {freeze:?}, train {train:?}");
        let inner = syncline_onnx::parse(&graph.train_onnx).unwrap().graph.unwrap();
        assert!(inner.initializer.iter().all(|tensor| !want.contains(&tensor.name.as_str())));
    }
    let error = derived(&model, &with(&["*"], None)).unwrap_err();
    assert_eq!(error.code(), "E315");
    assert!(error.to_string().ends_with("the settings freeze all 6"), "{error}");
    assert!(error.hint().unwrap().contains("`freeze`"), "{error}");
    let unknown = |pattern: &str| derived(&model, &with(&[pattern], None)).unwrap_err().to_string();
    let first = "it has `fc1.weight`, `fc1.bias`, `fc2.weight`, `fc2.bias`, `fc3.weight` and 1 more";
    assert_eq!(unknown("conv*"), format!("[E317] model has no float32 weight `conv*` ({first})"));
    let near = unknown("fc1.wieght");
    assert!(
        near.starts_with("[E317] model has no float32 weight `fc1.wieght` (near: `fc1.weight`"),
        "{near}"
    );
}

#[test]
fn weights_of_16_bits_that_are_to_train_are_refused_with_what_to_do() {
    let mut model = mlp(&[2, 3, 2], 1);
    for tensor in &mut model.graph.as_mut().unwrap().initializer {
        let numbers = tensor.shape().iter().product::<usize>();
        tensor.data_type = ElementType::Bf16.code();
        tensor.raw_data = Some(vec![0; 2 * numbers]);
    }
    let listed = DeriveOptions {
        params: Some(vec!["fc1.weight".to_owned(), "fc1.bias".to_owned()]),
        ..DeriveOptions::default()
    };
    #[rustfmt::skip]
    let cases = [
        (DeriveOptions::default(), "E315", "left alone: `fc1.weight` (a weight that is not float32) and 3 more"),
        (listed,                   "E260", "names `fc1.weight` and 1 more, which is bfloat16: only float32 is trained"),
    ];
    for (options, code, words) in cases {
        let error = derived(&model, &options).unwrap_err();
        assert_eq!(error.code(), code);
        assert!(error.to_string().contains(words), "{error}");
        assert!(error.hint().unwrap().starts_with("export model.float()"), "{:?}", error.hint());
    }
}

#[test]
fn constants_that_are_no_weights_are_left_alone() {
    let mut graph = GraphBuilder::new("constants");
    let x = graph.input("x", ElementType::F32, &["batch".into(), 2.into()]);
    let w = graph.weight("w", &[2, 2], &[1.0; 4]);
    let mask = graph.weight("mask", &[2], &[0.0, f32::NEG_INFINITY]);
    graph.weight("diverged", &[2], &[0.0, f32::NAN]);
    let mean = graph.weight("mean", &[2], &[0.0; 2]);
    let bound = graph.weight("bound", &[2], &[0.5; 2]);
    graph.weight("scalar", &[], &[2.0]);
    graph.weight("unused", &[2], &[0.0; 2]);
    graph.ints("shape", &[2]);
    let ones = graph.weight("scale", &[2], &[1.0; 2]);
    let h = graph.op("MatMul", &[&x, &w], &[]);
    let h = graph.op("Add", &[&h, &mask], &[]);
    let h = graph.op("BatchNormalization", &[&h, &ones, &ones, &mean, &mean], &[]);
    let above = graph.op("Greater", &[&h, &bound], &[]);
    let y = graph.op("Where", &[&above, &h, &x], &[]);
    graph.output(&y);
    let reason = |name: &str| {
        let selected = select(&graph_of(&graph), &DeriveOptions::default()).unwrap();
        selected.into_iter().find(|weight| weight.name == name).unwrap().reason
    };
    for name in ["w", "scale", "unused"] {
        assert_eq!(reason(name), None, "{name}");
    }
    assert!(reason("mean").is_some(), "a running statistic is no weight");
    assert_eq!(reason("bound"), Some("read only where no gradient flows"));
    assert_eq!(reason("mask"), Some("holds numbers of a mask"));
    assert_eq!(reason("diverged"), Some("holds NaN"));
    assert_eq!(reason("scalar"), Some("a single number"));
    assert_eq!(reason("shape"), Some("not float32"));
}

#[test]
fn what_normalizes_the_inputs_does_not_train_unless_a_list_names_it() {
    let mut model = mlp(&[2, 3, 2], 1);
    let (key, value) = (NORMALIZED_BY.to_owned(), "fc1.bias\nof another model".to_owned());
    model.metadata_props.push(StringStringEntryProto { key, value });
    let of_bias = |options: &DeriveOptions| {
        let selected = select(&model, options).unwrap();
        selected
            .into_iter()
            .find(|weight| weight.name == "fc1.bias")
            .map(|weight| (weight.reason, weight.doubtful))
    };
    assert_eq!(of_bias(&DeriveOptions::default()), Some((Some("normalizes an input"), false)));
    let names = || Some(vec!["fc1.bias".to_owned()]);
    for named in [
        DeriveOptions { params: names(), ..DeriveOptions::default() },
        DeriveOptions { train: names(), ..DeriveOptions::default() },
    ] {
        assert_eq!(of_bias(&named), Some((None, false)));
    }
}

fn graph_of(builder: &GraphBuilder) -> ModelProto {
    builder.clone().finish()
}

#[test]
fn the_loss_looks_at_the_first_float_output_and_inputs_may_be_many() {
    let mut graph = GraphBuilder::new("many");
    let x = graph.input("x", ElementType::F32, &["batch".into(), 2.into()]);
    let z = graph.input("z", ElementType::F32, &["batch".into(), 2.into()]);
    let w = graph.weight("w", &[2, 2], &[0.5; 4]);
    let h = graph.op("MatMul", &[&x, &w], &[]);
    let h = graph.op("Add", &[&h, &z], &[]);
    let best = graph.op("ArgMax", &[&h], &[attr_int("axis", 1)]);
    graph.output(&best);
    graph.output(&h);
    let graph = derived(&graph.finish(), &DeriveOptions::default()).unwrap();
    let inputs: Vec<&str> = graph.data_inputs.iter().map(|io| io.name.as_str()).collect();
    assert_eq!(inputs, ["x", "z"]);
    assert_eq!(graph.label.unwrap().dims, ["batch".into(), 2.into()]);
    assert_eq!(graph.forward_outputs.len(), 2);
}

#[test]
fn the_label_takes_the_name_that_is_asked_for_unless_it_is_taken() {
    let named = |label: &str| {
        let options = DeriveOptions { label: label.to_owned(), ..DeriveOptions::default() };
        derived(&mlp(&[2, 2], 1), &options)
    };
    let graph = named("target").unwrap();
    assert_eq!(graph.label.unwrap().name, "target");
    for taken in ["x", "logits", "fc1.weight", "loss", "fc1.weight.grad", ""] {
        assert_eq!(named(taken).unwrap_err().code(), "E316", "{taken}");
    }
}

/// x [2] -> op -> y, where op is control flow whose branches compute x * w.
fn branches(op: &str) -> ModelProto {
    let mut graph = GraphBuilder::new("control");
    let x = graph.input("x", ElementType::F32, &[2.into()]);
    graph.weight("w", &[2], &[1.0, 2.0]);
    let condition = graph.input("condition", ElementType::Bool, &[]);
    let _ = x;
    let y = graph.named("choice", op, &[&condition], &[]);
    graph.output(&y);
    let mut model = graph.finish();
    let branch = |output: &str| GraphProto {
        name: output.to_owned(),
        node: vec![NodeProto {
            op_type: "Mul".to_owned(),
            input: vec!["x".to_owned(), "w".to_owned()],
            output: vec![output.to_owned()],
            ..Default::default()
        }],
        output: vec![ValueInfoProto::untyped(output.to_owned())],
        ..Default::default()
    };
    for (name, output) in [("then_branch", "a"), ("else_branch", "b")] {
        let attribute =
            AttributeProto { name: name.to_owned(), g: Some(branch(output)), kind: 5, ..Default::default() };
        model.graph.as_mut().unwrap().node[0].attribute.push(attribute);
    }
    model
}

#[test]
fn control_flow_on_the_way_is_refused_even_if_the_weight_is_only_inside() {
    let error = derived(&branches("If"), &DeriveOptions::default()).unwrap_err();
    assert_eq!(error.code(), "E311", "{error}");
    assert!(error.to_string().contains("If (node `choice`)") && error.to_string().contains("control flow"));
}

#[test]
fn a_split_into_a_sequence_is_a_split() {
    let mut graph = GraphBuilder::new("sequence");
    let x = graph.input("x", ElementType::F32, &["batch".into(), 2.into()]);
    let lengths = graph.constant(TensorProto::from_i64("lengths", &[2], &[1, 1]));
    let w = graph.weight("w", &[1, 3], &[0.5; 3]);
    let parts = graph.op("SplitToSequence", &[&x, &lengths], &[attr_int("axis", 1)]);
    let second = graph.constant(TensorProto::from_i64("second", &[], &[1]));
    let part = graph.op("SequenceAt", &[&parts, &second], &[]);
    let y = graph.op("MatMul", &[&part, &w], &[]);
    graph.output(&y);
    let graph = derived(&graph.finish(), &DeriveOptions::default()).unwrap();
    let graph = syncline_onnx::parse(&graph.train_onnx).unwrap().graph.unwrap();
    assert!(graph.node.iter().any(|node| node.op_type == "Split"));
    assert!(graph.node.iter().all(|node| !node.op_type.contains("Sequence")));
}

/// y = clip(x w, 0, alpha), with what PyTorch's exporter of today notes of `alpha`.
fn bounded(kind: &str) -> ModelProto {
    let mut graph = GraphBuilder::new("bounded");
    let x = graph.input("x", ElementType::F32, &["batch".into(), 2.into()]);
    let w = graph.weight("w", &[2, 2], &[0.5, 1.0, -1.0, 2.0]);
    let low = graph.weight("low", &[], &[0.0]);
    let alpha = graph.weight("alpha", &[], &[1.0]);
    let h = graph.op("MatMul", &[&x, &w], &[]);
    let y = graph.op("Clip", &[&h, &low, &alpha], &[]);
    graph.output(&y);
    let mut model = graph.finish();
    let note = |name: &str, kind: &str| ValueInfoProto {
        metadata_props: vec![StringStringEntryProto {
            key: "pkg.torch.export.graph_signature.InputSpec.kind".to_owned(),
            value: kind.to_owned(),
        }],
        ..ValueInfoProto::untyped(name)
    };
    model.graph.as_mut().unwrap().value_info = vec![note("w", "PARAMETER"), note("alpha", kind)];
    model
}

#[test]
fn a_bound_that_the_exporter_calls_a_parameter_is_trained() {
    #[rustfmt::skip]
    let cases: [(&str, &[&str]); 3] = [
        ("PARAMETER",       &["w", "alpha"]),
        ("BUFFER",          &["w"]),
        ("CONSTANT_TENSOR", &["w"]),
    ];
    for (kind, want) in cases {
        let graph = derived(&bounded(kind), &DeriveOptions::default()).unwrap();
        assert_eq!(names(&graph), want, "{kind}");
        assert!(graph.unreached.is_empty(), "{kind}: {:?}", graph.unreached);
    }
}
