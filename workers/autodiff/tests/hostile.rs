//! Hostile models: whatever a file holds, a training graph or an error comes back.
//!
//! The fuzz targets in `fuzz/` do the same for as long as one likes; here every seed is damaged a few times
//! in each run of the suite, and what they have found stays as a case of its own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

#[path = "support/hostile.rs"]
mod hostile;
#[path = "support/mutation.rs"]
mod mutation;
#[path = "../../tests/support/onnxruntime.rs"]
mod onnxruntime;

use std::fs;
use std::path::{Path, PathBuf};

use syncline_autodiff::{AutodiffError, DeriveOptions, Loss, derive};
use syncline_onnx::proto::{AttributeProto, NodeProto, TensorProto};
use syncline_onnx::{ElementType, GraphBuilder, ModelProto, SplitMix64, attr_int, attr_ints, attr_string};

/// Damages of each seed that are read, and those of which a training graph is derived.
const READS: usize = 60;
const TRANSFORMS: usize = 2;

fn seeds() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 100);
    files
}

/// What the damages depend on; the environment may name another number.
fn seed() -> u64 {
    let named = std::env::var("SYNCLINE_FUZZ_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = named.unwrap_or(1);
    eprintln!("SYNCLINE_FUZZ_SEED={seed} repeats this run");
    seed
}

#[test]
fn no_damaged_file_ends_the_process_that_reads_it() {
    let mut random = SplitMix64::new(seed());
    for file in seeds() {
        let bytes = fs::read(&file).unwrap();
        hostile::load(&bytes);
        for _ in 0..READS {
            hostile::load(&mutation::damaged(&bytes, &mut random));
        }
    }
}

#[test]
fn no_damaged_model_ends_the_process_that_derives_from_it() {
    let runtime = onnxruntime::runtime();
    let mut random = SplitMix64::new(seed());
    for file in seeds() {
        let bytes = fs::read(&file).unwrap();
        // If the process ends here, this names what did it.
        eprintln!("{}", file.file_name().unwrap().display());
        hostile::transform(&runtime, &bytes);
        for _ in 0..TRANSFORMS {
            hostile::transform(&runtime, &mutation::damaged(&bytes, &mut random));
        }
    }
}

fn refused(model: &ModelProto) -> AutodiffError {
    derive(&onnxruntime::runtime(), &model.to_bytes(), Loss::MeanSquaredError, &DeriveOptions::default())
        .unwrap_err()
}

/// x [batch, 3, 4] plus a weight, then what `then` makes of it.
fn model(then: impl FnOnce(&mut GraphBuilder, String) -> String) -> ModelProto {
    let mut graph = GraphBuilder::new("hostile").with_opset(18);
    let x = graph.input("x", ElementType::F32, &["batch".into(), 3.into(), 4.into()]);
    let w = graph.weight("w", &[3, 4], &[0.5; 12]);
    let sum = graph.op("Add", &[&x, &w], &[]);
    let y = then(&mut graph, sum);
    graph.output(&y);
    graph.finish()
}

/// The node `y` of a model.
fn node(model: &mut ModelProto) -> &mut NodeProto {
    model.graph.as_mut().unwrap().node.iter_mut().find(|node| node.name == "y").unwrap()
}

#[test]
fn a_node_that_would_end_the_process_is_refused_before_onnx_runtime_sees_it() {
    let mut split = model(|graph, x| {
        graph.named("y", "Split", &[&x], &[attr_int("axis", 2), attr_int("num_outputs", 2)])
    });
    node(&mut split).output.extend(["y1".to_owned(), "y2".to_owned()]);
    let one_hot = model(|graph, x| {
        let best = graph.op("ArgMax", &[&x], &[]);
        let depth = graph.ints("depth", &[]);
        let values = graph.weight("values", &[2], &[0.0, 1.0]);
        graph.named("y", "OneHot", &[&best, &depth, &values], &[])
    });
    let parts = model(|graph, x| {
        let length = graph.constant(TensorProto::from_i64("length", &[], &[0]));
        let parts = graph.named("y", "SplitToSequence", &[&x, &length], &[]);
        let first = graph.constant(TensorProto::from_i64("first", &[], &[0]));
        graph.op("SequenceAt", &[&parts, &first], &[])
    });
    let quotient = |op: &'static str| {
        model(move |graph, x| {
            let (least, divisor) = (graph.ints("least", &[i64::MIN]), graph.ints("divisor", &[-1]));
            let quotient = graph.named("y", op, &[&least, &divisor], &[]);
            let quotient = graph.op("Cast", &[&quotient], &[attr_int("to", 1)]);
            graph.op("Add", &[&x, &quotient], &[])
        })
    };
    let mut attention = model(|graph, x| {
        let heads = [attr_int("q_num_heads", 2), attr_int("kv_num_heads", 0)];
        graph.named("y", "Attention", &[&x, &x, &x], &heads)
    });
    attention.opset_import[0].version = 23;
    let einsum = {
        let mut graph = GraphBuilder::new("einsum");
        let x = graph.input("x", ElementType::F32, &[2.into(), 3.into(), 4.into()]);
        let w = graph.weight("w", &[1, 1, 3, 4], &[0.5; 12]);
        let y = graph.named("y", "Einsum", &[&x, &w], &[attr_string("equation", "...i,...i->...")]);
        graph.output(&y);
        graph.finish()
    };
    let gather = model(|graph, x| {
        let at = graph.constant(TensorProto::from_i64("at", &[1, 1], &[0]));
        graph.named("y", "GatherND", &[&x, &at], &[attr_int("batch_dims", -(1 << 31))])
    });
    let constant = model(|graph, x| {
        let axis = graph.named("y", "Constant", &[], &[attr_int("axis", 0)]);
        graph.op("Add", &[&x, &axis], &[])
    });
    let cases = [
        ("Split", split),
        ("OneHot", one_hot),
        ("SplitToSequence", parts),
        ("Div", quotient("Div")),
        ("Mod", quotient("Mod")),
        ("Attention", attention),
        ("Einsum", einsum),
        ("Constant", constant),
        ("GatherND", gather),
    ];
    for (name, model) in cases {
        let error = refused(&model);
        assert_eq!(error.code(), "E251", "{name}: {error}");
        assert!(error.to_string().contains(&format!("node `y` ({name})")), "{error}");
    }
}

#[test]
fn an_output_of_negative_size_is_an_error() {
    let mut graph = GraphBuilder::new("small");
    let x = graph.input("x", ElementType::F32, &["batch".into(), 1.into(), 2.into(), 2.into()]);
    let w = graph.weight("w", &[1, 1, 5, 5], &[0.1; 25]);
    let y = graph.named("y", "Conv", &[&x, &w], &[]);
    graph.output(&y);
    assert_eq!(refused(&graph.finish()).code(), "E323");
}

#[test]
fn shapes_that_do_not_fit_each_other_are_refused_by_the_parameters_name() {
    // The scale has the shape of the normalized axes; ONNX Runtime's shape inference does not look.
    let mut graph = GraphBuilder::new("unfit");
    let x = graph.input("x", ElementType::F32, &["batch".into(), 3.into(), 2.into()]);
    let scale = graph.weight("scale", &[3, 5], &[0.5; 15]);
    let y = graph.op("LayerNormalization", &[&x, &scale], &[]);
    graph.output(&y);
    let error = refused(&graph.finish());
    assert_eq!(error.code(), "E250", "{error}");
    assert!(error.to_string().contains("`scale.grad`"), "{error}");
}

#[test]
fn statistics_that_do_not_fit_their_channels_are_refused_by_name() {
    let mut graph = GraphBuilder::new("unfit").with_opset(13);
    let x = graph.input("x", ElementType::F32, &["batch".into(), 3.into(), 2.into()]);
    let (scale, bias) = (graph.weight("scale", &[3], &[0.5; 3]), graph.weight("bias", &[3], &[0.0; 3]));
    let (mean, variance) = (graph.weight("mean", &[], &[0.1]), graph.weight("variance", &[3], &[1.0; 3]));
    let y = graph.op("BatchNormalization", &[&x, &scale, &bias, &mean, &variance], &[]);
    graph.output(&y);
    let error = refused(&graph.finish());
    assert!(error.code() == "E250" && error.to_string().contains("`mean.new`"), "{error}");
}

#[test]
fn absurd_numbers_are_refused_by_the_nodes_name() {
    let huge = |attribute: AttributeProto| {
        let mut graph = GraphBuilder::new("huge");
        let x = graph.input("x", ElementType::F32, &["batch".into(), 1.into(), 8.into(), 8.into()]);
        let w = graph.weight("w", &[1, 1, 1, 1], &[0.1]);
        let scaled = graph.op("Conv", &[&x, &w], &[]);
        let fixed = attr_ints("kernel_shape", &[2, 2]);
        let attributes =
            if attribute.name == "kernel_shape" { vec![attribute] } else { vec![fixed, attribute] };
        let y = graph.named("y", "AveragePool", &[&scaled], &attributes);
        graph.output(&y);
        graph.finish()
    };
    let million = 1 << 20;
    #[rustfmt::skip]
    let cases = [
        ("far pads",      "E311", huge(attr_ints("pads", &[0, 0, i64::MAX, 0]))),
        ("long strides",  "E311", huge(attr_ints("strides", &[1 << 40, 1]))),
        ("wide kernel",   "E311", huge(attr_ints("kernel_shape", &[i64::MIN, 1]))),
        ("huge input",    "E248", model(|graph, x| {
            let y = graph.input("y", ElementType::F32, &["batch".into(), million.into(), million.into(), 4.into()]);
            graph.op("Add", &[&x, &y], &[])
        })),
        ("huge result",   "E248", model(|graph, x| {
            let column = graph.weight("column", &[1 << 20, 1, 1, 1, 1], &[0.0; 1 << 20]);
            let row = graph.weight("row", &[1 << 20, 1, 1, 1], &[0.0; 1 << 20]);
            let wide = graph.op("Add", &[&x, &row], &[]);
            graph.named("y", "Add", &[&wide, &column], &[])
        })),
    ];
    for (name, code, model) in cases {
        let error = refused(&model);
        assert_eq!(error.code(), code, "{name}: {error}");
        assert!(error.to_string().contains("`y`"), "{name}: {error}");
    }
}

#[test]
fn convolutions_without_a_kernel_or_a_group_are_refused() {
    let conv = |op: &'static str, weights: &[usize], group: i64| {
        let mut graph = GraphBuilder::new("conv");
        // Without known channels ONNX Runtime cannot tell that the weights do not fit.
        let x = graph.input("x", ElementType::F32, &["batch".into(), "n".into(), 4.into(), 4.into()]);
        let w = graph.weight("w", weights, &vec![0.5; weights.iter().product()]);
        let y = graph.op(op, &[&x, &w], &[attr_int("group", group), attr_ints("kernel_shape", &[1, 1])]);
        graph.output(&y);
        refused(&graph.finish())
    };
    for op in ["Conv", "ConvTranspose"] {
        for (weights, group) in [(&[4][..], 1), (&[4, 4], 1), (&[2, 2, 1, 1], 0), (&[2, 2, 1, 1], i64::MIN)] {
            let error = conv(op, weights, group);
            assert!(
                ["E251", "E311", "E314", "E323"].contains(&error.code()),
                "{op} {weights:?} {group}: {error}"
            );
        }
    }
}

#[test]
fn a_number_of_groups_channels_or_positions_is_no_size_of_a_constant() {
    let norm = |op: &'static str, channels: usize, attributes: &[AttributeProto]| {
        let mut graph = GraphBuilder::new("norm").with_opset(21);
        let x = graph.input("x", ElementType::F32, &["batch".into(), channels.into(), 2.into()]);
        let w = graph.weight("w", &[1], &[0.5]);
        let scaled = graph.op("Mul", &[&x, &w], &[]);
        let names: &[&str] = if op == "GroupNormalization" { &["a", "b"] } else { &["a", "b", "c", "d"] };
        let held: Vec<String> =
            names.iter().map(|name| graph.input(name, ElementType::F32, &[channels.into()])).collect();
        let inputs: Vec<&str> =
            [scaled.as_str()].into_iter().chain(held.iter().map(String::as_str)).collect();
        let y = graph.op(op, &inputs, attributes);
        graph.output(&y);
        graph.finish().to_bytes()
    };
    let pooled = {
        let mut graph = GraphBuilder::new("pool");
        let x = graph.input(
            "x",
            ElementType::F32,
            &["batch".into(), 1.into(), (1 << 19).into(), (1 << 19).into()],
        );
        let w = graph.weight("w", &[1], &[0.5]);
        let scaled = graph.op("Mul", &[&x, &w], &[]);
        let y = graph.op("AveragePool", &[&scaled], &[attr_ints("kernel_shape", &[3, 3])]);
        graph.output(&y);
        graph.finish().to_bytes()
    };
    #[rustfmt::skip]
    let cases = [
        norm("GroupNormalization", 4, &[attr_int("num_groups", i64::MAX)]),
        norm("GroupNormalization", 4, &[attr_int("num_groups", 1 << 40)]),
        norm("BatchNormalization", 1 << 38, &[]),
        pooled,
    ];
    for model in cases {
        // Whether they are refused or not, nothing of that size is made.
        let _ = derive(&onnxruntime::runtime(), &model, Loss::MeanSquaredError, &DeriveOptions::default());
    }
}

#[test]
fn constants_that_double_until_no_machine_holds_them_are_not_folded() {
    // 30 nodes that each put a constant beside itself.
    let model = model(|graph, x| {
        let mut value = graph.constant(TensorProto::from_f32("c", &[1, 1, 4], &[0.0; 4]));
        for _ in 0..30 {
            value = graph.op("Concat", &[&value, &value], &[attr_int("axis", 0)]);
        }
        let total = graph.op("ReduceMax", &[&value], &[attr_int("keepdims", 0)]);
        graph.named("y", "Add", &[&x, &total], &[])
    });
    // Whether it is refused or not, this machine survives it.
    let _ =
        derive(&onnxruntime::runtime(), &model.to_bytes(), Loss::MeanSquaredError, &DeriveOptions::default());
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
    let peak = peak.and_then(|kib| kib.parse::<u64>().ok());
    assert!(peak.is_none_or(|kib| kib < 3 << 20), "{peak:?} KiB were in use");
}

#[test]
fn an_attribute_of_the_wrong_kind_is_no_reason_to_panic() {
    for attribute in [attr_string("axis", "2"), attr_ints("axis", &[]), AttributeProto::default()] {
        let model = model(|graph, x| graph.named("y", "Softmax", &[&x], &[attribute]));
        let _ = derive(
            &onnxruntime::runtime(),
            &model.to_bytes(),
            Loss::MeanSquaredError,
            &DeriveOptions::default(),
        );
    }
}
