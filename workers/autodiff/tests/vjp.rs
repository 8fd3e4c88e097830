//! Every gradient rule against finite differences, over a table of shapes and attributes.

use std::path::Path;

use syncline_autodiff::{DeriveOptions, Loss, supported_operators};
use syncline_onnx::proto::AttributeProto;
use syncline_onnx::{ElementType, GraphBuilder, ModelProto, SplitMix64, attr_float, attr_int};

use crate::broadcasts::BROADCASTS;
use crate::gradcheck::Check;
use crate::onnxruntime;

/// One operator whose inputs are all parameters of the given shapes.
fn all_params(op: &str, shapes: &[&[usize]], attributes: &[AttributeProto]) -> ModelProto {
    let mut graph = GraphBuilder::new(op);
    let mut random = SplitMix64::new(11);
    let mut inputs = Vec::new();
    for (index, shape) in shapes.iter().enumerate() {
        let data = numbers(&mut random, shape);
        inputs.push(graph.weight(&format!("p{index}"), shape, &data));
    }
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    let y = graph.named("y", op, &inputs, attributes);
    graph.output(&y);
    graph.finish()
}

/// Between 0.1 and 1 in size, so that no Relu stands at its kink.
fn numbers(random: &mut SplitMix64, shape: &[usize]) -> Vec<f32> {
    let mut one = || {
        let size = 0.1 + 0.9 * random.uniform() as f32;
        if random.next_u64() & 1 == 0 { size } else { -size }
    };
    (0..shape.iter().product()).map(|_| one()).collect()
}

/// Derives with and without simplification, all parameters trained, and checks each.
fn check(name: &str, model: &ModelProto, batches: &[&[(&str, &[usize])]]) {
    let runtime = onnxruntime::runtime();
    let graph = model.graph.as_ref().expect("a graph");
    let floats = graph.initializer.iter().filter(|tensor| tensor.element() == ElementType::F32);
    let train: Vec<String> = floats.map(|tensor| tensor.name.clone()).collect();
    for simplify in [false, true] {
        let options = DeriveOptions { train: Some(train.clone()), simplify, ..DeriveOptions::default() };
        let check = Check { runtime: &runtime, model, loss: Loss::MeanSquaredError, options, seed: 5 };
        let graph = check.at(batches).unwrap_or_else(|why| panic!("{name}, simplify {simplify}: {why}"));
        assert_eq!(graph.params.len(), train.len(), "{name}");
    }
}

#[test]
fn gemm() {
    let biases: [Option<&[usize]>; 6] =
        [None, Some(&[]), Some(&[2]), Some(&[1, 2]), Some(&[4, 1]), Some(&[4, 2])];
    for (trans_a, trans_b) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        for bias in biases {
            for (alpha, beta) in [(1.0, 1.0), (0.5, -2.0)] {
                let a: &[usize] = if trans_a == 1 { &[3, 4] } else { &[4, 3] };
                let b: &[usize] = if trans_b == 1 { &[2, 3] } else { &[3, 2] };
                let shapes: Vec<&[usize]> = [a, b].into_iter().chain(bias).collect();
                let attributes = [
                    attr_int("transA", trans_a),
                    attr_int("transB", trans_b),
                    attr_float("alpha", alpha),
                    attr_float("beta", beta),
                ];
                let name = format!("gemm {trans_a}{trans_b} {bias:?} {alpha} {beta}");
                check(&name, &all_params("Gemm", &shapes, &attributes), &[&[]]);
            }
        }
    }
}

#[test]
fn matmul() {
    #[rustfmt::skip]
    let cases: [(&[usize], &[usize]); 11] = [
        (&[2, 3],       &[3, 4]),
        (&[3],          &[3, 4]),
        (&[2, 3],       &[3]),
        (&[2, 2, 3],    &[3, 4]),
        (&[2, 2, 3],    &[2, 3, 4]),
        (&[2, 3],       &[2, 3, 4]),
        (&[1, 2, 3],    &[4, 3, 2]),
        (&[2, 1, 2, 3], &[3, 3, 2]),
        (&[2, 2, 3],    &[3]),
        (&[3],          &[2, 3, 4]),
        (&[1, 3],       &[3, 1]),
    ];
    for (a, b) in cases {
        check(&format!("matmul {a:?} {b:?}"), &all_params("MatMul", &[a, b], &[]), &[&[]]);
    }
}

#[test]
fn matmul_of_two_vectors() {
    let mut graph = GraphBuilder::new("dot");
    let a = graph.weight("a", &[3], &[0.5, -1.0, 2.0]);
    let b = graph.weight("b", &[3], &[1.5, 0.3, -0.7]);
    let c = graph.weight("c", &[2], &[1.0, -2.0]);
    let dot = graph.op("MatMul", &[&a, &b], &[]);
    let y = graph.named("y", "Mul", &[&dot, &c], &[]);
    graph.output(&y);
    check("dot", &graph.finish(), &[&[]]);
}

#[test]
fn broadcasting() {
    for op in ["Add", "Sub", "Mul"] {
        for (a, b) in BROADCASTS {
            check(&format!("{op} {a:?} {b:?}"), &all_params(op, &[a, b], &[]), &[&[]]);
        }
    }
}

#[test]
fn one_parameter_on_both_sides() {
    for op in ["Add", "Sub", "Mul"] {
        let mut graph = GraphBuilder::new(op);
        let p = graph.weight("p", &[2, 2], &[0.5, -1.0, 2.0, 0.25]);
        let y = graph.named("y", op, &[&p, &p], &[]);
        graph.output(&y);
        check(op, &graph.finish(), &[&[]]);
    }
}

#[test]
fn element_by_element() {
    for op in ["Relu", "Sigmoid", "Tanh", "Identity"] {
        check(op, &all_params(op, &[&[3, 4]], &[]), &[&[]]);
        check(op, &all_params(op, &[&[2, 1, 3]], &[]), &[&[]]);
    }
}

#[test]
fn softmax() {
    for axis in [-3, -1, 0, 1, 2] {
        let model = all_params("Softmax", &[&[2, 3, 4]], &[attr_int("axis", axis)]);
        check(&format!("softmax {axis}"), &model, &[&[]]);
    }
    check("softmax default", &all_params("Softmax", &[&[2, 3]], &[]), &[&[]]);
}

#[test]
fn flatten() {
    for axis in [0, 1, 2, 3, -1] {
        let model = all_params("Flatten", &[&[2, 3, 2]], &[attr_int("axis", axis)]);
        check(&format!("flatten {axis}"), &model, &[&[]]);
    }
}

/// y = op(x * w) for a data input with open dimensions.
fn behind_input(dims: &[&str], sizes: &[usize], op: &str, extra: Option<&[i64]>) -> ModelProto {
    let mut graph = GraphBuilder::new(op);
    let dims: Vec<_> =
        dims.iter().map(|&name| name.into()).chain(sizes.iter().map(|&size| size.into())).collect();
    let x = graph.input("x", ElementType::F32, &dims);
    let w = graph.weight("w", sizes, &numbers(&mut SplitMix64::new(3), sizes));
    let scaled = graph.op("Mul", &[&x, &w], &[]);
    let shape = extra.map(|target| graph.ints("target", target));
    let inputs: Vec<&str> = [scaled.as_str()].into_iter().chain(shape.as_deref()).collect();
    let y = graph.named("y", op, &inputs, &[]);
    graph.output(&y);
    graph.finish()
}

#[test]
fn reshape_of_open_batches() {
    for target in [&[0, -1][..], &[-1, 2], &[-1], &[0, 3, 2], &[2, -1]] {
        let model = behind_input(&["batch"], &[2, 3], "Reshape", Some(target));
        check(&format!("reshape {target:?}"), &model, &[&[("x", &[2, 2, 3])], &[("x", &[4, 2, 3])]]);
    }
    let two_open = behind_input(&["batch", "time"], &[3], "Reshape", Some(&[-1, 3]));
    check("reshape of two open axes", &two_open, &[&[("x", &[2, 5, 3])], &[("x", &[4, 1, 3])]]);
}

#[test]
fn flatten_and_softmax_of_open_batches() {
    for op in ["Flatten", "Softmax", "Relu", "Sigmoid", "Tanh"] {
        let model = behind_input(&["batch"], &[2, 3], op, None);
        check(op, &model, &[&[("x", &[2, 2, 3])], &[("x", &[5, 2, 3])]]);
    }
}

#[test]
fn broadcasting_that_only_the_run_can_see() {
    for op in ["Add", "Sub", "Mul"] {
        let mut graph = GraphBuilder::new(op);
        let x = graph.input("x", ElementType::F32, &["rows".into(), "columns".into()]);
        let z = graph.input("z", ElementType::F32, &["planes".into(), "lines".into(), "fields".into()]);
        let v = graph.weight("v", &[1], &[0.7]);
        let w = graph.weight("w", &[1, 1, 1], &[-1.3]);
        let (left, right) = (graph.op("Mul", &[&x, &v], &[]), graph.op("Mul", &[&z, &w], &[]));
        // Softmax mixes elements: a gradient that is summed too late would be wrong behind it.
        let (left, right) =
            (graph.op("Softmax", &[&left], &[attr_int("axis", 0)]), graph.op("Softmax", &[&right], &[]));
        let product = graph.op(op, &[&left, &right], &[]);
        let y = graph.named("y", "Flatten", &[&product], &[attr_int("axis", 0)]);
        graph.output(&y);
        let model = graph.finish();
        check(
            op,
            &model,
            &[
                &[("x", &[3, 4]), ("z", &[2, 3, 4])],
                &[("x", &[1, 4]), ("z", &[2, 3, 1])],
                &[("x", &[3, 1]), ("z", &[1, 1, 4])],
                &[("x", &[3, 4]), ("z", &[1, 1, 1])],
            ],
        );
    }
}

#[test]
fn batched_matmul_of_open_batches() {
    let mut graph = GraphBuilder::new("attention");
    let x = graph.input("x", ElementType::F32, &["batch".into(), "time".into(), 3.into()]);
    let mut random = SplitMix64::new(8);
    let q = graph.weight("q", &[3, 2], &numbers(&mut random, &[3, 2]));
    let k = graph.weight("k", &[3, 2], &numbers(&mut random, &[3, 2]));
    let o = graph.weight("o", &[3], &numbers(&mut random, &[3]));
    let (queries, keys) = (graph.op("MatMul", &[&x, &q], &[]), graph.op("MatMul", &[&x, &k], &[]));
    let product = graph.op("Mul", &[&queries, &keys], &[]);
    let weights = graph.op("Softmax", &[&product], &[attr_int("axis", 1)]);
    let scaled = graph.op("Mul", &[&x, &o], &[]);
    let turned = graph.transpose(&x, &[0, 2, 1]);
    let mixed = graph.op("MatMul", &[&turned, &weights], &[]);
    let y = graph.named("y", "MatMul", &[&scaled, &mixed], &[]);
    graph.output(&y);
    let model = graph.finish();
    check("attention", &model, &[&[("x", &[2, 4, 3])], &[("x", &[3, 1, 3])]]);
}

#[test]
fn every_rule_is_named_in_a_table_of_these_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let tables = files.filter(|path| path.to_string_lossy().contains("/vjp"));
    let text: String = tables.map(|path| std::fs::read_to_string(path).unwrap()).collect();
    for op in supported_operators() {
        assert!(text.contains(&format!("\"{op}\"")), "{op} has a rule, but no row in tests/vjp*.rs");
    }
}
