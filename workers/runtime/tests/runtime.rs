//! ONNX Runtime behind `workers::backend`: runs, types, and every refusal.

#[path = "../../tests/support/onnxruntime.rs"]
mod onnxruntime;

use std::path::Path;

use syncline_onnx::{Compiler, Dim, ElementType, GraphBuilder, ModelProto, infer_types, mlp};
use syncline_runtime::{BackendError, ExecOptions, Executable, Runtime, TensorView};

/// total = a + b, and the shape of a.
fn adder() -> ModelProto {
    let mut graph = GraphBuilder::new("adder");
    let a = graph.input("a", ElementType::F32, &["rows".into(), 2.into()]);
    let b = graph.input("b", ElementType::F32, &[2.into()]);
    graph.named("total", "Add", &[&a, &b], &[]);
    graph.named("shape", "Shape", &[&a], &[]);
    graph.output("total");
    graph.output("shape");
    graph.finish()
}

fn executable() -> Executable {
    Executable::new(&onnxruntime::runtime(), &adder().to_bytes(), &ExecOptions::default())
        .expect("a good model")
}

/// Name of the case, inputs, how the message begins.
type Refusal<'a> = (&'a str, Vec<(&'a str, TensorView<'a>)>, &'a str);

const A: TensorView<'static> = TensorView::F32 { shape: &[3, 2], data: &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0] };
const B: TensorView<'static> = TensorView::F32 { shape: &[2], data: &[10.0, 20.0] };

#[test]
fn inputs_are_found_by_name_in_any_order() {
    let mut executable = executable();
    for inputs in [[("a", A), ("b", B)], [("b", B), ("a", A)]] {
        let outputs = executable.run(&inputs).unwrap();
        assert_eq!(outputs.f32("total").unwrap(), [11.0, 22.0, 13.0, 24.0, 15.0, 26.0]);
        assert_eq!(outputs.f32_at(0).unwrap().len(), 6);
        assert_eq!(outputs.i64("shape").unwrap(), [3, 2]);
        assert_eq!(outputs.shape("total").unwrap(), [3, 2]);
    }
    assert_eq!(executable.output_names(), ["total", "shape"]);
}

#[test]
fn one_executable_runs_many_shapes() {
    let mut executable = executable();
    for rows in [1, 7, 2, 64] {
        let data = vec![1.0; rows * 2];
        let a = TensorView::F32 { shape: &[rows, 2], data: &data };
        assert_eq!(executable.run(&[("a", a), ("b", B)]).unwrap().shape("total").unwrap(), [rows, 2]);
    }
}

#[test]
fn wrong_inputs_are_refused_by_name() {
    let mut executable = executable();
    let short = TensorView::F32 { shape: &[3, 2], data: &[1.0] };
    let wide = TensorView::F32 { shape: &[1, 3], data: &[1.0; 3] };
    let ints = TensorView::I64 { shape: &[2], data: &[1, 2] };
    let huge = TensorView::F32 { shape: &[usize::MAX, 2], data: &[] };
    #[rustfmt::skip]
    let cases: [Refusal<'_>; 8] = [
        ("missing",         vec![("a", A)],                         "[E325] input `b` was given 0 times"),
        ("twice",           vec![("a", A), ("b", B), ("b", B)],     "[E325] input `b` was given 2 times"),
        ("unknown",         vec![("a", A), ("b", B), ("c", B)],     "[E324] model has no input `c`, its inputs are a, b"),
        ("too few numbers", vec![("a", short), ("b", B)],           "[E326] input `a` has 1 elements, its shape [3, 2] needs another number"),
        ("overflow",        vec![("a", huge), ("b", B)],            "[E326] input `a` has 0 elements"),
        ("other shape",     vec![("a", wide), ("b", B)],            "[E327] onnx runtime failed to run the model"),
        ("other type",      vec![("a", A), ("b", ints)],            "[E327] onnx runtime failed to run the model"),
        ("nothing",         vec![],                                 "[E325] input `a` was given 0 times"),
    ];
    for (name, inputs, message) in cases {
        let error = executable.run(&inputs).unwrap_err().to_string();
        assert!(error.starts_with(message), "{name}: {error}");
    }
    assert!(executable.run(&[("a", A), ("b", B)]).is_ok(), "still usable after refusals");
}

#[test]
fn wrong_outputs_are_refused_by_name() {
    let mut executable = executable();
    let outputs = executable.run(&[("a", A), ("b", B)]).unwrap();
    assert_eq!(outputs.f32("nobody").unwrap_err().code(), "E328");
    assert_eq!(outputs.f32("").unwrap_err().code(), "E328");
    assert_eq!(outputs.f32_at(2).unwrap_err().code(), "E328");
    assert_eq!(outputs.f32("shape").unwrap_err().code(), "E329");
    assert_eq!(outputs.scalar("total").unwrap_err().code(), "E329");
}

#[test]
fn bad_models_are_refused() {
    let runtime = onnxruntime::runtime();
    let new = |bytes: &[u8]| Executable::new(&runtime, bytes, &ExecOptions::default()).unwrap_err();
    assert_eq!(new(b"garbage").code(), "E302");
    let mut unknown = adder();
    unknown.graph.as_mut().unwrap().node[0].op_type = "NoSuchOperator".into();
    assert_eq!(new(&unknown.to_bytes()).code(), "E323");
    let mut external = mlp(&[2, 2], 1);
    external.graph.as_mut().unwrap().initializer[0].data_location = 1;
    assert_eq!(new(&external.to_bytes()).code(), "E307", "a model must not read files");
}

#[test]
fn a_model_in_a_type_that_no_cpu_computes_is_refused_with_what_to_do() {
    let mut graph = GraphBuilder::new("bfloat16");
    let x = graph.input("x", ElementType::Bf16, &["batch".into(), 3.into()]);
    let y = graph.op("Erf", &[&x], &[]);
    graph.output(&y);
    let bytes = graph.finish().to_bytes();
    let error = Executable::new(&onnxruntime::runtime(), &bytes, &ExecOptions::default()).unwrap_err();
    assert_eq!(error.code(), "E323");
    assert!(error.hint().unwrap().ends_with("export model.float()"), "{error}");
}

#[test]
fn the_library_is_loaded_once_per_process() {
    let runtime = onnxruntime::runtime();
    assert_eq!(Runtime::load(runtime.path()).unwrap().path(), runtime.path());
    let missing = Runtime::load(Path::new("/nowhere/libonnxruntime.so")).unwrap_err();
    assert_eq!(missing.to_string(), "[E320] no ONNX Runtime library at /nowhere/libonnxruntime.so");
    assert!(missing.hint().unwrap().contains("ORT_DYLIB_PATH"));
    let other = tempfile::NamedTempFile::new().unwrap();
    assert!(matches!(Runtime::load(other.path()).unwrap_err(), BackendError::AlreadyLoaded { .. }));
}

#[test]
fn types_of_every_value_are_inferred() {
    let types = infer_types(&onnxruntime::runtime(), &mlp(&[4, 3, 2], 1).to_bytes()).unwrap();
    let dims = |name: &str| types[name].dims.clone();
    assert_eq!(dims("fc1"), [Dim::from("batch"), Dim::from(3)]);
    assert_eq!(dims("relu1"), [Dim::from("batch"), Dim::from(3)]);
    assert_eq!(dims("fc2.weight"), [Dim::from(3), Dim::from(2)]);
    assert_eq!(types["x"].element, ElementType::F32);
}

#[test]
fn a_value_with_an_unknown_number_of_axes_is_no_scalar() {
    let mut graph = GraphBuilder::new("unranked").with_opset(18);
    let x = graph.input("x", ElementType::F32, &[2.into(), 3.into()]);
    let axes = graph.input("axes", ElementType::I64, &["n".into()]);
    graph.named("unranked", "ReduceSum", &[&x, &axes], &[syncline_onnx::attr_int("keepdims", 0)]);
    graph.named("scalar", "ReduceSum", &[&x], &[syncline_onnx::attr_int("keepdims", 0)]);
    graph.output("unranked");
    graph.output("scalar");
    let types = infer_types(&onnxruntime::runtime(), &graph.finish().to_bytes()).unwrap();
    assert!(!types.contains_key("unranked"));
    assert_eq!(types["scalar"].dims, []);
}

#[test]
fn simplifying_folds_constants_and_keeps_the_interface() {
    let mut graph = GraphBuilder::new("fold");
    let x = graph.input("x", ElementType::F32, &["batch".into(), 6.into()]);
    let (a, b) = (graph.ints("a", &[-1]), graph.ints("b", &[3, 2]));
    let target = graph.op("Concat", &[&a, &b], &[syncline_onnx::attr_int("axis", 0)]);
    let copy = graph.op("Identity", &[&x], &[]);
    let y = graph.named("y", "Reshape", &[&copy, &target], &[]);
    graph.output(&y);
    let simple = onnxruntime::runtime().simplify(&graph.finish().to_bytes()).unwrap();
    let graph = syncline_onnx::parse(&simple).unwrap().graph.unwrap();
    let ops: Vec<&str> = graph.node.iter().map(|node| node.op_type.as_str()).collect();
    assert_eq!(ops, ["Reshape"]);
    assert_eq!((graph.input[0].name.as_str(), graph.output[0].name.as_str()), ("x", "y"));
}

#[test]
fn sums_by_index_are_whole_on_any_number_of_threads() {
    const UPDATES: usize = 100_000;
    // As rules write them, with the index on an axis of its own, and as anybody may.
    for apart in [true, false] {
        let mut graph = GraphBuilder::new("histogram");
        let zeros = graph.weight("zeros", &[2, 8, 8], &[0.0; 128]);
        let tail: &[Dim] = if apart { &[] } else { &[1.into()] };
        let mut rows = graph.input("rows", ElementType::I64, &[&["n".into()], tail].concat());
        if apart {
            let last = graph.ints("last", &[-1]);
            rows = graph.op("Unsqueeze", &[&rows, &last], &[]);
        }
        let updates = graph.input("updates", ElementType::F32, &["n".into(), 8.into(), 8.into()]);
        let add = [syncline_onnx::attr_string("reduction", "add")];
        let total = graph.named("total", "ScatterND", &[&zeros, &rows, &updates], &add);
        graph.output(&total);
        let options = ExecOptions { intra_threads: 4, ..ExecOptions::default() };
        let bytes = graph.finish().to_bytes();
        let mut executable = Executable::new(&onnxruntime::runtime(), &bytes, &options).unwrap();
        let rows: Vec<i64> = (0..UPDATES as i64).map(|update| update % 2).collect();
        let updates = vec![1.0; UPDATES * 64];
        let shape: &[usize] = if apart { &[UPDATES] } else { &[UPDATES, 1] };
        let inputs = [
            ("rows", TensorView::I64 { shape, data: &rows }),
            ("updates", TensorView::F32 { shape: &[UPDATES, 8, 8], data: &updates }),
        ];
        for _ in 0..3 {
            let outputs = executable.run(&inputs).unwrap();
            assert_eq!(outputs.shape("total").unwrap(), [2, 8, 8]);
            assert!(outputs.f32("total").unwrap().iter().all(|sum| *sum == UPDATES as f32 / 2.0));
        }
    }
}

#[test]
fn executables_run_on_threads_of_their_own() {
    let runtime = onnxruntime::runtime();
    let bytes = adder().to_bytes();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut executable = Executable::new(&runtime, &bytes, &ExecOptions::default()).unwrap();
                for _ in 0..50 {
                    assert_eq!(executable.run(&[("a", A), ("b", B)]).unwrap().f32("total").unwrap()[0], 11.0);
                }
            });
        }
    });
}
